//! `lockbpf calibrate`: measures what locks cost on this machine, and keeps it for predictions.

use super::args::Format;
use super::destination::Whole;
use super::{output, probing};
use crate::capture::feature;
use crate::capture::pthread::Mutex;
use crate::locks::{Mcs, Qd, Spin, Ticket};
use crate::model::calibration::{Calibration, Figure, SCHEMA};
use crate::model::with::percent;
use crate::observe::calibration_file;
use crate::report::table::table;
use crate::report::text::percent as percent_text;
use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::Mutex as Guarded;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long each measurement lasts.
const WINDOW: Duration = Duration::from_millis(20);
/// How long the load of the machine is looked at before.
const LOOK: Duration = Duration::from_millis(500);
/// For how long a thread sleeps for a lock until that is handed on to it, one after the other: its CPU sleeps then, too, and has to be woken.
const ASLEEP: [Duration; 4] =
    [Duration::from_micros(3), Duration::from_micros(6), Duration::from_micros(12), Duration::from_micros(24)];
/// Hand-offs in a run.
const HAND_OFFS: usize = 40;
/// How long threads take turns on CPUs for a measurement of their time slices, and how long one that does nothing else is away at least until it
/// has its turn again.
const TURNS: Duration = Duration::from_millis(60);
const AWAY: Duration = Duration::from_micros(500);

/// How to measure.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  lockbpf calibrate                  on a machine that does nothing else
  lockbpf calibrate --max-load 30%   though it is not quite idle")]
pub(super) struct CalibrateArgs {
    /// Measure each figure so often; the medians count.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..=1000))]
    pub runs: u32,
    /// Refuse if other programs use more than this share of the CPUs.
    #[arg(long, value_name = "SHARE%", default_value = "10%", value_parser = percent)]
    pub max_load: f64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// Other programs that use no more than this share of the CPUs do not falsify what is measured.
const QUIET: f64 = 0.1;
/// Runs where somebody waits for something else.
const FEW_RUNS: u32 = 5;

/// Measures, keeps and prints.
///
/// # Errors
/// When the machine is too busy, or the calibration cannot be kept.
pub(super) fn run(args: &CalibrateArgs) -> Result<ExitCode> {
    let load = load(LOOK)?;
    if load > args.max_load {
        bail!(
            "other programs use {} of the CPUs, which would be measured instead of the locks: wait until they are done, or allow \
             it with --max-load",
            percent_text(load)
        );
    }
    let calibration = measure(args.runs)?;
    keep(&calibration)?;
    output::write(&match args.format {
        Format::Table => render(&calibration),
        Format::Json => output::json(&calibration, "calibration")?,
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Measures and keeps, in short, for a prediction that needs it; else why not, as a clause.
///
/// # Errors
/// When it cannot be measured.
pub(super) fn in_passing() -> Result<Result<Calibration, String>> {
    let load = load(LOOK)?;
    if load > QUIET {
        return Ok(Err(format!("other programs use {} of the CPUs now", percent_text(load))));
    }
    say!("lockbpf: measures first what locks cost on this machine (once; --calibrate never leaves it out)");
    let calibration = measure(FEW_RUNS)?;
    if let Err(error) = keep(&calibration) {
        say!("lockbpf: {error:#}");
    }
    Ok(Ok(calibration))
}

fn measure(runs: u32) -> Result<Calibration> {
    let cpus = std::thread::available_parallelism().context("failed to find out how many CPUs there are")?.get();
    let bar = bar(u64::from(runs) * (5 * cpus as u64 + 3));
    let measure = |what: &dyn Fn() -> f64| {
        let times: Vec<f64> = (0..runs).map(|_| what()).collect();
        bar.inc(u64::from(runs));
        figure(times)
    };
    let by_waiters = |operation: &dyn Fn(usize) -> f64| (1..=cpus).map(|n| measure(&|| operation(n))).collect();
    // What passes between two operations, whoever does them.
    let mutex = by_waiters(&|threads| {
        let lock = Mutex::new();
        contend(threads, |_| lock.with(|| {}))
    });
    let mcs = by_waiters(&|threads| {
        let lock = Mcs::new(threads);
        contend(threads, |thread| lock.with(thread, || {}))
    });
    let ticket = by_waiters(&|threads| {
        let lock = Ticket::default();
        contend(threads, |_| lock.with(|| {}))
    });
    let spin = by_waiters(&|threads| {
        let lock = Spin::default();
        contend(threads, |_| lock.with(|| {}))
    });
    // DO(k) is the time of a thread's loop: of k + 1 threads, each does one of so many operations.
    let qd_delegation: Vec<Figure> = by_waiters(&|threads| {
        let lock = Qd::new(threads);
        threads as f64 * contend(threads, |thread| lock.delegate(thread, || {}))
    });
    let qd_detached = measure(&|| {
        let lock = Qd::new(cpus);
        contend(cpus.min(2), |thread| _ = lock.detach(thread, || {}))
    });
    let hand_offs: Vec<HandOff> = (0..runs).map(|_| hand_off()).collect();
    bar.inc(u64::from(runs));
    let of_all = |of: fn(&HandOff) -> f64| figure(hand_offs.iter().map(of).collect());
    let (hand_off, wake_call) = (of_all(|run| run.latency_ns), of_all(|run| run.call_ns));
    let time_slice = measure(&|| time_slice(2 * cpus));
    bar.finish_and_clear();
    let observed = probing::measure(&feature::survey());
    let observer_operation_ns = observed.as_ref().ok().map(|observed| observed.costs.hit_ns);
    Ok(Calibration {
        schema: SCHEMA.to_owned(),
        cpu: calibration_file::cpu(),
        cpus: cpus as u32,
        runs,
        mutex,
        mcs,
        ticket,
        spin,
        qd_lock_overhead: qd_delegation.first().copied().unwrap_or_default(),
        qd_delegation,
        qd_detached,
        hand_off,
        wake_call,
        time_slice,
        observer_operation_ns,
    })
}

fn keep(calibration: &Calibration) -> Result<()> {
    let Some(path) = calibration_file::path() else {
        bail!("there is no directory to keep the calibration in: set XDG_STATE_HOME or HOME");
    };
    let failed = || format!("failed to keep the calibration as {}", path.display());
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(failed)?;
    }
    let mut file = Whole::create(&path)?;
    file.write_all(output::json(calibration, "calibration")?.as_bytes()).with_context(failed)?;
    file.finish()
}

fn bar(steps: u64) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(4))
    } else {
        ProgressBar::hidden()
    };
    if let Ok(style) = ProgressStyle::with_template("{elapsed} {wide_bar} {pos}/{len}") {
        bar.set_style(style);
    }
    bar
}

/// The share of the CPUs that is in use.
fn load(during: Duration) -> Result<f64> {
    let before = cpu_times()?;
    std::thread::sleep(during);
    let after = cpu_times()?;
    let [idle, all] = [after.0 - before.0, after.1 - before.1].map(|ticks| ticks.max(0) as f64);
    Ok(if all > 0.0 { 1.0 - idle / all } else { 0.0 })
}

/// Idle time and all time of the CPUs, in the kernel's ticks.
fn cpu_times() -> Result<(i64, i64)> {
    let stat = fs::read_to_string("/proc/stat").context("failed to read /proc/stat")?;
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<i64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user nice system idle iowait …; guests are part of user.
    let idle = ticks.iter().skip(3).take(2).sum();
    Ok((idle, ticks.iter().take(8).sum()))
}

/// So many threads do an operation over and over; the time that passes per operation, ns. Each thread times itself: on a busy machine one that times
/// them all begins later than they do.
fn contend(threads: usize, operation: impl Fn(usize) + Sync) -> f64 {
    let (stop, begin) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let [done, passed_ns] = [0, 0].map(AtomicU64::new);
    let operation = &operation;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (stop, begin, done, passed_ns) = (&stop, &begin, &done, &passed_ns);
            scope.spawn(move || {
                begin.wait();
                let (mut count, since) = (0_u64, Instant::now());
                while !stop.load(Ordering::Relaxed) {
                    operation(thread);
                    count += 1;
                }
                passed_ns.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
                done.fetch_add(count, Ordering::Relaxed);
            });
        }
        begin.wait();
        std::thread::sleep(WINDOW);
        stop.store(true, Ordering::Relaxed);
    });
    passed_ns.into_inner() as f64 / threads as f64 / done.into_inner().max(1) as f64
}

/// Hand-offs of a mutex to a thread that sleeps for it: the medians of a few, ns.
struct HandOff {
    /// From the release to the acquisition.
    latency_ns: f64,
    /// What the release takes.
    call_ns: f64,
}

/// Both threads stay on their CPUs but for the sleep: turns are spun for, since whoever sleeps for its turn may be woken on the other's CPU.
fn hand_off() -> HandOff {
    let (lock, begin) = (Mutex::new(), Instant::now());
    let [asked, acquired] = [0, 0].map(AtomicUsize::new);
    let at = AtomicU64::new(0);
    let now = || begin.elapsed().as_nanos() as u64;
    let until = |turn: &AtomicUsize, number: usize| {
        while turn.load(Ordering::Acquire) < number {
            std::hint::spin_loop();
        }
    };
    let held = AtomicUsize::new(0);
    let (mut latencies, mut calls) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=HAND_OFFS {
                until(&held, turn);
                asked.store(turn, Ordering::Release);
                lock.with(|| at.store(now(), Ordering::Relaxed));
                acquired.store(turn, Ordering::Release);
            }
        });
        for turn in 1..=HAND_OFFS {
            let mut released = 0;
            lock.with(|| {
                held.store(turn, Ordering::Release);
                until(&asked, turn);
                let (since, asleep) = (Instant::now(), ASLEEP[turn % ASLEEP.len()]);
                while since.elapsed() < asleep {
                    std::hint::spin_loop();
                }
                released = now();
            });
            let returned = now();
            until(&acquired, turn);
            latencies.push(at.load(Ordering::Relaxed).saturating_sub(released) as f64);
            calls.push(returned.saturating_sub(released) as f64);
        }
    });
    HandOff { latency_ns: figure(latencies).median_ns, call_ns: figure(calls).median_ns }
}

/// How long threads keep their CPUs where there are fewer of these, ns; 0 if none has lost its CPU twice.
fn time_slice(threads: usize) -> f64 {
    let (slices, begin) = (Guarded::new(Vec::new()), Barrier::new(threads));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                begin.wait();
                let start = Instant::now();
                let (mut last, mut since, mut own) = (start, None, Vec::new());
                while last.duration_since(start) < TURNS {
                    let now = Instant::now();
                    if now.duration_since(last) >= AWAY {
                        // The first one had begun before.
                        own.extend(since.map(|since| last.duration_since(since).as_nanos() as f64));
                        since = Some(now);
                    }
                    last = now;
                }
                slices.lock().unwrap_or_else(std::sync::PoisonError::into_inner).append(&mut own);
            });
        }
    });
    figure(slices.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)).median_ns
}

/// Median and quartiles.
fn figure(mut times: Vec<f64>) -> Figure {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get(((times.len() as f64 - 1.0) * share).round() as usize).copied().unwrap_or_default();
    Figure { median_ns: at(0.5), low_ns: at(0.25), high_ns: at(0.75) }
}

fn render(calibration: &Calibration) -> String {
    let cell = |figure: &Figure| format!("{:.0} ns ({:.0}–{:.0})", figure.median_ns, figure.low_ns, figure.high_ns);
    let Calibration { mutex, mcs, ticket, spin, qd_delegation, .. } = calibration;
    let locks = [mutex, mcs, ticket, spin, qd_delegation];
    let row = |k: usize| {
        let of = |lock: &Vec<Figure>| lock.get(k).map_or_else(String::new, cell);
        std::iter::once(k.to_string()).chain(locks.map(of)).collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = (0..calibration.threads()).map(row).collect();
    let headers =
        ["Other threads", "pthread mutex", "MCS lock", "ticket lock", "spin lock", "QD lock, waiting:\nLO, DO(k)"];
    let table = table(&headers, &[], rows, output::layout().width);
    let observer = calibration.observer_operation_ns.map_or_else(
        || "What observing costs an operation could not be measured: `lockbpf doctor` tells why.".to_owned(),
        |ns| format!("Observing costs an operation {ns:.0} ns."),
    );
    let kept = calibration_file::path().map_or_else(String::new, |path| format!("Kept as {}.\n", path.display()));
    format!(
        "{}, {} CPUs. Time from one empty section to the next (of the QD lock: per thread); median and quartiles of {} runs.\n\n\
         {table}\n\n\
         With more threads than CPUs it is taken to be as in the last row.\n\
         A section that is delegated to the holder of a QD lock without waiting for it takes {}.\n\
         Handing a mutex on to a sleeping thread takes {}, of which the one that wakes it is busy for {}.\n\
         A thread keeps a CPU that others want, too, for {:.1} ms.\n{observer}\n{kept}",
        calibration.cpu,
        calibration.cpus,
        calibration.runs,
        cell(&calibration.qd_detached),
        cell(&calibration.hand_off),
        cell(&calibration.wake_call),
        calibration.time_slice.median_ns / 1e6
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_medians_and_quartiles() {
        let figure = figure(vec![5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((figure.median_ns, figure.low_ns, figure.high_ns), (3.0, 2.0, 4.0));
    }

    #[test]
    fn operations_are_timed() {
        let slow = contend(1, |_| std::thread::sleep(Duration::from_millis(1)));
        assert!(slow >= 1e6, "{slow}");
        let HandOff { latency_ns, call_ns } = hand_off();
        assert!(latency_ns > 0.0 && call_ns > 0.0);
        let cpus = std::thread::available_parallelism().unwrap().get();
        // As long as all threads want a CPU, none keeps one for all the time.
        let slice = time_slice(2 * cpus);
        assert!((0.0..TURNS.as_nanos() as f64).contains(&slice), "{slice}");
        assert!((0.0..=1.0).contains(&load(Duration::from_millis(30)).unwrap()));
    }
}
