//! How much of its throughput a real server keeps while it is observed: short windows on one running server, each
//! observed one between two bare ones, so that slow drifts of the machine cancel. The load rests while observers come
//! and go: on a busy machine they would be long about it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::unistd::Pid;
use serde::Serialize;

use super::{
    interrupt,
    observer::{Cost, Mode, Observation, Observers, Seen},
    result::{InMode, ObserverUse},
    stats::{Spread, ratio},
    usage::cpu_time,
};

/// Modes of a round. The futex tier, whose cost is the smallest, needs the most windows to be told from noise.
const ROUND: [Mode; 6] =
    [Mode::FutexOnly, Mode::Full, Mode::FutexOnly, Mode::AllEvents, Mode::FutexOnly, Mode::Bpftrace];
/// What a server gets to settle in after its load has begun anew.
const SETTLE: Duration = Duration::from_millis(100);

/// A server under load.
pub(super) trait Loaded {
    /// The server's name.
    fn name(&self) -> &'static str;

    /// What it is asked, in words.
    fn load(&self) -> &'static str;

    /// The server's process.
    fn pid(&self) -> Pid;

    /// Begins the load, or goes on with it.
    ///
    /// # Errors
    /// Its programs are gone.
    fn resume(&mut self) -> Result<()>;

    /// Lets the load rest.
    ///
    /// # Errors
    /// Its programs are gone.
    fn pause(&mut self) -> Result<()>;

    /// Requests that it has answered so far.
    ///
    /// # Errors
    /// It does not answer any more.
    fn requests(&mut self) -> Result<u64>;
}

/// What was measured on one server.
#[derive(Debug, Serialize)]
pub(super) struct Server {
    /// The server.
    pub(super) name: &'static str,
    /// What it is asked.
    pub(super) load: &'static str,
    /// Length of a window, s.
    pub(super) window_s: f64,
    /// Nobody observes.
    pub(super) bare: Bare,
    /// Observed; in the order of the table.
    pub(super) observed: Vec<InMode<Observed>>,
}

/// The server by itself.
#[derive(Debug, Serialize)]
pub(super) struct Bare {
    /// Requests per second.
    pub(super) throughput: Spread,
    /// CPU time of the server for a request, ns.
    pub(super) cpu_ns: Spread,
    /// Throughput of a bare window by that of the one before: the noise in one comparison.
    pub(super) noise: Option<Spread>,
}

/// The server, observed.
#[derive(Debug, Serialize)]
pub(super) struct Observed {
    /// Requests per second.
    pub(super) throughput: Spread,
    /// Throughput by that of the bare windows before and after.
    pub(super) ratio: Spread,
    /// CPU time of the server for a request, ns.
    pub(super) cpu_ns: Spread,
    /// CPU time of a request by that of the bare windows before and after.
    pub(super) cpu_ratio: Spread,
    /// Lock acquisitions for each request, as lockbpf counted them.
    pub(super) acquisitions_per_request: Option<Spread>,
    /// Contended ones for each request.
    pub(super) contended_per_request: Option<Spread>,
    /// Records sent to user space, per second.
    pub(super) events_per_s: Option<Spread>,
    /// Records and sums lost, in all windows.
    pub(super) lost: Option<u64>,
    /// The observer's own use.
    pub(super) observer: ObserverUse,
}

/// One window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Requests per second.
    pub(super) throughput: f64,
    /// CPU time of the server for a request, ns.
    pub(super) cpu_ns: f64,
    /// Requests answered while there was load, also before the window itself.
    answered: f64,
    /// How long there was load, s.
    loaded_s: f64,
}

/// One observed window and the bare one before it.
struct Visit {
    before: Window,
    window: Window,
    cost: Cost,
    seen: Option<Seen>,
}

/// Measures window by window until the time is used up.
///
/// # Errors
/// The server or an observer fails, the time was too short for a single comparison, or the benchmark was interrupted.
pub(super) fn measure(
    server: &mut dyn Loaded,
    observers: &Observers,
    length: Duration,
    time: Duration,
) -> Result<Server> {
    let deadline = Instant::now() + time;
    // Caches fill and pools of threads grow.
    window(server, length)?;
    let mut visits: Vec<(Mode, Visit)> = Vec::new();
    let mut longest = Duration::ZERO;
    for mode in ROUND.into_iter().filter(|&mode| observers.can(mode)).cycle() {
        let begin = Instant::now();
        if begin + longest + length > deadline {
            break;
        }
        visits.push((mode, visit(server, observers, mode, length)?));
        longest = longest.max(begin.elapsed());
    }
    let last = window(server, length)?;
    summary(server.name(), server.load(), length, &visits, last)
}

fn visit(server: &mut dyn Loaded, observers: &Observers, mode: Mode, length: Duration) -> Result<Visit> {
    let before = window(server, length)?;
    if mode.shows_by_locks() {
        server.resume()?;
    }
    let observation = Observation::start(observers, mode, server.pid())?;
    let reading = observation.read()?;
    let window = window(server, length)?;
    let used = reading.percent_until(&observation.read()?);
    let (cost, seen) = observation.stop(used)?;
    Ok(Visit { before, window, cost, seen })
}

/// Measures for `length` under load; the load rests afterwards.
///
/// # Errors
/// The server fails, or answers nothing, or the benchmark was interrupted.
pub(super) fn window(server: &mut dyn Loaded, length: Duration) -> Result<Window> {
    let (resumed, answered_before) = (Instant::now(), server.requests()?);
    server.resume()?;
    interrupt::sleep(SETTLE)?;
    let read =
        |server: &mut dyn Loaded| -> Result<_> { Ok((Instant::now(), server.requests()?, cpu_time(server.pid())?)) };
    let (begin, requests_before, cpu_before) = read(server)?;
    interrupt::sleep(length)?;
    let (end, requests, cpu) = read(server)?;
    server.pause()?;
    let made = requests.saturating_sub(requests_before) as f64;
    ensure!(made > 0.0, "the server answered no request in {} s", length.as_secs_f64());
    Ok(Window {
        throughput: made / (end - begin).as_secs_f64(),
        cpu_ns: cpu.saturating_sub(cpu_before).as_nanos() as f64 / made,
        answered: requests.saturating_sub(answered_before) as f64,
        loaded_s: (end - resumed).as_secs_f64(),
    })
}

#[cfg(test)]
impl Window {
    /// A window of one second.
    pub(super) fn of_throughput(throughput: f64) -> Self {
        Self { throughput, cpu_ns: 1e9 / throughput, answered: throughput, loaded_s: 1.0 }
    }
}

fn summary(
    name: &'static str,
    load: &'static str,
    length: Duration,
    visits: &[(Mode, Visit)],
    last: Window,
) -> Result<Server> {
    let bare: Vec<Window> = visits.iter().map(|(_, visit)| visit.before).chain([last]).collect();
    let noise = bare.windows(2).filter_map(|two| ratio(two.last()?.throughput, two.first()?.throughput));
    let mut by_mode: BTreeMap<Mode, Vec<(&Visit, Window)>> = BTreeMap::new();
    for ((mode, visit), &after) in visits.iter().zip(bare.iter().skip(1)) {
        by_mode.entry(*mode).or_default().push((visit, after));
    }
    let too_short = || format!("no window of {name} could be measured in the given time");
    Ok(Server {
        name,
        load,
        window_s: length.as_secs_f64(),
        bare: Bare {
            throughput: Spread::of(bare.iter().map(|window| window.throughput)).with_context(too_short)?,
            cpu_ns: Spread::of(bare.iter().map(|window| window.cpu_ns)).with_context(too_short)?,
            noise: Spread::of(noise),
        },
        observed: by_mode.iter().filter_map(|(&mode, visits)| Some(InMode { mode, row: observed(visits)? })).collect(),
    })
}

/// The row of a mode out of its visits, each with the bare window after it.
fn observed(visits: &[(&Visit, Window)]) -> Option<Observed> {
    let compared = |value: fn(&Window) -> f64| {
        let ratios = visits.iter().filter_map(|(visit, after)| {
            ratio(value(&visit.window), f64::midpoint(value(&visit.before), value(after)))
        });
        Spread::of(ratios)
    };
    let seen = |value: fn(&Seen, &Window) -> Option<f64>| {
        Spread::of(visits.iter().filter_map(|(visit, _)| value(visit.seen.as_ref()?, &visit.window)))
    };
    let costs: Vec<Cost> = visits.iter().map(|(visit, _)| visit.cost).collect();
    Some(Observed {
        throughput: Spread::of(visits.iter().map(|(visit, _)| visit.window.throughput))?,
        ratio: compared(|window| window.throughput)?,
        cpu_ns: Spread::of(visits.iter().map(|(visit, _)| visit.window.cpu_ns))?,
        cpu_ratio: compared(|window| window.cpu_ns)?,
        acquisitions_per_request: seen(|seen, window| ratio(seen.acquisitions as f64, window.answered)),
        contended_per_request: seen(|seen, window| ratio(seen.contended as f64, window.answered)),
        events_per_s: seen(|seen, window| ratio(seen.events as f64, window.loaded_s)),
        lost: visits.iter().filter_map(|(visit, _)| Some(visit.seen?.lost)).reduce(|sum, lost| sum + lost),
        observer: ObserverUse::of(&costs)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Cost = Cost { cpu_percent: 1.0, rss_bytes: 10, map_bytes: 20, attach_s: 0.5, detach_s: 0.5 };

    fn window(throughput: f64) -> Window {
        Window { throughput, cpu_ns: 1e9 / throughput, answered: 2.0 * throughput, loaded_s: 2.0 }
    }

    fn visit(before: f64, during: f64, acquisitions: u64) -> Visit {
        let seen = Seen { acquisitions, lost: 1, ..Seen::default() };
        Visit { before: window(before), window: window(during), cost: COST, seen: Some(seen) }
    }

    #[test]
    fn a_steady_drift_of_the_machine_cancels() {
        // Bare 100, 120, 140, 160; observed half of what would have been bare at that time.
        let visits = [(100.0, 55.0), (120.0, 65.0), (140.0, 75.0)];
        let visits = visits.map(|(before, during)| (Mode::Full, visit(before, during, 440)));
        let server = summary("s", "l", Duration::from_secs(1), &visits, window(160.0)).unwrap();
        let full = &server.observed[0].row;
        assert_eq!((full.ratio.low, full.ratio.median, full.ratio.high), (0.5, 0.5, 0.5));
        assert_eq!(full.ratio.samples, 3);
        assert_eq!(server.bare.throughput.samples, 4);
        assert_eq!(full.lost, Some(3));
    }

    #[test]
    fn acquisitions_are_told_per_request_of_the_whole_time_under_load() {
        let visits = [(Mode::Full, visit(100.0, 50.0, 700))];
        let server = summary("s", "l", Duration::from_secs(1), &visits, window(100.0)).unwrap();
        assert_eq!(server.observed[0].row.acquisitions_per_request.unwrap().median, 7.0);
    }

    #[test]
    fn modes_are_told_apart() {
        let visits = [(Mode::Bpftrace, visit(100.0, 10.0, 0)), (Mode::FutexOnly, visit(100.0, 99.0, 0))];
        let server = summary("s", "l", Duration::from_secs(1), &visits, window(100.0)).unwrap();
        let ratio = |mode| crate::bench::result::of_mode(&server.observed, mode).map(|row| row.ratio.median);
        assert_eq!(ratio(Mode::Bpftrace), Some(0.1));
        assert_eq!(ratio(Mode::FutexOnly), Some(0.99));
        assert_eq!(ratio(Mode::Full), None);
    }
}
