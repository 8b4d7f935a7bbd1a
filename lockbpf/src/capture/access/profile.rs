//! A pass: samples until there are enough of each lock, within the budget.

use super::follow::Limits;
use super::functions::Functions;
use super::pace::{self, Turns};
use super::sample::{self, Setting};
use super::signals::Signals;
use super::target::{self, AccessError};
use super::{PassEnd, Profile, Wanted, tracer};
use crate::capture::CaptureError;
use crate::capture::edits;
use crate::capture::guardian::{self, Guardian};
use crate::capture::maps;
use crate::capture::object::{self, Extras};
use crate::capture::session::now;
use crate::capture::suspend::{self, Suspendable};
use crate::capture::target::of_pids;
use crate::capture::verifier::to_the_end;
use crate::rights;
use crate::units::Time;
use aya::Ebpf;
use aya::maps::{Array, HashMap as BpfHashMap};
use aya::programs::PerfEvent;
use lockbpf_common::access::{MAX_LOCKS, Sampler};
use lockbpf_common::config::Config;
use lockbpf_common::via::Via;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Breakpoints that a processor has.
const BREAKPOINTS: usize = 4;
/// Threads that are waited for at a time.
const ARMED: usize = 8;
/// How long nobody may come.
const ROUND: Duration = Duration::from_millis(100);
/// Attempts among which the one to be followed is drawn, so that it is not always the first after a pause.
const DRAWN_OF: u64 = 8;
/// How often it is looked whether the process has taken a handler for the signal.
const CHECK: Duration = Duration::from_millis(500);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The kernel side.
struct Kernel {
    ebpf: Ebpf,
}

impl Kernel {
    /// Also returns the programs that stop a thread which asks for a lock, and one that is followed.
    fn load() -> Result<(Self, [OwnedFd; 2]), CaptureError> {
        // These programs need none of what the others are told.
        let mut ebpf = object::load(&Config::default(), None, Extras::default())?;
        let mut load = |name: &'static str| {
            let program: &mut PerfEvent = crate::capture::attach::program(&mut ebpf, name)?;
            let failed = |source| CaptureError::Program { name: name.to_owned(), source };
            to_the_end(|| rights::reach(|| program.load())).map_err(failed)?;
            let fd = program.fd().map_err(failed)?.as_fd().try_clone_to_owned();
            fd.map_err(|error| failed(error.into()))
        };
        let programs = [load("access_attempt")?, load("access_stop")?];
        Ok((Self { ebpf }, programs))
    }

    fn choose(&mut self, locks: &[u64]) -> Result<(), CaptureError> {
        let map = self.ebpf.map_mut("ACCESS_LOCKS").ok_or(CaptureError::NoMap("ACCESS_LOCKS"))?;
        let mut map: BpfHashMap<_, u64, u32> = map.try_into()?;
        locks.iter().take(MAX_LOCKS).try_for_each(|lock| map.insert(lock, 1, 0))?;
        Ok(())
    }

    fn leave(&mut self, lock: u64) -> Result<(), CaptureError> {
        let map = self.ebpf.map_mut("ACCESS_LOCKS").ok_or(CaptureError::NoMap("ACCESS_LOCKS"))?;
        let mut map: BpfHashMap<_, u64, u32> = map.try_into()?;
        Ok(map.remove(&lock)?)
    }

    /// Wants one of the next attempts, or none, and returns what was counted since.
    fn want(&mut self, remaining: u64, signal: Signal) -> Result<Sampler, CaptureError> {
        let map = self.ebpf.map_mut("ACCESS").ok_or(CaptureError::NoMap("ACCESS"))?;
        let mut map: Array<_, Sampler> = map.try_into()?;
        let before = map.get(&0, 0)?;
        map.set(0, Sampler { remaining, signal: signal as u32, chosen: 1, ..Sampler::default() }, 0)?;
        Ok(before)
    }
}

/// Profiles the accesses of a process.
///
/// # Errors
/// When it cannot be profiled.
pub fn profile(wanted: &Wanted) -> Result<Profile, AccessError> {
    let pid = wanted.pid;
    let signal = target::check(pid)?;
    let gone = |_| AccessError::Gone { pid };
    let targets = of_pids(&[pid]).map_err(|_| AccessError::Gone { pid })?;
    let functions = Functions::find(&targets.libraries, &maps::read(pid).map_err(gone)?);
    if functions.is_empty() {
        return Err(AccessError::NoFunctions { pid });
    }
    let entries = entries(&functions, &wanted.locks);
    let system = |what| move |source| AccessError::System { what, source };
    let guardian = Guardian::start(guardian::TRACED).map_err(system("the guardian does not start"))?;
    guardian.hear_handlers();
    tracer::install_tick().map_err(std::io::Error::from).map_err(system("no handler for a timer"))?;
    let suspendable = Suspendable::install();
    let handlers = Handlers::install().map_err(system("no handler for an interrupt"))?;
    let (mut kernel, [attempt, stop]) = Kernel::load()?;
    let locks: Vec<u64> = wanted.locks.iter().map(|&(lock, _)| lock).collect();
    kernel.choose(&locks)?;
    let setting = Setting {
        pid,
        signal,
        functions: &functions,
        entries: &entries,
        attempt: attempt.as_fd(),
        stop: stop.as_fd(),
        guardian: &guardian,
        limits: Limits {
            instructions: wanted.instructions,
            held_up: Duration::from_millis(200),
            wait: Duration::from_secs(2),
            blocked: Duration::from_secs(1),
        },
        interrupted: &INTERRUPTED,
    };
    let profile = pass(wanted, &setting, &mut kernel, &locks);
    drop((handlers, suspendable));
    profile
}

fn pass(wanted: &Wanted, setting: &Setting<'_>, kernel: &mut Kernel, locks: &[u64]) -> Result<Profile, AccessError> {
    let (pid, mut began) = (wanted.pid, Instant::now());
    let mut profile = Profile::default();
    let mut came = HashSet::new();
    let mut left: HashMap<u64, u64> = locks.iter().map(|&lock| (lock, wanted.samples)).collect();
    let mut turns = Turns::default();
    let (mut threads, mut looked) = (Vec::new(), None::<Instant>);
    loop {
        if suspend::asked() {
            // Nobody is traced, and nobody is guarded.
            let stopped = Instant::now();
            eprintln!("lockbpf: stopped; the target is left alone until it goes on");
            suspend::stop();
            began += stopped.elapsed();
            looked = None;
        }
        if looked.is_none_or(|at| at.elapsed() > CHECK) {
            let look_after = setting.guardian.look_after();
            look_after.map_err(|source| AccessError::System { what: "the guardian does not start", source })?;
        }
        profile.duration = began.elapsed();
        if left.is_empty() {
            profile.end = PassEnd::Complete;
            break;
        }
        if INTERRUPTED.load(Ordering::Relaxed) {
            profile.end = PassEnd::Interrupted;
            break;
        }
        if profile.duration >= wanted.at_most {
            profile.end = PassEnd::Time;
            break;
        }
        if looked.is_none_or(|at| at.elapsed() > CHECK) {
            let all: Vec<(i32, Signals)> = target::threads(pid)
                .into_iter()
                .filter_map(|tid| Some((tid, Signals::of(pid.cast_signed(), tid)?)))
                .collect();
            if all.is_empty() {
                profile.end = PassEnd::Exited;
                break;
            }
            if all.iter().any(|(_, signals)| signals.catches(setting.signal)) {
                profile.end = PassEnd::SignalTaken;
                break;
            }
            let stoppable = all.iter().filter(|(_, signals)| !signals.blocks(setting.signal));
            threads = stoppable.map(|&(tid, _)| tid).collect();
            profile.blocking = profile.blocking.max(all.len() - threads.len());
            looked = Some(Instant::now());
        }
        profile.threads = wanted.threads.max(came.len());
        profile.allowed = pace::allowed(wanted.budget, profile.threads);
        let pause = pace::pause(profile.allowed, profile.held_up, profile.duration);
        if !pause.is_zero() {
            // Not longer than until something may have changed.
            std::thread::sleep(pause.min(CHECK / 5));
            continue;
        }
        let drawn = turns.draw(&threads, ARMED);
        if drawn.is_empty() {
            std::thread::sleep(CHECK / 5);
            looked = None;
            continue;
        }
        kernel.want(fastrand::u64(1..=DRAWN_OF), setting.signal)?;
        let sample = sample::take(setting, &drawn, ROUND)?;
        let counted = kernel.want(0, setting.signal)?;
        profile.seen += counted.seen;
        profile.refused += counted.refused;
        profile.held_up += sample.held_up;
        profile.passed_on += sample.passed_on;
        turns.note(&sample.armed, sample.tid);
        came.extend(sample.tid);
        if sample.all_gone {
            looked = None;
        }
        match sample.sections {
            None => profile.nobody += 1,
            Some(Err(why)) => *profile.abandoned.entry(why).or_default() += 1,
            Some(Ok(sections)) => {
                for section in &sections {
                    if let Some(wanted) = left.get_mut(&section.lock) {
                        *wanted -= 1;
                        if *wanted == 0 {
                            left.remove(&section.lock);
                            kernel.leave(section.lock)?;
                        }
                    }
                }
                profile.sections.extend(sections);
            }
        }
    }
    Ok(profile)
}

/// Where the locks are requested: as many functions as there are breakpoints, the ones first by which most locks are.
fn entries(functions: &Functions, locks: &[(u64, Vec<Via>)]) -> Vec<u64> {
    let mut uses: HashMap<Via, usize> = HashMap::new();
    for via in locks.iter().flat_map(|(_, vias)| vias) {
        *uses.entry(*via).or_default() += 1;
    }
    let mut vias: Vec<(usize, Via)> = uses.into_iter().map(|(via, uses)| (uses, via)).collect();
    vias.sort_unstable_by(|a, b| b.cmp(a));
    vias.into_iter().flat_map(|(_, via)| functions.requests(via)).take(BREAKPOINTS).collect()
}

/// When the first signal came, ns; 0 before.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// Whether a signal that comes at `now` is a second one; when the first came is remembered.
fn is_second(first: &AtomicU64, now: Time) -> bool {
    match first.compare_exchange(0, now.0.max(1), Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => false,
        Err(first) => now.0.saturating_sub(first) >= edits::SECOND_SIGNAL.as_nanos() as u64,
    }
}

/// Ctrl-C ends the pass while this exists, a second one the program, at once: the kernel and the guardian undo what it has done to a target.
struct Handlers([(Signal, SigAction); 3]);

impl Handlers {
    fn install() -> std::io::Result<Self> {
        extern "C" fn interrupt(signal: libc::c_int) {
            INTERRUPTED.store(true, Ordering::Relaxed);
            if is_second(&FIRST, now()) && signal != libc::SIGHUP {
                // SAFETY: _exit is async-signal-safe. The status is as a shell tells of who died of a signal.
                unsafe { libc::_exit(128 + signal) }
            }
        }
        INTERRUPTED.store(false, Ordering::Relaxed);
        FIRST.store(0, Ordering::Relaxed);
        let action = SigAction::new(SigHandler::Handler(interrupt), SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler uses atomics, reads the clock and ends the program: all of that is async-signal-safe.
        let install = |signal| unsafe { sigaction(signal, &action) };
        let before = |signal| install(signal).map(|before| (signal, before));
        let all = [before(Signal::SIGINT)?, before(Signal::SIGTERM)?, before(Signal::SIGHUP)?];
        if all[2].1.handler() == SigHandler::SigIgn {
            // Who has it ignored, like nohup, wants to outlive the terminal.
            // SAFETY: what was installed before.
            unsafe { sigaction(Signal::SIGHUP, &all[2].1) }?;
        }
        Ok(Self(all))
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        for (signal, before) in &self.0 {
            // SAFETY: what was installed before.
            let _ = unsafe { sigaction(*signal, before) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_signal_comes_later_than_the_first() {
        let first = AtomicU64::new(0);
        let at = |ms: u64| is_second(&first, Time(ms * 1_000_000));
        assert_eq!([5, 5, 100, 254, 255, 9_000].map(at), [false, false, false, false, true, true]);
    }
}
