//! What a page knows: the report, its words, and what its pictures are drawn from, as JSON.

use super::advised::Advised;
use super::chains::{Chains, chains};
use super::swimlanes::{Lanes, lanes};
use crate::model::sliders::Sliders;
use crate::render::Page;
use crate::render::flame::Flame;
use crate::render::tables::Strings;
use crate::report::Report;
use crate::report::histograms::Histograms;
use crate::report::schema::{LockEntry, Ns, StackFrame};
use crate::report::text::clip;
use crate::report::words::{Words, words};
use serde::Serialize;

/// Value of [`Data::schema`]: changes when a field changes its meaning or goes away.
const SCHEMA: &str = "lockbpf.page/1";
/// Characters of a name in a picture.
const NAME: usize = 160;
/// Frames of a stack.
const FRAMES: usize = 24;

/// How much a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes of JSON for locks; the most harmful one is shown in any case.
    pub(super) lock_bytes: usize,
    /// Entries of each other list of the report, and of each list of a lock.
    pub(super) entries: usize,
    /// Calls in a flame graph.
    pub(super) calls: usize,
    /// Waits shown one by one; as many holds.
    pub(super) waits: usize,
}

impl Limits {
    /// The part of the whole.
    pub(super) fn divided_by(n: usize) -> Self {
        Self { lock_bytes: 600_000 / n, entries: 64 / n, calls: 3_000 / n, waits: 6_000 / n }
    }
}

/// What a page knows.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Data<'a> {
    schema: &'static str,
    lockbpf: &'static str,
    /// When the recording began, ns since 1970 (UTC).
    started_ns: Option<u64>,
    /// By its own schema; long lists are cut, and the wait graph is left out.
    report: Report,
    words: Words,
    /// One for each lock, in the report's order.
    histograms: &'a [Histograms],
    chains: Chains,
    lanes: Lanes,
    waiters: Stacks,
    culprits: Stacks,
    what_if: Option<&'a Sliders>,
    /// Why that is missing.
    no_what_if: Option<&'a str>,
    advice: Option<Advised<'a>>,
    /// Why that is missing.
    no_advice: Option<&'a str>,
    /// What the report has, and the page does not show.
    not_here: Vec<&'static str>,
}

/// A flame graph: calls in the order of [`Flame::nodes`], a column a field.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Stacks {
    names: Vec<String>,
    name: Vec<usize>,
    depth: Vec<usize>,
    before_ns: Vec<Ns>,
    wait_ns: Vec<Ns>,
    all_ns: Ns,
    left_out: usize,
    left_out_ns: Ns,
}

impl<'a> Data<'a> {
    /// What there is to know about a recording, as far as limits allow.
    pub(super) fn of(page: &'a Page, limits: Limits) -> Self {
        let mut words = words(&page.report);
        let report = cut(&page.report, limits);
        words.locks.truncate(report.locks.len());
        words.callers.truncate(report.culprits.len());
        words.others.truncate(report.culprits.len());
        let pictures = &page.pictures;
        let stacks = |samples| stacks(Flame::of(samples, limits.calls));
        let (what_if, no_what_if) = page.what_if.parts();
        let (advice, no_advice) = page.advice.parts();
        Self {
            schema: SCHEMA,
            lockbpf: env!("CARGO_PKG_VERSION"),
            started_ns: page.started_ns,
            histograms: &pictures.histograms[..report.locks.len().min(pictures.histograms.len())],
            chains: chains(&page.report),
            lanes: lanes(pictures, limits.waits),
            waiters: stacks(&pictures.profile.waiters),
            culprits: stacks(&pictures.profile.culprits),
            report,
            words,
            what_if,
            no_what_if,
            advice: advice.map(|advice| Advised::of(advice, limits.entries)),
            no_advice,
            not_here: not_here(&page.report),
        }
    }
}

/// The report with its most harmful locks and the beginning of each long list.
pub(super) fn cut(report: &Report, limits: Limits) -> Report {
    let n = limits.entries;
    let mut locks: Vec<LockEntry> = Vec::new();
    let mut bytes = 0;
    for lock in &report.locks {
        let mut lock = lock.clone();
        lock.waiters.truncate(n);
        lock.holders.truncate(n);
        lock.chains.truncate(n);
        lock.thread_pairs.truncate(n);
        for waiter in &mut lock.waiters {
            waiter.blamed.truncate(n);
            slim(&mut waiter.stack);
        }
        for holder in &mut lock.holders {
            slim(&mut holder.stack);
            holder.off_stacks.truncate(4);
            holder.off_stacks.iter_mut().for_each(|off| slim(&mut off.stack));
        }
        lock.waiting_now.places.truncate(n);
        lock.waiting_now.places.iter_mut().for_each(|place| slim(&mut place.stack));
        bytes += serde_json::to_vec(&lock).map_or(0, |json| json.len());
        if bytes > limits.lock_bytes && !locks.is_empty() {
            break;
        }
        locks.push(lock);
    }
    let mut totals = report.totals.clone();
    totals.locks_omitted += (report.locks.len() - locks.len()) as u64;
    let mut cut = Report { locks, totals, ..head(report) };
    cut.culprits.truncate(n);
    cut.sites.truncate(n);
    cut.conditions.truncate(n);
    cut.futexes.truncate(n);
    cut.inversions.truncate(n);
    cut.threads.truncate(8 * n);
    cut.culprits.iter_mut().flat_map(|c| &mut c.off_stacks).for_each(|off| slim(&mut off.stack));
    cut.deadlocks.iter_mut().flat_map(|d| &mut d.threads).for_each(|blocked| slim(&mut blocked.stack));
    cut
}

/// What only the report itself tells, in words.
fn not_here(report: &Report) -> Vec<&'static str> {
    let left_out = [
        (report.counters.is_some(), "events counted in sections"),
        (report.functions.is_some(), "calls of the C library"),
        (!report.conditions.is_empty(), "condition variables and semaphores for work"),
        (!report.futexes.is_empty(), "futex words of unknown purpose"),
    ];
    left_out.into_iter().filter(|(there, _)| *there).map(|(_, what)| what).collect()
}

/// What is not about single locks.
fn head(report: &Report) -> Report {
    Report {
        schema: report.schema.clone(),
        verdict: report.verdict.clone(),
        selection: report.selection.clone(),
        totals: report.totals.clone(),
        deadlocks: report.deadlocks.clone(),
        ended_circles: report.ended_circles.clone(),
        patterns: report.patterns.clone(),
        culprits: report.culprits.clone(),
        sites: report.sites.clone(),
        threads: report.threads.clone(),
        critical_path: report.critical_path.clone(),
        inversions: report.inversions.clone(),
        conditions: report.conditions.clone(),
        futexes: report.futexes.clone(),
        quality: report.quality.clone(),
        ..Report::default()
    }
}

/// The innermost frames of a stack, without what their functions tell better.
fn slim(stack: &mut Vec<StackFrame>) {
    stack.truncate(FRAMES);
    for frame in stack.iter_mut().filter(|frame| frame.function.is_some()) {
        (frame.module, frame.offset) = (None, None);
    }
}

fn stacks(flame: Flame) -> Stacks {
    let mut names = Strings::default();
    let mut stacks = Stacks {
        all_ns: flame.wait_ns,
        left_out: flame.left_out.0,
        left_out_ns: flame.left_out.1,
        ..Stacks::default()
    };
    for call in flame.nodes {
        stacks.name.push(names.insert_full(clip(&call.name, NAME)).0);
        stacks.depth.push(call.depth);
        stacks.before_ns.push(call.before_ns);
        stacks.wait_ns.push(call.wait_ns);
    }
    stacks.names = names.into_iter().collect();
    stacks
}
