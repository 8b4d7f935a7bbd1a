//! A recording as a script, with the names of its locks and sites.

use super::source::{Ending, Input};
use crate::advice::timing::{Clock, Section, Timing};
use crate::advice::traced::{Counted, TraceNames};
use crate::event::{Event, ProcessSeen};
use crate::id::{Lock, Process, Site};
use crate::model::script::{Builder, Script};
use crate::model::shadow::Shadow;
use crate::model::what_if::Oracle;
use crate::names::Names;
use crate::observation::{Harvest, Observation};
use crate::observe::cpus;
use crate::op::Action;
use crate::order::{CAPACITY, Sorter};
use crate::report::text::{count, percent};
use crate::report::{Labels, labels};
use crate::sums::SiteSums;
use crate::trace::Header;
use crate::units::Time;
use anyhow::{Context, Result};
use foldhash::fast::RandomState;
use lockbpf_common::kind::Via;
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
    /// Sections that were observed and not recorded one by one.
    pub unrecorded: u64,
    /// CPUs that the recorded program could use.
    pub cpus: u32,
    /// What observing added to its times; `None` if that was not measured, or nobody observed it.
    pub shadow: Option<Shadow>,
    /// What is to be said about that, and about what is missing.
    pub remarks: Vec<String>,
}

impl Recorded {
    /// Answers what a change would gain, on so many CPUs as the program could use, or on these: without what observing added, if
    /// that was measured.
    pub(super) fn oracle(&self, cores: Option<u32>) -> Oracle<'_> {
        let oracle = Oracle::new(&self.script, &self.locks, &self.sites, cores.unwrap_or(self.cpus));
        match &self.shadow {
            Some(shadow) => oracle.without(shadow, self.unrecorded),
            None => oracle,
        }
    }
}

/// A recording, read for its timing, too.
pub(super) struct Timed {
    /// The recording.
    pub recorded: Recorded,
    /// How long its threads waited for and held what.
    pub timing: Timing,
    /// Every name of its locks, sites and threads that other files may use.
    pub names: TraceNames,
    /// Acquisitions and holds in all, also where they were not recorded one by one.
    pub counted: HashMap<Section, Counted, RandomState>,
    /// Whether lockbpf observed it itself.
    pub captured: bool,
}

#[derive(Default)]
struct Taker {
    builder: Builder,
    clock: Option<Clock>,
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
            self.clock.iter_mut().for_each(|clock| clock.op(&op));
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
    read_input(&Input::open(path)?)
}

/// Reads a recording that is open.
///
/// # Errors
/// When it cannot be read, or is too long.
pub(super) fn read_input(input: &Input) -> Result<Recorded> {
    read_whole(input, false).map(|timed| timed.recorded)
}

/// Reads a recording that is open, and its timing.
///
/// # Errors
/// When it cannot be read, or is too long.
pub(super) fn read_timed_input(input: &Input) -> Result<Timed> {
    read_whole(input, true)
}

/// What observing added to the times of a recording, if that was measured.
pub(super) fn shadow(header: &Header, harvest: &Harvest) -> Option<Shadow> {
    header.capture.as_ref()?;
    Shadow::new(&harvest.quality.perturbation?.prices?)
}

/// That it was not.
pub(super) fn not_measured(header: &Header) -> String {
    let why = if header.capture.is_some() {
        "was not measured when it was recorded: record it again, where `lockbpf doctor` can measure it"
    } else {
        "is not told by event lines"
    };
    format!(
        "Times in and between sections include what observing them cost, about a microsecond at each call. How much {why}."
    )
}

/// Reads a recording that is open, and, if asked for, its timing.
///
/// # Errors
/// When it cannot be read, or is too long.
pub(super) fn read_whole(input: &Input, timed: bool) -> Result<Timed> {
    let ((mut taker, mut sorter), ending) = input.read(
        // Input may be read twice.
        |_| (Taker { clock: timed.then(Clock::default), ..Taker::default() }, Sorter::new(CAPACITY)),
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
    let mut by_section: HashMap<Section, Counted, RandomState> = HashMap::default();
    for sums in harvest.sums.iter().filter(|sums| sums.is_of_lock()) {
        let counted = by_section.entry(Section { lock: sums.lock, site: sums.site }).or_default();
        counted.acquisitions += sums.sums.acquisitions;
        counted.hold += sums.sums.hold_ns.saturating_mul(header.ticks_per_ns.max(1));
    }
    let counted: u64 = by_section.values().map(|counted| counted.acquisitions).sum();
    let recorded = script.acquisitions();
    let whole = if counted == 0 { 1.0 } else { (recorded as f64 / counted as f64).min(1.0) };
    let unrecorded = counted.saturating_sub(recorded);
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
    let shadow = shadow(&header, &harvest);
    remarks.extend(shadow.is_none().then(|| not_measured(&header)));
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
    let timing = taker.clock.map(Clock::finish).unwrap_or_default();
    let names = if timed { trace_names(&script, &timing, &labels, &mut *names) } else { TraceNames::default() };
    let captured = header.capture.is_some();
    let cpus = cpus::of_recording(&header);
    let recorded = Recorded { locks, sites, script, whole, unrecorded, cpus, shadow, remarks };
    Ok(Timed { recorded, timing, names, counted: by_section, captured })
}

/// By what each lock, site and thread may be called elsewhere: the input's own name first, then what a report calls it, then
/// its address.
fn trace_names(script: &Script, timing: &Timing, labels: &Labels, names: &mut dyn Names) -> TraceNames {
    let mut all = TraceNames::default();
    for &lock in &script.locks {
        let of = [names.lock_id(lock), labels.locks.get(&lock).cloned(), Some(format!("{:#x}", lock.addr))];
        all.locks.insert(lock, of.into_iter().flatten().collect());
    }
    for &site in &script.sites {
        let of = [names.site_id(site), labels.sites.get(&site).cloned(), Some(format!("{:#x}", site.addr))];
        all.sites.insert(site, of.into_iter().flatten().collect());
    }
    for span in &timing.threads {
        let number = names.thread_number(span.tid).map(|number| number.to_string());
        let of = [number, names.thread_id(span.tid), Some(span.tid.0.to_string())];
        all.threads.push(of.into_iter().flatten().collect());
    }
    all
}
