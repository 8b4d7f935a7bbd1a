//! The full tier, process by process: probes are placed and the gate opened, or the gate closed and the probes removed.

mod beside;
mod slot;
mod ungated;
mod used;

use super::CaptureError;
use super::aside::{drop_aside, removes};
use super::attach::ProbeSite;
use super::cpu_clock::CpuClock;
use super::placer::{Links, Mechanism, Placer, hold};
use super::session::{clock, now};
use super::sweeper::Sweeper;
use super::target::FileKey;
use crate::leader;
use crate::quality::FailedProbe;
use crate::units::Time;
use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use beside::Beside;
use lockbpf_common::gate::{Account, CLOSINGS, Gate, MAX_SLOTS};
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;
use slot::{Shed, Slot};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
pub use ungated::Sheds;
pub use used::Used;
pub(super) use used::taken;

/// So many slots are taken before those of processes that have exited are given to others: while the kernel removes probes that
/// are perf events, it places none, for seconds.
const CROWDED: usize = MAX_SLOTS as usize / 2;

/// So many processes have probes of their own before, if the kernel side filters, they are placed for all at once: each hit is
/// offered to the links of all processes, at 40 ns each.
const FEW: usize = 16;

/// Threads that have ended whose perf events are kept for a while; each makes a hit a little dearer.
const MAX_SPENT: usize = 8;

/// Every gate, and what observing each process has taken.
pub struct Gates {
    placer: Arc<Placer>,
    gates: Array<MapData, Gate>,
    accounts: PerCpuArray<MapData, Account>,
    thinning: Array<MapData, u32>,
    targets: HashMap<MapData, u32, u32>,
    sites: Vec<ProbeSite>,
    slots: Vec<Slot>,
    /// Places probes, if another thread does that.
    beside: Option<Beside>,
    clock: CpuClock,
    failed: Vec<FailedProbe>,
    sweeper: Sweeper,
    gaps: Vec<Gap>,
    /// When it was last looked whether what is placed follows its processes.
    looked_after: Time,
    /// Probes in place.
    placed: usize,
    /// Processes beyond the last slot.
    refused: u64,
    sheds: Sheds,
    /// Whether the kernel side lets nobody through but those that are to be observed, so that probes may be in all processes.
    filtered: bool,
    /// Whether they are.
    common: bool,
}

/// A time in which a process was to be observed, and was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The process.
    pub pid: u32,
    /// Since when at the earliest.
    pub from: Time,
    /// Until when.
    pub to: Time,
}

impl Gates {
    /// Takes the maps from the object; slot 0, all processes, exists from the start.
    pub(super) fn new(
        ebpf: &mut Ebpf,
        placer: Placer,
        clock: CpuClock,
        sites: &[ProbeSite],
        filtered: bool,
    ) -> Result<Self, CaptureError> {
        let mut map = |name: &'static str| ebpf.take_map(name).ok_or(CaptureError::NoMap(name));
        let (gates, accounts, targets): (Map, Map, Map) = (map("GATES")?, map("ACCOUNTS")?, map("TARGETS")?);
        let thinning = map("THINNING")?;
        let (sites, failed) = placer.usable(sites);
        let sweeper = Sweeper::start(map("CHILDREN")?.try_into()?, &sites)?;
        Ok(Self {
            placer: Arc::new(placer),
            gates: gates.try_into()?,
            accounts: accounts.try_into()?,
            thinning: thinning.try_into()?,
            targets: targets.try_into()?,
            sites,
            slots: vec![Slot::default()],
            beside: None,
            clock,
            failed,
            sweeper,
            gaps: Vec::new(),
            looked_after: now(),
            placed: 0,
            refused: 0,
            sheds: Sheds::default(),
            filtered,
            common: false,
        })
    }

    /// What places probes, for whoever makes it ready for further sites while these are governed.
    pub(super) fn placer(&self) -> Arc<Placer> {
        self.placer.clone()
    }

    /// How uprobes are placed.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.placer.mechanism()
    }

    /// Probes in place, all processes together.
    #[must_use]
    pub fn placed(&self) -> usize {
        self.placed
    }

    /// What could not be placed since this was asked last.
    pub fn take_failed(&mut self) -> Vec<FailedProbe> {
        std::mem::take(&mut self.failed)
    }

    /// Processes that were refused: of these only waits are seen.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Gives a process a slot: a free one, or a new one; `None` if there are no more. Its probes go into these files, or, with
    /// `None`, into all that are known.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn admit(&mut self, pid: u32, files: Option<Vec<FileKey>>) -> Result<Option<u32>, CaptureError> {
        let free = self.slots.iter().skip(1).position(|slot| slot.pid == 0).map(|i| i + 1);
        let slot = free.unwrap_or(self.slots.len());
        let Some(number) = u32::try_from(slot).ok().filter(|&n| n < MAX_SLOTS) else { return Ok(None) };
        if free.is_none() {
            self.slots.push(Slot::default());
        }
        self.slots[slot].pid = pid;
        self.slots[slot].cpu_clock = clock_getcpuclockid(Pid::from_raw(pid.cast_signed())).ok();
        self.slots[slot].files = files;
        self.thinning.set(number, 0, 0)?;
        self.targets.insert(pid, number, 0)?;
        self.place_ungated(number);
        Ok(Some(number))
    }

    /// Observes a process from now on, all the time, in these files. If it is observed already, further files are added.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn observe(&mut self, pid: u32, files: Option<Vec<FileKey>>) -> Result<(), CaptureError> {
        if self.common {
            return Ok(());
        }
        if let Some(slot) = self.slots.iter().position(|slot| slot.pid == pid) {
            self.uses(slot as u32, files);
            return Ok(());
        }
        if self.filtered && self.occupied() >= FEW {
            self.dismiss_exited();
            if self.occupied() >= FEW && !translated_somewhere() {
                return self.place_for_all();
            }
        }
        if self.slots.len() >= CROWDED && self.slots.iter().skip(1).all(|slot| slot.pid != 0) {
            self.dismiss_exited();
        }
        let (failed, placed) = (self.failed.len(), self.placed);
        let Some(slot) = self.admit(pid, files)? else { return self.refuse(pid) };
        self.place(slot);
        if leader::is_gone(pid) {
            // That is why probes could not be placed.
            self.failed.truncate(failed);
            self.remove(slot);
            self.placed = placed;
            self.dismiss(slot);
            return Ok(());
        }
        self.open(slot)
    }

    /// From now on the probes are in all processes that use the files. Sections in progress are cut.
    fn place_for_all(&mut self) -> Result<(), CaptureError> {
        for slot in 1..self.slots.len() as u32 {
            self.close(slot)?;
            self.remove(slot);
            self.remove_ungated(slot);
        }
        self.common = true;
        self.place(0);
        // Threads are not to take this opening for the one that they remember.
        let epochs = self.slots.iter().map(|slot| slot.epoch).max().unwrap_or(0);
        self.slots[0].epoch = epochs;
        self.slots[0].gate.closed_ns = [clock(ClockId::CLOCK_MONOTONIC); CLOSINGS];
        self.open(0)
    }

    /// Frees the slots of processes that have exited.
    fn dismiss_exited(&mut self) {
        for slot in 1..self.slots.len() as u32 {
            let gone = self.slots.get(slot as usize).is_some_and(|s| leader::is_gone(s.pid));
            if gone {
                let _ = self.close(slot);
                self.remove(slot);
                self.dismiss(slot);
            }
        }
    }

    /// Observes a process beyond the last slot: by the futex tier only, which is counted.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn refuse(&mut self, pid: u32) -> Result<(), CaptureError> {
        self.refused += 1;
        self.sheds.add(pid, Shed::All, false);
        // Processes beyond the map's size are seen where everybody is; else they are counted all the same.
        match self.targets.insert(pid, 0, 0) {
            Ok(()) | Err(MapError::SyscallError(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A process has mapped these files, too: its probes are placed in them, at once if its others are there.
    pub fn uses(&mut self, slot: u32, files: Option<Vec<FileKey>>) {
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        let (Some(known), Some(mut files)) = (&mut state.files, files) else { return };
        files.retain(|file| !known.contains(file));
        known.extend_from_slice(&files);
        if !state.links.is_empty() || state.gate.epoch != 0 {
            let placed = state.place(&self.placer, self.sites.iter().filter(|site| files.contains(&site.file)), slot);
            self.enter(placed);
        }
        self.place_ungated(slot);
    }

    /// Counts what was placed, and keeps what was not.
    fn enter(&mut self, (placed, failed): (usize, Vec<FailedProbe>)) {
        self.placed += placed;
        self.failed.extend(failed);
    }

    /// Whether a slot's gate is open.
    #[must_use]
    pub fn is_open(&self, slot: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(|slot| slot.gate.epoch != 0)
    }

    /// Closes every gate and removes every probe for a while; returns the slots that had any.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn suspend(&mut self) -> Result<Vec<u32>, CaptureError> {
        self.lift_ungated();
        let placed: Vec<u32> = (0..self.slots.len() as u32).filter(|&slot| self.is_placed(slot)).collect();
        for &slot in &placed {
            self.close(slot)?;
            self.remove(slot);
        }
        Ok(placed)
    }

    /// Places the probes of these slots again, and opens their gates.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn resume(&mut self, placed: &[u32]) -> Result<(), CaptureError> {
        for &slot in placed {
            let pid = self.slots.get(slot as usize).map_or(0, |slot| slot.pid);
            if slot == 0 || pid != 0 && !leader::is_gone(pid) {
                self.place(slot);
                self.open(slot)?;
            }
        }
        Ok(())
    }

    /// Whether a slot's probes are in place, or being placed.
    #[must_use]
    pub fn is_placed(&self, slot: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(|state| !state.links.is_empty()) || self.is_placing(slot)
    }

    /// Whether a slot's probes have to wait: they are being placed, or the kernel removes perf events and places none meanwhile, for seconds.
    #[must_use]
    pub fn must_wait(&self, slot: u32) -> bool {
        let by_events =
            |slot: &Slot| self.placer.mechanism() == Mechanism::PerfEvents || leader::stand_in(slot.pid).is_some();
        self.is_placing(slot) || removes() && self.slots.get(slot as usize).is_some_and(by_events)
    }

    /// Slots whose probes are in place, or being placed.
    #[must_use]
    pub fn occupied(&self) -> usize {
        let placing = self.all_placing();
        let placed = |(slot, state): &(usize, &Slot)| !state.links.is_empty() || placing.contains(&(*slot as u32));
        self.slots.iter().enumerate().filter(placed).count()
    }

    /// Whether there is anything to be probed in a slot's process.
    #[must_use]
    pub fn is_probed(&self, slot: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(|slot| self.sites.iter().any(|site| slot.wants(site)))
    }

    /// Opens every gate whose probes are in place.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn open_all(&mut self) -> Result<(), CaptureError> {
        for slot in 0..self.slots.len() {
            if !self.slots[slot].links.is_empty() {
                self.open(slot as u32)?;
            }
        }
        Ok(())
    }

    /// Forgets a process that has exited before it had a slot.
    pub fn forget(&mut self, pid: u32) {
        // It may be gone from the map already.
        let _ = self.targets.remove(&pid);
    }

    /// Forgets a process that has exited: its slot is free for another.
    pub fn dismiss(&mut self, slot: u32) {
        self.remove_ungated(slot);
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            (slot.shed, slot.headless) = (Shed::Nothing, false);
            let pid = std::mem::take(&mut slot.pid);
            self.forget(pid);
        }
    }

    /// Places a slot's probes; its gate stays closed. Nothing is done if they are in place, or the process has ended.
    pub fn place(&mut self, slot: u32) {
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        if state.prepare(&mut self.gates, slot).is_none() {
            return;
        }
        let placed = state.place(&self.placer, self.sites.iter(), slot);
        self.enter(placed);
        self.place_ungated(slot);
    }

    /// Opens a slot's gate, its probes being in place.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn open(&mut self, slot: u32) -> Result<(), CaptureError> {
        let Some(state) = self.slots.get_mut(slot as usize) else { return Ok(()) };
        state.epoch += 1;
        state.gate.epoch = state.epoch;
        state.gate.opened_boottime_ns = clock(ClockId::CLOCK_BOOTTIME);
        Ok(self.gates.set(slot, state.gate, 0)?)
    }

    /// Closes a slot's gate: its probes do nothing any more. They are still there.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn close(&mut self, slot: u32) -> Result<(), CaptureError> {
        let Some(state) = self.slots.get_mut(slot as usize) else { return Ok(()) };
        if state.gate.epoch == 0 {
            return Ok(());
        }
        state.gate.closed_ns[state.epoch as usize & (CLOSINGS - 1)] = clock(ClockId::CLOCK_MONOTONIC);
        state.gate.epoch = 0;
        Ok(self.gates.set(slot, state.gate, 0)?)
    }

    /// Removes a slot's probes, without waiting until the kernel has done with them.
    pub fn remove(&mut self, slot: u32) {
        self.forget_placing(slot);
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        let links = std::mem::take(&mut state.links);
        if links.is_empty() {
            return;
        }
        if let Some(since) = state.muted.take() {
            self.gaps.push(Gap { pid: state.pid, from: since, to: now() });
        }
        let wanted = self.sites.iter().filter(|site| state.is_gated(site)).count();
        self.placed = self.placed.saturating_sub(wanted);
        // Links last: until the breakpoints are gone, their programs count what hits cost.
        drop_aside((std::mem::take(&mut state.holders), std::mem::take(&mut state.spent), links));
    }

    /// Places probes in further libraries: at once where the gate is open, at the next opening elsewhere.
    pub fn extend(&mut self, sites: &[ProbeSite]) {
        let (sites, failed) = self.placer.usable(sites);
        self.failed.extend(failed);
        let mut placed = Vec::new();
        for (slot, state) in self.slots.iter_mut().enumerate() {
            if state.gate.epoch != 0 {
                placed.push(state.place(&self.placer, sites.iter(), slot as u32));
            }
        }
        placed.into_iter().for_each(|placed| self.enter(placed));
        self.sweeper.extend(&sites);
        self.sites.extend(sites);
        for slot in 0..self.slots.len() as u32 {
            let is_observed = self.slots.get(slot as usize).is_some_and(|state| state.pid != 0) && !self.common;
            if is_observed || self.is_open(slot) {
                self.place_ungated(slot);
            }
        }
    }

    /// Records the waits of a slot's process that only futex calls show at this level ([`lockbpf_common::thin`]).
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn thin(&mut self, slot: u32, level: u32) -> Result<(), CaptureError> {
        Ok(self.thinning.set(slot, level, 0)?)
    }

    /// What was placed in a process follows it no more, perhaps since then: it is placed anew. Sections in progress are cut.
    pub fn renew(&mut self, pid: u32, since: Time) {
        let Some(slot) = self.slots.iter().position(|slot| slot.pid == pid) else { return };
        if !self.slots[slot].ungated.is_empty() {
            // What came meanwhile was not seen.
            self.give_up_ungated(slot as u32);
        }
        if self.is_placing(slot as u32) {
            // It is not known which part of it went there before.
            self.forget_placing(slot as u32);
            self.begin(slot as u32);
            return;
        }
        if self.slots[slot].links.is_empty() {
            return;
        }
        let (open, slot, failed) = (self.slots[slot].gate.epoch != 0, slot as u32, self.failed.len());
        if self.close(slot).is_err() {
            return;
        }
        let placed = self.placed;
        let state = &mut self.slots[slot as usize];
        // Removed last: while the kernel removes perf events, it places none. Their hits do not count any more.
        let spent = std::mem::take(&mut state.spent);
        let old = (std::mem::take(&mut state.links), std::mem::take(&mut state.holders), spent);
        self.place(slot);
        drop_aside(old);
        self.placed = placed;
        if leader::is_gone(pid) || self.slots[slot as usize].stand_in.is_some_and(|tid| !leader::runs(pid, tid)) {
            // That is why probes could not be placed.
            self.failed.truncate(failed);
        }
        if open {
            if let Err(error) = self.open(slot) {
                log::warn!("pid {pid} is not observed any more: {error}");
            }
            self.gaps.push(Gap { pid, from: since, to: now() });
        }
    }

    /// Keeps a slot's breakpoints in place by another thread. Where one had done so that has ended, any removal of anybody's link may have
    /// taken some of them away: then the gate is closed until all are there again.
    fn hold_by(&mut self, slot: u32, stand_in: Option<u32>) {
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        let doubtful = state.stand_in.is_some();
        let open = state.gate.epoch != 0 || state.muted.is_some();
        let since = state.muted.unwrap_or(self.looked_after);
        if doubtful && self.close(slot).is_err() {
            return;
        }
        let state = &mut self.slots[slot as usize];
        let sites: Vec<&ProbeSite> = self.sites.iter().filter(|site| state.is_gated(site)).collect();
        let (holders, unheld) = stand_in.map(|tid| hold(&sites, tid)).unwrap_or_default();
        // Not removed yet: while the kernel removes perf events, it places none.
        state.spent.push(std::mem::replace(&mut state.holders, holders));
        if state.spent.len() > MAX_SPENT {
            drop_aside(state.spent.remove(0));
        }
        state.stand_in = stand_in;
        let (pid, holds) = (state.pid, stand_in.is_none_or(|tid| leader::runs(state.pid, tid)));
        state.muted = if doubtful && open && !holds { Some(since) } else { None };
        if holds {
            self.failed.extend(unheld);
        }
        if doubtful && open && holds {
            if let Err(error) = self.open(slot) {
                log::warn!("pid {pid} is not observed any more: {error}");
            }
            self.gaps.push(Gap { pid, from: since, to: now() });
        }
    }

    /// Whoever is not observed for want of a thread that goes on has not been until now: the observation ends.
    pub fn end_gaps(&mut self) {
        for slot in &mut self.slots {
            if let Some(since) = slot.muted.take() {
                self.gaps.push(Gap { pid: slot.pid, from: since, to: now() });
            }
        }
    }

    /// When processes were not observed since this was asked last, although they were to be.
    pub fn take_gaps(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.gaps)
    }

    /// Ties what is placed in processes whose main threads have ended to threads that go on.
    pub fn look_after(&mut self) {
        for slot in 1..self.slots.len() {
            self.look_after_ungated(slot as u32);
            let state = &self.slots[slot];
            let stays = state.stand_in.is_some_and(|tid| leader::runs(state.pid, tid));
            if state.pid == 0 || state.links.is_empty() || stays {
                continue;
            }
            // A process that is gone needs nothing any more.
            let Some(main) = leader::find(state.pid) else { continue };
            let stand_in = Some(main).filter(|&tid| tid != state.pid);
            if stand_in == state.stand_in {
                continue;
            }
            if self.placer.mechanism() == Mechanism::PerfEvents {
                // Their programs run only where they may have placed the breakpoint.
                self.renew(self.slots[slot].pid, self.looked_after);
                continue;
            }
            self.hold_by(slot as u32, stand_in);
        }
        self.looked_after = now();
    }

    /// CPU time that children have used on breakpoints at most, ns: see [`Gates::settle_children`].
    #[must_use]
    pub fn children_ns(&self) -> Arc<AtomicU64> {
        self.sweeper.used_ns()
    }

    /// Takes into account children that are not known to be free of breakpoints yet.
    pub fn settle_children(&self) {
        self.sweeper.settle();
    }
}

impl Drop for Gates {
    fn drop(&mut self) {
        // All at once: each removal waits for the kernel.
        let mut all = Links::default();
        for slot in &mut self.slots {
            all.extend(std::mem::take(&mut slot.links));
            all.extend(std::mem::take(&mut slot.ungated));
            all.extend(std::mem::take(&mut slot.holders));
            slot.spent.drain(..).for_each(|spent| all.extend(spent));
        }
    }
}

/// Whether some process runs under a translator of code, which would translate breakpoints, too.
fn translated_somewhere() -> bool {
    let all = super::target::all().unwrap_or_default();
    all.into_iter().any(|pid| super::target::translator(pid).is_some())
}
