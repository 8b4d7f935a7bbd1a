//! For whom a critical section locks that has several callers: `db_lock()` takes the lock of all queries, and only the stacks tell
//! which query holds it for long.
//!
//! The callers are the functions at which the section's stacks part. What all of them go through is passed over, and so are
//! functions that lock or unlock by their names: a guard's constructor and destructor, `store_lock` around `db_lock`. A place in such a
//! function says nothing, so the report names its caller even where there is only one.

use super::gather::Gathered;
use super::place::Places;
use super::schema::{CallerEntry, CallersEntry, Place};
use super::text::share;
use crate::graph::findings::Holder;
use crate::id::{Lock, Process, Site, StackId};
use crate::units::Nanos;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Callers listed.
pub(super) const MAX: usize = 5;
/// Stacks per section that are looked at beside those of holders.
const MAX_SEEN: usize = 64;
/// Calls per stack that are looked at.
const MAX_CALLS: usize = 32;

/// First or last words in names of functions that lock or unlock for others.
const LOCKING: &[&str] = &[
    "lock", "unlock", "trylock", "mutex", "rwlock", "rdlock", "wrlock", "spinlock", "lwlock", "latch", "unlatch",
    "guard",
];
/// Last words that only tell which part of a function it is, or which kind: `qemu_mutex_lock_impl`.
const PARTS: &[&str] = &["impl", "internal", "slow", "fast", "slowpath", "fastpath", "nested", "timed"];

/// The stacks with which locks were asked for at each section, also by those who only waited.
pub(super) fn stacks(all: &BTreeMap<Lock, Gathered<'_>>) -> HashMap<Site, BTreeSet<StackId>> {
    let mut seen: HashMap<Site, BTreeSet<StackId>> = HashMap::new();
    for gathered in all.values() {
        let waiters = gathered.blame().into_iter().flat_map(|shares| &shares.waiters);
        let waited = waiters.filter_map(|waiter| Some((waiter.site?, &waiter.stacks)));
        let waited = waited.flat_map(|(site, stacks)| stacks.top().into_iter().map(move |(stack, _)| (site, stack)));
        let summed = gathered.mutex.iter().filter_map(|sums| Some((sums.site, sums.stack?)));
        for (site, stack) in waited.chain(summed) {
            let seen = seen.entry(site).or_default();
            if seen.len() < MAX_SEEN {
                seen.insert(stack);
            }
        }
    }
    seen
}

/// What holders at one section are blamed for, by the stacks with which they locked.
#[derive(Debug, Default)]
pub(super) struct Calling {
    wait: Nanos,
    stacks: BTreeMap<(Site, StackId), Nanos>,
}

impl Calling {
    /// That of one holder.
    pub(super) fn of(holder: &Holder) -> Self {
        let mut calling = Self::default();
        calling.add(holder);
        calling
    }

    /// Adds that of a holder.
    pub(super) fn add(&mut self, holder: &Holder) {
        self.wait += holder.wait;
        let Some(site) = holder.who.site().filter(|site| site.process != Process::KERNEL) else { return };
        // Stacks are charged with attempts that fail in the end, too, which are no part of the waiting.
        let (all, known) = (holder.wait.0, holder.stacks.total().time.0);
        let scale = if known > all { all as f64 / known as f64 } else { 1.0 };
        for (stack, tally) in holder.stacks.top() {
            let time = if scale < 1.0 { (tally.time.0 as f64 * scale) as u64 } else { tally.time.0 };
            *self.stacks.entry((site, stack)).or_default() += Nanos(time);
        }
    }

    /// Whether the sections' functions lock for others, by their names.
    fn only_locks(&self, places: &mut Places<'_>) -> bool {
        let sites: BTreeSet<_> = self.stacks.keys().map(|&(site, _)| site).collect();
        sites.into_iter().all(|site| places.place(site).function.is_some_and(|function| only_locks(&function)))
    }

    /// The callers, if there are several, or the section's function only locks for its caller.
    pub(super) fn callers(&self, places: &mut Places<'_>) -> Option<CallersEntry> {
        let mut stacks = self.stacks.clone();
        for site in self.stacks.keys().map(|&(site, _)| site).collect::<BTreeSet<_>>() {
            for stack in places.stacks_at(site) {
                stacks.entry((site, stack)).or_default();
            }
        }
        let mut ways = Vec::with_capacity(stacks.len());
        for ((site, stack), wait) in stacks {
            ways.push((calls(site, stack, places), wait));
        }
        let level = parting(&ways).or_else(|| self.only_locks(places).then_some(0))?;
        // By function: its waiting, and how much of that each of its places has.
        let mut callers: BTreeMap<String, (Nanos, BTreeMap<Site, Nanos>)> = BTreeMap::new();
        for (way, wait) in ways {
            if let Some(call) = way.get(level) {
                let (sum, calls) = callers.entry(call.function.clone()).or_default();
                *sum += wait;
                *calls.entry(call.site).or_default() += wait;
            }
        }
        let functions = callers.len() as u64;
        let known: Nanos = callers.values().map(|&(sum, _)| sum).sum();
        let mut most: Vec<_> = callers.into_iter().filter(|&(_, (sum, _))| sum > Nanos(0)).collect();
        most.sort_by(|(a, (x, _)), (b, (y, _))| (y, a).cmp(&(x, b)));
        let mut entries = Vec::with_capacity(MAX);
        for (_, (sum, calls)) in most.into_iter().take(MAX) {
            let site = calls.into_iter().max_by_key(|&(site, wait)| (wait, Reverse(site))).map(|(site, _)| site)?;
            entries.push(CallerEntry {
                place: places.place(site),
                wait_ns: places.ns(sum),
                share: share(sum.0, self.wait.0),
            });
        }
        (known > Nanos(0)).then(|| CallersEntry { functions, known_ns: places.ns(known), most: entries })
    }
}

/// One call on the way to a section.
#[derive(Clone, Debug)]
struct Call {
    site: Site,
    function: String,
}

/// The calls that led to a section with this stack, innermost first, without those of functions that only lock or unlock.
fn calls(site: Site, stack: StackId, places: &mut Places<'_>) -> Vec<Call> {
    let beyond = places.beyond(site, stack).into_iter().take(MAX_CALLS);
    let mut calls: Vec<_> = beyond.filter_map(|addr| call(Site { addr, ..site }, places)).collect();
    let own = calls.iter().position(|call| !only_locks(&call.function)).unwrap_or_default();
    calls.split_off(own)
}

/// The call before a return address, if it is in the program's own code.
fn call(site: Site, places: &mut Places<'_>) -> Option<Call> {
    if !places.is_program(site) {
        return None;
    }
    let Place { function, symbol, .. } = places.place(site);
    Some(Call { site, function: function.unwrap_or(symbol) })
}

/// Who called the function at a site with this stack, beyond all that only lock by their names; `None` if that function does more, or
/// its caller is not known.
pub(super) fn caller(site: Site, stack: StackId, places: &mut Places<'_>) -> Option<Place> {
    if !places.place(site).function.is_some_and(|function| only_locks(&function)) {
        return None;
    }
    // No farther than needed: this is asked for each lock.
    let mut beyond = places.beyond(site, stack).into_iter().take(MAX_CALLS);
    let call =
        beyond.find_map(|addr| call(Site { addr, ..site }, places).filter(|call| !only_locks(&call.function)))?;
    Some(places.place(call.site))
}

/// How many calls outwards the ways to a section part; `None` if they do not.
fn parting(ways: &[(Vec<Call>, Nanos)]) -> Option<usize> {
    (0..)
        .map_while(|level| {
            let functions: BTreeSet<_> =
                ways.iter().filter_map(|(way, _)| way.get(level)).map(|c| &c.function).collect();
            (!functions.is_empty()).then_some((level, functions.len()))
        })
        .find(|&(_, functions)| functions > 1)
        .map(|(level, _)| level)
}

/// Whether a function locks or unlocks for its caller, by its name: `db_lock`, `Store::unlockAll(int)`, `~ScopedLock`.
pub(super) fn only_locks(function: &str) -> bool {
    let mut depth = 0_usize;
    let mut name = String::with_capacity(function.len());
    for c in function.chars() {
        depth += usize::from(c == '<');
        if depth == 0 {
            name.push(c);
        }
        depth = depth.saturating_sub(usize::from(c == '>'));
    }
    let name = if name.ends_with(')') { name.split_once('(').map_or("", |(name, _)| name) } else { &name };
    let mut parts = name.rsplit([':', '.']).filter(|part| !part.is_empty());
    // What makes a guard is called as all of them are.
    let part = match parts.next() {
        Some("new") => parts.next(),
        part => part,
    };
    let mut words: Vec<_> = words(part.unwrap_or_default()).map(str::to_ascii_lowercase).collect();
    while words.len() > 1 && words.last().is_some_and(|word| PARTS.contains(&word.as_str())) {
        words.pop();
    }
    let is = |word: Option<&String>| word.is_some_and(|word| LOCKING.contains(&word.as_str()));
    is(words.first()) || is(words.last())
}

/// The words of a name: `scoped_lock`, `ScopedLock` and `scopedLock` have two.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty()).flat_map(|part| {
        let starts =
            part.char_indices().zip(part.chars().skip(1)).filter(|((_, a), b)| a.is_lowercase() && b.is_uppercase());
        let mut ends: Vec<usize> = starts.map(|((at, a), _)| at + a.len_utf8()).collect();
        ends.push(part.len());
        let mut from = 0;
        ends.into_iter().filter_map(move |to| part.get(std::mem::replace(&mut from, to)..to))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_only_lock_are_known_by_their_names() {
        for name in [
            "db_lock",
            "pthread_mutex_unlock",
            "Store::unlockAll(int)",
            "ScopedLock::~ScopedLock",
            "std::lock_guard<std::mutex>::lock_guard",
            "Latch<int>::lock<long>(std::unique_ptr<Row>)",
            "store.(*Store).Lock",
            "store::RowGuard::new",
            "qemu_mutex_lock_impl",
            "PyThread_acquire_lock_timed",
            "LWLockAcquire",
        ] {
            assert!(only_locks(name), "{name}");
        }
        for name in [
            "vacuum",
            "flush_locked",
            "block_until",
            "Clock::advance",
            "Registry<std::mutex>::find",
            "insert(Lock&)",
            "LockManager::scan",
            "locker",
            "acquire_connection",
            "refresh_internal",
            "impl",
            "",
        ] {
            assert!(!only_locks(name), "{name}");
        }
    }

    #[test]
    fn ways_part_where_functions_differ() {
        let way = |names: &[&str]| {
            let call = |name: &&str| Call { site: Site::default(), function: (*name).to_owned() };
            (names.iter().map(call).collect(), Nanos(1))
        };
        assert_eq!(parting(&[way(&["a", "main"]), way(&["b", "main"])]), Some(0));
        assert_eq!(parting(&[way(&["store", "a"]), way(&["store", "b"]), way(&["store"])]), Some(1));
        assert_eq!(parting(&[way(&["a", "main"]), way(&["a", "main"]), way(&[])]), None);
        assert_eq!(parting(&[way(&["a"]), way(&["a", "main"])]), None);
        assert_eq!(parting(&[]), None);
    }
}
