//! Keeps the budget while an observation runs: a thread of its own, so that no window stays open because somebody else is
//! busy, opens and closes the gates as the [policy](crate::governor) of each process says.

use super::attach::ProbeSite;
use super::gates::Gates;
use crate::costs::Costs;
use crate::governor::{Action, Budget, LOOK, Policy, Reading};
use crate::quality::FailedProbe;
use crate::units::{Nanos, Time};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Processes that can be looked at as often as each wants.
const FEW: usize = 2;
/// How long a process is not looked at, at most.
const GLANCE: Duration = Duration::from_millis(50);
/// By how much a look is put off at most.
const MAX_SPREAD: Duration = Duration::from_millis(100);
/// The governor's nice value: it needs little, but that at once, lest a window last longer than it should.
const NICE: i32 = -10;

/// A stretch of a process's time: a cycle with its window, or the time for which its gate stayed open.
#[derive(Clone, Copy)]
pub struct Watched {
    /// The process.
    pub pid: u32,
    /// At its beginning.
    pub from: Reading,
    /// At its end.
    pub to: Reading,
    /// Of this, while the gate was open: time, CPU time and cost.
    pub open: (Nanos, Nanos, Nanos),
    /// Whether it was open all the time.
    pub whole: bool,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: Nanos| ns.0 as f64 / 1e6;
        let Self { pid, from, to, open: (time, cpu, cost), whole } = self;
        write!(f, "pid {pid}: {:.1} ms", ms(to.time.since(from.time)))?;
        write!(f, ", of the CPU {:.2}, cost {:.2}", ms(to.cpu - from.cpu), ms(to.cost - from.cost))?;
        let how = if *whole { "all the time" } else { "in a window" };
        write!(f, "; open {how}: {:.1} ms, of the CPU {:.2}, cost {:.2}", ms(*time), ms(*cpu), ms(*cost))
    }
}

/// What a governor tells while it works.
#[derive(Debug)]
pub enum Told {
    /// A stretch is over. Until [`Governor::go_on`] the gate of its process stays as it is.
    Stretch(Watched),
    /// Probes could not be placed.
    Failed(Vec<FailedProbe>),
}

enum Command {
    Sites(Vec<ProbeSite>),
    Process(u32),
    GoOn(u32),
    Stop,
}

/// A governor at work; it stops when dropped, its gates closed and its probes removed.
pub struct Governor {
    commands: Sender<Command>,
    told: UnboundedReceiver<Told>,
    thread: Option<JoinHandle<()>>,
}

impl Governor {
    /// Takes over gates that are open, of these processes in the order of their slots.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(gates: Gates, pids: &[u32], budget: Budget, costs: Costs) -> std::io::Result<Self> {
        let (commands, orders) = channel();
        let (tell, told) = unbounded_channel();
        let mut work = Work { gates, budget, costs, charges: BTreeMap::new(), tell };
        for (i, &pid) in pids.iter().enumerate() {
            work.take_over(i as u32 + 1, pid);
        }
        let thread = std::thread::Builder::new().name("governor".to_owned()).spawn(move || work.run(&orders))?;
        Ok(Self { commands, told, thread: Some(thread) })
    }

    /// What there is to tell; `None` when it has stopped.
    pub async fn told(&mut self) -> Option<Told> {
        self.told.recv().await
    }

    /// The sums of a stretch have been read: its process may go on to the next.
    pub fn go_on(&self, pid: u32) {
        self.order(Command::GoOn(pid));
    }

    /// Places probes in further libraries.
    pub fn extend(&self, sites: Vec<ProbeSite>) {
        self.order(Command::Sites(sites));
    }

    /// Observes one more process.
    pub fn admit(&self, pid: u32) {
        self.order(Command::Process(pid));
    }

    /// Closes every gate. Returns what has not been told yet: the last stretches.
    pub fn stop(&mut self) -> Vec<Told> {
        self.order(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let mut rest = Vec::new();
        while let Ok(told) = self.told.try_recv() {
            rest.push(told);
        }
        rest
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

/// One process's.
struct Charge {
    pid: u32,
    policy: Policy,
    /// When to look next.
    due: Time,
    /// Where the stretch began.
    from: Reading,
    /// The last reading.
    seen: Reading,
    /// Where the gate was opened and closed again in this stretch, if it was.
    opened: Option<Reading>,
    closed: Option<Reading>,
    /// Whether its last stretch has not been read yet.
    held: bool,
}

impl Charge {
    /// One whose gate is closed.
    fn new(pid: u32, policy: Policy, reading: Reading) -> Self {
        Self { pid, policy, due: reading.time, from: reading, seen: reading, opened: None, closed: None, held: false }
    }

    /// Whether the gate has been open since the stretch began.
    fn is_whole(&self) -> bool {
        self.opened == Some(self.from)
    }

    /// What can still be said of a process that may be gone.
    fn last(&self) -> Reading {
        Reading { time: now(), ..self.seen }
    }
}

struct Work {
    gates: Gates,
    budget: Budget,
    costs: Costs,
    charges: BTreeMap<u32, Charge>,
    tell: UnboundedSender<Told>,
}

impl Work {
    fn run(mut self, orders: &Receiver<Command>) {
        be_quick();
        loop {
            let next = self.charges.values().filter(|c| !c.held).map(|c| c.due).min();
            let wait = next.map_or(Duration::from_secs(1), |due| Duration::from_nanos(due.since(now()).0));
            match orders.recv_timeout(wait) {
                Ok(Command::Sites(sites)) => self.gates.extend(&sites),
                Ok(Command::Process(pid)) => self.admit(pid),
                Ok(Command::GoOn(pid)) => {
                    self.charges.values_mut().filter(|c| c.pid == pid).for_each(|c| c.held = false)
                }
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.look();
            self.tell_failed();
        }
        self.end();
        self.tell_failed();
    }

    /// A process whose gate is open already.
    fn take_over(&mut self, slot: u32, pid: u32) {
        let Some(reading) = self.gates.reading(slot, &self.costs) else { return };
        let policy = Policy::open(self.budget, reading, fastrand::u64(..));
        self.charges.insert(slot, Charge { opened: Some(reading), ..Charge::new(pid, policy, reading) });
    }

    /// A process whose gate is closed.
    fn admit(&mut self, pid: u32) {
        if self.charges.values().any(|charge| charge.pid == pid) {
            return;
        }
        let slot = match self.gates.admit(pid) {
            Ok(Some(slot)) => slot,
            Ok(None) => {
                let _ = self.gates.refuse(pid);
                return;
            }
            Err(error) => return log::warn!("pid {pid} is not observed fully: {error}"),
        };
        let Some(reading) = self.gates.reading(slot, &self.costs) else { return self.gates.dismiss(slot) };
        let policy = Policy::closed(self.budget, reading, fastrand::u64(..));
        self.charges.insert(slot, Charge::new(pid, policy, reading));
    }

    /// Looks at every process that is due.
    fn look(&mut self) {
        let time = now();
        let due: Vec<u32> =
            self.charges.iter().filter(|(_, c)| !c.held && c.due <= time).map(|(&slot, _)| slot).collect();
        for slot in due {
            self.tell_failed();
            if self.look_at(slot).is_none() {
                // Probes that could not be placed in it failed for that reason.
                self.gates.take_failed();
                self.dismiss(slot);
            }
        }
    }

    /// Does what the policy of one process says; `None` if the process is gone.
    fn look_at(&mut self, slot: u32) -> Option<()> {
        let spread = (LOOK * (self.charges.len() / FEW) as u32).min(MAX_SPREAD);
        loop {
            let reading = self.gates.reading(slot, &self.costs)?;
            let charge = self.charges.get_mut(&slot)?;
            match charge.policy.look(reading) {
                Action::Wait(until) => {
                    // Of many, each is looked at less often, but still often enough to catch a burst.
                    let more = if charge.policy.stays_open() { spread } else { Duration::ZERO };
                    // While closed, too: the clock of a process goes with it.
                    let latest = reading.time + Nanos((GLANCE + spread).as_nanos() as u64);
                    charge.due = (until + Nanos(more.as_nanos() as u64)).min(latest);
                    charge.seen = reading;
                    return Some(());
                }
                Action::Open => {
                    let began = now();
                    self.gates.place(slot);
                    self.gates.open(slot).ok()?;
                    let opened = self.gates.reading(slot, &self.costs)?;
                    charge.policy.opened(opened);
                    charge.policy.edges_took(Duration::from_nanos(opened.time.since(began).0) * 2);
                    charge.opened = Some(opened);
                    if charge.policy.stays_open() {
                        // What went before was not observed at all.
                        self.tell_stretch(slot, opened)?;
                    }
                }
                Action::Close => {
                    self.gates.close(slot).ok()?;
                    let closed = self.gates.reading(slot, &self.costs);
                    self.gates.remove(slot);
                    charge.closed = Some(closed?);
                    if charge.is_whole() {
                        return self.end_stretch(slot, closed?);
                    }
                }
                Action::Next => return self.end_stretch(slot, reading),
            }
        }
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
        if !charge.policy.stays_open() {
            charge.opened = None;
        }
        // Nobody listens any more: the observation ends.
        let _ = self.tell.send(Told::Stretch(Watched { pid: charge.pid, from, to, open, whole }));
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
        self.charges.remove(&slot);
    }

    /// Closes every gate and tells the last stretches.
    fn end(&mut self) {
        let slots: Vec<u32> = self.charges.keys().copied().collect();
        for &slot in &slots {
            let _ = self.gates.close(slot);
        }
        for slot in slots {
            let Some(charge) = self.charges.get(&slot) else { continue };
            let last = charge.last();
            let reading = self.gates.reading(slot, &self.costs).unwrap_or(last);
            self.tell_stretch(slot, reading);
        }
    }

    fn tell_failed(&mut self) {
        let failed = self.gates.take_failed();
        if !failed.is_empty() {
            let _ = self.tell.send(Told::Failed(failed));
        }
    }
}

fn now() -> Time {
    super::session::now()
}

/// Lets this thread run before others. If that is refused, windows are less exact.
fn be_quick() {
    let thread = nix::unistd::gettid().as_raw().cast_unsigned();
    // SAFETY: no memory is passed.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, NICE) };
}
