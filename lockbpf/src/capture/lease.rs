//! Renews the lease by which programs do anything ([`Control`]): a thread of its own, so that the target pays for no observation while
//! this process is stopped, frozen, or does not get to run. What was not seen meanwhile is counted, and cut.
//!
//! On a busy machine even a thread of nice -10 comes 20 ms late now and then, and a lease that is over costs the observation what happens
//! meanwhile. So the thread is of the class SCHED_FIFO, of which it comes within 2 ms. A quota of CPU time does not hold for that
//! class: where there is one, the thread stays of the class that is throttled with the rest of lockbpf.

use super::cgroup::Quotas;
use super::guardian::{self, Guardian};
use super::session::now;
use super::{CaptureError, be_first, be_one_of_many, be_quick};
use crate::units::{Nanos, Time};
use aya::maps::{Array, MapData};
use lockbpf_common::config::{Control, LAPSES};
use nix::time::{ClockId, clock_getres};
use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long programs go on by themselves at least. With a tick of the slowest kernel's it is 50 ms.
const LENGTH: Duration = Duration::from_millis(40);
/// How often the lease is renewed.
const PERIOD: Duration = Duration::from_millis(10);
/// How often it is looked whether the guardian is there, and whether there is a quota.
const LOOK_AFTER: Duration = Duration::from_millis(200);
/// What the thread may need of its stack, bytes.
const STACK: usize = 32 << 10;
/// Lapses that are remembered one by one.
const REMEMBERED: usize = 64;

/// Times in which nothing was observed since the lease was over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lapses {
    /// How many.
    pub number: u64,
    /// For how long in all.
    pub total: Nanos,
    /// The longest.
    pub longest: Nanos,
}

/// The lease of one observation. Shared: whoever needs to know may look.
#[derive(Clone)]
pub struct Lease(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// The thread is to look at once.
    changed: Condvar,
}

struct State {
    map: Array<MapData, Control>,
    control: Control,
    /// Programs go on until then at least.
    until: Time,
    renewals: u64,
    phase: Phase,
    lapses: Lapses,
    /// When the last ones began.
    begun: VecDeque<Time>,
    last_over: Option<Time>,
    guardian: Option<Arc<Guardian>>,
    over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing is observed.
    Off,
    On,
    /// Since then nothing is, but it will go on.
    Paused(Time),
}

/// The thread that renews; ends when dropped.
pub(super) struct Renewing {
    lease: Lease,
    thread: Option<JoinHandle<()>>,
}

impl Renewing {
    /// Begins to give signs of life. The guardian, if there is one, is to expect them later ([`Lease::guarded`]), and the lease begins later
    /// ([`Lease::begin`]).
    pub(super) fn start(map: Array<MapData, Control>, guardian: Option<Arc<Guardian>>) -> Result<Self, CaptureError> {
        let state = State {
            map,
            control: Control { ticks: ticks(), ..Control::default() },
            until: Time(0),
            renewals: 0,
            phase: Phase::Off,
            lapses: Lapses::default(),
            begun: VecDeque::new(),
            last_over: None,
            guardian,
            over: false,
        };
        let lease = Lease(Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }));
        let its = lease.clone();
        let (tell, runs) = sync_channel(1);
        let thread = std::thread::Builder::new().name("lease".to_owned()).spawn(move || its.renew_always(&tell));
        let thread = Some(thread.map_err(CaptureError::Thread)?);
        // Its first steps may take more than a second: it gets its memory under the lock that all threads of this process share.
        let _ = runs.recv();
        Ok(Self { lease, thread })
    }

    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.lease.state().over = true;
        self.lease.0.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(guardian) = &self.lease.state().guardian {
            guardian.disarm();
        }
    }
}

impl Lease {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells when it has what it needs to run in time.
    fn renew_always(&self, tell: &SyncSender<()>) {
        let own = std::process::id();
        let quotas = Quotas::new();
        let mut throttled = quotas.cpus(own).is_some();
        be_prompt(throttled);
        touch_stack();
        let _ = tell.send(());
        let mut looked = Instant::now();
        let mut state = self.state();
        while !state.over {
            if let Some(guardian) = &state.guardian {
                guardian.beat();
            }
            if let Err(error) = state.renew() {
                log::error!("failed to renew the lease: {error}; nothing is observed any more");
                return;
            }
            if looked.elapsed() >= LOOK_AFTER {
                looked = Instant::now();
                state.look_after_guardian();
                if throttled != quotas.cpus(own).is_some() {
                    throttled = !throttled;
                    be_prompt(throttled);
                }
            }
            // The futex call that this is shows programs that the lease is renewed.
            state = self.0.changed.wait_timeout(state, PERIOD).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Programs begin to observe.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub(super) fn begin(&self) -> Result<(), CaptureError> {
        let mut state = self.state();
        state.phase = Phase::On;
        state.extend()
    }

    /// Programs do nothing any more. Returns how often, and for how long, that was so before.
    ///
    /// # Errors
    /// As above.
    pub(super) fn end(&self) -> Result<Lapses, CaptureError> {
        let mut state = self.state();
        // It may have been over since a moment ago.
        state.renew()?;
        state.phase = Phase::Off;
        state.control.renewal = 0;
        state.write()?;
        Ok(state.lapses)
    }

    /// Programs do nothing until [`Lease::go_on`]; no signs of life are expected meanwhile.
    ///
    /// # Errors
    /// As above.
    pub fn pause(&self) -> Result<(), CaptureError> {
        let mut state = self.state();
        state.renew()?;
        if state.phase == Phase::On {
            let now = now();
            state.lapse(now, now)?;
            state.phase = Phase::Paused(now);
            state.control.renewal = 0;
            state.write()?;
        }
        Ok(())
    }

    /// What was paused goes on.
    ///
    /// # Errors
    /// As above.
    pub fn go_on(&self) -> Result<(), CaptureError> {
        let mut state = self.state();
        if let Phase::Paused(since) = state.phase {
            let now = now();
            state.lapses.lasted(now.since(since));
            state.last_over = Some(now);
            state.phase = Phase::On;
            state.extend()?;
        }
        Ok(())
    }

    /// Whether the guardian is to expect signs of life.
    pub fn guarded(&self, guarded: bool) {
        match &self.state().guardian {
            Some(guardian) if guarded => guardian.arm(guardian::PROBES),
            Some(guardian) => guardian.disarm(),
            None => {}
        }
    }

    /// Lapses so far. One that is not known yet is found, and ended.
    pub(super) fn number(&self) -> u64 {
        let mut state = self.state();
        // If that fails, it is told by the thread.
        let _ = state.renew_if_over();
        state.lapses.number
    }

    /// When the last lapse was over, if there was any.
    pub(super) fn last_over(&self) -> Option<Time> {
        self.state().last_over
    }

    /// When the first lapse after a time began, as far as is remembered.
    pub(super) fn first_after(&self, time: Time) -> Option<Time> {
        self.state().begun.iter().copied().find(|&begun| begun >= time)
    }
}

impl State {
    fn is_over(&self) -> bool {
        now() >= self.until
    }

    fn renew_if_over(&mut self) -> Result<(), CaptureError> {
        if self.phase == Phase::On && self.is_over() { self.renew() } else { Ok(()) }
    }

    fn renew(&mut self) -> Result<(), CaptureError> {
        if self.phase != Phase::On {
            return Ok(());
        }
        let until = self.until;
        if !self.is_over() {
            self.extend()?;
            if now() < until {
                return Ok(());
            }
            // It may have been over for a moment.
        }
        self.lapse(until, now())?;
        self.extend()
    }

    /// It was over. First it is written that what threads remember is out of date, then they are let go on.
    fn lapse(&mut self, from: Time, to: Time) -> Result<(), CaptureError> {
        self.control.lapses += 1;
        self.control.lapsed_ns[self.control.lapses as usize & (LAPSES - 1)] = from.0;
        self.lapses.number += 1;
        self.lapses.lasted(to.since(from));
        self.last_over = Some(to);
        if self.begun.len() == REMEMBERED {
            self.begun.pop_front();
        }
        self.begun.push_back(from);
        self.write()
    }

    fn extend(&mut self) -> Result<(), CaptureError> {
        self.renewals += 1;
        self.control.renewal = self.renewals;
        self.until = now() + Nanos(LENGTH.as_nanos() as u64);
        self.write()
    }

    fn write(&mut self) -> Result<(), CaptureError> {
        Ok(self.map.set(0, self.control, 0)?)
    }

    fn look_after_guardian(&mut self) {
        match self.guardian.as_ref().map(|guardian| guardian.look_after()) {
            Some(Ok(true)) => log::warn!("the guardian was ended by somebody; it was started again"),
            Some(Err(error)) => {
                log::warn!(
                    "the guardian was ended by somebody, and cannot be started again ({error}): if lockbpf is stopped, its probes stay"
                );
                self.guardian = None;
            }
            Some(Ok(false)) | None => {}
        }
    }
}

/// Lets the calling thread run before others: before all, unless that would keep it running while a quota stops the rest of lockbpf.
fn be_prompt(throttled: bool) {
    if throttled {
        be_one_of_many();
    }
    if throttled || !be_first() {
        be_quick();
    }
}

/// Takes the memory of the calling thread's stack, as much as renewing will need.
#[inline(never)]
fn touch_stack() {
    std::hint::black_box([0_u8; STACK]);
}

/// Ticks that take as long as the lease: as the first one may be just over, one more.
fn ticks() -> u64 {
    // The coarse clock goes by ticks.
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).map_or(Duration::ZERO, Duration::from);
    let tick = tick.clamp(Duration::from_millis(1), Duration::from_millis(10));
    LENGTH.as_nanos().div_ceil(tick.as_nanos()) as u64 + 1
}

impl Lapses {
    fn lasted(&mut self, time: Nanos) {
        self.total += time;
        self.longest = self.longest.max(time);
    }

    /// What a reader must know of times in which lockbpf did not get to run.
    pub(super) fn note(&self) -> Option<String> {
        let ms = |ns: Nanos| ns.0.div_ceil(1_000_000);
        let (total, longest) = (ms(self.total), ms(self.longest));
        let times = match self.number {
            0 => return None,
            1 => format!("For {total} ms"),
            n => format!("{n} times, {longest} ms at most and {total} ms in all,"),
        };
        Some(format!(
            "{times} lockbpf was stopped or did not get to run: nothing was observed then, and what was in progress was cut."
        ))
    }
}
