//! `cargo xtask bench verdicts`: whether lockbpf names the right lock, place and reason of programs whose culprit is known, and what
//! of their throughput is left while it looks.

mod compiler;
mod instance;
mod observation;
mod oracle;
mod programs;
mod table;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use self::{
    compiler::Built,
    instance::Instance,
    observation::{Mode, Observation},
    oracle::{Judgement, Truth},
    programs::{Onset, PROGRAMS, Program},
};
use super::{
    build::Lockbpf,
    interrupt,
    machine::Machine,
    result::Output,
    stats::{Spread, ratio},
};

/// Value of [`Results::schema`]: changes when a field changes its meaning or goes away.
const SCHEMA: &str = "lockbpf.bench-verdicts/1";
/// What taking a culprit away must gain to prove that it is one.
const PROOF: f64 = 1.3;

/// Arguments of `bench verdicts`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// Short windows, one round; enough to see that everything works
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Observations of each program in each mode; one at all of them takes about 15 minutes
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Only these programs
    #[arg(long, value_delimiter = ',', value_name = "PROGRAM,…")]
    only: Vec<String>,
    /// Only these modes
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Mode::ALL)]
    modes: Vec<Mode>,
    /// Write the reports of all observations that are not right into this directory
    #[arg(long, value_name = "DIR")]
    reports: Option<PathBuf>,
}

/// Length and number of windows.
#[derive(Clone, Copy, Debug)]
struct Plan {
    window: Duration,
    bare: usize,
    observed: usize,
}

const PLAN: Plan = Plan { window: Duration::from_secs(1), bare: 2, observed: 5 };
const QUICK: Plan = Plan { window: Duration::from_millis(500), bare: 1, observed: 4 };

/// Everything that a run found.
#[derive(Debug, Serialize)]
struct Results {
    schema: &'static str,
    machine: Machine,
    quick: bool,
    rows: Vec<Row>,
    /// Programs that could not be built or run here, and why.
    skipped: Vec<String>,
}

/// What was found of one program.
#[derive(Debug, Serialize)]
struct Row {
    program: &'static str,
    about: &'static str,
    language: &'static str,
    /// Operations per second, bare.
    per_s: Option<Spread>,
    /// Throughput without the culprit by that with it; `None` if nothing at all is done with it.
    gain: Option<f64>,
    modes: Vec<InMode>,
}

/// What was found of it in one mode.
#[derive(Debug, Serialize)]
struct InMode {
    mode: Mode,
    /// The judgement of each observation.
    judgements: Vec<Judgement>,
    /// Throughput by that of the bare windows around.
    kept: Option<Spread>,
    /// The verdict's sentence in the last observation.
    sentence: String,
    /// Part of all waiting that the first culprit explains in it.
    explained: Option<f64>,
}

/// Runs every program bare, observed and without its culprit.
///
/// # Errors
/// lockbpf cannot be built, the benchmark was interrupted, or its results cannot be written.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let machine = Machine::look_as_root()?;
    let chosen: Vec<_> =
        PROGRAMS.iter().filter(|p| args.only.is_empty() || args.only.iter().any(|name| name == p.name)).collect();
    ensure!(!chosen.is_empty(), "no such program: {}", PROGRAMS.iter().map(|p| p.name).collect::<Vec<_>>().join(", "));
    let lockbpf = Lockbpf::build()?;
    interrupt::watch()?;
    let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
    let plan = if args.quick { QUICK } else { PLAN };
    let (mut rows, mut skipped) = (Vec::new(), Vec::new());
    for (number, program) in chosen.iter().enumerate() {
        eprintln!("{} of {}: {}", number + 1, chosen.len(), program.name);
        let measured = match program.compiler.missing() {
            Some(reason) => Err(anyhow::anyhow!(reason)),
            None => program.compiler.build(program, dir.path()).and_then(|built| {
                Bench { program, built, lockbpf: &lockbpf, plan, reports: args.reports.as_deref() }.measure(args)
            }),
        };
        interrupt::check()?;
        match measured {
            Ok(row) => rows.push(row),
            Err(error) => skipped.push(format!("{}: {error:#}", program.name)),
        }
    }
    println!("\n{}", table::rows(&rows));
    skipped.iter().for_each(|skipped| println!("skipped: {skipped}"));
    args.modes.iter().for_each(|&mode| println!("{}", table::sum(&rows, mode)));
    let right = rows.iter().all(Row::is_right);
    args.output.write(&Results { schema: SCHEMA, machine, quick: args.quick, rows, skipped })?;
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Row {
    fn is_right(&self) -> bool {
        self.is_proven() && self.modes.iter().all(|mode| mode.judgements.iter().all(|judgement| judgement.is_right()))
    }

    /// Whether the culprit is one.
    fn is_proven(&self) -> bool {
        self.gain.is_none_or(|gain| gain >= PROOF)
    }
}

/// One program, and how it is measured.
struct Bench<'a> {
    program: &'static Program,
    built: Built,
    lockbpf: &'a Lockbpf,
    plan: Plan,
    reports: Option<&'a Path>,
}

impl Bench<'_> {
    fn measure(&self, args: &Args) -> Result<Row> {
        let mut bare = Vec::new();
        let mut modes: Vec<_> = args.modes.iter().map(|&mode| Tally::of(mode)).collect();
        for round in 0..args.rounds.max(1) {
            for tally in &mut modes {
                let visit = self.visit(tally.mode)?;
                let [around, during] = [&visit.bare, &visit.observed].map(|rates| Spread::of(rates.iter().copied()));
                tally.kept.extend(around.zip(during).and_then(|(bare, seen)| ratio(seen.median, bare.median)));
                tally.note(self.judge(&visit, tally.mode, round)?, &visit.report);
                bare.extend(visit.bare);
            }
        }
        let cured = {
            let mut instance = Instance::start(&self.built, true)?;
            instance.begin(self.program.onset)?;
            Spread::of(instance.windows(self.plan.window, self.plan.bare + 1)?)
        };
        let per_s = Spread::of(bare);
        let gain = per_s.zip(cured).and_then(|(bare, cured)| ratio(cured.median, bare.median));
        let Program { name, about, compiler, .. } = *self.program;
        let modes = modes.into_iter().map(Tally::row).collect();
        Ok(Row { program: name, about, language: compiler.language(), per_s, gain, modes })
    }

    /// Observes an instance of its own, between bare windows.
    fn visit(&self, mode: Mode) -> Result<Visit> {
        let Plan { window, bare, observed } = self.plan;
        let onset = self.program.onset;
        let mut instance = self.start()?;
        // A culprit that comes late is not there in windows before.
        let mut rates = if onset == Onset::Start { instance.windows(window, bare)? } else { Vec::new() };
        let (during, report) = match self.observe(&instance, mode) {
            Ok(observation) => {
                instance.begin(onset)?;
                (instance.windows(window, observed)?, observation.stop()?)
            }
            Err(refusal) => {
                interrupt::check()?;
                instance.begin(onset)?;
                // It says nothing of the program but this.
                (Vec::new(), json!({"verdict": [format!("{refusal:#}")]}))
            }
        };
        rates.extend(instance.windows(window, bare)?);
        Ok(Visit { facts: instance.facts, bare: rates, observed: during, report })
    }

    fn start(&self) -> Result<Instance> {
        let instance = Instance::start(&self.built, false)?;
        self.program.compiler.name_functions(instance.pid())?;
        Ok(instance)
    }

    fn observe(&self, instance: &Instance, mode: Mode) -> Result<Observation> {
        let options = [mode.options(), self.program.options].concat();
        Observation::start(self.lockbpf, &instance.target(), &options)
    }

    /// Judges a report, and keeps it if it is wrong.
    fn judge(&self, visit: &Visit, mode: Mode, round: usize) -> Result<Judgement> {
        let truth = Truth { facts: &visit.facts, source: &self.built.source };
        let judgement = self.program.expected.judge(&visit.report, &truth);
        if let Some(dir) = self.reports.filter(|_| !judgement.is_right()) {
            fs::create_dir_all(dir).with_context(|| format!("failed to create {}", dir.display()))?;
            let path = dir.join(format!("{}.{}.{round}.json", self.program.name, mode.name()));
            fs::write(&path, serde_json::to_string_pretty(&visit.report)?)
                .with_context(|| format!("failed to write {}", path.display()))?;
        }
        Ok(judgement)
    }
}

/// One observation and the windows around.
struct Visit {
    facts: instance::Facts,
    bare: Vec<f64>,
    observed: Vec<f64>,
    report: Value,
}

/// The observations in one mode.
struct Tally {
    mode: Mode,
    judgements: Vec<Judgement>,
    kept: Vec<f64>,
    sentence: String,
    explained: Option<f64>,
}

impl Tally {
    fn of(mode: Mode) -> Self {
        Self { mode, judgements: Vec::new(), kept: Vec::new(), sentence: String::new(), explained: None }
    }

    fn note(&mut self, judgement: Judgement, report: &Value) {
        self.judgements.push(judgement);
        oracle::first_sentence(report).clone_into(&mut self.sentence);
        self.explained = oracle::explained(report);
        eprintln!("  {}: {}", self.mode.name(), self.sentence);
    }

    fn row(self) -> InMode {
        let Self { mode, judgements, kept, sentence, explained } = self;
        InMode { mode, judgements, kept: Spread::of(kept), sentence, explained }
    }
}
