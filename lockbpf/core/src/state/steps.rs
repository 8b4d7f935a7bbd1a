//! The transitions: what each step does to the machines.

use super::machine::{Machines, Node, Run, Thread};
use super::{End, Follower, Instance, NodeIx, Observer, State};
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::op::{Action, Attempt, Failure, Hold, LockKind, OffReason, Op, Released};
use crate::units::{Nanos, Time};

/// Locks remembered, idle ones included, before idle ones are forgotten.
const MAX_LOCKS: usize = 65_536;
/// Exited threads remembered.
const MAX_EXITED: usize = 1_024;
/// Sections that hold one lock at once (readers, permits).
const MAX_HOLDERS: usize = 1_024;

/// Whether a missing first half is what a recording that starts in the middle brings about.
fn kind_of_gap(cut: bool, state: &mut State, kind: &'static str) {
    if cut { state.cut_step(kind) } else { state.impossible_step(kind) }
}

/// Whether only the thread itself brings this about: it may be preempted, and the kernel may make it wait, anywhere.
fn acts(action: &Action) -> bool {
    match action {
        Action::Attempt(a) => !a.lock.is_kernel(),
        Action::Off { reason, .. } => *reason == OffReason::Sleeping,
        Action::CondWait { .. } => true,
        _ => false,
    }
}

impl State {
    /// Takes one step. Steps come in order of time.
    pub fn op(&mut self, op: &Op, f: &mut impl Follower, o: &mut impl Observer) {
        self.m.step += 1;
        if op.time < self.m.now {
            self.impossible_step("time_went_back");
        }
        self.m.now = self.m.now.max(op.time);
        if self.m.locks.len() >= self.sweep_at.max(MAX_LOCKS) {
            self.sweep(f);
        }
        let thread = self.m.thread(op.tid, op.process);
        self.last = Some(thread);
        let now = self.m.now;
        let state = &mut self.m.threads[thread as usize];
        state.last = now;
        if std::mem::take(&mut state.exited) {
            // A new process may reuse the number.
            if state.process == op.process {
                self.impossible_step("step_after_exit");
            }
        }
        self.m.threads[thread as usize].process = op.process;
        match op.action {
            Action::Attempt(attempt) => self.attempt(thread, attempt, f),
            Action::Acquire { lock, waker } => self.acquire(thread, lock, waker, f, o),
            Action::Release { lock, how } => self.release(thread, lock, how, f, o),
            Action::Fail { lock, how } => self.fail(thread, lock, how, f, o),
            Action::Barrier(arrival) => self.arrive(thread, arrival, f, o),
            Action::CondWait { condition, .. } => self.cond_wait(thread, condition, f),
            Action::CondWake { condition } => self.cond_wake(thread, condition, f),
            Action::Off { reason, stack } => self.off(thread, reason, stack, f),
            Action::On => self.on(thread, f),
            Action::Join { thread: of, wait } => self.join(thread, of, wait, f),
            Action::Holds(hold) => self.seen_holding(op.process, &hold, f),
            Action::Exit { ends } => {
                if ends {
                    self.ended = Some(End { tid: op.tid, process: op.process, time: self.m.now });
                }
                self.exit(thread, f, o);
            }
        }
        if let Some(state) = self.m.threads.get_mut(thread as usize) {
            state.fresh = false;
            if acts(&op.action) {
                state.acted = self.m.step;
            }
        }
    }

    /// Ends the recording: tells of everything that is still open.
    pub fn finish(&mut self, end: Time, f: &mut impl Follower, o: &mut impl Observer) {
        self.m.now = self.m.now.max(end);
        self.m.step += 1;
        let mut open: Vec<NodeIx> = self.m.nodes.iter().map(|(ix, _)| ix as NodeIx).collect();
        open.sort_unstable_by_key(|&ix| {
            let node = self.m.node(ix);
            (node.instance.acquire.is_some(), node.instance.number, node.taken)
        });
        for node in open {
            let waits = self.m.node(node).instance.acquire.is_none();
            self.cut_step(if waits { "waiting_at_end" } else { "held_at_end" });
            let contended = f.open(&self.m, node);
            let state = &mut self.m.nodes[node as usize];
            if waits {
                state.instance.contended = state.told.unwrap_or(contended);
            }
            o.open(&state.instance, self.m.now);
        }
    }

    /// Somebody was seen to hold a lock whose holders are not seen otherwise.
    fn seen_holding(&mut self, process: Process, hold: &Hold, f: &mut impl Follower) {
        let lock = self.m.lock(hold.lock);
        if let Some(site) = hold.site
            && self.m.locks[lock as usize].holders.is_empty()
        {
            f.seen_holding(&self.m, lock, (process, site), hold);
        }
    }

    fn attempt(&mut self, thread: u32, a: Attempt, f: &mut impl Follower) {
        let lock = self.m.lock(a.lock);
        self.m.locks[lock as usize].kind = a.kind;
        if a.kind == LockKind::Semaphore && a.contended == Some(true) {
            // It found none: what was counted as free was taken by somebody whose release is told too late.
            self.m.locks[lock as usize].free = 0;
        }
        // Whoever waits for one of these is told to do so as if the scheduler had said it.
        self.m.scheduled |= a.lock.is_kernel();
        if !self.put_aside(thread, a.lock, f) && self.leave_pending(thread, f) {
            self.impossible_step("attempt_while_waiting");
        }
        if a.kind != LockKind::Semaphore
            && let Some(own) = self.m.own(thread, a.lock)
        {
            // After another thread had the lock a release is missing. Else it may have been missed, too, but a timed call fails in the end.
            if !self.m.node(own).overtaken {
                self.m.threads[thread as usize].recursing = Some((a, self.m.now));
                self.waits_no_more(thread);
                return;
            }
            self.impossible_step("release_missing");
            self.end(own, Released::Unlock, f, &mut ());
        }
        self.numbers += 1;
        let instance = Instance {
            number: self.numbers,
            tid: self.m.threads[thread as usize].tid,
            process: self.m.threads[thread as usize].process,
            lock: a.lock,
            kind: a.kind,
            site: Some(a.site),
            shared: a.shared,
            contended: false,
            attempt: Some(self.m.now),
            acquire: None,
            stack: a.stack,
        };
        let node = self.insert(thread, lock, instance, &a);
        f.attempting(&self.m, node);
        self.m.threads[thread as usize].waiting = Some(node);
        self.m.locks[lock as usize].queued += 1;
        if f.attempted(&self.m, node) {
            self.search_circle(node);
        }
    }

    fn insert(&mut self, thread: u32, lock: u32, instance: Instance, a: &Attempt) -> NodeIx {
        self.m.nodes.insert(Node {
            instance,
            thread,
            lock,
            asked: self.m.step,
            taken: 0,
            queued: instance.attempt.is_some() && a.contended != Some(false),
            told: a.contended,
            owner: a.owner,
            depth: 0,
            overtaken: false,
        }) as NodeIx
    }

    /// A section of which the first half was not seen.
    fn unseen(&mut self, thread: u32, lock: u32, f: &mut impl Follower) -> NodeIx {
        let state = &self.m.locks[lock as usize];
        let shared = state.kind == LockKind::Rwlock && self.m.shared(state);
        let instance = Instance {
            number: 0,
            tid: self.m.threads[thread as usize].tid,
            process: self.m.threads[thread as usize].process,
            lock: state.lock,
            kind: state.kind,
            site: None,
            shared,
            contended: false,
            attempt: None,
            acquire: None,
            stack: None,
        };
        let bare = Attempt {
            lock: state.lock,
            site: Site::default(),
            shared,
            kind: state.kind,
            owner: None,
            stack: None,
            contended: None,
        };
        let node = self.insert(thread, lock, instance, &bare);
        f.attempting(&self.m, node);
        f.attempted(&self.m, node);
        node
    }

    fn acquire(&mut self, thread: u32, lock: Lock, waker: Option<Tid>, f: &mut impl Follower, o: &mut impl Observer) {
        let state = &mut self.m.threads[thread as usize];
        let fresh = state.fresh;
        if let Some((again, _)) = state.recursing.take_if(|(a, _)| a.lock == lock) {
            let own = self.m.own(thread, lock);
            if again.contended.is_none() {
                if let Some(own) = own {
                    self.m.nodes[own as usize].depth += 1;
                }
                return;
            }
            // Live sources fold recursion themselves.
            self.impossible_step("release_missing");
            if let Some(own) = own {
                self.end(own, Released::Unlock, f, &mut ());
            }
            self.attempt(thread, again, f);
        }
        let pending = self.pending(thread, lock, f);
        let ix = match pending {
            Some(node) => self.m.node(node).lock,
            None => self.m.lock(lock),
        };
        let node = if let Some(node) = pending {
            node
        } else {
            kind_of_gap(fresh, self, "acquire_without_attempt");
            if self.m.locks[ix as usize].kind != LockKind::Semaphore
                && let Some(own) = self.m.own(thread, lock)
            {
                self.m.nodes[own as usize].depth += 1;
                return;
            }
            self.unseen(thread, ix, f)
        };
        let derived = f.acquiring(&self.m, node, waker);
        self.overtake(ix, node);
        let (now, step) = (self.m.now, self.m.step);
        let state = &mut self.m.locks[ix as usize];
        state.holders.push(node);
        state.acquired = true;
        state.free = state.free.saturating_sub(1);
        let crowded = state.holders.len() > MAX_HOLDERS;
        if pending.is_some() {
            state.queued -= 1;
            self.waits_no_more(thread);
            self.clear_suspects(node);
        }
        let state = &mut self.m.nodes[node as usize];
        state.instance.acquire = Some(now);
        state.instance.contended = state.told.unwrap_or(derived);
        state.taken = step;
        state.queued = false;
        o.acquired(&state.instance);
        let held = &mut self.m.threads[thread as usize].held;
        let outer = held.last().copied();
        held.push(node);
        if let Some(outer) = outer {
            self.orders.nested(&self.m, outer, node);
        }
        f.acquired(&self.m, node);
        if crowded {
            self.cut_step("permit_not_returned");
            let oldest = self.m.locks[ix as usize].holders[0];
            self.end(oldest, Released::Unlock, f, o);
        }
    }

    /// Puts aside the holders that an acquisition should have had to wait for.
    fn overtake(&mut self, lock: u32, node: NodeIx) {
        let m = &mut self.m;
        let state = &m.locks[lock as usize];
        if state.holders.is_empty() || state.kind == LockKind::Semaphore {
            return;
        }
        let (shared, mut live) = (m.node(node).instance.shared, m.node(node).told.is_some());
        let mut conflicts = false;
        let state = &mut m.locks[lock as usize];
        let (nodes, stale) = (&mut m.nodes, &mut state.overtaken);
        state.holders.retain(|&ix| {
            let holder = &mut nodes[ix as usize];
            let compatible = ix == node || shared && holder.instance.shared;
            if !compatible {
                holder.overtaken = true;
                *stale += 1;
                live |= holder.told.is_some();
                conflicts = true;
            }
            compatible
        });
        if conflicts {
            kind_of_gap(live, self, if live { "overlap" } else { "acquire_of_held" });
        }
    }

    fn release(&mut self, thread: u32, lock: Lock, how: Released, f: &mut impl Follower, o: &mut impl Observer) {
        let fresh = self.m.threads[thread as usize].fresh;
        if self.m.threads[thread as usize].recursing.take_if(|(a, _)| a.lock == lock).is_some() {
            self.impossible_step("release_while_waiting");
        }
        if let Some(own) = self.m.own(thread, lock) {
            let node = &mut self.m.nodes[own as usize];
            if node.depth > 0 && how != Released::ExitedHolding {
                node.depth -= 1;
                return;
            }
            return self.end(own, how, f, o);
        }
        let ix = self.m.lock(lock);
        let (tid, step) = (self.m.threads[thread as usize].tid, self.m.step);
        let shared = self.m.shared(self.m.lock_at(ix));
        let state = &mut self.m.locks[ix as usize];
        match (state.kind, state.holders.first()) {
            (LockKind::Semaphore, Some(&oldest)) => self.end(oldest, how, f, o),
            (LockKind::Semaphore, None) => {
                state.free = state.free.saturating_add(1);
                state.poster = Some((tid, step));
            }
            (_, None) if fresh || !state.acquired => {
                self.cut_step("release_without_acquire");
                let node = self.unseen(thread, ix, f);
                self.m.locks[ix as usize].holders.push(node);
                self.m.locks[ix as usize].acquired = true;
                self.m.threads[thread as usize].held.push(node);
                self.end(node, how, f, o);
            }
            (_, Some(_)) if fresh && shared => self.cut_step("release_without_acquire"),
            _ => self.impossible_step("release_not_held"),
        }
    }

    /// A section ends.
    fn end(&mut self, node: NodeIx, how: Released, f: &mut impl Follower, o: &mut impl Observer) {
        f.releasing(&self.m, node);
        let state = *self.m.node(node);
        let wide = state.instance.kind == LockKind::Semaphore && self.held_beside_another(node);
        let lock = &mut self.m.locks[state.lock as usize];
        lock.wide |= wide;
        if state.overtaken {
            lock.overtaken -= 1;
        } else {
            remove(&mut lock.holders, node);
        }
        if lock.kind == LockKind::Semaphore {
            lock.free = lock.free.saturating_add(1);
        }
        remove(&mut self.m.threads[state.thread as usize].held, node);
        f.released(&self.m, node, how);
        o.released(&state.instance, self.m.now, how);
        self.m.nodes.remove(node as usize);
    }

    /// Whether another thread took a permit while this one was still held: the thread that gives it back did something else after that.
    fn held_beside_another(&self, node: NodeIx) -> bool {
        let n = self.m.node(node);
        let mut later = self.m.lock_at(n.lock).holders.iter().rev().map(|&h| self.m.node(h));
        let acted = self.m.thread_at(n.thread).acted;
        self.last == Some(n.thread)
            && later.any(|other| other.thread != n.thread && n.taken < other.taken && other.taken < acted)
    }

    fn fail(&mut self, thread: u32, lock: Lock, how: Failure, f: &mut impl Follower, o: &mut impl Observer) {
        let state = &mut self.m.threads[thread as usize];
        let (tid, process, fresh) = (state.tid, state.process, state.fresh);
        let bare = Instance {
            number: 0,
            tid,
            process,
            lock,
            kind: LockKind::default(),
            site: None,
            shared: false,
            contended: false,
            attempt: None,
            acquire: None,
            stack: None,
        };
        if let Some((a, at)) = state.recursing.take_if(|(a, _)| a.lock == lock) {
            let Attempt { kind, shared, stack, site, .. } = a;
            let (site, attempt, contended) = (Some(site), Some(at), a.contended == Some(true));
            return o.failed(&Instance { kind, shared, stack, site, attempt, contended, ..bare }, self.m.now, how);
        }
        if let Some(node) = self.pending(thread, lock, f) {
            let instance = self.give_up(thread, node, how, f);
            return o.failed(&instance, self.m.now, how);
        }
        kind_of_gap(fresh, self, "fail_without_attempt");
        o.failed(&bare, self.m.now, how);
    }

    fn give_up(&mut self, thread: u32, node: NodeIx, how: Failure, f: &mut impl Follower) -> Instance {
        self.clear_suspects(node);
        let contended = f.failing(&self.m, node, how);
        let state = &mut self.m.nodes[node as usize];
        state.queued = false;
        state.instance.contended = state.told.unwrap_or(contended);
        let state = *state;
        self.m.locks[state.lock as usize].queued -= 1;
        self.waits_no_more(thread);
        f.failed(&self.m, node);
        self.m.nodes.remove(node as usize);
        state.instance
    }

    /// Puts a wait aside that is done by functions of the program, which may take other locks meanwhile, now this one. Whether there is such a wait.
    fn put_aside(&mut self, thread: u32, lock: Lock, f: &mut impl Follower) -> bool {
        let state = &self.m.threads[thread as usize];
        let described = |&node: &NodeIx| {
            let node = self.m.node(node);
            node.instance.kind == LockKind::Other && node.told == Some(true) && node.instance.lock != lock
        };
        let Some(outer) = state.waiting.filter(described) else { return false };
        if state.around.is_some() || state.recursing.is_some() {
            return false;
        }
        // What it holds made others wait for that reason until now.
        f.switching(&self.m, thread);
        let state = &mut self.m.threads[thread as usize];
        (state.waiting, state.around) = (None, Some(outer));
        true
    }

    /// A wait is over: the one around it goes on, if there is one.
    fn waits_no_more(&mut self, thread: u32) {
        let state = &mut self.m.threads[thread as usize];
        state.waiting = state.around.take();
    }

    /// The thread's wait for a lock. If that is the one around another, the end of the other was not seen.
    fn pending(&mut self, thread: u32, lock: Lock, f: &mut impl Follower) -> Option<NodeIx> {
        let is_for = |m: &Machines, node: NodeIx| m.node(node).instance.lock == lock;
        let Thread { waiting, around, .. } = self.m.threads[thread as usize];
        if let (Some(inner), Some(_)) = (waiting, around.filter(|&node| is_for(&self.m, node))) {
            self.impossible_step("attempt_while_waiting");
            self.give_up(thread, inner, Failure::Error, f);
        }
        self.m.threads[thread as usize].waiting.filter(|&node| is_for(&self.m, node))
    }

    /// Drops attempts whose end was not seen; whether there was one.
    pub(super) fn leave_pending(&mut self, thread: u32, f: &mut impl Follower) -> bool {
        let state = &mut self.m.threads[thread as usize];
        let mut left = state.recursing.take().is_some();
        while let Some(node) = self.m.threads[thread as usize].waiting {
            self.give_up(thread, node, Failure::Error, f);
            left = true;
        }
        left
    }

    fn cond_wait(&mut self, thread: u32, condition: Lock, f: &mut impl Follower) {
        f.switching(&self.m, thread);
        if self.m.threads[thread as usize].idle.replace(condition).is_some() {
            self.impossible_step("wait_while_idle");
        }
    }

    fn cond_wake(&mut self, thread: u32, condition: Lock, f: &mut impl Follower) {
        f.switching(&self.m, thread);
        let state = &mut self.m.threads[thread as usize];
        let fresh = state.fresh;
        if state.idle.take() != Some(condition) {
            kind_of_gap(fresh, self, "wake_without_wait");
        }
    }

    fn off(&mut self, thread: u32, reason: OffReason, stack: Option<StackId>, f: &mut impl Follower) {
        self.m.scheduled = true;
        f.switching(&self.m, thread);
        self.m.threads[thread as usize].run = Run::Off(reason, stack);
    }

    fn on(&mut self, thread: u32, f: &mut impl Follower) {
        self.m.scheduled = true;
        f.switching(&self.m, thread);
        self.m.threads[thread as usize].run = Run::Running;
    }

    /// Its wait for another thread's exit is over, if that is what it waited for: there is such a thread.
    fn join(&mut self, thread: u32, of: Tid, wait: Nanos, f: &mut impl Follower) {
        let (tid, process) = (self.m.threads[thread as usize].tid, self.m.threads[thread as usize].process);
        if self.m.known(of).is_some_and(|of| of.process == process) {
            f.joined(&self.m, tid, of, wait);
        }
    }

    fn exit(&mut self, thread: u32, f: &mut impl Follower, o: &mut impl Observer) {
        if self.leave_pending(thread, f) {
            self.impossible_step("exit_while_waiting");
        }
        while let Some(&node) = self.m.threads[thread as usize].held.last() {
            self.end(node, Released::ExitedHolding, f, o);
        }
        let state = &mut self.m.threads[thread as usize];
        state.exited = true;
        state.idle = None;
        state.run = Run::Running;
        self.exited.push_back(thread);
        if self.exited.len() > MAX_EXITED
            && let Some(oldest) = self.exited.pop_front()
            && self.m.threads.get(oldest as usize).is_some_and(|t| t.exited && t.at_barrier.is_none())
            && !self.exited.contains(&oldest)
            && let Some(tid) = self.m.forget_thread(oldest)
        {
            f.forget_thread(tid);
        }
    }

    fn sweep(&mut self, f: &mut impl Follower) {
        let idle = |(ix, l): (usize, &super::LockState)| {
            (l.holders.is_empty() && l.overtaken == 0 && l.queued == 0 && l.round.is_none()).then_some(ix as u32)
        };
        let idle: Vec<u32> = self.m.locks.iter().filter_map(idle).collect();
        for ix in idle {
            f.forget_lock(ix);
            self.m.forget_lock(ix);
        }
        self.sweep_at = 2 * self.m.locks.len();
    }
}

fn remove(list: &mut Vec<NodeIx>, node: NodeIx) {
    if let Some(at) = list.iter().rposition(|&n| n == node) {
        list.remove(at);
    }
}
