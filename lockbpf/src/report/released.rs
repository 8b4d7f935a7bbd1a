//! Holders that are known by where they gave a lock back. A section begins and ends in one function, as a rule: where exactly one
//! section of that lock is known in the function, from windows, it is that one. Else all places in one function are one holder.

use super::gather::Gathered;
use super::place::Places;
use crate::graph::findings::{Findings, Shares, SiteBlame, Who};
use crate::id::{Lock, Site};
use std::collections::{BTreeMap, HashMap};

/// Holders by other names.
#[derive(Debug, Default)]
pub(super) struct Released(HashMap<Who, Who>);

impl Released {
    /// Looks at everything that was gathered.
    pub(super) fn of(all: &BTreeMap<Lock, Gathered<'_>>, places: &mut Places<'_>) -> Self {
        let mut released: Vec<_> = all
            .values()
            .filter_map(Gathered::blame)
            .flat_map(|shares| &shares.holders)
            .filter(|holder| matches!(holder.who, Who::Released { .. }))
            .map(|holder| (std::cmp::Reverse(holder.wait), holder.who))
            .collect();
        released.sort_unstable();
        let mut sections: HashMap<Lock, HashMap<String, Vec<Site>>> = HashMap::new();
        let mut first: HashMap<(Lock, String), Who> = HashMap::new();
        let mut known = HashMap::new();
        for (_, who) in released {
            let Who::Released { lock, site, stack } = who else { continue };
            let place = places.place_of_wait(site, stack);
            let name = place.function.unwrap_or(place.symbol);
            let sections = sections.entry(lock).or_insert_with(|| by_function(all.get(&lock), places));
            let section = match sections.get(&name).map(Vec::as_slice) {
                Some(&[site]) => Who::Section { lock, site },
                _ => *first.entry((lock, name)).or_insert(who),
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

    /// What sections are blamed for, with these names.
    pub(super) fn sites(&self, findings: &Findings, all: &BTreeMap<Lock, Gathered<'_>>) -> BTreeMap<Site, SiteBlame> {
        let mut sites = findings.sites.clone();
        for holder in all.values().filter_map(Gathered::blame).flat_map(|shares| &shares.holders) {
            if let (Some(from), Some(to)) = (holder.who.site(), self.who(holder.who).site())
                && from != to
            {
                let blame = sites.entry(from).or_default();
                blame.apwt = blame.apwt - holder.wait;
                sites.entry(to).or_default().apwt += holder.wait;
            }
        }
        sites
    }
}

/// The sections of a lock that were seen from their beginning, by function.
fn by_function(gathered: Option<&Gathered<'_>>, places: &mut Places<'_>) -> HashMap<String, Vec<Site>> {
    let mut sections: HashMap<String, Vec<Site>> = HashMap::new();
    let called = gathered.iter().flat_map(|g| &g.mutex).filter(|s| s.acquisitions > 0).map(|s| s.site);
    for site in called {
        if let Some(function) = places.place(site).function {
            let sites = sections.entry(function).or_default();
            if !sites.contains(&site) {
                sites.push(site);
            }
        }
    }
    sections
}
