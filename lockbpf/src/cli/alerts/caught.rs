//! What is caught of a wait or a hold at the moment at which an alert is due: who, since when, stacks as copies. Nothing is named, which may
//! take seconds the first time, so it is all of one moment and takes fractions of a millisecond.

use crate::alert::HeldFor;
use crate::capture::holder::{Holder, Holders};
use crate::capture::session::{Session, now};
use crate::capture::waits::{self, TakenStack};
use crate::cli::holders::{held, naming_of, nobody};
use crate::id::{Lock, Process, Tid};
use crate::observation::OpenWait;
use crate::proc;
use crate::units::Time;
use crate::untrusted::shown_bytes;
use crate::unwind::{End, StackCopy, Unwind, Unwound};
use lockbpf_common::parking::is_for_lock;
use lockbpf_common::record::TOP_WORDS;
use std::collections::HashMap;
use std::time::SystemTime;

/// Locks behind the first one that are followed, at most.
const MAX_CHAIN: usize = 8;

/// What an observation shows at one moment.
pub(super) struct Scene<'a> {
    pub(super) session: &'a Session,
    /// The waits in progress, the longest first.
    pub(super) waits: &'a [OpenWait],
    /// Pids of the processes observed.
    pub(super) pids: &'a HashMap<Process, u32>,
    pub(super) holders: &'a mut Holders,
}

/// A wait or a hold, and all around it.
#[derive(Clone, Debug)]
pub(super) struct Caught {
    /// When.
    pub(super) at: Time,
    pub(super) time: SystemTime,
    pub(super) lock: Lock,
    /// Who waits longest, if anybody does.
    pub(super) waiter: Option<Waiter>,
    /// How many wait.
    pub(super) waiting: u64,
    pub(super) holder: Found,
    /// What the holder waits for, who holds that, and so on.
    pub(super) chain: Vec<(Waiter, Found)>,
}

/// A thread that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) wait: OpenWait,
    pub(super) name: String,
    pub(super) stack: Option<TakenStack>,
    /// The top of its stack, if no probe saw where it asked.
    pub(super) top: Option<[u64; TOP_WORDS]>,
}

/// A thread that holds.
#[derive(Clone, Debug)]
pub(super) struct HolderThen {
    pub(super) holder: Holder,
    pub(super) name: String,
    pub(super) held: Option<HeldFor>,
    /// Where it sleeps.
    pub(super) stack: Option<StackCopy>,
}

/// A holder; else why none was found.
pub(super) type Found = Result<Box<HolderThen>, &'static str>;

impl Scene<'_> {
    /// A wait.
    pub(super) fn wait(&mut self, wait: &OpenWait) -> Caught {
        let waiter = self.waiter(wait);
        let holder = self.holder(wait.lock);
        self.caught(wait.lock, Some(waiter), holder)
    }

    /// A hold by this thread.
    pub(super) fn hold(&mut self, lock: Lock, tid: Tid) -> Caught {
        let first = self.first(lock);
        let waiter = first.map(|first| self.waiter(&first));
        let mut later = Later::default();
        let holder = Holder::look(self.session, self.pid(lock.process, tid), lock, tid, &mut later);
        let holder = self.then(holder, lock, first.as_ref(), later);
        self.caught(lock, waiter, Ok(holder))
    }

    /// Who holds a lock that is waited for, and since when; `None` if that is not known.
    pub(super) fn held_by(&mut self, lock: Lock) -> Option<(Tid, HeldFor)> {
        let then = self.holder(lock).ok()?;
        Some((then.holder.tid, then.held?))
    }

    fn caught(&mut self, lock: Lock, waiter: Option<Waiter>, holder: Found) -> Caught {
        let chain = holder.as_ref().map_or_else(|_| Vec::new(), |then| self.chain(lock, then.holder.tid));
        let waiting = self.waits.iter().filter(|wait| wait.lock == lock).count() as u64;
        Caught { at: now(), time: SystemTime::now(), lock, waiter, waiting, holder, chain }
    }

    fn first(&self, lock: Lock) -> Option<OpenWait> {
        self.waits.iter().find(|wait| wait.lock == lock).copied()
    }

    fn pid(&self, process: Process, tid: Tid) -> u32 {
        self.pids.get(&process).copied().unwrap_or(tid.0)
    }

    fn waiter(&self, wait: &OpenWait) -> Waiter {
        let pid = self.pid(wait.lock.process, wait.tid);
        let stack = if wait.before_start {
            TakenStack::of_sleeper(wait.tid, wait.lock)
        } else {
            // A map that cannot be read now cannot be read at the end either, and then it is an error.
            self.session.take_stack(wait.tid).unwrap_or_default()
        };
        let top = if wait.site.is_none() { waits::top_of_stack(pid, wait.tid) } else { None };
        Waiter { wait: *wait, name: name_of(pid, wait.tid), stack, top }
    }

    fn holder(&mut self, lock: Lock) -> Found {
        let first = self.first(lock);
        let Some((first, &pid)) = first.zip(self.pids.get(&lock.process)) else {
            return Err("nobody waits for it any more");
        };
        let parked = first.expected.is_some_and(is_for_lock);
        let named = if parked { Err("locks of this kind do not name their holder") } else { naming_of(first.via) }?;
        let mut later = Later::default();
        let holder = self.holders.of(self.session, pid, lock, named, &mut later);
        // Who waits for it does not hold it: the word may be out of date.
        let waits = |holder: &Holder| self.waits.iter().any(|wait| wait.lock == lock && wait.tid == holder.tid);
        let holder = holder.filter(|holder| !waits(holder)).ok_or(nobody(named))?;
        Ok(self.then(holder, lock, Some(&first), later))
    }

    fn then(&self, holder: Holder, lock: Lock, first: Option<&OpenWait>, later: Later) -> Box<HolderThen> {
        let at = now();
        let name = name_of(self.pid(lock.process, holder.tid), holder.tid);
        let seen = holder.hold.map(|hold| HeldFor::Exactly(at.since(hold.since)));
        let held = seen.or_else(|| held(self.session, lock, first, at));
        Box::new(HolderThen { holder, name, held, stack: later.0 })
    }

    fn chain(&mut self, first: Lock, mut tid: Tid) -> Vec<(Waiter, Found)> {
        let mut chain = Vec::new();
        let mut known = vec![first];
        while chain.len() < MAX_CHAIN {
            let of_thread = self.waits.iter().find(|wait| wait.tid == tid && !known.contains(&wait.lock));
            let Some(wait) = of_thread.copied() else { break };
            known.push(wait.lock);
            let holder = self.holder(wait.lock);
            let next = holder.as_ref().ok().map(|then| then.holder.tid);
            chain.push((self.waiter(&wait), holder));
            let Some(next) = next else { break };
            tid = next;
        }
        chain
    }
}

/// Keeps a copied stack, to be unwound later.
#[derive(Default)]
struct Later(Option<StackCopy>);

impl Unwind for Later {
    fn unwind(&mut self, copy: &StackCopy) -> Unwound {
        self.0 = Some(copy.clone());
        let (addresses, interpreted) = (Vec::new(), Vec::new());
        Unwound { addresses, slots: None, end: End::Cut, by_frame_pointers: false, interpreted }
    }
}

/// The name of a thread; empty if it is gone.
fn name_of(pid: u32, tid: Tid) -> String {
    let comm = proc::read(format!("/proc/{pid}/task/{}/comm", tid.0)).unwrap_or_default();
    shown_bytes(comm.trim_ascii_end())
}
