//! What a suggestion would gain, from a recording played with it ([`crate::model::what_if`]).

use super::schema::Gain;
use super::traced::Traced;
use crate::id::{Lock, Site};
use crate::model::replay::Ask;
use crate::model::script::{Script, What};
use crate::model::what_if::{Oracle, Question};
use crate::report::text::percent;
use std::collections::{BTreeMap, BTreeSet};

/// The share of a lock's acquisitions that may be at sites of which nothing was sampled.
const UNSAMPLED: f64 = 0.02;

/// Why there is no prediction for one of a method's callers.
const TOGETHER: &str = "the trace does not tell apart what takes the lock by the same method";

/// A change that is suggested; numbers are those of the records.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    /// Each group of sites gets a lock of its own; the others of the lock take none.
    Groups {
        /// The lock.
        lock: u32,
        /// Sites that keep a common lock.
        groups: Vec<BTreeSet<u32>>,
        /// Sites that take none.
        free: BTreeSet<u32>,
    },
    /// These sites only read.
    Readers {
        /// The lock.
        lock: u32,
        /// The sites.
        sites: BTreeSet<u32>,
    },
    /// A site's sections do this share of what they do outside of the lock.
    Shorten {
        /// The site.
        site: u32,
        /// The share.
        by: f64,
    },
    /// Sections ask for one of so many locks, by their data.
    Shard {
        /// The lock.
        lock: u32,
        /// How many.
        parts: u32,
    },
}

/// Answers what wishes would gain.
pub struct Predictor<'a> {
    oracle: Oracle<'a>,
    script: &'a Script,
    traced: &'a Traced,
    /// By lock of the script: acquisitions by site of it.
    asked: BTreeMap<u32, BTreeMap<u32, u64>>,
}

impl<'a> Predictor<'a> {
    /// `oracle` answers questions about the script.
    #[must_use]
    pub fn new(oracle: Oracle<'a>, script: &'a Script, traced: &'a Traced) -> Self {
        let mut asked: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
        for step in script.threads.iter().flat_map(|thread| &thread.steps) {
            if let What::Ask { lock, site, .. } = step.what {
                *asked.entry(lock).or_default().entry(site).or_default() += 1;
            }
        }
        Self { oracle, script, traced, asked }
    }

    /// The predicted gain.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn gain(&self, wish: &Wish) -> Result<Gain, String> {
        let question = match wish {
            Wish::Shorten { site, .. } if self.shares_sites(*site) => return Err(TOGETHER.to_owned()),
            Wish::Shorten { site, by } => Question::Narrow(self.sites(*site), *by),
            Wish::Shard { lock, parts } => Question::Split(self.locks(*lock), *parts),
            Wish::Readers { lock, sites } => {
                self.all_sampled(*lock)?;
                let asks = self.asks(*lock, |site| if sites.contains(&site) { Ask::Reading } else { Ask::Part(0) })?;
                Question::BySite(self.locks(*lock), 1, asks)
            }
            Wish::Groups { lock, groups, free } => {
                self.all_sampled(*lock)?;
                let part = |site: u32| groups.iter().position(|group| group.contains(&site));
                let asks = self.asks(*lock, |site| match part(site) {
                    Some(part) => Ask::Part(part as u32),
                    None if free.contains(&site) => Ask::Nothing,
                    None => Ask::Part(0),
                })?;
                Question::BySite(self.locks(*lock), groups.len().max(1) as u32, asks)
            }
        };
        let nothing = match &question {
            Question::Narrow(sites, _) => sites.is_empty(),
            Question::Split(locks, _) | Question::BySite(locks, ..) => locks.is_empty(),
            _ => false,
        };
        if nothing {
            return Err("the trace does not have it".to_owned());
        }
        let answer = self.oracle.ask(&question).map_err(|refusal| refusal.to_string())?;
        Ok(Gain {
            change: answer.change,
            gain: answer.gain,
            gain_interval: answer.gain_interval,
            wait_ns: answer.wait_ns,
            violations: answer.violations,
        })
    }

    /// Places of the script's locks that a lock of the records is.
    fn locks(&self, lock: u32) -> Vec<usize> {
        let known = self.traced.locks.get(&lock);
        let is = |lock: &Lock| known.is_some_and(|known| known.contains(lock));
        (0..self.script.locks.len()).filter(|&i| is(&self.script.locks[i])).collect()
    }

    fn sites(&self, site: u32) -> Vec<usize> {
        let known = self.traced.sites.get(&site);
        let is = |site: &Site| known.is_some_and(|known| known.contains(site));
        (0..self.script.sites.len()).filter(|&i| is(&self.script.sites[i])).collect()
    }

    /// Whether a site of the script is also another site of the records.
    fn shares_sites(&self, site: u32) -> bool {
        let own = self.traced.sites.get(&site);
        let others = self.traced.sites.iter().filter(|(other, _)| **other != site);
        own.is_some_and(|own| others.into_iter().any(|(_, sites)| !sites.is_disjoint(own)))
    }

    /// What a lock's sections ask for, by site of the script. Sites that the records do not have ask for the first part.
    fn asks(&self, lock: u32, of: impl Fn(u32) -> Ask) -> Result<Vec<Ask>, String> {
        let mut asks = vec![None; self.script.sites.len()];
        for &(site, _) in self.traced.sections.keys().filter(|(_, of)| *of == lock) {
            for i in self.sites(site) {
                if *asks[i].get_or_insert(of(site)) != of(site) {
                    return Err(TOGETHER.to_owned());
                }
            }
        }
        Ok(asks.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Refuses where a lock is also taken at sites of which nothing is known.
    fn all_sampled(&self, lock: u32) -> Result<(), String> {
        let known: BTreeSet<&Site> = self.traced.sites.values().flatten().collect();
        let (mut all, mut unknown) = (0, 0);
        for place in self.locks(lock) {
            for (&site, &count) in self.asked.get(&(place as u32)).into_iter().flatten() {
                all += count;
                let sampled = self.script.sites.get(site as usize).is_some_and(|site| known.contains(site));
                unknown += if sampled { 0 } else { count };
            }
        }
        let share = unknown as f64 / f64::max(all as f64, 1.0);
        if share > UNSAMPLED {
            return Err(format!("{} of the lock's acquisitions are at sites that were not sampled", percent(share)));
        }
        Ok(())
    }
}
