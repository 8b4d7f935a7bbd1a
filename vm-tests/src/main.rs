//! The init of a test machine, whose arguments are the words of a [plan](Plan). It mounts what programs expect, runs the tests
//! that fit the kernel, tells their results on the second serial port and switches the machine off.

use std::{env, time::Instant};

use anyhow::{Context as _, Result, bail};
use vm_tests::{event::Event, plan::Plan};

mod check;
mod counters;
mod filtered;
mod functions;
mod hotplug;
mod lockbpf;
mod machine;
mod tests;
mod workload;

use machine::{Results, is_init};

fn main() -> Result<()> {
    // As an ordinary process it would mount over, and switch off, somebody's machine.
    if !is_init() {
        bail!("this is the init of a test machine, not to be run by hand: use `cargo xtask vm-test`");
    }
    let outcome = run();
    if let Err(error) = &outcome {
        // On the console: the results may be what failed.
        eprintln!("init failed: {error:#}");
    }
    machine::switch_off()
}

fn run() -> Result<()> {
    machine::mount_all()?;
    let mut results = Results::open()?;
    results.tell(&Event::Init { kernel: machine::kernel()? })?;
    let words: Vec<String> = env::args().skip(1).collect();
    let plan: Plan =
        words.join(" ").parse().map_err(anyhow::Error::msg).context("the kernel command line states no plan")?;
    let tests = tests::of(plan);
    let count = tests.len();
    for test in tests {
        results.tell(&Event::Begin { test: test.name.clone() })?;
        let began = Instant::now();
        let outcome = (test.run)();
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (failure, figures) = match outcome {
            Ok(figures) => (None, figures),
            Err(error) => (Some(format!("{error:#}")), None),
        };
        results.tell(&Event::End { test: test.name, took_ms, failure, figures })?;
    }
    results.tell(&Event::Done { tests: count })
}
