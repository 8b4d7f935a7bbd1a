//! `cargo xtask vm-test`: boots other kernels in virtual machines and runs lockbpf's core tests in them.

use std::{env::consts, fs, io, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::builder::PossibleValuesParser;
use vm_tests::{
    event::Event,
    plan::{Plan, Selection},
};

use crate::{
    arch::Arch,
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
mod platform;
mod qemu;
mod toolchain;
mod verdict;

use cache::Cache;
use kernel::{KERNELS, Kernel};
use machine::Limits;
use platform::Platform;
use qemu::{Boot, Qemu};
use toolchain::Toolchain;

/// Boots that do not get to the init are repeated, for emulators crash; anything later is a result.
const BOOTS: u32 = 3;
/// Emulated processors that count instructions take turns on one of this machine's.
const LIMITS: Limits = Limits { boot: Duration::from_secs(120), whole: Duration::from_secs(15 * 60) };

/// Arguments of `vm-test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Boot this kernel only (repeatable)
    #[arg(long, value_name = "KERNEL", value_parser = PossibleValuesParser::new(KERNELS.map(|kernel| kernel.name)))]
    kernel: Vec<String>,
    /// Emulate machines of this architecture only (repeatable)
    #[arg(long, value_name = "ARCH", value_parser = PossibleValuesParser::new(Arch::ALL.map(Arch::name)))]
    arch: Vec<String>,
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
/// There is no such kernel for the architecture, or standard output cannot be written to.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let among = |names: &[String], name| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let wanted = |kernel: &&Kernel| among(&args.kernel, kernel.name) && among(&args.arch, kernel.arch.name());
    let kernels: Vec<&Kernel> = KERNELS.iter().filter(wanted).collect();
    ensure!(!kernels.is_empty(), "no kernel {} is known for {}", args.kernel.join(" or "), args.arch.join(" or "));
    let mut report = Report::begin();
    for arch in Arch::ALL {
        let mut bench = None;
        for kernel in kernels.iter().filter(|kernel| kernel.arch == arch) {
            for task in Task::all(kernel) {
                report.run(&task.name(), || perform(&task, &mut bench));
            }
        }
    }
    report.write(&[], &mut io::stdout())
}

/// A few tests in one kernel, for every change: the first of [FEW] that can be had.
///
/// # Errors
/// The cache or the target folder cannot be written to, or something does not compile.
pub(crate) fn few() -> Result<Outcome> {
    let mut bench = None;
    let mut reasons = Vec::new();
    for kernel in FEW.iter().filter_map(|&name| Kernel::find(name, Arch::X86_64)) {
        let task = Task { kernel, selection: Selection::Few, cpus: 2, shift: None };
        match attempt(&task, &mut bench)? {
            Found::Here(outcome) => return Ok(outcome),
            Found::Unavailable(reason) => {
                eprintln!("not in {}: {reason:#}", kernel.name);
                reasons.push(format!("{}: {reason:#}", kernel.name));
            }
        }
    }
    Ok(Outcome::unavailable(reasons.join("; ")))
}

/// Kernels for the [few] tests: the oldest that is supported, whose verifier grants least, or Debian's oldest, since those of other
/// distributions may be out of reach.
const FEW: [&str; 2] = ["5.15", "6.1"];

/// A machine to be run.
struct Task<'a> {
    kernel: &'a Kernel,
    selection: Selection,
    cpus: u32,
    /// The binary logarithm of the cycles that an instruction takes, if it is a fixed number.
    shift: Option<u32>,
}

impl<'a> Task<'a> {
    /// All that a kernel is tested by.
    fn all(kernel: &'a Kernel) -> Vec<Self> {
        let task = |selection, cpus, shift| Self { kernel, selection, cpus, shift };
        match kernel.arch {
            Arch::X86_64 => vec![task(Selection::All, 2, None)],
            // QEMU's counters are the machine's: on each CPU they count what all execute.
            Arch::Aarch64 => vec![
                task(Selection::Core, 2, Some(0)),
                task(Selection::Counters, 1, Some(0)),
                task(Selection::Counters, 1, Some(1)),
            ],
        }
    }

    fn name(&self) -> String {
        let kernel = format!("kernel {}, {}", self.kernel.name, self.kernel.arch.name());
        match (self.selection, self.shift) {
            (Selection::Counters, Some(shift)) => format!("{kernel}, counters at {} cycles an instruction", 1 << shift),
            _ => kernel,
        }
    }

    /// Of the files that it writes.
    fn file_name(&self) -> String {
        let shift = self.shift.map(|shift| format!("-{shift}")).unwrap_or_default();
        format!("{}-{}-{}cpu{shift}", self.kernel.arch.name(), self.kernel.name, self.cpus)
    }

    fn plan(&self) -> Plan {
        let Self { kernel, selection, shift, .. } = *self;
        Plan { expectation: kernel.expectation, selection, cycles_per_instruction: shift.map(|shift| 1 << shift) }
    }
}

/// Runs the machine; what it needs and cannot be had is the outcome.
fn perform(task: &Task, bench: &mut Option<Bench>) -> Result<Outcome> {
    Ok(match attempt(task, bench)? {
        Found::Here(outcome) => outcome,
        Found::Unavailable(reason) => Outcome::unavailable(format!("{reason:#}")),
    })
}

/// Runs the machine, with what machines of its architecture need, which is set up for the first one.
fn attempt(task: &Task, bench: &mut Option<Bench>) -> Result<Found<Outcome>> {
    if consts::ARCH != "x86_64" {
        let reason = format!("QEMU is set up on x86_64 only, and this machine is {}", consts::ARCH);
        return Ok(Found::Here(Outcome::skipped(reason)));
    }
    let bench = match bench {
        Some(bench) => bench,
        none => match Bench::set_up(task.kernel.arch)? {
            Found::Here(ready) => none.insert(ready),
            Found::Unavailable(reason) => return Ok(Found::Unavailable(reason)),
        },
    };
    bench.test(task)
}

/// What every machine of an architecture needs.
struct Bench {
    cache: Cache,
    qemu: Qemu,
    initramfs: PathBuf,
    /// Where consoles and results are written to.
    dir: PathBuf,
}

impl Bench {
    fn set_up(arch: Arch) -> Result<Found<Self>> {
        let cache = Cache::open()?;
        let qemu = match Qemu::find(&cache, Platform::of(arch))? {
            Found::Here(qemu) => qemu,
            Found::Unavailable(reason) => return Ok(Found::Unavailable(reason.context("no QEMU"))),
        };
        let toolchain = match Toolchain::find(arch)? {
            Found::Here(toolchain) => toolchain,
            Found::Unavailable(reason) => return Ok(Found::Unavailable(reason.context("no compilers"))),
        };
        let dir = workspace::root().join("target/vm-test");
        fs::create_dir_all(&dir).with_context(|| format!("failed to create {}", dir.display()))?;
        let initramfs = dir.join(format!("{}.initramfs", arch.name()));
        payload::write(toolchain, &initramfs)?;
        Ok(Found::Here(Self { cache, qemu, initramfs, dir }))
    }

    fn test(&self, task: &Task) -> Result<Found<Outcome>> {
        let image = match task.kernel.image(&self.cache)? {
            Found::Here(image) => image,
            Found::Unavailable(reason) => return Ok(Found::Unavailable(reason.context("no kernel"))),
        };
        let file = |end| self.dir.join(format!("{}.{end}", task.file_name()));
        let (console, results) = (file("console"), file("results"));
        let boot = Boot {
            kernel: &image,
            initramfs: &self.initramfs,
            arguments: &task.plan().to_string(),
            cpus: task.cpus,
            shift: task.shift,
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
        Ok(Found::Here(outcome))
    }
}

/// Shows progress.
fn show(event: &Event) {
    match event {
        Event::Init { kernel } => eprintln!("booted {kernel}"),
        Event::End { test, took_ms, failure: Some(reason), .. } => {
            eprintln!("  FAIL  {test} ({took_ms} ms): {}", console::shortened(reason));
        }
        Event::End { test, took_ms, failure: None, figures } => {
            let figures = figures.as_ref().map(|figures| format!(": {figures}")).unwrap_or_default();
            eprintln!("  ok    {test} ({took_ms} ms){figures}");
        }
        Event::Begin { .. } | Event::Done { .. } => {}
    }
}
