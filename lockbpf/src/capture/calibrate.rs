//! Calibration: what observing costs on this machine, measured at start on a private child of lockbpf's own, never on the
//! target. The child does short batches of operations, first alone, then observed by a session of its own.

use super::CaptureError;
use super::attach::ProbeSite;
use super::btf::{Btf, TaskOffsets};
use super::calibrate_target::{LOCKS, Operation};
use super::inflight::Snapshot;
use super::placer::Mechanism;
use super::probe_table::By;
use super::session::{Options, Scope, Session};
use super::target;
use crate::costs::{Costs, MIN_SAMPLES, Samples};
use crate::helper;
use crate::measures::event::Event;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// The helper that the child is.
pub const COMMAND: &str = "calibrate-target";
/// This program, even if its file has been replaced.
pub const SELF: &str = "/proc/self/exe";
/// Functions to be probed: those of a pair.
const PAIR: [&str; 2] = ["pthread_mutex_lock", "pthread_mutex_unlock"];
/// Rounds of batches, one of each kind a round; each takes about 3 ms while observed.
const ROUNDS: usize = 15;
/// How long the rounds may take, alone or observed: a busy machine has to do with fewer.
const LIMIT: Duration = Duration::from_millis(80);
/// Operations in a batch, alone and observed: about a millisecond at most.
const COUNTS: [(Operation, u32, u32); 4] = [
    (Operation::Pair, 10_000, 400),
    (Operation::Waited, 1_000, 200),
    (Operation::Wake, 1_000, 400),
    (Operation::Switch, 300, 300),
];

/// Batches during which the clock is sampled, and the pairs in each: some 5 ms, and 100 samples.
const SAMPLED_BATCHES: usize = 4;
const SAMPLED_PAIRS: u32 = 2_500;

/// How to observe the child.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The kernel's types.
    pub types: &'static Btf,
    /// Offsets in its `task_struct`.
    pub task_offsets: TaskOffsets,
    /// Whether tracefs can be read.
    pub tracefs: bool,
    /// Whether to do without uprobe sessions and links of many functions.
    pub plain_uprobes: bool,
    /// Events to count, which makes each hit dearer.
    pub events: &'a [Event],
    /// Whether every section is recorded, which makes each release dearer.
    pub all_events: bool,
    /// Whether transitions from lock to lock are summed up, likewise.
    pub transitions: bool,
}

/// What calibration found out.
pub struct Calibration {
    /// The price of everything that is counted.
    pub costs: Costs,
    /// How uprobes were placed.
    pub mechanism: Mechanism,
    /// Time to place the probes of a file's further functions in one process.
    pub attach: Duration,
    /// What the child was observed by. To drop it takes some of the kernel's grace periods, for which nobody has to wait.
    pub session: Session,
}

/// Measures on a child, which is the helper [`COMMAND`] of `program`. The child is gone when this returns.
///
/// # Errors
/// When the child or a probe cannot be had, or what was measured cannot be. None is a reason not to observe: see
/// [`Costs::default`].
pub fn calibrate(program: &Path, setup: &Setup<'_>) -> Result<Calibration, CaptureError> {
    let begin = Instant::now();
    let mut child = Calibrated::start(program).map_err(CaptureError::Calibrate)?;
    let (bare, _) = child.rounds(|&(_, alone, _)| alone).map_err(CaptureError::Calibrate)?;
    let alone = begin.elapsed();

    let (pair, others) = sites(child.id())?;
    let mut session = Session::start(&options(setup, child.id()), &pair)?;
    session.activate(&Snapshot::default())?;
    let loaded = begin.elapsed();
    let (mut observed, locks) = child.rounds(|&(_, _, observed)| observed).map_err(CaptureError::Calibrate)?;
    let in_user = child.in_user(&mut session).map_err(CaptureError::Calibrate)?;
    session.deactivate()?;
    let mut means: HashMap<u64, f64> = HashMap::new();
    for entry in session.sums()? {
        if entry.sums.acquisitions > 0 {
            means.insert(entry.lock.addr, entry.sums.hold_ns as f64 / entry.sums.acquisitions as f64);
        }
    }
    observed.in_user = in_user;
    let holds: Vec<f64> = locks.iter().filter_map(|lock| means.get(lock).copied()).collect();
    let measured = begin.elapsed();

    let mechanism = session.mechanism();
    session.attach(&others);
    let attach = begin.elapsed() - measured;
    drop(child);
    log::debug!(
        "calibration: alone {alone:?}, loading {:?}, observed {:?}, attach {attach:?}",
        loaded - alone,
        measured - loaded,
    );
    log::debug!("ns alone {bare:.0?}, observed {observed:.0?}, holds {holds:.0?}");
    let costs =
        Costs::of(&bare, &observed, &holds).map_err(|error| CaptureError::Calibrate(io::Error::other(error)))?;
    Ok(Calibration { costs, mechanism, attach, session })
}

/// Where to probe the child: the functions of a pair, and all others.
fn sites(pid: u32) -> Result<(Vec<ProbeSite>, Vec<ProbeSite>), CaptureError> {
    let targets = target::of_pids(&[pid]).map_err(|error| CaptureError::Calibrate(io::Error::other(error)))?;
    let sites = targets.libraries.iter().flat_map(|library| library.probe_sites(false));
    let sites = sites.filter(|site| matches!(site.function.by, By::Entry | By::Return));
    let (pair, others): (Vec<_>, Vec<_>) = sites.partition(|site| PAIR.contains(&site.function.symbol));
    if pair.len() != PAIR.len() {
        return Err(CaptureError::Calibrate(io::Error::other("lockbpf's own C library cannot be probed")));
    }
    Ok((pair, others))
}

/// With stacks as dear as they get; what copying them takes is measured where it is done.
fn options(setup: &Setup<'_>, pid: u32) -> Options {
    let &Setup { types, task_offsets, tracefs, plain_uprobes, events, all_events, transitions } = setup;
    let common = Options::new(Scope::Pids(vec![pid]), types, task_offsets, tracefs);
    Options { plain_uprobes, life: false, events: events.to_vec(), all_events, transitions, ..common }
}

/// The child. Killed and collected when dropped.
struct Calibrated {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Calibrated {
    fn start(program: &Path) -> io::Result<Self> {
        let mut child = helper::command_as(program, COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            let _ = child.kill().and_then(|()| child.wait());
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut calibrated = Self { child, stdin, stdout: BufReader::new(stdout) };
        if calibrated.line()? != "ready" {
            return Err(io::Error::other("the child is not what it should be"));
        }
        Ok(calibrated)
    }

    fn id(&self) -> u32 {
        self.child.id()
    }

    /// Batches of every kind, in turn, after a first round that is thrown away: it makes pages private and storage for
    /// threads. Returns what one operation took, and the lock of each batch of pairs.
    fn rounds(&mut self, count: impl Fn(&(Operation, u32, u32)) -> u32) -> io::Result<(Samples, Vec<u64>)> {
        let (mut samples, mut locks) = (Samples::default(), Vec::new());
        let begin = Instant::now();
        for round in 0..=ROUNDS.min(LOCKS - 1) {
            for kind in &COUNTS {
                let operations = count(kind);
                let (ns, lock) = self.batch(kind.0, operations, round)?;
                if round == 0 {
                    continue;
                }
                match kind.0 {
                    Operation::Pair => {
                        locks.push(lock);
                        &mut samples.pair
                    }
                    Operation::Waited => &mut samples.waited,
                    Operation::Wake => &mut samples.wake,
                    Operation::Switch => &mut samples.switch,
                }
                .push(ns as f64 / f64::from(operations));
            }
            if round >= MIN_SAMPLES && begin.elapsed() > LIMIT {
                break;
            }
        }
        Ok((samples, locks))
    }

    /// Observed batches of pairs while samples of the clock are taken: the part of those of each batch that found the child in its own code. None
    /// if the clock cannot be sampled.
    fn in_user(&mut self, session: &mut Session) -> io::Result<Vec<f64>> {
        let mut parts = Vec::new();
        session.sample_child();
        let mut before = session.sampled_child();
        for _ in 0..SAMPLED_BATCHES {
            self.batch(Operation::Pair, SAMPLED_PAIRS, LOCKS - 1)?;
            let now = session.sampled_child();
            let batch = now - std::mem::replace(&mut before, now);
            if batch.samples > 0 {
                parts.push(batch.user as f64 / batch.samples as f64);
            }
        }
        session.sample_no_more();
        Ok(parts)
    }

    /// The CPU time of a batch, ns, and its lock.
    fn batch(&mut self, operation: Operation, count: u32, number: usize) -> io::Result<(u64, u64)> {
        writeln!(self.stdin, "{} {count} {number}", operation.name())?;
        let line = self.line()?;
        let numbers = line.split_once(' ').and_then(|(ns, lock)| Some((ns.parse().ok()?, lock.parse().ok()?)));
        numbers.ok_or_else(|| io::Error::other("the child does not answer"))
    }

    /// Its next line. It ends by itself if it hangs.
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Calibrated {
    fn drop(&mut self) {
        // Both fail only if it has exited, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_no_calibration_child_is_an_error() {
        assert!(Calibrated::start(Path::new("/nonexistent/program")).is_err());
        let child = Calibrated::start(Path::new("/bin/true"));
        assert_eq!(child.err().map(|error| error.to_string()).unwrap(), "the child is not what it should be");
    }
}
