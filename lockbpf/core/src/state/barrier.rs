//! Barriers: rounds of arrivals.

use super::machine::Node;
use super::{Follower, Instance, NodeIx, Observer, State};
use crate::id::Site;
use crate::op::{Arrival, LockKind, Round as Known};
use crate::units::Time;

/// The arrivals of a round so far.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Index of the barrier.
    pub lock: u32,
    /// The regions that the arrivals ended and the successors that they began, in order of arrival.
    pub arrivals: Vec<(Instance, NodeIx)>,
    participants: u32,
    /// What the last of them told of it.
    known: Known,
    /// When it was complete, as far as is known: with its last arrival.
    pub at: Time,
}

impl Round {
    /// Whether an arrival, `again` of a thread that is here, tells that this round is over, though not all have been seen to arrive: observing
    /// began or paused in the middle of it.
    fn is_over(&self, next: Known, again: bool) -> bool {
        !self.arrivals.is_empty()
            && match (self.known, next) {
                (Known::Number(this), Known::Number(next)) => this != next,
                // Those who arrive at the same moment may all find nobody.
                (Known::Later, Known::First) => true,
                // Two who arrive together may be told in another order than they found each other in; then a round is taken for two.
                (Known::First | Known::Later, Known::First | Known::Later) => again,
                _ => false,
            }
    }
}

impl State {
    pub(super) fn arrive(&mut self, thread: u32, a: Arrival, f: &mut impl Follower, o: &mut impl Observer) {
        if self.leave_pending(thread, f) {
            self.impossible_step("arrival_while_waiting");
        }
        let lock = self.m.lock(a.barrier);
        let mut round = self.m.locks[lock as usize].round.take().unwrap_or_default();
        self.m.locks[lock as usize].kind = LockKind::Barrier;
        round.lock = lock;
        let again = round.arrivals.iter().any(|&(_, n)| self.m.node(n).thread == thread);
        if round.is_over(a.round, again) {
            // Its other arrivals were not seen: those who were had to wait until the last of them, at least.
            self.cut_step("barrier_round_cut");
            self.complete(round, f, o);
            round = Box::new(Round { lock, ..Round::default() });
        }
        if self.m.threads[thread as usize].at_barrier.is_some() {
            self.impossible_step("arrival_while_at_barrier");
            if again {
                self.m.locks[lock as usize].round = Some(round);
                return;
            }
        }
        if a.participants == 0 {
            self.impossible_step("barrier_without_participants");
        } else if !round.arrivals.is_empty() && round.participants != a.participants {
            self.impossible_step("participants_changed");
        }
        round.participants = a.participants;
        round.known = a.round;
        round.at = self.m.now;
        let (now, since) = (self.m.now, self.m.threads[thread as usize].since);
        let region = self.section(thread, lock, &a, a.site, since, Some(since));
        let successor = self.section(thread, lock, &a, a.post, now, None);
        f.arriving(&self.m, region, successor);
        let ended = self.m.nodes.remove(region as usize).instance;
        round.arrivals.push((ended, successor));
        self.m.threads[thread as usize].at_barrier = Some(successor);
        if round.arrivals.len() < a.participants as usize {
            self.m.locks[lock as usize].round = Some(round);
            return;
        }
        self.complete(round, f, o);
    }

    /// Nobody waits for the round any longer.
    fn complete(&mut self, round: Box<Round>, f: &mut impl Follower, o: &mut impl Observer) {
        let now = round.at;
        for &(_, successor) in &round.arrivals {
            let instance = &mut self.m.nodes[successor as usize].instance;
            instance.acquire = Some(now);
            instance.contended = instance.attempt.is_some_and(|t| t < now);
        }
        f.completed(&self.m, &round);
        for (region, successor) in round.arrivals {
            let node = self.m.nodes.remove(successor as usize);
            o.passed(&region, &node.instance);
            if let Some(state) = self.m.threads.get_mut(node.thread as usize) {
                state.since = now;
                state.at_barrier.take_if(|s| *s == successor);
            }
        }
    }

    fn section(
        &mut self,
        thread: u32,
        lock: u32,
        a: &Arrival,
        site: Site,
        attempt: Time,
        acquire: Option<Time>,
    ) -> NodeIx {
        self.numbers += 1;
        let state = &self.m.threads[thread as usize];
        let instance = Instance {
            number: self.numbers,
            tid: state.tid,
            process: state.process,
            lock: a.barrier,
            kind: LockKind::Barrier,
            site: Some(site),
            shared: false,
            contended: false,
            attempt: Some(attempt),
            acquire,
            stack: None,
        };
        self.m.nodes.insert(Node {
            instance,
            thread,
            lock,
            asked: self.m.step,
            taken: self.m.step,
            queued: false,
            told: None,
            owner: None,
            depth: 0,
            overtaken: false,
        }) as NodeIx
    }
}
