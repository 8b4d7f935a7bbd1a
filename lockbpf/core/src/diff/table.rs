//! The comparison as text: what to notice first, then the program as a whole, locks and sites.

use super::change::Change;
use super::findings::{Quantity, frequency, from_to, per_second, time, times};
use super::gate::{Judged, Outcome};
use super::schema::{Diff, LockDiff, Presence, RecordingEntry, SiteDiff};
use crate::report::table::{UNKNOWN, table};
use crate::report::text::{clip, count, counted, percent, wrap};
use crate::units::Nanos;

/// Changes told in words for each lock that is shown.
const FINDINGS: usize = 2;
/// Characters of a name.
const NAME: usize = 48;

/// Renders the comparison with at most `top` locks and sites, with a newline at its end.
#[must_use]
pub fn render(diff: &Diff, top: usize, width: u16) -> String {
    let shown = FINDINGS * top;
    let mut findings: Vec<_> = diff.findings.iter().take(shown).map(|f| f.text.clone()).collect();
    if diff.findings.len() > shown {
        findings.push(format!("and {}", counted((diff.findings.len() - shown) as u64, "more change")));
    }
    if diff.findings.is_empty() {
        findings.push("Nothing changed that exceeds the thresholds.".to_owned());
    }
    let mut paragraphs = vec![
        wrap(&format!("A: {}\nB: {}", recording(&diff.a), recording(&diff.b)), width.into()),
        wrap(&findings.join("\n"), width.into()),
        overall(diff, width),
    ];
    if !diff.gate.is_empty() {
        paragraphs.insert(0, wrap(&gate(&diff.gate), width.into()));
    }
    if !diff.locks.is_empty() {
        paragraphs.push(locks(diff, top, width));
    }
    let sites: Vec<_> = diff.sites.iter().filter(|s| s.apwt_ns_per_s.greater() > 0.0).collect();
    if !sites.is_empty() {
        paragraphs.push(self::sites(&sites, top, width));
    }
    paragraphs.push(wrap(&rule(diff), width.into()));
    paragraphs.join("\n\n") + "\n"
}

fn gate(judged: &[Judged]) -> String {
    let line = |Judged { condition, outcome, reasons }: &Judged| {
        let outcome = match outcome {
            Outcome::Passed => "passed",
            Outcome::Inconclusive => "INCONCLUSIVE",
            Outcome::Failed => "FAILED",
        };
        format!("{outcome}: {condition}. {}", reasons.join(" ")).trim_end().to_owned()
    };
    judged.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn recording(entry: &RecordingEntry) -> String {
    let incomplete = if entry.incomplete { ", incomplete" } else { "" };
    let threads = counted(entry.threads, "thread");
    format!("{}, {}, {threads}{incomplete}", entry.target, Nanos(entry.observed_ns as u64))
}

fn overall(diff: &Diff, width: u16) -> String {
    let o = &diff.overall;
    let rows: [Quantity<'_>; 8] = [
        ("Lock time, of all threads' time", &o.lock_time_share, percent),
        ("Threads waiting on average", &o.waiting_threads, decimal),
        ("Held time, of all threads' time", &o.held_share, percent),
        ("Threads holding a lock on average", &o.holding_threads, decimal),
        ("Average hold", &o.mean_hold_ns, time),
        ("Static locks", &o.static_locks, |n| count(n as u64)),
        ("Static locks per thread", &o.static_locks_per_thread, decimal),
        ("Dynamic locks", &o.dynamic_locks_per_s, frequency),
    ];
    let show = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| UNKNOWN.to_owned(), show);
    let rows = rows
        .into_iter()
        .map(|(what, change, with)| vec![what.to_owned(), show(change.a, with), show(change.b, with), mark(change)])
        .collect();
    table(&["All locks", "A", "B", ""], &[0, 3], rows, width)
}

fn locks(diff: &Diff, top: usize, width: u16) -> String {
    let rows = diff.locks.iter().take(top).map(lock).collect();
    let headers = ["Lock", "Acquired", "Contended", "Wait per s", "Hold mean", "Held"];
    more(table(&headers, &[0], rows, width), diff.locks.len(), top)
}

fn lock(lock: &LockDiff) -> Vec<String> {
    vec![
        format!("{}{}{}", clip(&lock.name, NAME), locks_of(lock.instances), presence(lock.presence)),
        cell(&lock.acquisitions_per_s, frequency),
        cell(&lock.contended_share, percent),
        cell(&lock.wait_ns_per_s, time),
        cell(&lock.mean_hold_ns, time),
        cell(&lock.held_share, percent),
    ]
}

fn sites(sites: &[&SiteDiff], top: usize, width: u16) -> String {
    let row = |s: &&SiteDiff| {
        vec![
            format!("{}{}", clip(&s.symbol, NAME), presence(s.presence)),
            clip(&s.lock, NAME),
            cell(&s.instances_per_s, frequency),
            cell(&s.mean_hold_ns, time),
            cell(&s.apwt_ns_per_s, per_second),
        ]
    };
    let rows = sites.iter().take(top).map(row).collect();
    let headers = ["Site", "Lock", "Sections", "Hold mean", "Waiting caused (APWT)"];
    more(table(&headers, &[0, 1], rows, width), sites.len(), top)
}

fn more(table: String, rows: usize, top: usize) -> String {
    match rows.saturating_sub(top) {
        0 => table,
        more => format!("{table}\nand {} more", count(more as u64)),
    }
}

/// How many locks go by one name, if there are several.
fn locks_of([a, b]: [u64; 2]) -> String {
    match (a, b) {
        (0 | 1, 0 | 1) => String::new(),
        (0, n) | (n, 0) => format!(" ({n} locks)"),
        (a, b) if a == b => format!(" ({a} locks)"),
        (a, b) => format!(" ({a} -> {b} locks)"),
    }
}

fn presence(presence: Presence) -> &'static str {
    match presence {
        Presence::Both => "",
        Presence::New => " (new)",
        Presence::Vanished => " (gone)",
    }
}

/// Both values, and by how much they differ if that is called out.
fn cell(change: &Change, show: fn(f64) -> String) -> String {
    match (change.a, change.b) {
        (None, None) => UNKNOWN.to_owned(),
        _ => {
            let values = from_to(change, show).replace("unknown", UNKNOWN);
            format!("{values} {}", mark(change)).trim_end().to_owned()
        }
    }
}

/// `▲ 3.1x`, `▼ 2.0x`, or nothing if the change is not called out.
fn mark(change: &Change) -> String {
    match change.ratio {
        _ if !change.called_out => String::new(),
        Some(ratio) if ratio >= 1.0 => format!("▲ {}", times(ratio)),
        Some(ratio) if ratio > 0.0 => format!("▼ {}", times(1.0 / ratio)),
        Some(_) => "▼".to_owned(),
        None => "▲".to_owned(),
    }
}

fn decimal(value: f64) -> String {
    if value > 0.0 && value < 0.01 { "<0.01".to_owned() } else { format!("{value:.2}") }
}

fn rule(diff: &Diff) -> String {
    let t = &diff.thresholds;
    format!(
        "Called out: changes by a factor of {} or more that matter (waiting or holding of {} of the time) and exceed {} \
         standard deviations (at most: the root of longest x sum).",
        t.factor,
        percent(t.share),
        t.deviations
    )
}
