//! Holders that are known by where they gave a lock back. A section begins and ends in one function, as a rule: where exactly one
//! section of that lock is known in the function, from windows, it is that one. Else all places in one function are one holder.
//!
//! A function that is left by a jump when it gives the lock back is not on the stack then. Where its caller's code does not tell what
//! was called (a pointer to a function, another library), the stacks do with which the thread left the CPU while it had the lock.
//!
//! So is who holds a lock of the kernel's: all calls in one function are one holder.

use super::gather::Gathered;
use super::place::{Places, Told};
use super::schema::Place;
use crate::graph::findings::{Holder, Shares, SiteBlame, Who};
use crate::id::{Lock, Process, Site};
use crate::units::Nanos;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// A function is told instead of its caller if at least this part of the holder's waiting passed in it.
const IN_FUNCTION: f64 = 0.5;
/// The part of what has passed in functions called at that place that must be of that one.
const AGREED: f64 = 0.9;

/// Holders by other names.
#[derive(Debug, Default)]
pub(super) struct Released(HashMap<Who, Who>);

impl Released {
    /// Looks at everything that was gathered.
    pub(super) fn of(all: &BTreeMap<Lock, Gathered<'_>>, places: &mut Places<'_>) -> Self {
        let holders = || all.values().filter_map(Gathered::blame).flat_map(|shares| &shares.holders);
        let left = left(holders(), places);
        places.tell(left.iter().map(|(_, &(site, told))| (site, told)));
        for site in holders().filter(|holder| is_seen_in_kernel(holder.who)).filter_map(|holder| holder.who.site()) {
            // What is inlined around the call is mostly there to make it, for any caller.
            let from = places.frames_at(site).len().saturating_sub(1);
            places.tell([(site, Told { addr: site.addr, from })]);
        }
        let mut released: Vec<_> = holders()
            .filter(|holder| matches!(holder.who, Who::Released { .. }) || is_seen_in_kernel(holder.who))
            .map(|holder| (Reverse(holder.wait), holder.who))
            .collect();
        released.sort_unstable();
        let mut sections: HashMap<Lock, HashMap<String, Vec<Site>>> = HashMap::new();
        let mut first: HashMap<(Lock, String), Who> = HashMap::new();
        let mut known = HashMap::new();
        for (_, who) in released {
            let (lock, site, stack) = match who {
                Who::Released { lock, site, stack } => (lock, site, stack),
                // What it calls the kernel for there is one thing, in however many calls.
                Who::Section { lock, site } => (lock, site, None),
                Who::Thread(_) | Who::Others => continue,
            };
            let (place, otherwise) = match left.get(&(lock, site)) {
                // It held the lock there; where it gave it back is not known.
                Some(&(site, _)) => (places.place(site), Who::Section { lock, site }),
                None => {
                    let outside = places.outside(site, stack);
                    let otherwise = match who {
                        Who::Released { lock, stack, .. } => Who::Released { lock, site: outside, stack },
                        who => who,
                    };
                    (places.place(outside), otherwise)
                }
            };
            let name = function(place);
            let sections = sections.entry(lock).or_insert_with(|| by_function(all.get(&lock), places));
            let section = match sections.get(&name).map(Vec::as_slice) {
                // The kernel's own functions have other names for the same things.
                Some(&[site]) if !is_seen_in_kernel(who) => Who::Section { lock, site },
                _ => *first.entry((lock, name)).or_insert(otherwise),
            };
            known.insert(who, section);
        }
        Self(known)
    }

    fn who(&self, who: Who) -> Who {
        self.0.get(&who).copied().unwrap_or(who)
    }

    /// Shares with these names.
    pub(super) fn shares(&self, all: &BTreeMap<Lock, Gathered<'_>>) -> BTreeMap<Lock, Shares> {
        let renamed = |shares: &&Shares| shares.holders.iter().any(|holder| self.0.contains_key(&holder.who));
        let blame = all.iter().filter_map(|(&lock, g)| Some((lock, g.blame().filter(renamed)?)));
        blame.map(|(lock, shares)| (lock, shares.renamed(|who| self.who(who)))).collect()
    }

    /// Gives what sections are blamed for these names.
    pub(super) fn rename_sites(&self, sites: &mut BTreeMap<Site, SiteBlame>, all: &BTreeMap<Lock, Gathered<'_>>) {
        for holder in all.values().filter_map(Gathered::blame).flat_map(|shares| &shares.holders) {
            if let (Some(from), Some(to)) = (holder.who.site(), self.who(holder.who).site())
                && from != to
            {
                let blame = sites.entry(from).or_default();
                blame.apwt = blame.apwt - holder.wait;
                sites.entry(to).or_default().apwt += holder.wait;
            }
        }
    }
}

/// Whether it was seen to hold a lock of the kernel's, somewhere in the program's code.
fn is_seen_in_kernel(who: Who) -> bool {
    matches!(who, Who::Section { lock, site } if lock.is_kernel() && site.process != Process::KERNEL)
}

/// By lock, and place at which it was given back: a place in the function called there that had the lock, and what is told of it.
fn left<'a>(holders: impl Iterator<Item = &'a Holder>, places: &mut Places<'_>) -> HashMap<(Lock, Site), (Site, Told)> {
    let mut waiting: HashMap<(Lock, Site), (Nanos, HashMap<u64, Nanos>)> = HashMap::new();
    for holder in holders {
        let Who::Released { lock, site, .. } = holder.who else { continue };
        if places.is_of_no_file(site) {
            continue;
        }
        let (all, called) = waiting.entry((lock, site)).or_default();
        *all += holder.wait;
        for ((_, stack), tally) in holder.off_stacks.top() {
            if let Some(addr) = places.beneath(stack, site.addr) {
                *called.entry(addr).or_default() += tally.time;
            }
        }
    }
    let mut left = HashMap::new();
    for ((lock, site), (all, called)) in waiting {
        let share = |part: Nanos, all: Nanos| part.0 as f64 / all.0.max(1) as f64;
        let sum: Nanos = called.values().copied().sum();
        if share(sum, all) < IN_FUNCTION {
            continue;
        }
        // By function: how long, and the address in it at which it was longest.
        let mut functions: HashMap<String, (Nanos, (Nanos, Reverse<u64>))> = HashMap::new();
        for (addr, time) in called {
            let at = Site { addr, ..site };
            if places.is_program(at)
                && let Some(function) = places.frames_at(at).last()
            {
                let name = function.function.clone().unwrap_or_else(|| function.symbol());
                let (all, most) = functions.entry(name).or_default();
                *all += time;
                *most = (*most).max((time, Reverse(addr)));
            }
        }
        let most = functions.into_values().filter(|&(time, _)| share(time, sum) >= AGREED).max();
        if let Some((_, (_, Reverse(addr)))) = most {
            let at = Site { addr, ..site };
            // What is inlined into it may be anything that it does meanwhile.
            let from = places.frames_at(at).len().saturating_sub(1);
            left.insert((lock, site), (at, Told { addr, from }));
        }
    }
    left
}

/// What tells one function from another: its name, or where it begins.
fn function(place: Place) -> String {
    place.function.unwrap_or(place.symbol)
}

/// The sections of a lock that were seen from their beginning, by function.
fn by_function(gathered: Option<&Gathered<'_>>, places: &mut Places<'_>) -> HashMap<String, Vec<Site>> {
    let mut sections: HashMap<String, Vec<Site>> = HashMap::new();
    let called = gathered.iter().flat_map(|g| &g.mutex).filter(|s| s.acquisitions > 0).map(|s| s.site);
    for site in called {
        let sites = sections.entry(function(places.place(site))).or_default();
        if !sites.contains(&site) {
            sites.push(site);
        }
    }
    sections
}
