//! The report as text for a terminal: a verdict, the locks, who waited and who held them meanwhile, and how far to trust
//! it. No colours.

use super::columns::{Columns, fill, fitted};
use super::schema::{ConditionEntry, LockEntry, Ns, PerturbationEntry, Report, UnobservedEntry};
use super::sleepers::{OF_CONDITIONS, SEMAPHORE};
use super::text::{clip, count, counted, percent, share, wrap};
use super::{attribution, called, counted, details, estimated, warnings, wide};
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent, Width, presets};
use std::collections::BTreeMap;

/// Condition variables and futex words shown.
const WORDS: usize = 5;
/// Characters of a lock's name.
pub(super) const NAME: usize = 64;
/// What stands for a figure that the observation cannot know.
pub(crate) const UNKNOWN: &str = "–";

/// How to lay the text out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Columns of the terminal.
    pub width: u16,
    /// Locks for which waiters and holders are shown.
    pub details: usize,
    /// Critical sections shown.
    pub sites: usize,
    /// Functions of the C library shown.
    pub functions: usize,
    /// Chains and threads shown, of each.
    pub rest: usize,
}

impl Default for Layout {
    fn default() -> Self {
        Self { width: 120, details: 5, sites: 8, functions: 15, rest: 5 }
    }
}

/// A lock or a chain with less than this part of all waiting gets no details in the text.
pub(super) const MATTERS: f64 = 0.02;

/// Renders the report, with a newline at its end.
#[must_use]
pub fn render(report: &Report, layout: &Layout) -> String {
    let width = layout.width.max(40);
    let mut paragraphs = vec![wrap(&report.verdict.join("\n"), width.into())];
    paragraphs.extend(warnings::deadlocks(report, width));
    paragraphs.extend(wide::runs(report, width));
    if !report.locks.is_empty() {
        paragraphs.push(locks(report, width));
    }
    paragraphs.extend(wide::sites(report, layout.sites, width));
    paragraphs.extend(counted::render(report, layout.sites, width));
    paragraphs.extend(called::render(report, layout.functions, width));
    paragraphs.extend(wide::chains(report, layout.rest, width));
    paragraphs.extend(wide::critical_path(report, width));
    let waited_for = report.locks.iter().filter(|l| l.recorded_wait_ns > Ns::default() || l.waiting_now.count > 0);
    // The first one is what a reader came for, however little that is.
    let matters = |lock: &LockEntry| {
        let share = lock.harm_ns.share_of(report.totals.harm_ns);
        share >= MATTERS || lock.waiting_now.count > 0 || lock.timeouts > 0
    };
    let shown = waited_for.enumerate().filter(|&(i, lock)| i == 0 || matters(lock)).take(layout.details);
    paragraphs.extend(shown.map(|(_, lock)| details::render(lock, report, width)));
    paragraphs.extend(wide::threads(report, layout.rest, width));
    paragraphs.extend(warnings::inversions(report, layout.rest, width));
    paragraphs.extend(conditions(report, width));
    paragraphs.extend(futexes(report, width));
    paragraphs.push(wrap(&quality(report), width.into()));
    paragraphs.join("\n\n") + "\n"
}

/// What matters most, in a few lines: the verdict's first sentence and the locks.
#[must_use]
pub fn summary(report: &Report, width: u16) -> String {
    let width = width.max(40);
    let mut text = wrap(report.verdict.first().map_or("", String::as_str), width.into());
    if !report.locks.is_empty() {
        text += &format!("\n{}", locks(report, width));
    }
    text + "\n"
}

/// A name is not cut to less than this, even where the table then is too wide.
const SHORTEST: usize = 10;
/// Nor to less than this, where the table has that room.
const KEPT: usize = 40;

/// A table of which the columns in `left` hold text, the others numbers.
#[must_use]
pub fn table(headers: &[&str], left: &[usize], rows: Vec<Vec<String>>, width: u16) -> String {
    let least = if room(headers, left, &rows) > usize::from(width) { SHORTEST } else { KEPT };
    let align = |column| if left.contains(&column) { CellAlignment::Left } else { CellAlignment::Right };
    let cells = |row: Vec<String>| {
        row.into_iter().enumerate().map(|(i, text)| Cell::new(text).set_alignment(align(i))).collect::<Vec<_>>()
    };
    let widest = |i: usize| rows.iter().filter_map(|row| row.get(i)).map(|text| text.chars().count()).max();
    let names: Vec<u16> = (0..headers.len()).map(|i| widest(i).unwrap_or_default().min(least) as u16 + 1).collect();
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_style(TableComponent::HeaderLines, '─')
        .set_style(TableComponent::MiddleHeaderIntersections, '─')
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width)
        .set_header(cells(headers.iter().map(|&h| h.to_owned()).collect()));
    for row in rows {
        table.add_row(cells(row));
    }
    // Numbers stay whole: names give way, but not to the last letter.
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        column.set_constraint(if left.contains(&i) {
            ColumnConstraint::LowerBoundary(Width::Fixed(names.get(i).copied().unwrap_or_default()))
        } else {
            ColumnConstraint::ContentWidth
        });
    }
    table.trim_fmt()
}

/// How wide a table has to be for names to keep their room and numbers to stay whole.
pub(super) fn room(headers: &[&str], left: &[usize], rows: &[Vec<String>]) -> usize {
    let widest = |i: usize, header: &str| {
        let cells = rows.iter().filter_map(|row| row.get(i).map(String::as_str));
        let widest = cells.flat_map(str::lines).map(|line| line.chars().count()).max().unwrap_or_default();
        let header = header.lines().map(|line| line.chars().count()).max().unwrap_or_default();
        2 + header.max(if left.contains(&i) { widest.min(KEPT) } else { widest })
    };
    // Nothing parts the last one from others.
    headers.iter().enumerate().map(|(i, header)| widest(i, header)).sum::<usize>().saturating_sub(1)
}

/// Columns of the table of locks.
pub(super) const COLUMNS: Columns<LockEntry> = &[
    ("Lock", 0, |l| clip(&l.label, NAME)),
    ("Kind", 100, |l| {
        if l.others {
            "several".to_owned()
        } else if l.kernel {
            format!("kernel {}", l.kind)
        } else {
            l.kind.clone()
        }
    }),
    ("", 132, traits),
    ("Acquired", 0, |l| match &l.estimates {
        Some(f) => estimated::count(&f.acquisitions),
        None => l.acquisitions.map_or_else(|| UNKNOWN.to_owned(), count),
    }),
    ("Contended", 100, |l| match &l.estimates {
        Some(f) => estimated::contended(f, l.contended, l.futex.as_ref().map_or(0, |futex| futex.slept)),
        None if l.wait_estimate.is_some() => estimated::about(l.contended),
        None => count(l.contended),
    }),
    ("%", 2, |l| match &l.estimates {
        Some(f) => estimated::share(&f.contended_share),
        None => l.acquisitions.map_or_else(|| UNKNOWN.to_owned(), |n| percent(share(l.contended, n))),
    }),
    ("Waiting\nnow", 0, |l| if l.waiting_now.count == 0 { String::new() } else { count(l.waiting_now.count) }),
    ("Wait\ntotal", 0, |l| l.wait_estimate.map_or_else(|| l.wait_ns.sum.to_string(), |sum| estimated::time(&sum))),
    ("Wait\nmean", 4, |l| l.contended_wait_ns.mean.to_string()),
    ("Wait\np99", 110, |l| l.contended_wait_ns.p99.to_string()),
    ("Wait\nmax", 3, |l| l.contended_wait_ns.max.to_string()),
    ("Hold\nmean", 1, |l| match &l.estimates {
        Some(f) => estimated::time(&f.hold_mean_ns),
        None => l.hold_ns.map_or_else(|| UNKNOWN.to_owned(), |h| h.mean.to_string()),
    }),
    ("Hold\np99", 110, |l| match &l.estimates {
        Some(f) => estimated::quantile(&f.hold_p99_ns),
        None => l.hold_ns.map_or_else(|| UNKNOWN.to_owned(), |h| h.p99.to_string()),
    }),
    ("Hold\nmax", 100, |l| {
        let seen = if l.estimates.is_some() { "≥" } else { "" };
        l.hold_ns.map_or_else(|| UNKNOWN.to_owned(), |h| format!("{seen}{}", h.max))
    }),
];

/// What is particular about a lock, if anything.
fn traits(lock: &LockEntry) -> String {
    let traits = [
        lock.mutex_type.as_deref().filter(|&t| t != "normal"),
        lock.pi.filter(|&pi| pi).map(|_| "pi"),
        lock.robust.filter(|&robust| robust).map(|_| "robust"),
        lock.shared.filter(|&shared| shared).map(|_| "shared"),
        lock.inferred.then_some("inferred"),
    ];
    traits.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn locks(report: &Report, width: u16) -> String {
    let locks: Vec<_> = report.locks.iter().collect();
    let mut text = fitted(fill(COLUMNS, &locks, width), &["Lock", "Kind", ""], width);
    let totals = &report.totals;
    if totals.locks_omitted > 0 {
        // What the others' sums have, too, is in the totals once.
        let told = |l: &LockEntry| if l.in_others { l.waiting_now.sum_ns } else { l.harm_ns };
        let rest = totals.harm_ns - report.locks.iter().map(told).sum();
        text += &format!("\nand {} with {rest} of waiting", counted(totals.locks_omitted, "more lock"));
    }
    text
}

/// Columns of the table of condition variables, as those of locks. The last ones are known only if its wake-ups were seen.
const CONDITIONS: Columns<ConditionEntry> = &[
    ("Condition", 0, |c| clip(&c.label, NAME)),
    ("Waits", 0, |c| count(c.waits)),
    ("Timed out", 3, |c| count(c.timeouts)),
    ("Waiting now", 1, |c| count(c.waiting_now)),
    ("Idle total", 0, |c| c.waited_ns().to_string()),
    ("Idle mean", 0, |c| c.idle_ns.mean.to_string()),
    ("Idle max", 2, |c| c.idle_ns.max.to_string()),
    ("Woken\nper call", 110, per_call),
    ("Blocked\nagain", 110, |c| if has_no_mutex(c) { String::new() } else { percent(share(c.blocked_again, c.waits)) }),
    ("Signal to run\nmean", 110, |c| if has_no_mutex(c) { String::new() } else { c.wake_latency_ns.mean.to_string() }),
    ("Signal to run\nmax", 132, |c| if has_no_mutex(c) { String::new() } else { c.wake_latency_ns.max.to_string() }),
];

/// Whether what comes after its wake-ups is not known: they were not seen, or no mutex follows.
fn has_no_mutex(c: &ConditionEntry) -> bool {
    c.woken == 0 || c.kind == SEMAPHORE
}

fn conditions(report: &Report, width: u16) -> Option<String> {
    let used = report.conditions.iter().filter(|c| c.purpose != OF_CONDITIONS);
    let used: Vec<_> = used.filter(|c| c.waited_ns() > Ns::default() || c.waiting_now > 0).collect();
    let shown = &used[..WORDS.min(used.len())];
    let semaphores = used.iter().filter(|c| c.kind == SEMAPHORE).count();
    let what = match semaphores {
        0 => "Condition variables",
        n if n == used.len() => "Semaphores for work",
        _ => "Condition variables, and semaphores for work",
    };
    let title = format!("{what} (idle time, unless locks are made of them)");
    let remarks = used.iter().filter_map(|c| queues_up(c)).map(|text| wrap(&text, width.into()));
    let table = fitted(fill(CONDITIONS, shown, width), &["Condition"], width);
    let text = [table].into_iter().chain(remarks).collect::<Vec<_>>().join("\n");
    (!used.is_empty()).then(|| section(&title, text, used.len()))
}

/// How many threads a signal or broadcast woke, on average.
fn per_call(c: &ConditionEntry) -> String {
    if c.woken == 0 { String::new() } else { format!("{:.1}", c.woken as f64 / c.wakes as f64) }
}

/// A remark on broadcasts that wake threads only for them to queue up for the mutex. Whether they then have something to do, a
/// [`super::schema::PatternEntry`] tells.
fn queues_up(c: &ConditionEntry) -> Option<String> {
    let queues = c.wakes > 0 && c.woken >= c.wakes * 3 && c.blocked_again * 2 >= c.waits;
    queues.then(|| {
        format!(
            "`{}` wakes {} threads at a time, and {} of them then wait for the mutex. \
             Signal as many as there is work for, or broadcast after the mutex is unlocked.",
            c.label,
            per_call(c),
            percent(share(c.blocked_again, c.waits)),
        )
    })
}

fn futexes(report: &Report, width: u16) -> Option<String> {
    let used = report.futexes.iter().filter(|f| f.purpose != OF_CONDITIONS);
    let used: Vec<_> = used.filter(|f| f.wait_ns.sum > Ns::default() || f.waiting_now > 0).collect();
    let rows = used.iter().take(WORDS).map(|f| {
        let counts = [f.counts.slept, f.counts.again, f.counts.timed_out, f.waiting_now].map(count);
        let durations = [f.wait_ns.sum, f.wait_ns.max].map(|ns| ns.to_string());
        let waker = f.wakers.first().map_or_else(|| UNKNOWN.to_owned(), |w| w.tid.to_string());
        [clip(&f.label, NAME)].into_iter().chain(counts).chain(durations).chain([waker]).collect()
    });
    let headers = ["Futex word", "Slept", "Again", "Timed out", "Waiting now", "Waited", "Longest", "Woken by"];
    let title = "Other futex words (purpose unknown: idle waiting and contention look alike)";
    (!used.is_empty()).then(|| section(title, table(&headers, &[0], rows.collect(), width), used.len()))
}

fn section(title: &str, table: String, rows: usize) -> String {
    let more = rows.saturating_sub(WORDS);
    let more = if more > 0 { format!("\nand {} more", count(more as u64)) } else { String::new() };
    format!("{title}\n{table}{more}")
}

/// What observing took. Its share of the target's time may have been `told` already.
fn perturbation(p: &PerturbationEntry, told: bool) -> String {
    let prices = if p.measured { "" } else { ", by cautious prices" };
    let cost = match p.cost_share {
        Some(share) if !told => format!("Observing cost about {} of the target's CPU time{prices}: ", percent(share)),
        None if !told => format!("Observing cost the target about {}{prices}: ", p.cost_ns),
        _ => "Observing took ".to_owned(),
    };
    let stepped =
        if p.stepped_hits > 0 { format!(" ({} single-stepped)", count(p.stepped_hits)) } else { String::new() };
    let hits = counted(p.hits, "probe hit");
    let (calls, records) = (counted(p.futex_calls, "futex call"), counted(p.records, "record"));
    let stacks = match p.stack_bytes {
        0 => String::new(),
        bytes => format!(", and {} for copies of stacks", count(bytes)),
    };
    let bytes = count(p.record_bytes);
    let children = match p.children {
        0 => String::new(),
        n => {
            let started = if n == 1 { "1 process".to_owned() } else { format!("{} processes", count(n)) };
            let ns = p.children_cost_at_most_ns;
            format!(" It started {started}, which paid at most {ns} more until the probes were out of their memory.")
        }
    };
    format!("{cost}{hits}{stepped}, {calls} and {records}, for which {bytes} bytes were written{stacks}.{children}")
}

/// Who was not observed, and when.
pub(super) fn unobserved(gap: &UnobservedEntry) -> String {
    let name = gap.comm.as_ref().map(|comm| format!(" ({comm})")).unwrap_or_default();
    let until = gap.to_ns.map_or_else(|| "on".to_owned(), |to| format!("to {to}"));
    format!("pid {}{name} from {} {until}", gap.pid, gap.from_ns)
}

/// How far to trust the report; remarks follow, each on its line.
pub(super) fn quality(report: &Report) -> String {
    let q = &report.quality;
    let named = |counts: &BTreeMap<String, u64>| {
        counts.iter().map(|(name, &n)| format!("{name} {}", count(n))).collect::<Vec<_>>().join(", ")
    };
    let mut parts = vec![counted(q.events, "event")];
    if !q.lost.is_empty() {
        parts.push(format!("lost: {}", named(&q.lost)));
    } else if q.unobserved.is_empty() {
        parts.push("nothing lost".to_owned());
    }
    parts.extend(q.unobserved.iter().map(|gap| format!("not observed: {}", unobserved(gap))));
    if q.unfocused > 0 {
        parts.push(format!("{} outside the focus counted only", count(q.unfocused)));
    }
    if q.thinned > 0 {
        parts.push(format!("{} thinned", counted(q.thinned, "wait")));
    }
    if q.kernel_in_interrupts > 0 {
        parts.push(format!("{} for kernel locks in interrupts left out", counted(q.kernel_in_interrupts, "wait")));
    }
    if q.late > 0 {
        parts.push(format!("{} late", count(q.late)));
    }
    if !q.impossible.is_empty() {
        parts.push(format!("impossible: {}", named(&q.impossible)));
    }
    if !q.edges.is_empty() {
        parts.push(format!("cut off at the edges: {}", named(&q.edges)));
    }
    if q.open_at_end > 0 {
        parts.push(format!("{} open at the end", counted(q.open_at_end, "wait")));
    }
    match q.failed_probes.len() as u64 {
        0 if q.unobserved.is_empty() => parts.push("every probe in place".to_owned()),
        0 => {}
        n => parts.push(format!("{} failed", counted(n, "probe"))),
    }
    parts.push(format!("observed {} of {}", percent(q.observed_share), q.duration_ns));
    let mut lines = vec![format!("Quality: {}.", parts.join("; "))];
    lines.extend(attribution::sentence(report));
    lines.extend(q.observed.as_ref().map(estimated::observed));
    lines.extend(q.perturbation.as_ref().map(|p| perturbation(p, q.observed.is_some())));
    lines.extend(q.failed_probes.iter().map(|p| {
        let file = p.file.as_ref().map(|file| format!(" in {file}")).unwrap_or_default();
        format!("  probe {}{file} failed: {}", p.probe, p.reason)
    }));
    lines.extend(q.notes.iter().cloned());
    lines.join("\n")
}
