//! Names of locks: the symbol of a global one, else what the input calls it, else its first call site, with the member of its
//! object that it is, where that is known; equal names are numbered by first use.

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
    let symbol = places.global(lock);
    if let Some(own) = sleepers::name(lock, gathered, places).filter(|own| sleepers::names(own)) {
        return symbol.map_or_else(|| own.to_owned(), |symbol| format!("{own} ({symbol})"));
    }
    if let Some(symbol) = symbol {
        return symbol;
    }
    if let Some(id) = places.own_id(lock) {
        return id;
    }
    let what = match gathered {
        g if g.is_lock() || g.is_inferred_lock() => "lock",
        g if g.is_condition() => "condition",
        _ => "futex",
    };
    match gathered.first().1 {
        Some(site) => {
            let member = if what == "lock" { places.member(site) } else { None };
            let stack = if places.is_on_stack(lock) { "stack " } else { "" };
            let waited = gathered.blame().and_then(|s| s.waiters.iter().find(|w| w.site == Some(site)));
            let place = places.place_of_wait(site, waited.and_then(|w| top_stack(&w.stacks)));
            format!("{stack}{} in {}", member.as_deref().unwrap_or(what), place.symbol)
        }
        None => format!("{what} {:#x}", lock.addr),
    }
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
