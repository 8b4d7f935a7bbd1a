//! `cargo xtask soak`: the agent for hours, beside servers, programs that come and go, kills and a step of the clock: whether its memory,
//! descriptors and kernel objects stay what they are, and its counters never fall.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use self::{
    judge::{Period, Verdict, judge},
    mix::Mix,
    sample::{Counters, Sample},
};
use super::{build::Given, child::Child, exposition, interrupt, machine::Machine, memcached, result::Output};

mod judge;
mod mix;
mod sample;
mod table;

/// Value of [`Results::schema`]: changes when a field changes its meaning or goes away.
const SCHEMA: &str = "lockbpf.bench-soak/1";
/// Periods that a run is told by. In each of them the agent begins its observation anew once, as it does each half hour by itself.
const PERIODS: u32 = 12;
/// What goes on and how much is used is looked at so often.
const TURN: Duration = Duration::from_secs(5);
/// How far the clock is stepped, and back.
const STEP: Duration = Duration::from_secs(3_600);

/// Arguments of `soak`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// How long
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    hours: f64,
    /// Step the machine's clock an hour ahead in the middle, and back a period later
    #[arg(long)]
    step_clock: bool,
    #[command(flatten)]
    given: Given,
}

/// Everything that a run found.
#[derive(Serialize)]
struct Results {
    schema: &'static str,
    machine: Machine,
    hours: f64,
    mix: Vec<String>,
    periods: Vec<Period>,
    verdict: Verdict,
}

/// Runs it and prints a table.
///
/// # Errors
/// It could not be run, or the agent has ended. What does not hold is a result, told by the exit status.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // Each period is to have some samples.
    ensure!(args.hours >= 0.1 && args.hours <= 10_000.0, "--hours {}: from 0.1 to 10,000", args.hours);
    let machine = Machine::look_as_root()?;
    interrupt::watch()?;
    let lockbpf = args.given.lockbpf()?.program;
    let period = Duration::from_secs_f64(args.hours * 3_600.0) / PERIODS;
    let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
    let mut mix = Mix::start()?;
    let (mut agent, address) = agent(&lockbpf, dir.path(), period)?;
    let mut periods: Vec<Period> = Vec::new();
    let mut counters = Counters::default();
    let mut clock = args.step_clock.then(Clock::new);
    for number in 0..PERIODS {
        let end = Instant::now() + period;
        if let Some(clock) = &mut clock {
            clock.at(number)?;
        }
        let mut samples = Vec::new();
        while Instant::now() < end {
            mix.turn(TURN)?;
            agent.check_alive()?;
            samples.push(Sample::take(agent.pid(), address, &mut counters)?);
        }
        let period = Period::of(&samples).context("a period without a sample")?;
        eprintln!("{}", table::line(number, &period));
        periods.push(period);
    }
    drop(clock);
    agent.interrupt().context("the agent did not end as it should")?;
    let verdict = judge(&periods, counters.fallen(), mix.harmed()?);
    println!("{}\n{}", table::table(&periods), table::verdict(&verdict, period));
    let holds = verdict.holds();
    let mix = mix.names();
    args.output.write(&Results { schema: SCHEMA, machine, hours: args.hours, mix, periods, verdict })?;
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What an agent serves once it has observed this mix for `time`.
///
/// # Errors
/// It could not be run.
pub(super) fn served(lockbpf: &Path, dir: &Path, time: Duration) -> Result<String> {
    let mut mix = Mix::start()?;
    let (mut agent, address) = agent(lockbpf, dir, 2 * time)?;
    let end = Instant::now() + time;
    while Instant::now() < end {
        mix.turn(TURN)?;
    }
    agent.check_alive()?;
    exposition::get(address, "/metrics")
}

/// An agent for the whole system that keeps a flight recorder's ring on disk, and the address of its metrics.
fn agent(lockbpf: &Path, dir: &Path, renew: Duration) -> Result<(Child, SocketAddr)> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, memcached::free_port()?));
    let ring = dir.join("ring");
    let config = format!(
        "listen = \"{address}\"\ninterval = \"2s\"\nrenew = \"{}s\"\n[observe]\nkeep = \"5m\"\nkeep_size = \"64M\"\nkeep_dir = {ring:?}\n",
        renew.as_secs()
    );
    let file = dir.join("agent.toml");
    fs::write(&file, config).with_context(|| format!("failed to write {}", file.display()))?;
    let mut command = Command::new(lockbpf);
    command.args(["agent", "--config"]).arg(&file);
    let mut agent = Child::start_into(&mut command, Stdio::null())?;
    agent.expect_err(|line| line.contains("observing ").then_some(()))?;
    Ok((agent, address))
}

/// The machine's clock, which is ahead for one period. Set right when dropped.
struct Clock {
    ahead: bool,
}

impl Clock {
    fn new() -> Self {
        Self { ahead: false }
    }

    fn at(&mut self, period: u32) -> Result<()> {
        let ahead = period == PERIODS / 2;
        if ahead != self.ahead {
            step(ahead)?;
            self.ahead = ahead;
        }
        Ok(())
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        if self.ahead
            && let Err(error) = step(false)
        {
            eprintln!("the machine's clock is still an hour ahead: {error:#}");
        }
    }
}

fn step(ahead: bool) -> Result<()> {
    use nix::{
        sys::time::TimeSpec,
        time::{ClockId, clock_gettime, clock_settime},
    };
    let now = clock_gettime(ClockId::CLOCK_REALTIME)?;
    let step = TimeSpec::from_duration(STEP);
    let then = if ahead { now + step } else { now - step };
    clock_settime(ClockId::CLOCK_REALTIME, then).context("failed to set the machine's clock")
}
