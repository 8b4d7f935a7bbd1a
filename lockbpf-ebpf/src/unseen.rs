//! Acquisitions of which the release is not seen, or comes from another thread: they are summed when they are had, not when they
//! end. Several threads may do so for one lock at a time.

use crate::atomic::add;
use crate::emit::emit_for;
use crate::focus;
use crate::held::Held;
use crate::maps::{CONFIG, FutexWord, WAKERS};
use crate::section::{Ended, record};
use crate::section_sums::{add_time, add_unseen, sums, tally};
use crate::thread::Thread;
use lockbpf_common::config::mode;
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::{Outcome, Via, flag};
use lockbpf_common::record::{SectionFields, SectionRecord};
use lockbpf_common::sums::SumKey;
use lockbpf_common::via::is_semaphore;

/// The attempt in progress succeeded at `now`. Returns 0. A function of its own, so that its stack and instructions burden no hot
/// path.
#[inline(never)]
pub fn acquired(t: &mut Thread, now: u64) -> u32 {
    let via = t.pending.via;
    let contended = t.pending.flags & u32::from(flag::CONTENDED) != 0;
    let wait_ns = if contended { t.waited_ns(t.pending.attempt_ns, now) } else { 0 };
    tell(t, Outcome::Unseen, 0, false);
    let held = t.attempted(now, wait_ns);
    t.permit = held;
    t.pending.via = 0;
    sum(t, &held);
    if !is_semaphore(via) {
        // Who waited for another thread's initialiser holds nothing.
        let outcome = if via == Via::Once as u32 { Outcome::Released } else { Outcome::Unseen };
        tell(t, outcome, 0, false);
    }
    0
}

/// Sums an acquisition of which the end is not seen.
#[inline(always)]
pub fn sum(t: &mut Thread, held: &Held) {
    let &Held { lock, site, via, kind, acquire_ns, flags, .. } = held;
    let contended = flags & u32::from(flag::CONTENDED) != 0;
    let wait_ns = if contended { held.wait_ns } else { 0 };
    if let Some(s) = sums(&SumKey { lock, site, process: t.process, via }, kind, acquire_ns) {
        add(&mut s.acquisitions, 1);
        if via == Via::Once as u32 {
            tally(&mut s.hold_hist, 0);
        } else {
            add(&mut s.unseen, 1);
        }
        if contended {
            add(&mut s.contended, 1);
            add_time(&mut s.wait_ns, &mut s.wait_max_ns, &mut s.wait_hist, wait_ns, true);
        }
    }
    if let Some(s) = t.sums() {
        s.acquisitions += 1;
        s.wait_ns += t.own_wait(wait_ns);
    }
}

/// Records how the acquisition kept in `permit` ended, if there is one, and it waited, made others wait, or all are wanted; and
/// forgets it. A function of its own, for the same reason.
#[inline(never)]
pub fn tell(t: &mut Thread, outcome: Outcome, hold_ns: u64, waited_for: bool) -> u32 {
    let p = &mut t.permit;
    let (lock, site) = (p.lock, p.site);
    if lock == 0 {
        return 0;
    }
    let config = CONFIG.load();
    if waited_for {
        p.flags |= u32::from(flag::WAITED_FOR);
    }
    if p.wait_ns < config.min_wait_ns {
        p.flags &= !u32::from(flag::CONTENDED);
    }
    if p.flags & u32::from(flag::CONTENDED) == 0 {
        p.wait_ns = 0;
    }
    let wanted = p.flags & u32::from(flag::CONTENDED | flag::WAITED_FOR) != 0
        || p.flags & u32::from(flag::OUTER) != 0 && hold_ns != 0
        || config.mode & mode::ALL_EVENTS != 0;
    if wanted && focus::includes(t.process, lock, site) {
        let (end_ns, wait_ns) = (t.permit.acquire_ns + hold_ns, t.permit.wait_ns);
        let (flags, stack) = (t.permit.flags, t.permit.stack);
        t.tells(end_ns);
        record(t, &t.permit, &Ended { end_ns, wait_ns, hold_ns, outcome, flags, stack });
    }
    t.permit.lock = 0;
    0
}

/// A wait of which only its beginning and its end were seen.
pub struct Waited {
    /// What for.
    pub lock: u64,
    /// Where: a return address.
    pub site: u64,
    /// When it began, ns.
    pub attempt_ns: u64,
    /// Who waited.
    pub tid: u32,
    /// Who held the lock then; 0 if unknown.
    pub owner: u32,
    /// Number of its stack; negative if there is none.
    pub stack: i32,
    /// By what [`WAKERS`] knows who ended it; `None` if that is not known.
    pub waker: Option<FutexWord>,
    /// [`flag`] bits.
    pub flags: u16,
    /// As what it counts.
    pub via: Via,
}

impl Waited {
    /// Sums it, which is over `now`, with the lock or without it, and records it if it was long enough.
    #[inline(always)]
    pub fn tell(&self, t: &Thread, outcome: Outcome, now: u64) {
        let &Self { lock, site, attempt_ns, tid, owner, stack, flags, via, .. } = self;
        let wait_ns = now.saturating_sub(attempt_ns);
        if let Some(s) = sums(&SumKey { lock, site, process: t.process, via: via as u32 }, 0, attempt_ns) {
            if matches!(outcome, Outcome::TimedOut) {
                add(&mut s.timeouts, 1);
                add(&mut s.timeout_ns, wait_ns);
            } else {
                add_unseen(s, wait_ns);
            }
            if s.stack < 0 {
                s.stack = stack;
            }
        }
        let config = CONFIG.load();
        let wanted = wait_ns >= config.min_wait_ns || config.mode & mode::ALL_EVENTS != 0;
        if !wanted || !focus::includes(t.process, lock, site) {
            return;
        }
        // SAFETY: copied at once.
        let waker = self.waker.and_then(|key| unsafe { WAKERS.get(key) }.copied());
        let record = SectionRecord::pack(&SectionFields {
            end_ns: now,
            wait_ns,
            lock,
            site,
            process: t.process,
            tid,
            owner,
            waker: waker.filter(|w| w.woke_ns >= attempt_ns).map_or(0, |w| w.tid),
            stack,
            flags,
            via: via as u8,
            outcome: outcome as u8,
            ..SectionFields::default()
        });
        emit_for(t.slot, &record, Counter::SectionRecords);
    }
}
