//! Locks that programs make of condition variables: nothing names them, but threads take turns at the place where they wait.
//!
//! * **Known otherwise**: conditions that an interpreter, a machine or a library makes its own locks of.
//! * **Pools**: threads that wait for work, and wake one another for it, may take turns as well. Some are known by their functions.
//! * **Functions that wait for all of a program**: whoever calls them waits for different things.

use super::gather::{self, Gathered};
use super::place::Places;
use super::schema::{LockEntry, Ns, Report};
use super::sleepers::{self, OF_CONDITIONS};
use super::text::percent;
use crate::graph::WaitsAtPlace;
use crate::id::{Lock, Site, StackId};
use crate::inside::Insides;
use crate::methods;
use crate::observation::{Observation, OpenWait};
use crate::tally::Tally;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A function waits for one thing if one caller has at least this part of the waits in it, and of their time.
const ONE_CALLER: f64 = 0.9;
/// Parts of the names of functions in which the threads of pools wait for work, in lower case. The first two are Java's: it parks its threads there for whatever they
/// wait for, and their stacks tell which of its locks that is.
const POOLS: &[&str] = &[
    "platformevent::park",
    "parker::park",
    "rayon_core::",
    "tokio::runtime::",
    "asio::detail::",
    "__kmp_",
    "tbb::detail::",
    "threadpool",
    "thread_pool",
    "workerpool",
    "worker_pool",
    "workqueue",
    "work_queue",
];

/// Leaves out the places that are no locks, and gives the others the waits that have not ended.
pub(super) fn keep<'a>(all: &mut BTreeMap<Lock, Gathered<'a>>, observation: &'a Observation, places: &mut Places<'_>) {
    let at: Vec<Lock> = all.iter().filter(|(_, g)| g.place.is_some()).map(|(&lock, _)| lock).collect();
    if at.is_empty() {
        return;
    }
    let conditions = gather::conditions(all);
    let (kept, others): (BTreeSet<Lock>, BTreeSet<Lock>) =
        at.into_iter().partition(|&at| is_lock(at, all, &conditions, places));
    all.retain(|lock, _| !others.contains(lock));
    let words: Vec<Lock> =
        kept.iter().filter_map(|at| all.get(at)?.place).flat_map(|place| &place.words).copied().collect();
    for word in words {
        for part in std::iter::once(word).chain(conditions.lock_of(word)) {
            all.entry(part).and_modify(|g| g.of_lock = true);
        }
    }
    let at = |wait: &OpenWait| wait.site.map(Site::as_lock);
    let is_of_lock = |wait: &OpenWait| at(wait).is_some_and(|at| kept.contains(&at));
    for g in all.values_mut() {
        g.open.retain(|wait| !is_of_lock(wait));
        g.idle.retain(|wait| !is_of_lock(wait));
    }
    for wait in observation.open_waits.iter().filter(|wait| is_of_lock(wait)) {
        at(wait).and_then(|at| all.get_mut(&at)).into_iter().for_each(|g| g.open.push(wait));
    }
    // Nothing but those waits was known of some conditions.
    all.retain(|_, g| !g.is_nothing());
}

fn is_lock(at: Lock, all: &BTreeMap<Lock, Gathered<'_>>, conditions: &Insides, places: &mut Places<'_>) -> bool {
    let Some(place) = all.get(&at).and_then(|g| g.place) else { return false };
    let known = |lock: &Lock| all.get(lock).is_some_and(|g| g.is_lock() || g.is_inferred_lock());
    if place.words.iter().any(|word| known(word) || sleepers::is_interpreters(*word, places)) {
        return false;
    }
    let is_condition =
        |word: &Lock| conditions.lock_of(*word).is_some() || all.get(word).is_some_and(Gathered::is_condition);
    let stacks = stacks(place);
    let functions: Vec<Vec<String>> = stacks
        .iter()
        .map(|&(stack, _)| {
            let frames = places.off_stack(at.process, stack);
            frames.into_iter().filter_map(|frame| frame.function).collect()
        })
        .collect();
    let sleeps = |functions: &Vec<String>| sleepers::is_for_condition(functions.iter().map(String::as_str));
    if !place.words.iter().any(is_condition) && !functions.iter().any(sleeps) {
        return false;
    }
    let is_of_pool = |function: &String| {
        let function = function.to_ascii_lowercase();
        POOLS.iter().any(|part| function.contains(part))
    };
    !functions.iter().flatten().any(is_of_pool) && has_one_caller(place, &stacks, places)
}

fn stacks(place: &WaitsAtPlace) -> Vec<(StackId, Tally)> {
    place.waits.sites.iter().flat_map(|site| site.stacks.top()).collect()
}

/// Whether the function that waits does so for one thing, as far as those tell that call it: one, or its name is that of a lock's method.
fn has_one_caller(place: &WaitsAtPlace, stacks: &[(StackId, Tally)], places: &mut Places<'_>) -> bool {
    let Some(site) = place.waits.sites.iter().find_map(|waits| waits.site) else { return false };
    if places.frames_at(site).iter().filter_map(|frame| frame.function.as_deref()).any(methods::takes_a_lock) {
        return true;
    }
    let mut callers: HashMap<String, Tally> = HashMap::new();
    let mut all = Tally::default();
    for &(stack, tally) in stacks {
        let Some(&caller) = places.callers(site, Some(stack)).first() else { continue };
        let place = places.place(Site { addr: caller, ..site });
        *callers.entry(place.function.unwrap_or(place.symbol)).or_default() += tally;
        all += tally;
    }
    // By time alone, who asks for answers hides who answers: those wait less.
    let most = |of: fn(&Tally) -> u64| callers.values().map(of).max().unwrap_or(0) as f64;
    all.count == 0
        || (most(|caller| caller.count) >= ONE_CALLER * all.count as f64
            && most(|caller| caller.time.0) >= ONE_CALLER * all.time.0 as f64)
}

/// All waiting for such locks. The rows of conditions and futex words count it as well.
pub(super) fn told(report: &Report) -> Ns {
    let locks = report.locks.iter().filter(|lock| lock.kind == OF_CONDITIONS);
    locks.map(|lock| lock.wait_ns.sum).sum()
}

/// How such a lock is known, and what else it may be.
pub(super) fn sentence(lock: &LockEntry) -> Option<String> {
    Some(format!(
        "`{}` is known by its waiters only, who sleep in condition variables: {} of their waits were ended by a thread that had waited there, too, \
         and that let no other go on. If these threads hand one another work in that way, they are idle, and wait for no lock.",
        lock.label,
        percent(lock.in_turn?),
    ))
}
