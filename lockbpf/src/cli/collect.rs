//! What becomes of events while an observation runs: merged by time, divided among holders, processes taken note of
//! while they live.

use crate::blame::Blame;
use crate::decode::Decoded;
use crate::event::{Event, ProcessSeen, ThreadTotals};
use crate::id::{Process, Site, Tid};
use crate::observation::{Harvest, Observation};
use crate::order::Merger;
use crate::sums::SiteSums;
use crate::symbol::Symbols;
use crate::units::{Nanos, Time};
use std::collections::HashMap;

/// Exited threads listed one by one; what later ones did is added up in one entry.
const MAX_EXITED: usize = 16_384;

/// Collects one observation.
pub(super) struct Collector {
    merger: Merger,
    blame: Blame,
    symbols: Symbols,
    processes: HashMap<Process, ProcessSeen>,
    exited: Vec<ThreadTotals>,
    events: u64,
}

impl Collector {
    /// Knows these processes from the start.
    pub(super) fn new(known: Vec<ProcessSeen>) -> Self {
        let mut collector = Self {
            merger: Merger::default(),
            blame: Blame::default(),
            symbols: Symbols::new(),
            processes: HashMap::new(),
            exited: Vec::new(),
            events: 0,
        };
        known.into_iter().for_each(|seen| collector.meet(seen));
        collector
    }

    /// Takes what names need from a process, at once, while it lives.
    fn meet(&mut self, seen: ProcessSeen) {
        self.symbols.observe(seen.process, seen.pid);
        self.processes.insert(seen.process, seen);
    }

    /// Takes one event, in any order.
    pub(super) fn take(&mut self, (mut event, top): Decoded) {
        self.events += 1;
        match &mut event {
            Event::Process(seen) => self.meet(seen.clone()),
            Event::FutexWait(wait) => {
                let process = wait.word.process;
                let caller = top.and_then(|words| self.symbols.caller_among(process, &words));
                wait.site = caller.map(|addr| Site { process, addr });
            }
            Event::Section(_) | Event::ThreadExit(_) | Event::OffCpu(_) | Event::Op(_) | Event::Step(_) => {}
        }
        self.merger.push(event);
    }

    /// Lets every event that is old enough reach the analysis.
    pub(super) fn advance(&mut self, now: Time) {
        for event in self.merger.release(now) {
            analyse(&mut self.blame, &mut self.exited, event);
        }
    }

    /// Takes note of what the observed processes have loaded since.
    pub(super) fn refresh(&mut self) {
        for &process in self.processes.keys() {
            self.symbols.refresh(process);
        }
    }

    /// The observed processes, with their pids.
    pub(super) fn pids(&self) -> HashMap<Process, u32> {
        self.processes.values().map(|seen| (seen.process, seen.pid)).collect()
    }

    /// Names for what was observed.
    pub(super) fn symbols(&mut self) -> &mut Symbols {
        &mut self.symbols
    }

    /// Events so far.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// The observed processes among these, with the numbers they were given.
    pub(super) fn numbers(&self, pids: &[u32]) -> Vec<(u32, Process)> {
        pids.iter()
            .filter_map(|&pid| {
                // After exec a pid has a second number: the later one.
                let latest = self.processes.values().filter(|p| p.pid == pid).max_by_key(|p| p.process)?;
                Some((pid, latest.process))
            })
            .collect()
    }

    /// Closes the collection.
    pub(super) fn finish(mut self, harvest: Harvest, target: &str, start: Time, end: Time) -> (Observation, Symbols) {
        for event in self.merger.finish() {
            analyse(&mut self.blame, &mut self.exited, event);
        }
        let mut quality = harvest.quality;
        quality.events = self.events;
        quality.late = self.merger.late();
        let mut threads = self.exited;
        threads.extend(harvest.threads);
        let observation = Observation {
            target: target.to_owned(),
            start,
            end,
            futex_only: false,
            processes: self.processes,
            sums: harvest.sums.iter().map(SiteSums::from).collect(),
            threads,
            blame: self.blame,
            open_waits: harvest.open_waits,
            stacks: harvest.stacks,
            quality,
            deadlocks: harvest.deadlocks,
            orders: harvest.orders,
            ticks_per_ns: 1,
            ..Observation::default()
        };
        (observation, self.symbols)
    }
}

fn analyse(blame: &mut Blame, exited: &mut Vec<ThreadTotals>, event: Event) {
    match event {
        Event::Section(section) => blame.section(&section),
        Event::FutexWait(wait) => blame.futex_wait(&wait),
        Event::ThreadExit(totals) => list_exited(exited, totals),
        Event::Process(_) | Event::OffCpu(_) | Event::Op(_) | Event::Step(_) => {}
    }
}

fn list_exited(exited: &mut Vec<ThreadTotals>, totals: ThreadTotals) {
    if exited.len() < MAX_EXITED {
        exited.push(totals);
    } else if let Some(last) = exited.last_mut() {
        last.tid = Tid(0);
        last.comm = "(more that exited)".to_owned();
        last.acquisitions += totals.acquisitions;
        for (sum, add) in [
            (&mut last.wait, totals.wait),
            (&mut last.held_sum, totals.held_sum),
            (&mut last.held_union, totals.held_union),
        ] {
            *sum = Nanos(sum.0.saturating_add(add.0));
        }
    }
}
