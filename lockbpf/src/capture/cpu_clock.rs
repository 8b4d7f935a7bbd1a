//! Samples of every CPU's clock. A program counts them for the process that runs, and whether it ran its own code or the kernel's: in windows often,
//! between them seldom, and not at all as long as there was no window.

use super::raw_program::{Kind, Programs, RawError, attach_perf_event, perf_event};
use aya_obj::generated::{perf_event_attr, perf_sw_ids, perf_type_id};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// `PERF_EVENT_IOC_PERIOD`.
const SET_PERIOD: libc::c_ulong = 0x4008_2404;

/// How often samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// 199 times a second, which is no multiple of what programs do in time with their timers.
    Seldom,
    /// 4,000 times a second.
    Often,
    /// 20,000 times a second: a private child is observed.
    Calibrating,
}

impl Pace {
    fn period_ns(self) -> u64 {
        match self {
            Self::Seldom => 1_000_000_000 / 199,
            Self::Often => 250_000,
            Self::Calibrating => 50_000,
        }
    }
}

/// The samples of an observation.
pub(super) struct CpuClock {
    programs: Arc<Programs>,
    state: State,
}

enum State {
    Off,
    Loaded(OwnedFd),
    On(Pace, Vec<Sampling>),
    Impossible,
}

/// One CPU's. The program is detached when the event is closed.
struct Sampling {
    event: OwnedFd,
    _link: OwnedFd,
}

impl CpuClock {
    /// No samples so far. Where probes are perf events there will be none: before Linux 6.0 the kernel drops those that come while a probe's program runs.
    pub(super) fn new(programs: Arc<Programs>, perf_events: bool) -> Self {
        let state = if perf_events { State::Impossible } else { State::Off };
        Self { programs, state }
    }

    /// Loads the program.
    pub(super) fn load(&mut self) {
        if let State::Off = self.state {
            self.state = self.programs.load("clock", Kind::Clock).map_or_else(impossible, State::Loaded);
        }
    }

    /// Takes samples from now on, if none are taken yet: seldom.
    pub(super) fn start(&mut self) {
        self.load();
        if let State::Loaded(program) = &self.state {
            let started = start(program, Pace::Seldom);
            self.state = started.map_or_else(impossible, |all| State::On(Pace::Seldom, all));
        }
    }

    /// Samples are taken as often from now on. Without any there is less to tell of what observing costs.
    pub(super) fn pace(&mut self, pace: Pace) {
        self.start();
        if let State::On(now, all) = &mut self.state
            && std::mem::replace(now, pace) != pace
        {
            // A CPU that has gone has no clock.
            all.iter().for_each(|sampling| drop(sampling.set(pace)));
        }
    }

    /// Takes samples seldom, if any are taken.
    pub(super) fn slow_down(&mut self) {
        if let State::On(..) = self.state {
            self.pace(Pace::Seldom);
        }
    }
}

fn impossible(error: RawError) -> State {
    log::info!("the CPUs' clocks are not sampled: {error}");
    State::Impossible
}

fn start(program: &OwnedFd, pace: Pace) -> Result<Vec<Sampling>, RawError> {
    let cpus = aya::util::online_cpus().map_err(|(_, error)| error)?;
    cpus.into_iter().map(|cpu| Ok(Sampling::start(program, cpu, pace)?)).collect()
}

impl Sampling {
    fn start(program: &OwnedFd, cpu: u32, pace: Pace) -> io::Result<Self> {
        // SAFETY: a structure of integers and unions of integers: all zeros is a valid value.
        let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
        attr.type_ = perf_type_id::PERF_TYPE_SOFTWARE as u32;
        attr.size = size_of::<perf_event_attr>() as u32;
        attr.config = perf_sw_ids::PERF_COUNT_SW_CPU_CLOCK as u64;
        attr.__bindgen_anon_1.sample_period = pace.period_ns();
        attr.set_exclude_idle(1);
        let event = perf_event(&attr, -1, cpu as libc::c_int)?;
        let link = attach_perf_event(program, &event, 0)?;
        Ok(Self { event, _link: link })
    }

    fn set(&self, pace: Pace) -> io::Result<()> {
        let period = pace.period_ns();
        // SAFETY: the kernel reads one number, which lives.
        let status = unsafe { libc::ioctl(self.event.as_raw_fd(), SET_PERIOD, &raw const period) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
