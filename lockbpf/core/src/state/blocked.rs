//! Circles of threads that wait for one another. They close when a thread asks for a lock, and nowhere else.

use super::{NodeIx, State};
use crate::deadlock::{Blocked, Deadlock};
use crate::op::LockKind;

/// Longest circle that is searched for.
const MAX_CIRCLE: usize = 64;
/// Circles kept.
const MAX_SUSPECTS: usize = 256;

impl State {
    /// Looks for a circle that a new wait closes. Of several holders the newest is followed.
    pub(super) fn search_circle(&mut self, node: NodeIx) {
        let m = &self.m;
        let first = m.node(node).thread;
        let mut path = [0; MAX_CIRCLE];
        let mut at = node;
        for length in 0..MAX_CIRCLE {
            path[length] = at;
            let lock = m.lock_at(m.node(at).lock);
            // Another thread may give a semaphore's permit.
            let (true, Some(&holder)) = (lock.kind != LockKind::Semaphore, lock.holders.last()) else { return };
            let thread = m.node(holder).thread;
            if thread == first {
                let members = path[..=length].iter().map(|&n| self.blocked(n)).collect();
                if self.suspects.len() < MAX_SUSPECTS {
                    self.suspects.push(Deadlock { found: m.now, seen: m.now, members, ..Deadlock::default() });
                }
                return;
            }
            let Some(next) = m.thread_at(thread).waiting else { return };
            at = next;
        }
    }

    fn blocked(&self, node: NodeIx) -> Blocked {
        let i = &self.m.node(node).instance;
        Blocked { tid: i.tid, lock: i.lock, site: i.site, since: i.attempt.unwrap_or(self.m.now), stack: i.stack }
    }

    /// A wait has ended after all (a trylock failed, a deadline passed): the circles with it were none.
    pub(super) fn clear_suspects(&mut self, node: NodeIx) {
        if !self.suspects.is_empty() {
            let tid = self.m.node(node).instance.tid;
            self.suspects.retain(|d| d.members.iter().all(|b| b.tid != tid));
        }
    }
}
