//! The full tier, process by process: probes are placed and the gate opened, or the gate closed and the probes removed.

use super::CaptureError;
use super::aside::drop_aside;
use super::attach::ProbeSite;
use super::placer::{Links, Mechanism, Placer};
use super::sched::Sched;
use super::session::{clock, now};
use super::target::FileKey;
use crate::costs::Costs;
use crate::governor::Reading;
use crate::perturbation::Taken;
use crate::quality::FailedProbe;
use crate::units::Nanos;
use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use lockbpf_common::gate::{Account, CLOSINGS, Gate, MAX_SLOTS};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::time::Duration;

/// So many slots are taken before those of processes that have exited are given to others: while the kernel removes probes that
/// are perf events, it places none, for seconds.
const CROWDED: usize = MAX_SLOTS as usize / 2;

/// So many processes have probes of their own before, if the kernel side filters, they are placed for all at once: each hit is
/// offered to the links of all processes, at 40 ns each.
const FEW: usize = 16;

/// Every gate, and what observing each process has taken.
pub struct Gates {
    placer: Placer,
    sched: Sched,
    gates: Array<MapData, Gate>,
    accounts: PerCpuArray<MapData, Account>,
    targets: HashMap<MapData, u32, u32>,
    sites: Vec<ProbeSite>,
    slots: Vec<Slot>,
    failed: Vec<FailedProbe>,
    /// Probes in place.
    placed: usize,
    /// Processes beyond the last slot.
    refused: u64,
    /// Whether the kernel side lets nobody through but those that are to be observed, so that probes may be in all processes.
    filtered: bool,
    /// Whether they are.
    common: bool,
}

/// One process's.
#[derive(Default)]
struct Slot {
    pid: u32,
    /// The files to place its probes in; `None` for all that are known.
    files: Option<Vec<FileKey>>,
    epoch: u64,
    gate: Gate,
    links: Links,
}

impl Gates {
    /// Takes the maps from the object; slot 0, all processes, exists from the start.
    pub(super) fn new(
        ebpf: &mut Ebpf,
        placer: Placer,
        sched: Sched,
        sites: &[ProbeSite],
        filtered: bool,
    ) -> Result<Self, CaptureError> {
        let mut map = |name: &'static str| ebpf.take_map(name).ok_or(CaptureError::NoMap(name));
        let (gates, accounts, targets): (Map, Map, Map) = (map("GATES")?, map("ACCOUNTS")?, map("TARGETS")?);
        Ok(Self {
            placer,
            sched,
            gates: gates.try_into()?,
            accounts: accounts.try_into()?,
            targets: targets.try_into()?,
            sites: sites.to_vec(),
            slots: vec![Slot::default()],
            failed: Vec::new(),
            placed: 0,
            refused: 0,
            filtered,
            common: false,
        })
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
        self.slots[slot].files = files;
        self.targets.insert(pid, number, 0)?;
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
        let Some(slot) = self.admit(pid, files)? else { return self.refuse(pid) };
        let (failed, placed) = (self.failed.len(), self.placed);
        self.place(slot);
        if is_gone(pid) {
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
            let gone = self.slots.get(slot as usize).is_some_and(|s| is_gone(s.pid));
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
        // Of more than the map holds, those outside of it are seen where everybody is; else they are counted all the same.
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
            let sites: Vec<&ProbeSite> = self.sites.iter().filter(|site| files.contains(&site.file)).collect();
            let (links, failed) = self.placer.place(&sites, state.pid, slot);
            self.placed += sites.len().saturating_sub(failed.len());
            state.links.extend(links);
            self.failed.extend(failed);
        }
    }

    /// Whether a slot's probes are in place.
    #[must_use]
    pub fn is_placed(&self, slot: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(|slot| !slot.links.is_empty())
    }

    /// Slots whose probes are in place.
    #[must_use]
    pub fn occupied(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.links.is_empty()).count()
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

    /// Forgets a process that has exited: its slot is free for another.
    pub fn dismiss(&mut self, slot: u32) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            // It may be gone from the map already.
            let _ = self.targets.remove(&slot.pid);
            slot.pid = 0;
        }
    }

    /// Places a slot's probes; its gate stays closed. Nothing is done if they are in place.
    pub fn place(&mut self, slot: u32) {
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        if !state.links.is_empty() {
            return;
        }
        let sites: Vec<&ProbeSite> = self.sites.iter().filter(|site| state.wants(site)).collect();
        let (links, failed) = self.placer.place(&sites, state.pid, slot);
        self.placed += sites.len().saturating_sub(failed.len());
        state.links = links;
        self.failed.extend(failed);
    }

    /// Opens a slot's gate, its probes being in place.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn open(&mut self, slot: u32) -> Result<(), CaptureError> {
        let Some(state) = self.slots.get_mut(slot as usize) else { return Ok(()) };
        if let Some(failed) = self.sched.on() {
            self.failed.push(failed);
        }
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
        self.gates.set(slot, state.gate, 0)?;
        if self.slots.iter().all(|slot| slot.gate.epoch == 0) {
            self.sched.off();
        }
        Ok(())
    }

    /// Removes a slot's probes, without waiting until the kernel has done with them.
    pub fn remove(&mut self, slot: u32) {
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        let links = std::mem::take(&mut state.links);
        if links.is_empty() {
            return;
        }
        let wanted = self.sites.iter().filter(|site| state.wants(site)).count();
        self.placed = self.placed.saturating_sub(wanted);
        drop_aside(links);
    }

    /// Places probes in further libraries: at once where the gate is open, at the next opening elsewhere.
    pub fn extend(&mut self, sites: &[ProbeSite]) {
        for (slot, state) in self.slots.iter_mut().enumerate() {
            if state.gate.epoch != 0 {
                let sites: Vec<&ProbeSite> = sites.iter().filter(|site| state.wants(site)).collect();
                let (links, failed) = self.placer.place(&sites, state.pid, slot as u32);
                self.placed += sites.len().saturating_sub(failed.len());
                state.links.extend(links);
                self.failed.extend(failed);
            }
        }
        self.sites.extend_from_slice(sites);
    }

    /// What a process has used, and what observing it has cost by these prices; `None` if it is gone.
    #[must_use]
    pub fn reading(&self, slot: u32, costs: &Costs) -> Option<Reading> {
        let state = self.slots.get(slot as usize)?;
        let cpu_clock = clock_getcpuclockid(Pid::from_raw(state.pid.cast_signed())).ok()?;
        let taken = taken(&self.accounts, slot).ok()?;
        let cpu = clock_gettime(cpu_clock).ok()?;
        Some(Reading { time: now(), cpu: Nanos(Duration::from(cpu).as_nanos() as u64), cost: taken.cost(costs) })
    }
}

impl Drop for Gates {
    fn drop(&mut self) {
        // All at once: each removal waits for the kernel.
        let mut all = Links::default();
        self.slots.iter_mut().for_each(|slot| all.extend(std::mem::take(&mut slot.links)));
    }
}

impl Slot {
    fn wants(&self, site: &ProbeSite) -> bool {
        self.files.as_ref().is_none_or(|files| files.contains(&site.file))
    }
}

/// What observing a slot's process has taken so far.
pub(super) fn taken(accounts: &PerCpuArray<MapData, Account>, slot: u32) -> Result<Taken, MapError> {
    let mut sum = Taken::default();
    for cpu in accounts.get(&slot, 0)?.iter() {
        sum.hits += cpu.hits;
        sum.stepped += cpu.stepped;
        sum.records += cpu.records;
        sum.record_bytes += cpu.record_bytes;
        sum.stack_bytes += cpu.stack_bytes;
        sum.futex_calls += cpu.futex_calls;
        sum.switches += cpu.switches;
        sum.stack_ns += cpu.stack_ns;
    }
    Ok(sum)
}

/// Whether some process runs under a translator of code, which would translate breakpoints, too.
fn translated_somewhere() -> bool {
    let all = super::target::all().unwrap_or_default();
    all.into_iter().any(|pid| super::target::translator(pid).is_some())
}

fn is_gone(pid: u32) -> bool {
    clock_getcpuclockid(Pid::from_raw(pid.cast_signed())).is_err()
}
