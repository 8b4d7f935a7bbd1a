//! What a report calls locks and sites, without the report.

use super::gather::gather;
use super::naming::names;
use super::place::Places;
use crate::id::{Lock, Site};
use crate::names::Names;
use crate::observation::Observation;
use std::collections::{BTreeSet, HashMap};

/// Names of locks, and symbols of sites.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// The label of each lock.
    pub locks: HashMap<Lock, String>,
    /// The label of each site.
    pub sites: HashMap<Site, String>,
}

/// Names all locks and sites of an observation's sums.
#[must_use]
pub fn labels(observation: &Observation, source: &mut dyn Names) -> Labels {
    let all = gather(observation);
    let processes: BTreeSet<_> = all.keys().map(|lock| lock.process).collect();
    let mut places = Places::new(observation, source, &processes);
    let names = names(&all, &mut places);
    places.set_names(names);
    let locks = all.keys().map(|&lock| (lock, places.lock_label(lock))).collect();
    let sites: BTreeSet<Site> = observation.sums.iter().map(|sums| sums.site).collect();
    Labels { locks, sites: sites.into_iter().map(|site| (site, places.place(site).symbol)).collect() }
}
