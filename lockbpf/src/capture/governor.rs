//! Keeps the budget while an observation runs: a thread of its own, so that no window stays open because somebody else is
//! busy, opens and closes the gates as the [policy](crate::governor) of each process says.

mod charge;
mod lighter;
mod opening;
mod placings;
mod room;
mod told;

use self::charge::Charge;
use self::placings::Placings;
pub use self::told::{Told, Watched};
use super::attach::ProbeSite;
use super::be_quick;
use super::gates::Gates;
use super::lease::Lease;
use super::placer::Placer;
use super::put_off::{Grown, PutOff};
use super::target::FileKey;
use crate::costs::Costs;
use crate::governor::{Action, Budget, LOOK, Policy, Reading};
use crate::units::{Nanos, Time};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Processes that can be looked at as often as each wants.
const FEW: usize = 2;
/// How long a process is not looked at, at most.
const GLANCE: Duration = Duration::from_millis(50);
/// Most processes for which the governor looks at each [`GLANCE`] whether probes still follow them. Beyond that it looks less often.
const AT_A_GLANCE: usize = 8;
/// The longest time between two such looks, in glances.
const MOST_GLANCES: usize = 10;
/// Processes are looked at in the same step for so long. Windows are not to keep time with a program's timers.
const STEP_LASTS: Nanos = Nanos(100_000_000);
/// How long is waited for orders to be done, at most.
const SETTLED: Duration = Duration::from_secs(2);
/// By how much a look is put off at most, and by how much at a process that used less than one part in `HARDLY` of a CPU since it was looked at,
/// its gate being closed.
const MAX_SPREAD: Duration = Duration::from_millis(100);
const MAX_SELDOM: Duration = Duration::from_millis(500);
const HARDLY: u64 = 100;
/// Processes that have probes in place at one time, unless more were named. Each hit in a file is offered to the links of all of them, which makes it
/// dearer by 3 % for each; and each removal goes over all links for each process that maps the file.
const PLACES: usize = 12;
/// How many of these are for processes that have used no CPU time so far, lest those that do have to wait for theirs.
const EARLY: usize = 8;

enum Command {
    Sites(Vec<ProbeSite>),
    Process(u32, Option<Vec<FileKey>>),
    Renew(u32, Time),
    GoOn(u32),
    /// Removes every probe, then answers; places none until it may again.
    Suspend(Sender<()>),
    Resume,
    /// Answers when what was ordered before is done.
    Settled(Sender<()>),
    /// Probes are in place that another thread was placing.
    Placed,
    Stop,
}

/// A governor at work; it stops when dropped, its gates closed and its probes removed.
pub struct Governor {
    commands: Sender<Command>,
    told: UnboundedReceiver<Told>,
    thread: Option<JoinHandle<Gates>>,
    placer: Arc<Placer>,
    /// Whether lockbpf has no CPU time left.
    busy: Arc<AtomicBool>,
    /// CPU time that reading the sums of windows has taken, ns.
    read: Arc<AtomicU64>,
}

impl Governor {
    /// Takes over gates that are open, of these processes in the order of their slots.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(gates: Gates, lease: Lease, pids: &[u32], budget: Budget, costs: Costs) -> std::io::Result<Self> {
        let (commands, orders) = channel();
        let (tell, told) = unbounded_channel();
        let (busy, read) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let placer = gates.placer();
        let mut work = Work {
            gates,
            busy: busy.clone(),
            lapses: lease.number(),
            lease,
            suspended: false,
            budget,
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
            costs,
            charges: BTreeMap::new(),
            slots: HashMap::new(),
            fresh: PutOff::default(),
            refused: VecDeque::new(),
            places: (PLACES.max(pids.len()), EARLY.max(pids.len())),
            placings: Placings::new(now(), read.clone()),
            looked_after: Time(0),
            step: Nanos(0),
            stepped: Time(0),
            tell,
        };
        for (i, &pid) in pids.iter().enumerate() {
            work.take_over(i as u32 + 1, pid);
        }
        let wake = commands.clone();
        let thread = std::thread::Builder::new().name("governor".to_owned()).spawn(move || work.run(&orders, wake))?;
        Ok(Self { commands, told, thread: Some(thread), placer, busy, read })
    }

    /// What there is to tell; `None` when it has stopped.
    pub async fn told(&mut self) -> Option<Told> {
        self.told.recv().await
    }

    /// What else there is to tell already.
    pub fn told_already(&mut self) -> Option<Told> {
        self.told.try_recv().ok()
    }

    /// While lockbpf has no CPU time left, processes that have used none get no probes.
    pub fn pace(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// To read the sums of windows has taken so much CPU time.
    pub fn reading_took(&self, cpu: Nanos) {
        self.read.fetch_add(cpu.0, Ordering::Relaxed);
    }

    /// The sums of a stretch have been read: its process may go on to the next.
    pub fn go_on(&self, pid: u32) {
        self.order(Command::GoOn(pid));
    }

    /// Removes every probe, and returns when that is under way; the lease is to be paused before. Nothing is done until
    /// [`Governor::resume`].
    pub fn suspend(&self) {
        let (tell, told) = channel();
        self.order(Command::Suspend(tell));
        // One that has stopped has removed them.
        let _ = told.recv();
    }

    /// Waits until all that was ordered is done, but not for ever.
    pub fn settle(&self) {
        let (tell, told) = channel();
        self.order(Command::Settled(tell));
        told.recv_timeout(SETTLED).unwrap_or_else(|_| log::debug!("probes are still to be placed"));
    }

    /// Goes on after [`Governor::suspend`].
    pub fn resume(&self) {
        self.order(Command::Resume);
    }

    /// Places probes in further libraries.
    pub fn extend(&self, sites: Vec<ProbeSite>) {
        // The caller's thread waits for the verifier. The governor's closes windows in time.
        self.placer.load(&sites);
        self.order(Command::Sites(sites));
    }

    /// Observes one more process, with its probes in these files or, with `None`, in all that are known. To one that is
    /// observed already, further files are added.
    pub fn admit(&self, pid: u32, files: Option<Vec<FileKey>>) {
        self.order(Command::Process(pid, files));
    }

    /// What was placed in a process follows it no more, perhaps since then: it is placed anew.
    pub fn renew(&self, pid: u32, since: Time) {
        self.order(Command::Renew(pid, since));
    }

    /// Closes every gate. Returns what has not been told yet, the last stretches, and the gates, whose probes are still in place; `None` if
    /// the governor had stopped.
    pub fn stop(&mut self) -> (Vec<Told>, Option<Gates>) {
        self.order(Command::Stop);
        let gates = self.thread.take().and_then(|thread| thread.join().ok());
        let mut rest = Vec::new();
        while let Ok(told) = self.told.try_recv() {
            rest.push(told);
        }
        (rest, gates)
    }

    fn order(&self, command: Command) {
        // A governor that has stopped needs no orders.
        let _ = self.commands.send(command);
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Work {
    gates: Gates,
    busy: Arc<AtomicBool>,
    lease: Lease,
    /// Its lapses that are known here.
    lapses: u64,
    /// Whether no probes are to be placed.
    suspended: bool,
    budget: Budget,
    cpus: usize,
    costs: Costs,
    charges: BTreeMap<u32, Charge>,
    /// By pid.
    slots: HashMap<u32, u32>,
    /// Processes that came while lockbpf had no CPU time left: they are admitted later.
    fresh: PutOff<Option<Vec<FileKey>>>,
    /// Processes for which there was no slot yet.
    refused: VecDeque<(u32, Option<Vec<FileKey>>)>,
    /// Places, and of these early ones: those that were named have one each.
    places: (usize, usize),
    placings: Placings,
    /// When it was last looked whether what is placed still follows its process.
    looked_after: Time,
    /// In which step processes are looked at, and since when: see [`in_step`].
    step: Nanos,
    stepped: Time,
    tell: UnboundedSender<Told>,
}

impl Work {
    fn run(mut self, orders: &Receiver<Command>, wake: Sender<Command>) -> Gates {
        be_quick();
        self.gates.prepare_sampling();
        // A governor that has stopped need not be woken.
        if let Err(error) = self.gates.place_beside(move || drop(wake.send(Command::Placed))) {
            log::warn!("placing probes holds up what else is to be done: {error}");
        }
        loop {
            let next = self.charges.values().filter(|c| !c.held).map(|c| c.due).min();
            let next = next.map(|due| Duration::from_nanos(due.since(now()).0));
            let next = next.into_iter().chain(self.fresh.left()).min().filter(|_| !self.suspended);
            let wait = next.unwrap_or(Duration::from_secs(1));
            let wait = if self.gates.occupied() > 0 { wait.min(GLANCE) } else { wait };
            let mut order = orders.recv_timeout(wait);
            // All that were given, before anything that takes time.
            loop {
                match order {
                    Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => {
                        self.end();
                        return self.gates;
                    }
                    Ok(order) => self.obey(order),
                    Err(RecvTimeoutError::Timeout) => break,
                }
                order = orders.recv_timeout(Duration::ZERO);
            }
            self.cut_if_lapsed();
            if !self.suspended {
                self.shed();
                let glance = GLANCE * (self.charges.len() / AT_A_GLANCE).clamp(1, MOST_GLANCES) as u32;
                if now().since(self.looked_after) >= Nanos(glance.as_nanos() as u64) {
                    self.gates.look_after();
                    self.looked_after = now();
                }
                self.admit_grown();
                self.look();
            }
            self.pace_clock(None);
            self.tell_failed();
        }
    }

    fn obey(&mut self, order: Command) {
        match order {
            Command::Sites(sites) => self.gates.extend(&sites),
            Command::Process(pid, files) if self.busy.load(Ordering::Relaxed) && !self.slots.contains_key(&pid) => {
                self.fresh.push(pid, files);
            }
            Command::Process(pid, files) => self.admit(pid, files),
            Command::Renew(pid, since) => self.gates.renew(pid, since),
            Command::Suspend(done) => {
                self.suspended = true;
                self.lapses = self.lease.number();
                self.cut_open();
                self.gates.lift_ungated();
                self.gates.forget_all_placing();
                self.gates.wait_for_placing();
                let _ = done.send(());
            }
            Command::Resume => {
                self.gates.lower_ungated();
                self.suspended = false;
            }
            Command::GoOn(pid) => {
                let charge = self.slots.get(&pid).and_then(|slot| self.charges.get_mut(slot));
                charge.into_iter().for_each(|charge| charge.held = false);
            }
            Command::Settled(done) => {
                let _ = done.send(());
            }
            Command::Placed => self.open_placed(),
            Command::Stop => {}
        }
    }

    /// A process whose gate is open already.
    fn take_over(&mut self, slot: u32, pid: u32) {
        let Some(reading) = self.gates.reading(slot, &self.costs) else { return };
        let policy = Policy::open(self.budget, reading, self.cpus, fastrand::u64(..));
        self.slots.insert(pid, slot);
        self.charges.insert(slot, Charge { opened: Some(reading), ..Charge::new(pid, policy, reading, self.budget) });
    }

    /// Admits those that were put off and have not gone meanwhile.
    fn admit_grown(&mut self) {
        while let Some(Grown { pid, what: files, is_gone }) = self.fresh.next(false) {
            if is_gone { self.gates.forget(pid) } else { self.admit(pid, files) }
        }
    }

    /// A process whose gate is closed.
    fn admit(&mut self, pid: u32, files: Option<Vec<FileKey>>) {
        if let Some(&slot) = self.slots.get(&pid) {
            return self.gates.uses(slot, files);
        }
        let slot = match self.gates.admit(pid, files.clone()) {
            Ok(Some(slot)) => slot,
            Ok(None) => {
                if !self.refused.iter().any(|&(refused, _)| refused == pid) {
                    let _ = self.gates.refuse(pid);
                    let _ = self.tell.send(Told::Refused(self.gates.refused()));
                    self.refused.push_back((pid, files));
                }
                return;
            }
            Err(error) => return log::warn!("pid {pid} is not observed fully: {error}"),
        };
        let Some(reading) = self.gates.reading(slot, &self.costs) else {
            // That is why probes could not be placed.
            self.gates.take_failed();
            return self.gates.dismiss(slot);
        };
        let policy = Policy::closed(self.budget, reading, self.cpus, fastrand::u64(..));
        self.slots.insert(pid, slot);
        self.charges.insert(slot, Charge::new(pid, policy, reading, self.budget));
    }

    /// Looks at the processes that are due, until there may be orders again.
    fn look(&mut self) {
        let time = now();
        let apart = self.placings.apart(time);
        if time.since(self.stepped) >= STEP_LASTS {
            (self.step, self.stepped) = (Nanos(fastrand::u64(..LOOK.as_nanos() as u64)), time);
        }
        let due = self.charges.iter().filter(|(_, charge)| !charge.held && charge.due <= time);
        let mut due: Vec<(Time, u32)> = due.map(|(&slot, charge)| (charge.due, slot)).collect();
        // In random order where several are due together: there may be one place, and no process is to lose it always.
        fastrand::shuffle(&mut due);
        due.sort_by_key(|&(due, _)| due);
        for (_, slot) in due {
            if now().since(time) > Nanos(LOOK.as_nanos() as u64) {
                break;
            }
            self.tell_failed();
            if !self.charges.contains_key(&slot) {
                continue;
            }
            if self.look_at(slot, apart).is_none() {
                // Probes that could not be placed in it failed for that reason.
                self.gates.take_failed();
                self.dismiss(slot);
            }
        }
    }

    /// Does what the policy of one process says, with windows so far apart; `None` if the process is gone.
    fn look_at(&mut self, slot: u32, apart: f64) -> Option<()> {
        let processes = self.charges.len();
        let wanted = LOOK * (processes / FEW) as u32;
        let spread = wanted.min(MAX_SPREAD);
        loop {
            let used = self.gates.used(slot)?;
            self.thin(slot, &used);
            let reading = used.reading(&self.costs);
            // The policy is not to be told of time that nobody saw as of a window.
            if self.cut_if_lapsed() {
                return Some(());
            }
            let charge = self.charges.get_mut(&slot)?;
            if reading.cpu > charge.seen.cpu {
                charge.busy = reading.time;
            }
            // The more there are, the less often each is looked at, but still often enough to catch a burst, which costs only where a gate is open.
            let hardly_runs = (reading.cpu - charge.seen.cpu).0 < reading.time.since(charge.seen.time).0 / HARDLY;
            let seldom = if hardly_runs && !charge.policy.is_open() { wanted.min(MAX_SELDOM) } else { spread };
            // While closed, too: the clock of a process goes with it.
            let latest = reading.time + Nanos((GLANCE + seldom).as_nanos() as u64);
            // Where no window is open, they are looked at together: to wake up for each costs more than the look.
            let latest = if spread.is_zero() || charge.policy.is_open() { latest } else { together(latest) };
            charge.policy.shares_with(processes, apart);
            let action = charge.policy.look(reading);
            match action {
                Action::Wait(until) => {
                    let charge = self.charges.get_mut(&slot)?;
                    let more = if charge.policy.stays_open() { spread } else { Duration::ZERO };
                    let due = (until + Nanos(more.as_nanos() as u64)).min(latest);
                    charge.due = if spread.is_zero() { due } else { in_step(due, reading.time, self.step) };
                    charge.seen = reading;
                    return Some(());
                }
                Action::Open => {
                    let room = self.room(slot, reading).filter(|_| !self.gates.must_wait(slot));
                    let Some(room) = room else {
                        let charge = self.charges.get_mut(&slot)?;
                        charge.due = latest;
                        charge.seen = reading;
                        return Some(());
                    };
                    self.make(room, reading.time);
                    let charge = self.charges.get_mut(&slot)?;
                    charge.placing = reading;
                    if charge.policy.opens_window() {
                        self.gates.start_sampling();
                    }
                    let charge = self.charges.get_mut(&slot)?;
                    if !self.gates.begin(slot) {
                        charge.due = latest;
                        charge.seen = reading;
                        return Some(());
                    }
                    self.open(slot)?;
                }
                Action::Close => {
                    let charge = self.charges.get_mut(&slot)?;
                    self.gates.close(slot).ok()?;
                    let closed = self.gates.reading(slot, &self.costs);
                    self.gates.remove(slot);
                    let seen = charge.seen_until(&self.lease, closed?);
                    charge.closed = Some(seen);
                    if charge.policy.is_between() {
                        return self.end_stretch(slot, seen);
                    }
                }
                Action::Next => return self.end_stretch(slot, reading),
            }
        }
    }

    /// Where the lease was over, nothing was seen of windows and of processes whose gates stay open from then on: they end there. What
    /// goes on begins anew. Whether that was so.
    fn cut_if_lapsed(&mut self) -> bool {
        let lapses = self.lease.number();
        if std::mem::replace(&mut self.lapses, lapses) == lapses {
            return false;
        }
        self.cut_open();
        true
    }

    /// Ends what was seen of all processes.
    fn cut_open(&mut self) {
        let open: Vec<u32> = self.charges.keys().copied().filter(|&slot| self.gates.is_open(slot)).collect();
        for slot in open {
            if self.cut(slot).is_none() {
                self.dismiss(slot);
            }
        }
    }

    /// Ends what was seen of a process before a lapse; `None` if the process is gone.
    fn cut(&mut self, slot: u32) -> Option<()> {
        self.gates.close(slot).ok()?;
        let closed = self.gates.reading(slot, &self.costs);
        self.gates.remove(slot);
        let charge = self.charges.get_mut(&slot)?;
        let seen = charge.seen_until(&self.lease, closed?);
        charge.closed = Some(seen);
        charge.due = now();
        if charge.policy.cut() { Some(()) } else { self.end_stretch(slot, seen) }
    }

    /// Takes its place from a process whose gate stays open, whether it needs it or not; `None` if the process is gone.
    fn vacate(&mut self, slot: u32, busy: bool) -> Option<()> {
        self.gates.close(slot).ok()?;
        let closed = self.gates.reading(slot, &self.costs);
        self.gates.remove(slot);
        let charge = self.charges.get_mut(&slot)?;
        charge.shares = busy;
        charge.policy.made_room();
        let seen = charge.seen_until(&self.lease, closed?);
        charge.closed = Some(seen);
        self.end_stretch(slot, seen)
    }

    /// Tells the stretch that ends here, and lets the process be until its sums have been read.
    fn end_stretch(&mut self, slot: u32, to: Reading) -> Option<()> {
        self.tell_stretch(slot, to)?;
        self.charges.get_mut(&slot)?.held = true;
        Some(())
    }

    /// Tells the stretch that ends here, and begins another.
    fn tell_stretch(&mut self, slot: u32, to: Reading) -> Option<()> {
        let charge = self.charges.get_mut(&slot)?;
        let whole = charge.is_whole();
        let from = std::mem::replace(&mut charge.from, to);
        let (since, until) = (charge.opened.unwrap_or(to), charge.closed.take().unwrap_or(to));
        let open = (until.time.since(since.time), until.cpu - since.cpu, until.cost - since.cost);
        let sampled = until.sampled - since.sampled;
        if !charge.policy.stays_open() {
            charge.opened = None;
        }
        // Nobody listens any more: the observation ends.
        let _ = self.tell.send(Told::Stretch(Watched { pid: charge.pid, from, to, open, sampled, whole }));
        Some(())
    }

    /// A process is gone, and with it what its clock told.
    fn dismiss(&mut self, slot: u32) {
        let _ = self.gates.close(slot);
        if let Some(charge) = self.charges.get(&slot) {
            let last = charge.last();
            self.tell_stretch(slot, last);
        }
        self.gates.remove(slot);
        self.gates.dismiss(slot);
        if let Some(charge) = self.charges.remove(&slot) {
            self.slots.remove(&charge.pid);
        }
        if let Some((pid, files)) = self.refused.pop_front() {
            self.admit(pid, files);
        }
    }

    /// Closes every gate and tells the last stretches.
    fn end(&mut self) {
        let slots: Vec<u32> = self.charges.keys().copied().collect();
        for &slot in &slots {
            let _ = self.gates.close(slot);
        }
        // One that is not known yet is found by this.
        self.lease.number();
        for slot in slots {
            let reading = self.gates.reading(slot, &self.costs);
            let Some(charge) = self.charges.get_mut(&slot) else { continue };
            let reading = reading.unwrap_or(charge.last());
            let seen = charge.seen_until(&self.lease, reading);
            if charge.closed.is_none() && seen.time < reading.time {
                charge.closed = Some(seen);
                if charge.policy.stays_open() {
                    self.tell_stretch(slot, seen);
                    self.charges.entry(slot).and_modify(|charge| charge.opened = None);
                }
            }
            self.tell_stretch(slot, reading);
        }
        self.gates.forget_all_placing();
        self.gates.end_gaps();
        self.tell_failed();
    }

    fn tell_failed(&mut self) {
        let failed = self.gates.take_failed();
        if !failed.is_empty() {
            let _ = self.tell.send(Told::Failed(failed));
        }
        let gaps = self.gates.take_gaps();
        if !gaps.is_empty() {
            let _ = self.tell.send(Told::Gaps(gaps));
        }
    }
}

/// The next time at which processes are looked at together.
fn together(time: Time) -> Time {
    Time(time.0.next_multiple_of(GLANCE.as_nanos() as u64))
}

/// About that time, and no later, when others are looked at, too, `step` behind each multiple of [`LOOK`]; a time that is near stays as it is.
fn in_step(time: Time, now: Time, step: Nanos) -> Time {
    let beyond = time.0.saturating_sub(step.0) % LOOK.as_nanos() as u64;
    let before = time - Nanos(beyond);
    if before.since(now).0 >= LOOK.as_nanos() as u64 / 2 { before } else { time }
}

fn now() -> Time {
    super::session::now()
}
