//! Names of locks: the symbol of a global one, else what the input calls it, else its first call site, with the member of its
//! object that it is, where that is known; equal names are numbered by first use.

use super::calling;
use super::divide::top_stack;
use super::gather::Gathered;
use super::kernel;
use super::place::Places;
use super::sleepers;
use crate::id::{Lock, Process};
use lockbpf_common::gil;
use lockbpf_common::kind::Via;
use std::collections::{BTreeMap, HashMap};

/// Names everything that was gathered, so that a name does not depend on what else is shown.
pub(super) fn names(all: &BTreeMap<Lock, Gathered<'_>>, places: &mut Places<'_>) -> HashMap<Lock, String> {
    let mut by_first_use: Vec<(u64, Lock)> = all.iter().map(|(&lock, g)| (g.first().0, lock)).collect();
    by_first_use.sort_unstable();
    let mut uses: HashMap<(Process, String), u32> = HashMap::new();
    let mut names = HashMap::with_capacity(all.len());
    let interpreters = interpreters(all);
    for (_, lock) in by_first_use {
        let Some(gathered) = all.get(&lock) else { continue };
        let owner = if lock.is_kernel() { kernel::owner(lock, gathered, all) } else { None };
        let name = match interpreters.get(&lock).copied().map(str::to_owned) {
            Some(name) => name,
            None => match owner.and_then(|owner| Some((owner, all.get(&owner)?))) {
                Some((owner, whole)) => format!("{}.wait_lock", base(owner, whole, places)),
                None => base(lock, gathered, places),
            },
        };
        let nth = uses.entry((lock.process, name.clone())).or_default();
        *nth += 1;
        names.insert(lock, if *nth == 1 { name } else { format!("{name} #{nth}") });
    }
    names
}

/// The lock of each process's Python interpreter, with what it is made of, which debug information would name by members.
fn interpreters(all: &BTreeMap<Lock, Gathered<'_>>) -> HashMap<Lock, &'static str> {
    let locks = all.iter().filter(|(_, g)| g.mutex.iter().any(|s| s.via == Via::Gil)).map(|(&lock, _)| lock);
    let parts = |lock: Lock| {
        let at = |offset| Lock { addr: lock.addr.wrapping_add(offset), ..lock };
        [
            (lock, gil::NAME),
            (at(gil::CONDITION), "Python GIL, condition"),
            (at(gil::SWITCH_CONDITION), "Python GIL, forced switch"),
            (at(gil::SWITCH_MUTEX), "Python GIL, mutex of forced switches"),
        ]
    };
    locks.flat_map(parts).collect()
}

fn base(lock: Lock, gathered: &Gathered<'_>, places: &mut Places<'_>) -> String {
    if lock.is_others() {
        return others(gathered, places);
    }
    if lock.is_kernel() {
        return kernel::name(lock, gathered, places);
    }
    // In it libstdc++ has words for all variables that threads wait for.
    let symbol = places.global(lock).filter(|symbol| !symbol.contains("std::__detail::__waiter_pool"));
    // A place is no variable.
    let symbol = symbol.filter(|_| gathered.place.is_none());
    let own = sleepers::name(lock, gathered, places);
    if let Some(own) = own.filter(|own| sleepers::names(own)) {
        return symbol.map_or_else(|| own.to_owned(), |symbol| format!("{own} ({symbol})"));
    }
    if let Some(symbol) = symbol {
        return symbol;
    }
    if let Some(id) = places.own_id(lock) {
        return id;
    }
    let what = match gathered {
        g if g.is_lock() => "lock",
        g if g.is_inferred_lock() => own.map_or("lock", sleepers::what),
        g if !g.permits.is_empty() => sleepers::SEMAPHORE,
        g if g.is_condition() => "condition",
        _ => "futex",
    };
    match gathered.first().1 {
        Some(site) => {
            let member = if what == "lock" { places.member(site) } else { None };
            let stack = if places.is_on_stack(lock) { "stack " } else { "" };
            let waited = gathered.blame().and_then(|s| s.waiters.iter().find(|w| w.site == Some(site)));
            let waited = waited.and_then(|w| top_stack(&w.stacks));
            // A function that takes all locks of the program tells none apart.
            let asked = waited.or_else(|| gathered.sections().find(|s| s.site == site)?.stack);
            let own = places.place(site);
            // A mutex with which a runtime parks its threads is the runtime's own, whoever is parked.
            let place = if sleepers::parks(&own.symbol) {
                own
            } else {
                let caller = asked.and_then(|asked| calling::caller(site, asked, places));
                caller.unwrap_or_else(|| places.place_of_wait(site, waited))
            };
            format!("{stack}{} in {}", member.as_deref().unwrap_or(what), place.symbol)
        }
        None => format!("{what} {:#x}", lock.addr),
    }
}

/// What the names of locks have in common that a number tells apart, such as those of a table's elements or of locks first used at one place:
/// `shard[12].lock` and `shard[7].lock` are of one series, `lock in get #2` and `lock in get`, too, `lock1` and `lock2` are not.
pub(super) fn series(name: &str) -> String {
    let base = name.split_once(" #").map_or(name, |(base, _)| base);
    if base.contains(" in ") {
        return base.to_owned();
    }
    let words = base.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_');
    let numbered = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    words.map(|word| if numbered(word) { word.trim_start_matches(char::is_alphanumeric) } else { word }).collect()
}

/// What all locks are called for which there was no room one by one.
fn others(gathered: &Gathered<'_>, places: &mut Places<'_>) -> String {
    let what = match gathered {
        g if g.is_lock() => "other locks",
        g if g.is_condition() => "other conditions",
        _ => "other futex words",
    };
    match gathered.first().1 {
        Some(site) => format!("{what} in {}", places.place(site).symbol),
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_the_locks_of_a_series_apart() {
        for name in ["shard[12].lock", "shard[0x1a].lock", "shard[7].lock #2"] {
            assert_eq!(series(name), "shard[].lock");
        }
        for place in ["lock in get (store.c:12)", "lock in memcached+0x13ca1"] {
            assert_eq!((series(&format!("{place} #3")), series(place)), (place.to_owned(), place.to_owned()));
        }
        assert_eq!((series("table+0x28").as_str(), series("lock 0x7f12").as_str()), ("table+", "lock "));
        for name in ["wal_lock", "lock1", "lock_2", ""] {
            assert_eq!(series(name), name);
        }
    }
}
