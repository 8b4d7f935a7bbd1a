//! Calls of the C library: as many as a workload makes, each charged to the outermost function; and, by a processor that counts, what
//! they execute.

use anyhow::{Context as _, Result, ensure};

use crate::{
    check,
    lockbpf::{Calls, Functions, Observer, Report},
    tests::{Way, observe},
    workload::{Truth, Workload},
};

/// What the C library calls for itself, for threads to begin and to end, is less than this.
const FEW: u64 = 64;
/// How far counts may be from what was executed.
const TOLERANCE: f64 = 0.01;

/// Each function is called as often as the workload does, and what it calls itself is charged to it. Locks are told as ever.
pub(crate) fn exact(way: Way) -> Result<String> {
    const THREADS: u64 = 2;
    const TIMES: u64 = 100;
    let each = THREADS * TIMES;
    let workload = Workload::start(&format!("functions {THREADS} {TIMES}"))?;
    let observer = observe(&["--functions", "--pid", &workload.pid().to_string()], way)?;
    let summary = observer.summary().unwrap_or_default().trim_end().to_owned();
    let truth = workload.finish()?;
    let functions = functions(&truth, observer.report()?)?;
    for (name, calls) in [
        ("malloc", each + THREADS),
        ("free", 2 * each + THREADS),
        ("calloc", each),
        ("realloc", each),
        ("memset", each),
        ("memcpy", each),
        ("pthread_mutex_lock", each),
        ("pthread_mutex_unlock", each),
        ("write", each),
        ("fwrite", each),
        ("fprintf", each),
        ("open", THREADS),
        ("close", THREADS),
        ("pthread_create", THREADS),
        ("pthread_join", THREADS),
    ] {
        if cfg!(target_arch = "aarch64") && functions.leaves_out(name) {
            // glibc there calls no function that it chooses by the processor, and a static lockbpf has none either.
            ensure!(matches!(name, "memset" | "memcpy"), "{name} is left out: {:?}", functions.left_out);
            continue;
        }
        let of = functions.of(name)?;
        let own = if matches!(name, "free" | "pthread_mutex_lock" | "pthread_mutex_unlock") { FEW } else { 0 };
        ensure!((calls..=calls + own).contains(&of.calls), "{calls} calls of {name} were made: {of:?}");
        ensure!(of.ended == of.calls, "not every call of {name} is seen to its end: {of:?}");
        ensure!(of.uncounted <= 1 + of.calls / 100, "events of {name} are not counted: {of:?}");
    }
    let write = functions.of("write")?;
    ensure!(
        (2 * each..2 * each + FEW).contains(&write.nested),
        "fwrite and fprintf write {} times: {write:?}",
        2 * each
    );
    for category in &functions.categories {
        let all = || functions.functions.iter().filter(|of| of.category == category.category);
        let sums = (all().map(|of| of.calls).sum::<u64>(), all().map(|of| of.nested).sum::<u64>());
        ensure!(sums == (category.calls, category.nested), "{category:?} is not the sum of its functions: {sums:?}");
    }
    ensure!(functions.library_share > 0.0 && functions.library_share <= 1.0, "{functions:?}");
    let only_counted = if functions.endless.is_empty() { "none".to_owned() } else { functions.endless.join(", ") };
    Ok(format!("{summary}; only counted: {only_counted}"))
}

/// Calls of which the program itself executes nearly all, a loop of known length; and others that are the kernel's.
pub(crate) fn counted(cycles_per_instruction: u32) -> Result<String> {
    const ROUNDS: u64 = 20;
    let workload = Workload::start(&format!("library {ROUNDS} 250000"))?;
    let observer = Observer::start(&["--functions", "io,pthread", "--pid", &workload.pid().to_string()])?;
    let truth = workload.finish()?;
    let functions = functions(&truth, observer.report()?)?;
    ensure!(functions.unit == "cycles", "the processor counts, but the unit is {}", functions.unit);
    let (once, write) = (functions.of("pthread_once")?, functions.of("write")?);
    for of in [once, write] {
        ensure!((of.calls, of.ended, of.uncounted) == (ROUNDS, ROUNDS, 0), "{ROUNDS} calls were made: {of:?}");
        let shares = of.share_user.unwrap_or_default() + of.share_kernel.unwrap_or_default();
        ensure!(of.share > 0.0 && (shares / of.share - 1.0).abs() < 1e-6, "user and kernel are not the whole: {of:?}");
    }
    let made = truth.facts.get("instructions").copied().with_context(|| format!("no instructions: {truth:?}"))? as f64;
    let user = |event: &str| -> Result<f64> { Ok(once.count(event)? - once.count(&format!("{event}:k"))?) };
    let executed = compare("instructions", user("instructions")?, made)?;
    let cycles = compare("cycles", user("cycles")?, made * f64::from(cycles_per_instruction))?;
    ensure!(once.share_user > once.share_kernel, "the loop is the program's own: {once:?}");
    ensure!(write.share_kernel > write.share_user, "writing is the kernel's work: {write:?}");
    let whole = functions.library_share + functions.program_share;
    ensure!((whole - 1.0).abs() < 1e-6, "library and program are not the whole: {functions:?}");
    Ok(format!("{executed}, {cycles}, outside of the kernel in pthread_once"))
}

fn compare(what: &str, told: f64, made: f64) -> Result<String> {
    let off = told / made - 1.0;
    let text = format!("{told:.0} {what} of {made:.0} ({:+.2} %)", 100.0 * off);
    ensure!(off.abs() <= TOLERANCE, "{text}");
    Ok(text)
}

/// The calls that were seen, in a report that lacks nothing.
fn functions(truth: &Truth, mut report: Report) -> Result<Functions> {
    check::exact(truth, &report, false)?;
    report.functions.take().context("the report has no calls")
}

impl Functions {
    /// The calls of a function.
    fn of(&self, name: &str) -> Result<&Calls> {
        let found = self.functions.iter().find(|of| of.function.as_deref() == Some(name));
        found.with_context(|| format!("no calls of {name} are told, and left out are {:?}", self.left_out))
    }

    fn leaves_out(&self, name: &str) -> bool {
        self.left_out.iter().any(|left_out| left_out["function"] == name)
    }
}

impl Calls {
    /// How often an event happened.
    fn count(&self, event: &str) -> Result<f64> {
        self.counts.get(event).copied().with_context(|| format!("{event} was not counted: {self:?}"))
    }
}
