//! Events counted in critical sections: by a processor that counts, in sections of a known number of instructions; and what
//! becomes of them on one that does not.

use anyhow::{Context as _, Result, ensure};

use crate::{
    check,
    lockbpf::{self, Counted, Counters, Observer},
    workload::Workload,
};

/// How far a count may be from what was executed.
const TOLERANCE: f64 = 0.01;
/// From this share of the time on, an event counts as counted all of it.
const ALL_OF_IT: f64 = 0.995;
/// What the workload counts in.
const FUNCTION: &str = "counted_section";
/// In user mode, where the number is known; in the kernel are the probes.
const INSTRUCTIONS: &str = "instructions:u";
const CYCLES: &str = "cycles:u";

/// A section of a million instructions has a million, and takes the cycles that these take.
pub(crate) fn known_sections(cycles_per_instruction: u32) -> Result<String> {
    let run = observe("instructions 20 250000", "instructions:u,instructions:k,cycles:u,cycles:k")?;
    for event in &run.counters.events {
        ensure!(event.counted_share >= Some(ALL_OF_IT), "{} was not counted all the time: {:?}", event.name, event);
    }
    let instructions = run.compare(INSTRUCTIONS, run.instructions)?;
    let cycles = run.compare(CYCLES, run.instructions * f64::from(cycles_per_instruction))?;
    let ipc = run.site.ipc_user.context("no instructions per cycle are told")?;
    let expected = 1.0 / f64::from(cycles_per_instruction);
    ensure!((ipc / expected - 1.0).abs() <= TOLERANCE, "{expected} instructions per cycle were made, {ipc} are told");
    let kernel = run.site.hold.get("instructions:k").copied().unwrap_or_default();
    ensure!(kernel > 0.0, "the probes themselves executed nothing in the kernel: {:?}", run.site);
    Ok(format!("{instructions}, {cycles}, {ipc:.4} instructions per cycle"))
}

/// What others execute on its CPU meanwhile is not the holder's.
pub(crate) fn preempted_sections() -> Result<String> {
    let run = observe("instructions 20 250000 crowd", "instructions:u,instructions")?;
    let instructions = run.compare(INSTRUCTIONS, run.instructions)?;
    let (held, own) = (run.site.hold_ns, run.site.on_cpu_ns);
    ensure!(run.site.preempted_ns > 0.0 && held > 1.2 * own, "the holder was not preempted: {:?}", run.site);
    Ok(format!("{instructions}; held for {:.1} ms, {:.1} ms of them on the CPU", held / 1e6, own / 1e6))
}

/// Events that take turns with twelve others are scaled, and it is told by how much.
///
/// The number in user mode is known; for that in all modes the time on the CPU stands, of which each instruction takes the same.
pub(crate) fn multiplexed_sections(cycles_per_instruction: u32) -> Result<String> {
    let run = observe("instructions 100 2500000 multiplex", "instructions:u,instructions")?;
    let event = run.counters.events.iter().find(|event| event.name == INSTRUCTIONS);
    let share = event.and_then(|event| event.counted_share).context("no share of the time is told")?;
    ensure!((0.05..0.9).contains(&share), "the event did not take turns: it was counted {share} of the time");
    let instructions = run.compare(INSTRUCTIONS, run.instructions)?;
    let cycles = run.site.hold_ns - run.site.preempted_ns;
    let all = run.compare("instructions", cycles / f64::from(cycles_per_instruction))?;
    Ok(format!("{instructions}, {all}, counted {:.0} % of the time", 100.0 * share))
}

/// Without a PMU it is said, time on the CPU stands in for cycles, and what cannot be counted is refused.
pub(crate) fn no_pmu() -> Result<()> {
    let workload = Workload::start("counter 2 1 500")?;
    let observer =
        Observer::start(&["--counters", "page-faults,context-switches", "--pid", &workload.pid().to_string()])?;
    let truth = workload.finish()?;
    let report = observer.report()?;
    ensure!(report.counters.unit == "ns", "the unit is {}", report.counters.unit);
    let notes = &report.quality.notes;
    ensure!(notes.iter().any(|note| note.contains("no PMU")), "that there is no PMU is not among {notes:?}");
    check::exact(&truth, &report, false)?;
    let refused = lockbpf::run(&["--counters", "page-faults,cache-misses", "--pid", "1"])?;
    ensure!(refused.status.code() == Some(2), "exit status is not 2 but {}: {}", refused.status, refused.stderr);
    for word in ["no PMU", "cache-misses"] {
        ensure!(refused.stderr.contains(word), "the refusal does not name {word}: {}", refused.stderr);
    }
    Ok(())
}

/// An observation of sections with a known number of instructions.
struct Run {
    /// How many all of them have together.
    instructions: f64,
    site: Counted,
    counters: Counters,
}

fn observe(line: &str, events: &str) -> Result<Run> {
    let workload = Workload::start(line)?;
    let observer = Observer::start(&["--counters", events, "--pid", &workload.pid().to_string()])?;
    let truth = workload.finish()?;
    let report = observer.report()?;
    check::exact(&truth, &report, false)?;
    let counters = report.counters;
    ensure!(counters.unit == "cycles", "the processor counts, but the unit is {}", counters.unit);
    ensure!(counters.totals.sections_uncounted == 0, "{} sections are not counted", counters.totals.sections_uncounted);
    let site = counters.sites.iter().find(|site| site.symbol.starts_with(FUNCTION)).cloned();
    let site = site.with_context(|| format!("nothing was counted in {FUNCTION}: {counters:?}"))?;
    let fact = |name| truth.facts.get(name).copied().with_context(|| format!("the workload tells no {name}"));
    let (section, sections) = (fact("section")?, fact("sections")?);
    ensure!(site.sections == sections, "{sections} sections were made, {} are counted", site.sections);
    Ok(Run { instructions: (section * sections) as f64, site, counters })
}

impl Run {
    /// How a sum over the sections compares to what was made.
    fn compare(&self, event: &str, made: f64) -> Result<String> {
        let told = self.site.hold.get(event).copied().with_context(|| format!("no {event}: {:?}", self.site))?;
        let off = told / made - 1.0;
        let text = format!("{told:.0} {event} of {made:.0} ({:+.2} %)", 100.0 * off);
        ensure!(off.abs() <= TOLERANCE, "{text}: {:?}", self.site);
        Ok(text)
    }
}
