//! A recording as a script, with the names of its locks and sites.

use super::source::{Ending, Input};
use crate::event::{Event, ProcessSeen};
use crate::id::{Lock, Process, Site};
use crate::model::script::{Builder, Script};
use crate::observation::Observation;
use crate::op::Action;
use crate::order::{CAPACITY, Sorter};
use crate::report::labels;
use crate::report::text::{count, percent};
use crate::sums::SiteSums;
use crate::units::Time;
use anyhow::{Context, Result};
use lockbpf_common::kind::Via;
use lockbpf_common::kind::mutex_kind;
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::path::Path;

/// A recording, read.
pub(super) struct Recorded {
    /// What its threads did.
    pub script: Script,
    /// Names of the script's locks.
    pub locks: Vec<String>,
    /// Symbols of the script's sites.
    pub sites: Vec<String>,
    /// The share of the acquisitions that were recorded one by one.
    pub whole: f64,
    /// What is to be said about that, and about what is missing.
    pub remarks: Vec<String>,
}

#[derive(Default)]
struct Taker {
    builder: Builder,
    first: FxHashMap<(Lock, Site), Time>,
    processes: HashMap<Process, ProcessSeen>,
}

impl Taker {
    fn take(&mut self, sorter: &mut Sorter, end: bool) -> Result<()> {
        let ready = if end { sorter.finish() } else { sorter.pop_ready() };
        for op in ready {
            if let Action::Attempt(attempt) = &op.action {
                self.first.entry((attempt.lock, attempt.site)).or_insert(op.time);
            }
            self.builder.op(&op)?;
        }
        Ok(())
    }
}

/// Reads a recording; `-` is standard input.
///
/// # Errors
/// When it cannot be read, or is too long.
pub(super) fn read(path: &Path) -> Result<Recorded> {
    let input = Input::open(path)?;
    let ((mut taker, mut sorter), ending) = input.read(
        |_| (Taker::default(), Sorter::new(CAPACITY)),
        |(taker, sorter), event| {
            sorter.push(&event);
            if let Event::Process(seen) = event {
                taker.processes.insert(seen.process, seen);
            }
            taker.take(sorter, false)
        },
    )?;
    taker.take(&mut sorter, true).with_context(|| input.name().to_owned())?;
    let Ending { header, harvest, mut names, .. } = ending;
    let script = taker.builder.finish(header.ticks_per_ns);
    // Counts come from sums; where there are none, everything was a step.
    let is_lock = |via: Via, kind: u32| {
        !matches!(via, Via::Futex | Via::CondWait) && kind & (mutex_kind::IS_CONDVAR | mutex_kind::IS_FUTEX) == 0
    };
    let counted: u64 =
        harvest.sums.iter().filter(|sums| is_lock(sums.via, sums.sums.kind)).map(|sums| sums.sums.acquisitions).sum();
    let recorded = script.acquisitions();
    let whole = if counted == 0 { 1.0 } else { (recorded as f64 / counted as f64).min(1.0) };
    let mut remarks = Vec::new();
    if whole < 0.999 {
        remarks.push(format!(
            "Of {} acquisitions {} were recorded one by one ({}): the time of the others counts as what threads do between locks.",
            count(counted),
            count(recorded),
            percent(whole)
        ));
    }
    if harvest.quality.incomplete() {
        remarks.push("The recording is incomplete: `lockbpf report` tells what is missing.".to_owned());
    }
    if header.capture.is_some() {
        remarks.push(
            "Times in and between sections include what observing them cost, about a microsecond at each call."
                .to_owned(),
        );
    }
    let sums = taker.first.into_iter().map(|((lock, site), first)| SiteSums::new(lock, site, Via::Lock, first));
    let mut sums: Vec<SiteSums> = sums.collect();
    sums.sort_unstable_by_key(|sums| (sums.first, sums.lock, sums.site));
    let observation = Observation {
        processes: taker.processes,
        sums,
        stacks: harvest.stacks,
        ticks_per_ns: header.ticks_per_ns,
        ..Observation::default()
    };
    let labels = labels(&observation, &mut *names);
    let name = |lock: &Lock| labels.locks.get(lock).cloned().unwrap_or_else(|| format!("lock {:#x}", lock.addr));
    let symbol = |site: &Site| labels.sites.get(site).cloned().unwrap_or_else(|| format!("{:#x}", site.addr));
    let (locks, sites) = (script.locks.iter().map(name).collect(), script.sites.iter().map(symbol).collect());
    Ok(Recorded { locks, sites, script, whole, remarks })
}
