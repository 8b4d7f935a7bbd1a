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
use std::collections::{BTreeSet, HashMap};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Probes that are to be placed.
struct Job {
    whom: Whom,
    sites: Vec<ProbeSite>,
}

/// What has been placed.
struct Done {
    job: Job,
    placed: Placed,
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
    /// CPU time that placing has taken and nobody has taken note of.
    cpu: Nanos,
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
        let mut state = self.state();
        state.cpu += Nanos(thread().saturating_sub(before));
        let wanted = state.wants(&job.whom);
        if wanted {
            state.done.push(Done { job, placed });
        } else {
            drop_aside(placed);
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

    fn order(&self, job: Job) {
        self.shared.state().wanted.insert(job.whom.slot, job.whom.set);
        // The thread takes orders as long as this exists: a panic would have ended the program.
        let _ = self.jobs.send(job);
    }

    /// What is being placed in a slot is not wanted any more.
    fn forget(&self, slot: u32) {
        self.shared.state().wanted.remove(&slot);
    }

    /// Nothing that is being placed is wanted any more.
    fn forget_all(&self) {
        self.shared.state().wanted.clear();
        self.take();
    }

    /// What has been placed since this was asked last, and is wanted; and the CPU time that placing took.
    fn take(&self) -> (Vec<Done>, Nanos) {
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
        (taken, std::mem::take(&mut state.cpu))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.forget_all();
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

    /// Places a slot's probes like [`Gates::place`]. Returns `true` if they are in place, or there are none. Else they have been ordered, and
    /// [`Gates::finish`] tells when they are in place; or the process has no thread left, and the caller asks again.
    pub fn begin(&mut self, slot: u32) -> bool {
        let Some(beside) = &self.beside else {
            self.place(slot);
            return true;
        };
        let Some(whom) = self.slots.get_mut(slot as usize).and_then(|state| state.prepare(&mut self.gates, slot))
        else {
            return self.slots.get(slot as usize).is_some_and(|state| !state.links.is_empty());
        };
        let state = &self.slots[slot as usize];
        let sites: Vec<ProbeSite> = self.sites.iter().filter(|site| state.is_gated(site)).cloned().collect();
        if sites.is_empty() {
            self.place_ungated(slot);
            return true;
        }
        beside.order(Job { whom, sites });
        false
    }

    /// Takes over what has been placed since: returns the slots whose probes are in place now, and the CPU time that it took.
    pub fn finish(&mut self) -> (Vec<u32>, Nanos) {
        let (all, cpu) = self.beside.as_ref().map_or_else(Default::default, Beside::take);
        let mut slots = Vec::new();
        for Done { job, placed } in all {
            let slot = job.whom.slot;
            let Some(state) = self.slots.get_mut(slot as usize) else { continue };
            if job.whom.is_gone() {
                // These probes may see nothing, or the kernel refused them for that reason. The policy asks for others.
                drop_aside(placed);
                continue;
            }
            let placed = state.keep(placed);
            self.enter(placed);
            self.place_ungated(slot);
            self.place_late(slot, &job.sites);
            slots.push(slot);
        }
        (slots, cpu)
    }

    /// Places a slot's probes where they have to go only since the others were ordered: sites and files have come to be known, or what no gate closed
    /// was shed.
    fn place_late(&mut self, slot: u32, placed: &[ProbeSite]) {
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        let place = |site: &ProbeSite| (site.file, site.file_offset, site.function.by);
        let placed: BTreeSet<_> = placed.iter().map(place).collect();
        let late = self.sites.iter().filter(|site| state.is_gated(site) && !placed.contains(&place(site)));
        let late: Vec<&ProbeSite> = late.collect();
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
        self.beside.iter().for_each(Beside::forget_all);
    }

    /// Slots whose probes are being placed.
    pub(super) fn all_placing(&self) -> Vec<u32> {
        self.beside.iter().flat_map(|beside| beside.shared.state().wanted.keys().copied().collect::<Vec<_>>()).collect()
    }

    /// Returns when nothing is being placed.
    pub fn wait_for_placing(&self) {
        let Some(beside) = &self.beside else { return };
        drop(beside.shared.at_work.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
