//! `cargo xtask vm-test`: boots other kernels in virtual machines and runs lockbpf's core tests in them.

use std::{fs, io, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};
use clap::builder::PossibleValuesParser;
use vm_tests::event::Event;

use crate::{
    test::{
        report::Report,
        step::{Outcome, Verdict},
    },
    workspace,
};

mod cache;
mod console;
mod cpio;
mod kernel;
mod machine;
mod payload;
mod qemu;
mod verdict;

use cache::Cache;
use kernel::{KERNELS, Kernel};
use machine::Limits;
use qemu::{Boot, Qemu};

/// Boots that do not get to the init are repeated, for emulators crash; anything later is a result.
const BOOTS: u32 = 3;
const LIMITS: Limits = Limits { boot: Duration::from_secs(60), whole: Duration::from_secs(180) };

/// Arguments of `vm-test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Boot this kernel only (repeatable)
    #[arg(long, value_name = "KERNEL", value_parser = PossibleValuesParser::new(KERNELS.map(|kernel| kernel.name)))]
    kernel: Vec<String>,
}

/// Something that this machine or the network may not have.
pub(crate) enum Found<T> {
    /// Here it is.
    Here(T),
    /// What was tried, and how it failed: the proof that it is not to be had.
    Unavailable(anyhow::Error),
}

/// Runs the tests in each kernel asked for, or in all of them; succeeds if none failed.
///
/// # Errors
/// Standard output cannot be written to.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut report = Report::default();
    let wanted = |kernel: &&Kernel| args.kernel.is_empty() || args.kernel.iter().any(|name| name == kernel.name);
    add_to(&mut report, KERNELS.iter().filter(wanted));
    report.write(&[], &mut io::stdout())
}

/// Adds a step for each kernel.
fn add_to<'a>(report: &mut Report, kernels: impl Iterator<Item = &'a Kernel>) {
    let mut bench = None;
    for kernel in kernels {
        report.run(&format!("kernel {}", kernel.name), || {
            if cfg!(not(target_arch = "x86_64")) {
                return Ok(Outcome::skipped("the kernels are for x86_64, and this machine is not"));
            }
            let bench = match &mut bench {
                Some(bench) => bench,
                none => match Bench::set_up()? {
                    Found::Here(ready) => none.insert(ready),
                    Found::Unavailable(reason) => return Ok(Outcome::unavailable(format!("no QEMU: {reason:#}"))),
                },
            };
            bench.test(kernel)
        });
    }
}

/// What every machine needs.
struct Bench {
    cache: Cache,
    qemu: Qemu,
    initramfs: PathBuf,
    /// Where consoles and results are written to.
    dir: PathBuf,
}

impl Bench {
    fn set_up() -> Result<Found<Self>> {
        let cache = Cache::open()?;
        let qemu = match Qemu::find(&cache)? {
            Found::Here(qemu) => qemu,
            Found::Unavailable(reason) => return Ok(Found::Unavailable(reason)),
        };
        let dir = workspace::root().join("target/vm-test");
        fs::create_dir_all(&dir).with_context(|| format!("failed to create {}", dir.display()))?;
        let initramfs = dir.join("initramfs.cpio");
        payload::write(&initramfs)?;
        Ok(Found::Here(Self { cache, qemu, initramfs, dir }))
    }

    fn test(&self, kernel: &Kernel) -> Result<Outcome> {
        let image = match kernel.image(&self.cache)? {
            Found::Here(image) => image,
            Found::Unavailable(reason) => return Ok(Outcome::unavailable(format!("no kernel: {reason:#}"))),
        };
        let console = self.dir.join(format!("{}.console", kernel.name));
        let results = self.dir.join(format!("{}.results", kernel.name));
        let argument = kernel.expectation.to_string();
        let boot = Boot {
            kernel: &image,
            initramfs: &self.initramfs,
            argument: &argument,
            console: &console,
            results: &results,
        };
        let mut boots = 1;
        let mut outcome = loop {
            let log = machine::watch(&mut self.qemu.boot(&boot)?, &results, LIMITS, show)?;
            let outcome = log.outcome();
            if log.started() || boots == BOOTS {
                break outcome;
            }
            eprintln!("boot {boots} of {BOOTS} failed: {}; once more\n{}", outcome.note, console::excerpt(&console));
            boots += 1;
        };
        if outcome.verdict == Verdict::Failed {
            let note = console::shortened(&outcome.note);
            outcome.note = format!("{note}\nfrom {}:\n{}", console.display(), console::excerpt(&console));
        } else if boots > 1 {
            outcome.note = format!("{}, at boot {boots}", outcome.note);
        }
        Ok(outcome)
    }
}

/// Shows progress.
fn show(event: &Event) {
    match event {
        Event::Init { kernel } => eprintln!("booted {kernel}"),
        Event::End { test, took_ms, failure: None } => eprintln!("  ok    {test} ({took_ms} ms)"),
        Event::End { test, took_ms, failure: Some(reason) } => {
            eprintln!("  FAIL  {test} ({took_ms} ms): {}", console::shortened(reason));
        }
        Event::Begin { .. } | Event::Done { .. } => {}
    }
}
