//! The init of a test machine: `init EXPECTATION`. It mounts what programs expect, runs the tests that fit the kernel,
//! tells their results on the second serial port and switches the machine off.

use std::{env, time::Instant};

use anyhow::{Context as _, Result, bail};
use vm_tests::event::Event;

mod check;
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
    let expectation = env::args().nth(1).context("the kernel command line states no expectation")?;
    let tests = tests::of(expectation.parse().map_err(anyhow::Error::msg)?);
    let count = tests.len();
    for test in tests {
        results.tell(&Event::Begin { test: test.name.clone() })?;
        let began = Instant::now();
        let failure = (test.run)().err().map(|error| format!("{error:#}"));
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        results.tell(&Event::End { test: test.name, took_ms, failure })?;
    }
    results.tell(&Event::Done { tests: count })
}
