//! Placing a slot's probes in a thread of its own. Before the first breakpoint the kernel waits for a grace period, on a busy machine for seconds,
//! and other processes' gates have to be closed in time meanwhile.

use super::super::aside::{self, drop_aside};
use super::super::attach::ProbeSite;
use super::super::placer::{Placer, Whom};
use super::super::session::clock;
use super::Gates;
use super::slot::{Placed, place};
use crate::units::Nanos;
use nix::time::ClockId;
use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Probes that are to be placed.
struct Job {
    whom: Whom,
    sites: Vec<ProbeSite>,
    /// How many sites were known, and how many files of the process.
    known: (usize, usize),
}

/// What has been placed, and the CPU time that it took.
struct Done {
    job: Job,
    placed: Placed,
    cpu: Nanos,
}

/// The thread that places.
pub(super) struct Beside {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Held while probes are being placed.
    at_work: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// The sets of probes that are wanted, and not taken yet, by their slots.
    wanted: HashMap<u32, Option<u64>>,
    done: Vec<Done>,
}

impl State {
    fn wants(&self, whom: &Whom) -> bool {
        self.wanted.get(&whom.slot) == Some(&whom.set)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places what is wanted, and keeps it for whoever ordered it. Returns whether there is anything for them.
    fn work(&self, placer: &Placer, job: Job) -> bool {
        // The program may not end in the middle of it.
        let _change = aside::begin();
        let _at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.state().wants(&job.whom) {
            return false;
        }
        let thread = || clock(ClockId::CLOCK_THREAD_CPUTIME_ID);
        let before = thread();
        let placed = place(placer, &job.sites.iter().collect::<Vec<_>>(), job.whom);
        let done = Done { job, placed, cpu: Nanos(thread().saturating_sub(before)) };
        let mut state = self.state();
        let wanted = state.wants(&done.job.whom);
        if wanted {
            state.done.push(done);
        } else {
            drop_aside(done.placed);
        }
        wanted
    }
}

impl Beside {
    fn start(placer: Arc<Placer>, wake: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (jobs, orders) = channel();
        let its = shared.clone();
        std::thread::Builder::new().name("placing".to_owned()).spawn(move || {
            for job in orders {
                if its.work(&placer, job) {
                    wake();
                }
            }
        })?;
        Ok(Self { jobs, shared })
    }

    fn order(&self, job: Job) -> bool {
        self.shared.state().wanted.insert(job.whom.slot, job.whom.set);
        // A thread that has panicked takes no more.
        self.jobs.send(job).inspect_err(|refused| self.forget(refused.0.whom.slot)).is_ok()
    }

    /// What is being placed in a slot is not wanted any more.
    fn forget(&self, slot: u32) {
        self.shared.state().wanted.remove(&slot);
    }

    /// What has been placed since this was asked last, and is wanted.
    fn take(&self) -> Vec<Done> {
        let mut state = self.shared.state();
        let (mut taken, all) = (Vec::new(), std::mem::take(&mut state.done));
        for done in all {
            if state.wants(&done.job.whom) {
                state.wanted.remove(&done.job.whom.slot);
                taken.push(done);
            } else {
                drop_aside(done.placed);
            }
        }
        taken
    }
}

impl Gates {
    /// From now on [`Gates::begin`] has probes placed in a thread of its own, with this one's priority. It calls `wake` when some are in place.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn place_beside(&mut self, wake: impl Fn() + Send + 'static) -> std::io::Result<()> {
        self.beside = Some(Beside::start(self.placer.clone(), wake)?);
        Ok(())
    }

    /// Places a slot's probes like [`Gates::place`]. Returns whether that takes time: then [`Gates::finish`] tells when they are in place.
    pub fn begin(&mut self, slot: u32) -> bool {
        let Some(beside) = &self.beside else {
            self.place(slot);
            return false;
        };
        let Some(whom) = self.slots.get_mut(slot as usize).and_then(|state| state.prepare(&mut self.gates, slot))
        else {
            return false;
        };
        let state = &self.slots[slot as usize];
        let sites: Vec<ProbeSite> = self.sites.iter().filter(|site| state.is_gated(site)).cloned().collect();
        let known = (self.sites.len(), state.files.as_ref().map_or(0, Vec::len));
        let waits = !sites.is_empty() && beside.order(Job { whom, sites, known });
        if !waits {
            self.place_ungated(slot);
        }
        waits
    }

    /// Takes over what has been placed since: returns the slots whose probes are in place now, and the CPU time that it took.
    pub fn finish(&mut self) -> (Vec<u32>, Nanos) {
        let all = self.beside.as_ref().map_or_else(Vec::new, Beside::take);
        let (mut slots, mut cpu) = (Vec::new(), Nanos(0));
        for Done { job, placed, cpu: took } in all {
            cpu += took;
            let slot = job.whom.slot;
            let Some(state) = self.slots.get_mut(slot as usize) else { continue };
            let placed = state.keep(placed);
            self.enter(placed);
            self.place_late(slot, job.known);
            self.place_ungated(slot);
            slots.push(slot);
        }
        (slots, cpu)
    }

    /// Places a slot's probes at sites, and in files, that are known since.
    fn place_late(&mut self, slot: u32, (sites, files): (usize, usize)) {
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        let fresh = state.files.as_ref().map_or_else(Vec::new, |all| all.get(files..).unwrap_or_default().to_vec());
        let late = self.sites.iter().enumerate().filter(|(i, site)| *i >= sites || fresh.contains(&site.file));
        let late: Vec<&ProbeSite> = late.map(|(_, site)| site).collect();
        if !late.is_empty() {
            let placed = state.place(&self.placer, late.into_iter(), slot);
            self.enter(placed);
        }
    }

    /// Whether a slot's probes are being placed.
    #[must_use]
    pub fn is_placing(&self, slot: u32) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.shared.state().wanted.contains_key(&slot))
    }

    /// What is being placed in a slot is not wanted any more.
    pub(super) fn forget_placing(&self, slot: u32) {
        self.beside.iter().for_each(|beside| beside.forget(slot));
    }

    /// The same of all slots.
    pub fn forget_all_placing(&self) {
        let Some(beside) = &self.beside else { return };
        beside.shared.state().wanted.clear();
        drop(beside.take());
    }

    /// Returns when nothing is being placed.
    pub fn wait_for_placing(&self) {
        let Some(beside) = &self.beside else { return };
        drop(beside.shared.at_work.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
