//! Reports restricted to some locks or critical sections.

use super::gather::Gathered;
use super::place::Places;
use super::schema::{Parts, Place, Selection};
use crate::id::{Lock, Site};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Candidates named.
const MAX_CANDIDATES: usize = 20;

/// A restriction that nothing matches.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no {what} matches `{wanted}`; there is {}", list(candidates))]
pub struct Unmatched {
    /// `lock` or `site`.
    pub what: &'static str,
    /// The parts of names that were asked for.
    pub wanted: String,
    /// What there is, in alphabetical order, at most 20.
    pub candidates: Vec<String>,
}

fn list(candidates: &[String]) -> String {
    if candidates.is_empty() { "none".to_owned() } else { candidates.join(", ") }
}

/// What a selection lets pass.
#[derive(Debug, Default)]
pub(super) struct Selected {
    locks: Option<BTreeSet<Lock>>,
    sites: Option<BTreeSet<Site>>,
}

impl Selected {
    /// Applies a selection to all that was gathered.
    pub(super) fn new(
        selection: &Selection,
        all: &BTreeMap<Lock, Gathered<'_>>,
        places: &mut Places<'_>,
    ) -> Result<Self, Unmatched> {
        let mut selected = Self::default();
        if !selection.lock.is_empty() {
            let mut names = BTreeMap::new();
            for &lock in all.keys() {
                names.insert(lock, [places.lock_label(lock), places.lock_id(lock)]);
            }
            selected.locks = Some(matching("lock", &selection.lock, &names)?);
        }
        if !selection.site.is_empty() {
            let mut names = BTreeMap::new();
            let locks = all.iter().filter(|(lock, _)| selected.lock(**lock));
            for site in locks.flat_map(|(_, g)| sites(g)).collect::<BTreeSet<_>>() {
                let Place { symbol, site: Some(id), .. } = places.place(site) else { continue };
                names.insert(site, [symbol, id]);
            }
            let matching = matching("site", &selection.site, &names)?;
            let with_site = |g: &Gathered<'_>| sites(g).any(|site| matching.contains(&site));
            let locks = all.iter().filter(|(lock, g)| selected.lock(**lock) && with_site(g));
            selected.locks = Some(locks.map(|(&lock, _)| lock).collect());
            selected.sites = Some(matching);
        }
        Ok(selected)
    }

    /// Whether a lock is selected.
    pub(super) fn lock(&self, lock: Lock) -> bool {
        self.locks.as_ref().is_none_or(|locks| locks.contains(&lock))
    }

    /// Whether a site is selected.
    pub(super) fn site(&self, site: Site) -> bool {
        self.sites.as_ref().is_none_or(|sites| sites.contains(&site))
    }
}

/// The keys of which a name contains something that is wanted.
fn matching<K: Copy + Ord>(
    what: &'static str,
    wanted: &Parts,
    names: &BTreeMap<K, [String; 2]>,
) -> Result<BTreeSet<K>, Unmatched> {
    let matches = |names: &[String; 2]| wanted.0.iter().any(|part| names.iter().any(|name| name.contains(part)));
    let keys: BTreeSet<K> = names.iter().filter(|(_, names)| matches(names)).map(|(&key, _)| key).collect();
    if keys.is_empty() {
        let candidates: BTreeSet<&String> = names.values().map(|[name, _]| name).collect();
        let candidates = candidates.into_iter().take(MAX_CANDIDATES).cloned().collect();
        return Err(Unmatched { what, wanted: wanted.0.join("` or `"), candidates });
    }
    Ok(keys)
}

/// Where a lock is waited for, held or requested, and where those ask who are blamed for its waiting.
fn sites<'a>(gathered: &'a Gathered<'_>) -> impl Iterator<Item = Site> + 'a {
    let sums = gathered.mutex.iter().map(|s| s.site);
    let shares = gathered.blame().into_iter();
    let waiters = shares.clone().flat_map(|s| &s.waiters).filter_map(|w| w.site);
    let holders = shares.flat_map(|s| &s.holders).filter_map(|h| h.who.site());
    let words = gathered.waits.into_iter().flat_map(|w| &w.sites).filter_map(|s| s.site);
    sums.chain(waiters).chain(holders).chain(words)
}
