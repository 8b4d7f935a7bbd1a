//! What the kernel side has copied of stacks is unwound while the processes live, before the records that name them go on.

use super::census::Census;
use super::new_stacks::NewStacks;
use crate::capture::session::Session;
use crate::capture::stack_copies::{COPY_BYTES, Numbered};
use crate::capture::waits;
use crate::event::{Event, ProcessSeen};
use crate::id::{Lock, Process, Site, StackId};
use crate::observation::{Harvest, OpenWait};
use crate::op::{Action, Op};
use crate::report::text::{count, listed};
use crate::symbol::Symbols;
use crate::units::{Nanos, Time};
use crate::unwind::{Decision, End, Judge, Method, Walked};
use anyhow::Result;
use lockbpf_common::config::WALKED_STACKS;
use lockbpf_common::counter::Counter;
use lockbpf_common::parking::FOR_LOCK;
use lockbpf_common::stack_copy::{AT_ONCE, FIRST_COPY};
use lockbpf_common::task::is_task;
use lockbpf_common::virtual_thread;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Stacks by frame pointers that are looked at in the end.
const MAX_LOOKED_AT: usize = 4_096;
/// Stacks that may be copied from one look to the next while lockbpf has no CPU time left.
const SPARING: u64 = 8;
/// Processes named in a remark.
const MAX_NAMED: usize = 3;

/// Unwinds, and keeps count of it.
pub(crate) struct Stacks {
    method: Method,
    judge: Judge,
    /// Processes of which stacks were unwound.
    unwound: BTreeSet<Process>,
    /// Stacks by frame pointers, and whose they are.
    walked: HashSet<(Process, StackId)>,
    /// Processes whose mappings were looked at anew for the stacks at hand.
    stale: HashSet<Process>,
    /// By stacks that were unwound: the return address outside of the C library that comes first. Words found on a stack may be
    /// left over from earlier calls.
    callers: HashMap<StackId, u64>,
    /// By those of threads that sleep for a lock of their runtime's, of which nothing else tells: that lock, and where it is asked for.
    asked_for: HashMap<StackId, (Lock, Site)>,
    /// By those of threads that have given back a lock of their runtime's: the return address in whoever did.
    gave_back: HashMap<StackId, u64>,
    /// Those that lead through code of which nothing was known.
    unclear: HashSet<StackId>,
    /// By those that lead from the program's own code into the kernel: where.
    own_calls: HashMap<StackId, u64>,
    /// Whether there was a time in which fewer were copied.
    spared: bool,
    /// How long virtual threads were parked without a stack that tells what for.
    unexplained: Nanos,
}

/// A process that was told of for the first time.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) pid: u32,
    /// When it began, since boot.
    pub(crate) start: Time,
}

impl Stacks {
    /// Nothing unwound yet.
    pub(crate) fn new(method: Method) -> Self {
        Self {
            method,
            judge: Judge::default(),
            unwound: BTreeSet::new(),
            walked: HashSet::new(),
            stale: HashSet::new(),
            callers: HashMap::new(),
            asked_for: HashMap::new(),
            gave_back: HashMap::new(),
            unclear: HashSet::new(),
            own_calls: HashMap::new(),
            spared: false,
            unexplained: Nanos(0),
        }
    }

    /// Hands over what the kernel side has recorded. Returns the processes that it told of for the first time.
    ///
    /// # Errors
    /// When a map cannot be accessed.
    pub(crate) fn drain(
        &mut self,
        session: &mut Session,
        census: &mut Census,
        mut take: impl FnMut(Event),
    ) -> Result<Vec<Seen>> {
        let mut seen = Vec::new();
        let mut held_back = Vec::new();
        let mut known = Vec::new();
        session.drain(|record| {
            let (event, calls) = census.complete(record);
            if let &Event::Process(ProcessSeen { pid, start, .. }) = &event {
                seen.push(Seen { pid, start });
            }
            // A copy is there before any record that names it, so all that these name is there after them.
            match named(&event) {
                Some((_, id)) if id.0 >= FIRST_COPY => held_back.push(event),
                _ => known.push((event, calls)),
            }
        });
        self.unwind(session, census)?;
        for (mut event, calls) in known {
            if let (Event::Wake(wake), Some(calls)) = (&mut event, calls) {
                wake.stack = session.number_stack(wake.process, calls);
            }
            self.correct(&mut event, census);
            self.note(&event);
            if !self.is_for_anything(&event) {
                take(event);
            }
        }
        for mut event in held_back {
            if let Some(stack) = stack(&mut event) {
                *stack = stack.and_then(|id| match session.numbered(id) {
                    Numbered::Known(known) => known,
                    Numbered::NotYet => None,
                });
            }
            self.correct(&mut event, census);
            self.note(&event);
            if !self.is_for_anything(&event) {
                take(event);
            }
        }
        Ok(seen)
    }

    /// Whether it is a wait of a virtual thread that is not known to be for a lock. It is idle, or waits for another one's work, if its stack is
    /// known; else it is counted.
    fn is_for_anything(&mut self, event: &Event) -> bool {
        let Event::FutexWait(wait) = event else { return false };
        let is_parked = wait.expected == virtual_thread::PARKED && is_task(wait.tid.0);
        // By frame pointers no stack leads through generated code.
        let is_unclear = |stack: StackId| stack.0 < WALKED_STACKS || self.unclear.contains(&stack);
        if is_parked && wait.stack.is_none_or(is_unclear) {
            self.unexplained += wait.wait;
        }
        is_parked
    }

    /// Unwinds what was copied.
    fn unwind(&mut self, session: &mut Session, census: &mut Census) -> Result<()> {
        self.stale.clear();
        for (process, frame) in session.python_places() {
            census.name_python(process, frame);
        }
        let more = if census.is_busy() { SPARING } else { AT_ONCE };
        self.spared |= census.is_busy();
        for copy in session.fetch_stacks(more)? {
            let process = copy.process;
            let mut unwound = census.unwind(&copy);
            // It may have led into a library that was loaded after the last look.
            if unwound.end != End::Root && self.stale.insert(process) {
                census.symbols().refresh(process);
                unwound = census.unwind(&copy);
            }
            self.unwound.insert(process);
            let frames = copy.frames.map(|id| session.stack(id)).transpose()?;
            let asked_for = census.asked_for(process, &unwound.addresses);
            let gave_back = census.gave_back(process, &unwound.addresses);
            let own = census.own(process, &unwound.addresses);
            let symbols = census.symbols();
            let decision = {
                let is_program = |address| symbols.is_own_code(process, address);
                self.judge.compare(process, &unwound, frames.as_deref(), is_program)
            };
            let mut stack = unwound.addresses[own].to_vec();
            if copy.at_release
                && let Some(place) = stack.iter().skip(1).position(|&address| symbols.is_caller(process, address))
            {
                symbols.leave_out_release(process, &mut stack, place + 1);
            }
            if asked_for == Err(true) {
                // The kernel side does not recognise it then, and copies it again: more of the code may be known by that time.
                unwound.slots = None;
            }
            session.settle_stack(&copy, &unwound, stack)?;
            let mut is_caller = |address| symbols.is_caller(process, address);
            if let Numbered::Known(Some(id)) = session.numbered(copy.number)
                && let Some(&first) = unwound.addresses.first()
            {
                if let Ok(asked_for) = asked_for {
                    self.asked_for.insert(id, asked_for);
                }
                if asked_for == Err(true) {
                    self.unclear.insert(id);
                } else {
                    self.unclear.remove(&id);
                }
                self.gave_back.extend(gave_back.map(|caller| (id, caller)));
                if is_caller(first) {
                    self.own_calls.insert(id, first);
                } else if let Some(&caller) = unwound.addresses.iter().skip(1).find(|&&address| is_caller(address)) {
                    self.callers.insert(id, caller);
                }
            }
            if let Some(decision) = decision {
                session.decide(process, decision)?;
            }
        }
        Ok(())
    }

    /// Puts the caller by the unwound stack in place of the one that was found among words of the stack.
    fn correct(&self, event: &mut Event, census: &mut Census) {
        let Some((process, id)) = named(event) else { return };
        if let Event::Step(Op { action: Action::Holds(hold), .. }) = event {
            // A function that calls the kernel last of all is left by a jump, too.
            let caller = self.callers.get(&id).map(|&caller| census.symbols().releaser(process, caller));
            hold.site = caller.or_else(|| self.own_calls.get(&id).copied()).map(|addr| Site { process, addr });
            return;
        }
        if let Event::FutexWait(w) = event
            && let Some(&(lock, site)) = self.asked_for.get(&id)
        {
            // What virtual threads wait for is apart: nobody sleeps for it.
            let word = Lock { addr: lock.addr.wrapping_sub(is_task(w.tid.0).into()), ..lock };
            (w.word, w.site, w.expected) = (word, Some(site), FOR_LOCK);
            w.weight = w.weight.with_stack();
            return;
        }
        if let Event::Wake(w) = event
            && let Some(&addr) = self.gave_back.get(&id)
        {
            w.site = Some(Site { process, addr });
            return;
        }
        let Some(&caller) = self.callers.get(&id) else { return };
        match event {
            Event::FutexWait(w) => w.site = Some(Site { process, addr: caller }),
            Event::Wake(w) => w.site = Some(Site { process, addr: census.symbols().releaser(process, caller) }),
            _ => {}
        }
    }

    /// Takes note of a stack by frame pointers.
    fn note(&mut self, event: &Event) {
        if let Some((process, id)) = named(event)
            && id.0 < WALKED_STACKS
            && self.walked.len() < MAX_LOOKED_AT
        {
            self.walked.insert((process, id));
        }
    }

    /// How stacks were taken, and what they lack, each a sentence.
    pub(crate) fn notes(&mut self, census: &mut Census, harvest: &Harvest) -> Vec<String> {
        let mut notes = Vec::new();
        let by_frames: BTreeSet<Process> = self.judge.decided(Decision::Frames).collect();
        if let Some(summary) = self.judge.summary(COPY_BYTES) {
            let mut text = "Stacks by unwind information".to_owned();
            if self.method == Method::Auto {
                let others: Vec<Process> = self.unwound.difference(&by_frames).copied().collect();
                if !others.is_empty() {
                    text.push_str(&format!(" of {}", names(census, &others)));
                }
                if !by_frames.is_empty() {
                    let by_frames: Vec<Process> = by_frames.iter().copied().collect();
                    text.push_str(&format!(", by frame pointers of {}, which keeps them", names(census, &by_frames)));
                }
            }
            notes.push(format!("{text}: {summary}."));
        }
        // In another process they were taken only to be compared, or where they were all there was.
        for entry in &harvest.sums {
            if let Some(id) = StackId::from_raw(entry.sums.stack)
                && id.0 < WALKED_STACKS
                && self.walked.len() < MAX_LOOKED_AT
            {
                self.walked.insert((entry.lock.process, id));
            }
        }
        let mut walked = Walked::default();
        for &(process, id) in &self.walked {
            if self.method == Method::Auto && !by_frames.contains(&process) {
                continue;
            }
            let Some(stack) = harvest.stacks.get(&id) else { continue };
            match census.symbols().ends_short(process, stack) {
                Some(file) => *walked.short.entry(file).or_default() += 1,
                None => walked.whole += 1,
            }
        }
        if let Some(lack) = walked.lack() {
            let more = if self.method == Method::Fp { "; --unwind dwarf shows more" } else { "" };
            notes.push(format!("Of the stacks, {lack}{more}."));
        }
        if self.unexplained > Nanos(0) {
            notes.push(format!("Virtual threads were parked for {} for purposes that are not known, since their stacks are not; waits for locks of `java.util.concurrent` may be among them.", self.unexplained));
        }
        let skipped = harvest.quality.counters.get(Counter::StackSkipped.name()).copied().unwrap_or(0);
        if skipped > 0 {
            let fewer =
                if self.spared { format!(", or {SPARING} while lockbpf has no CPU time left") } else { String::new() };
            notes.push(format!(
                "{} waits have no stack: more different ones came at once than are copied, {AT_ONCE} in 50 ms{fewer}.",
                count(skipped)
            ));
        }
        notes
    }
}

/// Takes in waits whose beginning no probe saw, with the places they were made from and their stacks, from which it shows whether
/// they are idle.
pub(crate) fn take_in_earlier(waits: Vec<OpenWait>, harvest: &mut Harvest, symbols: &mut Symbols) {
    let mut new = NewStacks::beyond(harvest);
    for mut wait in waits {
        let stack = waits::stack(&wait, symbols).unwrap_or_default();
        let process = wait.lock.process;
        let caller = stack.iter().skip(1).copied().find(|&address| symbols.is_caller(process, address));
        wait.site = caller.map(|addr| Site { process, addr });
        wait.stack = new.number(stack);
        harvest.open_waits.push(wait);
    }
    new.put_into(harvest);
}

/// The process and the stack that an event names.
fn named(event: &Event) -> Option<(Process, StackId)> {
    match event {
        Event::Section(s) => Some((s.lock.process, s.stack?)),
        Event::FutexWait(w) => Some((w.word.process, w.stack?)),
        Event::Wake(w) => Some((w.process, w.stack?)),
        Event::OffCpu(o) => Some((o.process, o.stack?)),
        Event::Step(Op { process, action: Action::Holds(hold), .. }) => Some((*process, hold.stack?)),
        Event::Process(_) | Event::ThreadExit(_) | Event::Op(_) | Event::Step(_) => None,
    }
}

fn stack(event: &mut Event) -> Option<&mut Option<StackId>> {
    match event {
        Event::Section(s) => Some(&mut s.stack),
        Event::FutexWait(w) => Some(&mut w.stack),
        Event::Wake(w) => Some(&mut w.stack),
        Event::OffCpu(o) => Some(&mut o.stack),
        Event::Step(Op { action: Action::Holds(hold), .. }) => Some(&mut hold.stack),
        Event::Process(_) | Event::ThreadExit(_) | Event::Op(_) | Event::Step(_) => None,
    }
}

/// Processes by their names, the first few.
fn names(census: &Census, processes: &[Process]) -> String {
    let name = |process: &Process| {
        census.processes().get(process).map_or_else(|| "a process".to_owned(), |seen| seen.comm.clone())
    };
    let mut names: Vec<String> = processes.iter().map(name).collect();
    names.dedup();
    listed(&names, MAX_NAMED)
}
