//! `cargo xtask bench harm`: what is left of an observer that was killed, stopped, or killed with its cgroup, at random
//! moments: in the program that it observed, and on the machine.

use std::{
    process::ExitCode,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::unistd::Pid;
use serde::Serialize;

use self::{
    body::{Marks, family, marks, modified_bytes},
    injury::{Cgroup, Injury, Observer},
    result::{Harm, Round, Row},
    target::{Kind, Programs, Target},
    traces::{Before, Leaks, Objects},
};
use super::{
    build::{Given, Lockbpf},
    interrupt,
    machine::Machine,
    result::Output,
};

mod body;
mod injury;
mod result;
mod table;
pub(super) mod target;
mod traces;

/// Value of [`Results::schema`]: changes when a field changes its meaning or goes away.
const SCHEMA: &str = "lockbpf.bench-harm/1";
/// How long after its end nothing of an observer may be left.
const SETTLED: Duration = Duration::from_secs(5);
/// How often it is looked.
const POLL: Duration = Duration::from_millis(100);
/// How many of everything with `--quick`.
const QUICK: u32 = 3;

/// Arguments of `bench harm`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// SIGKILLs in each mode, for each target
    #[arg(long, value_name = "N", default_value_t = 200)]
    kills: u32,
    /// Stops of 3 s
    #[arg(long, value_name = "N", default_value_t = 50)]
    stops: u32,
    /// Kills of lockbpf's whole cgroup
    #[arg(long, value_name = "N", default_value_t = 50)]
    cgroup_kills: u32,
    /// 3 of each
    #[arg(long, conflicts_with_all = ["kills", "stops", "cgroup_kills"])]
    quick: bool,
    /// Targets that are observed side by side, each with an observer of its own
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: u32,
    /// Only these modes
    #[arg(long, value_enum, value_name = "MODE", value_delimiter = ',')]
    only: Vec<Mode>,
    /// Only these targets
    #[arg(long, value_enum, value_name = "TARGET", value_delimiter = ',')]
    targets: Vec<Kind>,
    #[command(flatten)]
    given: Given,
}

/// How a target is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    /// In windows, under the default budget
    Default,
    /// --budget off
    Off,
    /// --futex-only
    FutexOnly,
    /// lockbpf access
    Access,
    /// --functions io
    Functions,
    /// --counters
    Counters,
}

impl Mode {
    const ALL: [Self; 6] = [Self::Default, Self::Off, Self::FutexOnly, Self::Access, Self::Functions, Self::Counters];

    fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Off => "`--budget off`",
            Self::FutexOnly => "`--futex-only`",
            Self::Access => "`access`",
            Self::Functions => "`--functions io`",
            Self::Counters => "`--counters`",
        }
    }

    fn args(self) -> &'static [&'static str] {
        match self {
            Self::Default => &["--budget", "3%"],
            Self::Off => &["--budget", "off"],
            Self::FutexOnly => &["--futex-only"],
            Self::Access => &["access"],
            Self::Functions => &["--functions", "io"],
            Self::Counters => &["--counters"],
        }
    }

    /// How long it is observed before its end. `access` times sections first.
    fn windows(self) -> Duration {
        Duration::from_millis(if self == Self::Access { 6_000 } else { 1_500 })
    }
}

/// Everything that a run found.
#[derive(Debug, Serialize)]
struct Results {
    schema: &'static str,
    machine: Machine,
    rows: Vec<Row>,
    skipped: Vec<String>,
}

/// What one row needs beside its target.
struct Setting<'a> {
    observer: Observer<'a>,
    before: Before<'a>,
}

/// What those who work on a row side by side share.
struct Work {
    /// What is still to happen.
    injuries: Mutex<Vec<Injury>>,
    row: Mutex<Row>,
    leaks: Leaks,
    /// Why the target cannot be observed so at all.
    impossible: Mutex<Option<anyhow::Error>>,
}

impl Work {
    fn next(&self) -> Option<Injury> {
        lock(&self.injuries).pop()
    }

    /// Nothing more is to happen.
    fn give_up(&self) {
        lock(&self.injuries).clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hurts observers of every target in every mode.
///
/// # Errors
/// lockbpf cannot be built, the benchmark was interrupted, or the figures cannot be written.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let machine = Machine::look_as_root()?;
    let lockbpf = args.given.lockbpf()?;
    interrupt::watch()?;
    let programs = Programs::compile()?;
    // One for each of those who work side by side, or none.
    let cgroups: Option<Vec<Cgroup>> = (0..args.jobs).map(Cgroup::make).collect();
    let mut results = Results { schema: SCHEMA, machine, rows: Vec::new(), skipped: Vec::new() };
    if cgroups.is_none() {
        results.skipped.push("kills of a cgroup: no cgroup of version 2 with cgroup.kill can be made".to_owned());
    }
    let wanted = |kind: &Kind| args.targets.is_empty() || args.targets.contains(kind);
    for kind in Kind::ALL.into_iter().filter(wanted) {
        if !programs.has(kind) {
            results.skipped.push(format!("the {} target: its compiler is not installed", kind.name()));
            continue;
        }
        for mode in Mode::ALL.into_iter().filter(|mode| args.only.is_empty() || args.only.contains(mode)) {
            let row = measure(args, &lockbpf, &programs, cgroups.as_deref(), (kind, mode));
            match row.with_context(|| format!("the {} target, {}", kind.name(), mode.name()))? {
                Ok(row) => {
                    println!("{}", table::line(&row));
                    results.rows.push(row);
                }
                Err(why) => results.skipped.push(format!("the {} target, {}: {why:#}", kind.name(), mode.name())),
            }
        }
    }
    println!("\n{}", table::rows(&results.rows));
    results.skipped.iter().for_each(|skipped| println!("skipped: {skipped}"));
    args.output.write(&results)?;
    let good = !results.rows.is_empty() && results.rows.iter().all(Row::is_unharmed);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Hurts observers of one target in one mode, if it can be observed so at all; else tells why not.
fn measure(
    args: &Args,
    lockbpf: &Lockbpf,
    programs: &Programs,
    cgroups: Option<&[Cgroup]>,
    (kind, mode): (Kind, Mode),
) -> Result<Result<Row>> {
    let work = Work {
        injuries: Mutex::new(injuries(args, cgroups.is_some())),
        row: Mutex::new(Row::new(mode.name(), kind.name())),
        leaks: Leaks::default(),
        impossible: Mutex::new(None),
    };
    let work = &work;
    thread::scope(|scope| {
        let one = |number: u32| {
            let cgroup = cgroups.and_then(|cgroups| cgroups.get(number as usize));
            scope.spawn(move || hurt_again_and_again(work, lockbpf, programs, cgroup, (kind, mode)))
        };
        let all: Vec<_> = (0..args.jobs).map(one).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, Result<()>>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        all.into_iter().map(join).collect::<Vec<_>>().into_iter().collect::<Result<()>>()
    })?;
    let impossible = lock(&work.impossible).take();
    let row = std::mem::replace(&mut *lock(&work.row), Row::new(mode.name(), kind.name()));
    Ok(impossible.map_or(Ok(row), Err))
}

/// What one of those does who work on a row: with a target of its own, as long as there is anything to be done.
fn hurt_again_and_again(
    work: &Work,
    lockbpf: &Lockbpf,
    programs: &Programs,
    cgroup: Option<&Cgroup>,
    (kind, mode): (Kind, Mode),
) -> Result<()> {
    let files = tempfile::tempdir().context("failed to create a temporary directory")?;
    let mark = format!("{}-{}-{mode:?}-{:?}", Pid::this(), kind.name(), thread::current().id());
    let observer = Observer {
        program: &lockbpf.program,
        args: mode.args(),
        follows: kind == Kind::Forking && mode != Mode::Access,
        windows: mode.windows(),
        files: files.path(),
        mark: &mark,
        cgroup,
    };
    let mut target = programs.start(kind)?;
    // What it says that it leaves (tracefs, mounted) is there from now on.
    if let Err(error) = observer.observe(&target) {
        work.give_up();
        interrupt::check()?;
        *lock(&work.impossible) = Some(error.context("an observation that nobody disturbs failed"));
        return Ok(());
    }
    let setting = Setting { observer, before: Before::look(files.path(), &mark, &work.leaks)? };
    let mut own = own_marks(&target)?;
    while let Some(injury) = work.next() {
        let done = round(injury, &mut target, &own, &setting).inspect_err(|_| work.give_up())?;
        for harm in &done.harms {
            eprintln!("{}, {}, {injury:?}: {harm}", kind.name(), mode.name());
        }
        let harmed = !done.harms.is_empty();
        lock(&work.row).add(injury, done);
        if harmed {
            // What this one suffered is not to be told of the next round, too.
            setting.before.kill_processes();
            target = programs.start(kind)?;
            own = own_marks(&target)?;
        }
    }
    Ok(())
}

/// All that are to happen, in a random order.
fn injuries(args: &Args, cgroups: bool) -> Vec<Injury> {
    let counts = if args.quick { [QUICK; 3] } else { [args.kills, args.stops, args.cgroup_kills] };
    let all = [Injury::Kill, Injury::Stop, Injury::CgroupKill].into_iter().zip(counts);
    let possible = all.filter(|&(injury, _)| cgroups || injury != Injury::CgroupKill);
    let mut injuries: Vec<Injury> =
        possible.flat_map(|(injury, count)| std::iter::repeat_n(injury, count as usize)).collect();
    fastrand::shuffle(&mut injuries);
    injuries
}

/// Hurts one observer, and tells what is not as before.
fn round(injury: Injury, target: &mut Target, own: &Marks, setting: &Setting<'_>) -> Result<Round> {
    let before = target.speed()?;
    let mut done = Round::default();
    match setting.observer.hurt(injury, target, &setting.before) {
        Ok(None) => {}
        Ok(Some(meanwhile)) => {
            done.while_stopped = Some(meanwhile.speed / before);
            done.harms.extend((!meanwhile.got_on).then_some(Harm::HungMeanwhile));
        }
        Err(error) => {
            interrupt::check()?;
            done.harms.push(Harm::Observer(format!("{error:#}")));
        }
    }
    let begin = Instant::now();
    let mut suspects = None;
    loop {
        let rest = remaining(target, own, setting, &mut suspects)?;
        if rest.is_empty() {
            done.settled_s = begin.elapsed().as_secs_f64();
            break;
        }
        if begin.elapsed() > SETTLED {
            setting.before.told(suspects.unwrap_or_default());
            done.harms.extend(rest);
            break;
        }
        interrupt::sleep(POLL)?;
    }
    if let Some(how) = target.death()? {
        done.harms.push(Harm::Dead(how));
    } else if !target.gets_on()? {
        done.harms.push(Harm::Hangs);
    } else {
        done.after = Some(target.speed()? / before);
    }
    Ok(done)
}

/// What is there of an observer that has ended; `suspects` are the eBPF objects that were there whenever it was looked.
fn remaining(target: &Target, own: &Marks, setting: &Setting<'_>, suspects: &mut Option<Objects>) -> Result<Vec<Harm>> {
    let family = family(target.pid());
    let left = setting.before.left(suspects)?;
    let mut harms = Vec::new();
    let modified = modified_bytes(&family);
    harms.extend((modified > 0).then_some(Harm::Text(modified)));
    let foreign: Vec<String> = marks(&family).difference(own).cloned().collect();
    harms.extend((!foreign.is_empty()).then_some(Harm::Marks(foreign)));
    harms.extend((!left.is_nothing()).then_some(Harm::Left(left)));
    Ok(harms)
}

/// What the threads of a target set by themselves. All of it takes a while to be seen: a thread that is being started blocks
/// signals for a moment.
fn own_marks(target: &Target) -> Result<Marks> {
    let mut own = Marks::new();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(1_500) {
        own.extend(marks(&family(target.pid())));
        interrupt::sleep(Duration::from_millis(5))?;
    }
    Ok(own)
}
