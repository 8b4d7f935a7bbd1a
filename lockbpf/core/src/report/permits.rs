//! Permits that stand for work: nobody holds them, so nobody is to blame for waits for them.

use super::gather::Gathered;
use crate::graph::findings::SiteBlame;
use crate::id::{Lock, Site};
use crate::observation::Observation;
use crate::units::Nanos;
use std::collections::{BTreeMap, HashMap};

/// Takes back what locks and sites were charged with for waits for such permits.
pub(super) fn discharge(
    all: &BTreeMap<Lock, Gathered<'_>>,
    observation: &Observation,
    aplt: &mut HashMap<Lock, Nanos>,
    blames: &mut BTreeMap<Site, SiteBlame>,
) {
    for (&lock, _) in all.iter().filter(|(_, g)| !g.permits.is_empty()) {
        let shares = observation.findings.locks.get(&lock);
        shares.into_iter().for_each(|shares| shares.discharge(lock, aplt, blames));
    }
}
