//! From libraries found to probe sites, and what a person should know of them.

use crate::capture::attach::ProbeSite;
use crate::capture::placer::Mechanism;
use crate::capture::probe_table::{Function, Runtime};
use crate::capture::prologue::Cost;
use crate::capture::session::Session;
use crate::capture::target::{Library, Targets};
use crate::sums::KernelSums;
use lockbpf_common::function;
use std::collections::HashSet;

/// Where probes go in functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// At the cheapest correct instruction.
    #[default]
    Best,
    /// At the function's first one; to show what placement is worth.
    Entry,
}

/// The probe sites of libraries.
pub(crate) fn sites(libraries: &[Library], place: Place) -> Vec<ProbeSite> {
    let at_entry = place == Place::Entry;
    libraries.iter().flat_map(|library| library.probe_sites(at_entry)).collect()
}

/// What the reader of the report must know of the probes: dear ones, missing ones, unusable libraries.
pub(crate) fn remarks(targets: &Targets) -> Vec<String> {
    let mut remarks = Vec::new();
    remarks.extend(targets.libraries.iter().flat_map(remarks_on));
    let skipped = targets.skipped;
    if skipped.unreadable > 0 {
        let (n, s) = (skipped.unreadable, if skipped.unreadable == 1 { "" } else { "es" });
        remarks.push(format!("{n} process{s} could not be looked at, so their locks may be missing."));
    }
    remarks
}

/// What the reader must know of the probes in one file.
pub(crate) fn remarks_on(library: &Library) -> Vec<String> {
    let mut remarks = Vec::new();
    let file = &library.display;
    if let Some(why) = &library.unusable {
        remarks.push(format!("locks in {file} are seen only when a thread sleeps for them: {why}."));
    }
    remarks.extend(dear(library, |function| function.essential));
    let (described, own): (Vec<_>, Vec<_>) =
        library.missing.iter().filter(|m| m.function.essential).partition(|m| m.function.runtime == Runtime::Described);
    remarks.extend(
        described.iter().map(|m| format!("{} is not observed in {file}: {}.", m.function.symbol, m.reason.as_str())),
    );
    let missing: Vec<_> = own.iter().map(|m| m.function.symbol).collect();
    if !missing.is_empty() && library.unusable.is_none() {
        remarks.push(format!("{} cannot be probed in {file}.", missing.join(", ")));
    }
    remarks
}

/// What the reader must know of calls that were dear: functions that only few programs call are named if this one did.
pub(crate) fn dear_calls(targets: &Targets, sums: &[KernelSums]) -> Vec<String> {
    let called = |f: &Function| sums.iter().any(|s| function::via(f.code) == Some(s.via));
    targets.libraries.iter().filter_map(|library| dear(library, |f| !f.essential && called(f))).collect()
}

/// The functions among these that are single-stepped, in words.
fn dear(library: &Library, wanted: impl Fn(&Function) -> bool) -> Option<String> {
    let sites = library.sites.iter().filter(|s| s.placement.cost == Cost::SingleStepped && wanted(&s.function));
    let names: Vec<_> = sites.map(|s| s.function.symbol).collect();
    let ns = Cost::SingleStepped.expected_ns();
    let file = &library.display;
    (!names.is_empty()).then(|| format!("{} in {file} must be single-stepped: about {ns} ns a call.", names.join(", ")))
}

/// What is in place, in a few words.
pub(crate) fn summary(session: &Session, files: &HashSet<(u64, u64)>, futex_only: bool) -> String {
    if futex_only {
        return "futex calls only, no uprobes".to_owned();
    }
    let how = match session.mechanism() {
        Mechanism::Session => "uprobe sessions",
        Mechanism::Link => "uprobe links",
        Mechanism::PerfEvents => "uprobes as perf events",
    };
    let noun = if files.len() == 1 { "file" } else { "files" };
    match (session.probe_count(), files.len()) {
        (0, 0) => format!("nothing to be probed so far ({how})"),
        // Where whole systems are observed within a budget, no process has probes from the start.
        (0, files) => format!("probes in windows, in {files} {noun} ({how})"),
        (functions, files) => format!("{functions} functions probed in {files} {noun} ({how})"),
    }
}
