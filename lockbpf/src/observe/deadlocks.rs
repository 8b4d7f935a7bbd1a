//! Deadlocks are told at once, not at the end: whoever observes a program that hangs wants to know why, now. What turns out to have
//! been none is withdrawn.

use super::census::Census;
use crate::capture::inflight::Snapshot;
use crate::capture::session::{Session, now};
use crate::capture::waits::{self, Waits};
use crate::deadlock::{Blocked, Deadlock, Watch};
use crate::event::{Event, FutexResult};
use crate::id::{Lock, Process, StackId, Tid};
use crate::names::{Frame, Names};
use crate::proc;
use crate::units::{Nanos, Time};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How often it is looked who waits for whom.
const INTERVAL: Duration = Duration::from_millis(200);
/// Where many threads wait, looking takes longer; it may take one part in so many of the time.
const SHARE: u32 = 50;
/// Frames printed of a stack.
const MAX_FRAMES: usize = 12;

/// Watches for deadlocks while an observation runs.
pub(crate) struct Deadlocks {
    waits: Waits,
    watch: Watch,
    next: Instant,
    /// Futex calls that were not seen, so far.
    skipped: u64,
    /// What is to be told of what events told.
    over: Vec<usize>,
}

impl Deadlocks {
    /// Begins, with the waits that were in progress at `start`.
    pub(crate) fn new(before: &Snapshot, start: Time) -> Self {
        Self {
            waits: Waits::new(before, start),
            watch: Watch::default(),
            next: Instant::now(),
            skipped: 0,
            over: Vec::new(),
        }
    }

    /// Takes note of an event on its way: a thread that got its lock was in no deadlock.
    pub(crate) fn pass(&mut self, event: Event) -> Event {
        let got: Option<(Tid, Lock, Time)> = match &event {
            _ if self.watch.found().is_empty() => None,
            Event::Section(s) if s.acquired() => Some((s.tid, s.lock, s.acquire())),
            Event::FutexWait(w) if w.result == FutexResult::Slept => Some((w.tid, w.word, w.end)),
            _ => None,
        };
        if let Some((tid, lock, at)) = got {
            self.over.extend(self.watch.acquired(tid, lock, at));
        }
        event
    }

    /// Looks, if it is time to; returns what there is to be told.
    pub(crate) fn look(&mut self, session: &mut Session, census: &mut Census) -> Option<String> {
        if Instant::now() < self.next {
            return None;
        }
        self.look_now(session, census)
    }

    /// Looks; returns what there is to be told. The last look is the one by which the report goes.
    pub(crate) fn look_now(&mut self, session: &mut Session, census: &mut Census) -> Option<String> {
        let began = Instant::now();
        let pids = census.pids();
        // A map that cannot be read now cannot be read at the end either, and then it is an error.
        let seen = session.waits().unwrap_or_default();
        let skipped = session.skipped_futex_calls();
        if skipped > self.skipped {
            self.skipped = skipped;
            self.waits.missed(&Snapshot::take(&pids.values().copied().collect::<Vec<_>>()), now());
        }
        let waits = self.waits.look(now(), &seen, &pids);
        let mut text = String::new();
        let looked = self.watch.look(now(), &waits);
        for number in looked.gone {
            if self.watch.found().get(number).is_some_and(|deadlock| is_there(deadlock, &pids)) {
                self.watch.end(number, now());
                self.over.push(number);
            } else {
                self.watch.exit(number);
            }
        }
        text.push_str(&self.withdrawn(&pids));
        for number in looked.confirmed {
            let Some(deadlock) = self.watch.get_mut(number) else { continue };
            for member in &mut deadlock.members {
                complete(member, &pids, census);
                // As the waits themselves: not there, then it is an error at the end.
                member.stack = session.stack_of_wait(member.tid, census.symbols()).unwrap_or_default();
            }
            let stack = |id| session.stack(id).unwrap_or_default();
            text.push_str(&describe(deadlock, &pids, census.symbols(), stack));
        }
        self.next = Instant::now() + INTERVAL.max(began.elapsed() * SHARE);
        (!text.is_empty()).then_some(text)
    }

    /// Before the end: which waits in progress are over, although nothing was seen of that. Their ends were missed.
    pub(crate) fn missed_ends(&self, session: &Session, census: &Census) -> HashSet<(Tid, Time)> {
        let pids = census.pids();
        let seen = session.waits().unwrap_or_default();
        let over: HashSet<(Tid, Time)> = waits::over(&seen, &pids).map(|wait| (wait.tid, wait.since)).collect();
        if over.is_empty() {
            return over;
        }
        // It may have ended just then, and been taken note of.
        let still: HashSet<(Tid, Time)> =
            session.waits().unwrap_or_default().iter().map(|wait| (wait.tid, wait.since)).collect();
        over.intersection(&still).copied().collect()
    }

    /// What was found so far, whether it still stands or is over.
    pub(crate) fn found(&self) -> &[Deadlock] {
        self.watch.found()
    }

    /// What turned out to have been none, in words, each once.
    pub(crate) fn withdrawn(&mut self, pids: &HashMap<Process, u32>) -> String {
        let over = std::mem::take(&mut self.over);
        over.into_iter().filter_map(|number| self.watch.found().get(number)).map(|d| withdrawal(d, pids)).collect()
    }
}

/// Whether the process of a deadlock is there.
fn is_there(deadlock: &Deadlock, pids: &HashMap<Process, u32>) -> bool {
    let pid = deadlock.members.first().and_then(|member| pids.get(&member.lock.process));
    pid.is_some_and(|pid| {
        let of_leader = proc::text(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state follows the name, which may contain anything. Of a process whose first thread has ended there are others.
        let state = of_leader.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        let others = || proc::threads(*pid).is_ok_and(|threads| threads.len() > 1);
        proc::is_there(format!("/proc/{pid}")) && (!matches!(state, None | Some('Z' | 'X')) || others())
    })
}

/// That a circle of waits was no deadlock.
fn withdrawal(deadlock: &Deadlock, pids: &HashMap<Process, u32>) -> String {
    let tids: Vec<_> = deadlock.members.iter().map(|member| member.tid.0.to_string()).collect();
    let process = deadlock.members.first().and_then(|member| pids.get(&member.lock.process));
    let process = process.map(|pid| format!(" in process {pid}")).unwrap_or_default();
    let lasted: Nanos = deadlock.until().since(deadlock.closed());
    let (threads, wait) = match tids.as_slice() {
        [only] => (format!("thread {only}"), "waited for itself"),
        _ => (format!("threads {}", tids.join(", ")), "waited for one another"),
    };
    format!("lockbpf: no deadlock{process} after all: that {threads} {wait} ended after {lasted}\n")
}

/// Finds where a member came from, if no probe saw it.
fn complete(member: &mut Blocked, pids: &HashMap<Process, u32>, census: &mut Census) {
    let process = member.lock.process;
    if let (None, Some(&pid)) = (member.site, pids.get(&process)) {
        member.site = waits::caller(pid, member, |words| census.symbols().caller_among(process, words));
    }
}

/// A deadlock in words: every thread, what it waits for, who holds that, and how it got there.
fn describe(
    deadlock: &Deadlock,
    pids: &HashMap<Process, u32>,
    names: &mut impl Names,
    stack: impl Fn(StackId) -> Vec<u64>,
) -> String {
    // Whoever parks on a mutex that it holds itself counts on another thread to give it back.
    let parks = deadlock.members.len() == 1 && !deadlock.owned;
    let what = if parks { "thread that waits for itself, until another lets it go on" } else { "deadlock" };
    let mut text = format!("lockbpf: {what}");
    if let Some(pid) = deadlock.members.first().and_then(|m| pids.get(&m.lock.process)) {
        _ = write!(text, " in process {pid}");
    }
    if deadlock.before_start {
        text.push_str(", there before the observation began");
    }
    text.push_str(":\n");
    for (i, member) in deadlock.members.iter().enumerate() {
        let holder = deadlock.members.get(i + 1).or(deadlock.members.first()).unwrap_or(member);
        let lock = names.global(member.lock).unwrap_or_else(|| format!("the lock at {:#x}", member.lock.addr));
        let held_by = if holder.tid == member.tid { "itself".to_owned() } else { format!("thread {}", holder.tid.0) };
        _ = writeln!(text, "  thread {} waits for {lock}, held by {held_by}", member.tid.0);
        let raw = member.stack.map(&stack).unwrap_or_default();
        let process = member.lock.process;
        for addr in names.call_stack(process, &raw, member.site.map(|s| s.addr)).into_iter().take(MAX_FRAMES) {
            for frame in names.frames(process, addr) {
                _ = writeln!(text, "      {}", place(&frame));
            }
        }
    }
    text
}

fn place(frame: &Frame) -> String {
    let function = match (&frame.function, &frame.module) {
        (Some(function), _) => function.clone(),
        (None, Some((module, offset))) => format!("{module}+{offset:#x}"),
        (None, None) => format!("{:#x}", frame.addr),
    };
    match &frame.location {
        Some((file, line)) => format!("{function} ({file}:{line})"),
        None => function,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Lock, Site, Tid};

    /// Global locks below 0x100; functions named by their address.
    struct Table;

    impl Names for Table {
        fn frames(&mut self, _: Process, addr: u64) -> Vec<Frame> {
            let location = (addr == 0x10).then(|| ("wal.c".to_owned(), 210));
            vec![Frame { function: (addr < 0x1000).then(|| format!("f{addr:x}")), location, addr, ..Frame::default() }]
        }

        fn global(&mut self, lock: Lock) -> Option<String> {
            (lock.addr < 0x100).then(|| format!("lock_{:x}", lock.addr))
        }

        fn call_stack(&mut self, _: Process, raw: &[u64], site: Option<u64>) -> Vec<u64> {
            site.into_iter().chain(raw.iter().copied()).collect()
        }
    }

    fn member(tid: u32, addr: u64, site: u64) -> Blocked {
        let process = Process(1);
        Blocked {
            tid: Tid(tid),
            lock: Lock { process, addr },
            site: Some(Site { process, addr: site }),
            since: Time(0),
            stack: (tid == 7).then_some(StackId(3)),
        }
    }

    #[test]
    fn every_thread_is_told_with_its_lock_and_its_stack() {
        let deadlock = Deadlock {
            found: Time(9),
            members: vec![member(7, 0xa, 0x10), member(8, 0x5000, 0x20)],
            before_start: true,
            ..Deadlock::default()
        };
        let pids = HashMap::from([(Process(1), 42)]);
        let text = describe(&deadlock, &pids, &mut Table, |id| if id.0 == 3 { vec![0x30, 0x9999] } else { Vec::new() });
        let expected = "lockbpf: deadlock in process 42, there before the observation began:\n  \
                        thread 7 waits for lock_a, held by thread 8\n      f10 (wal.c:210)\n      f30\n      0x9999\n  \
                        thread 8 waits for the lock at 0x5000, held by thread 7\n      f20\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_thread_can_wait_for_itself() {
        let alone = Deadlock { found: Time(9), members: vec![member(8, 0xa, 0x20)], ..Deadlock::default() };
        let text = |deadlock| describe(deadlock, &HashMap::new(), &mut Table, |_| Vec::new());
        let sure = Deadlock { owned: true, ..alone.clone() };
        assert_eq!(text(&sure), "lockbpf: deadlock:\n  thread 8 waits for lock_a, held by itself\n      f20\n");
        let parked = "lockbpf: thread that waits for itself, until another lets it go on:\n  thread 8 waits for lock_a, held by \
                      itself\n      f20\n";
        assert_eq!(text(&alone), parked);
    }

    #[test]
    fn what_was_none_is_withdrawn() {
        let ended = Deadlock {
            members: vec![member(7, 0xa, 0x10), member(8, 0x5000, 0x20)],
            ended: Some(Time(1_300_000_000)),
            ..Deadlock::default()
        };
        let pids = HashMap::from([(Process(1), 42)]);
        assert_eq!(
            withdrawal(&ended, &pids),
            "lockbpf: no deadlock in process 42 after all: that threads 7, 8 waited for one another ended after 1.30 s\n"
        );
    }
}
