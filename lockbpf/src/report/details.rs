//! One lock in the text report: who waited for it, and who held it meanwhile.

use super::schema::{LockEntry, PairEntry, Place, Report, StackFrame};
use super::table::{UNKNOWN, table};
use super::text::{clip, count, counted, percent, share, wrap};
use super::verdict;
use crate::units::Nanos;
use std::collections::BTreeMap;

/// Waiting sites shown, and holders per waiting site.
const SITES: usize = 3;
/// Pairs of threads shown.
const PAIRS: usize = 3;
/// Callers shown of a stack.
const CALLERS: usize = 3;
/// Characters of a function's name, and of a caller's.
const FUNCTION: usize = 56;
const CALLER: usize = 28;

/// Renders the details of a lock, without a newline at the end.
pub(super) fn render(lock: &LockEntry, report: &Report, width: u16) -> String {
    let mut lines = vec![lock.label.clone()];
    if lock.recorded_wait_ns > 0 {
        lines[0] += ": who waited, and who held it meanwhile";
        lines.push(blame(lock, width));
    }
    let mut remarks: Vec<String> = pairs(lock, report).into_iter().collect();
    if let Some(now) = verdict::waiting_now(lock) {
        remarks.push(now);
        for at in lock.waiting_now.places.iter().take(SITES) {
            let callers = callers(&at.place, &at.stack).map(|c| format!(" {c}")).unwrap_or_default();
            remarks.push(format!("  {} in {}{callers}", count(at.count), label(&at.place)));
        }
    }
    if lock.timeouts > 0 {
        let waited = match lock.timed_out_wait_ns {
            0 => String::new(),
            ns => format!(" after {} of waiting in all", Nanos(ns)),
        };
        remarks.push(format!("{} timed out{waited}.", counted(lock.timeouts, "attempt")));
    }
    let covered = verdict::coverage(lock);
    if covered < 0.99 {
        let why = match report.quality.min_wait_ns {
            0 => "the records of the rest are missing".to_owned(),
            min => format!("waits below {} were not recorded, or records were lost", Nanos(min)),
        };
        remarks.push(format!("Who waited and who held it is known for {} of the waiting: {why}.", percent(covered)));
    }
    lines.extend(remarks.iter().map(|remark| wrap(remark, width.into())));
    lines.join("\n")
}

/// A waiting site (or all of them) and who is blamed for its waiting.
struct Block {
    /// The site, and its callers on a second line.
    site: Vec<String>,
    waits: u64,
    waited: u64,
    holders: Vec<(String, u64)>,
    nobody: u64,
}

/// A block of rows per waiting site, and one over all of them if there are several.
fn blame(lock: &LockEntry, width: u16) -> String {
    let all = lock.recorded_wait_ns;
    let total = Block {
        site: vec![format!("all {}", counted(lock.waiters.len() as u64, "site"))],
        waits: lock.waiters.iter().map(|w| w.count).sum(),
        waited: all,
        holders: lock
            .holders
            .iter()
            .map(|h| match share(h.handoff_ns, h.wait_ns) {
                handoff if handoff < 0.1 => (label(&h.place), h.wait_ns),
                handoff => (format!("{}, {} of it in hand-off", label(&h.place), percent(handoff)), h.wait_ns),
            })
            .collect(),
        nobody: lock.unattributed_ns,
    };
    let site = |w: &super::schema::WaiterEntry| {
        std::iter::once(label(&w.place)).chain(callers(&w.place, &w.stack).map(|c| format!("  {c}"))).collect()
    };
    let mut rows = Vec::new();
    match lock.waiters.as_slice() {
        [only] => Block { site: site(only), ..total }.rows(all, &mut rows),
        several => {
            for w in several.iter().take(SITES) {
                let holders = w.blamed.iter().map(|b| (label(&b.place), b.wait_ns)).collect();
                Block { site: site(w), waits: w.count, waited: w.wait_ns, holders, nobody: w.unattributed_ns }
                    .rows(all, &mut rows);
            }
            total.rows(all, &mut rows);
        }
    }
    table(&["Waited at", "Waits", "Waited", "Share", "Held meanwhile by", "Share"], &[0, 4], rows, width)
}

impl Block {
    /// One row per holder with its share of this block's wait; the first carries the site's figures.
    fn rows(mut self, all: u64, rows: &mut Vec<Vec<String>>) {
        let rest = self.holders.split_off(self.holders.len().min(SITES));
        let others: u64 = rest.iter().map(|(_, wait)| wait).sum();
        if others > 0 {
            self.holders.push((counted(rest.len() as u64, "other"), others));
        }
        if self.nobody > 0 {
            self.holders.push(("nobody known".to_owned(), self.nobody));
        }
        for row in 0..self.site.len().max(self.holders.len()).max(1) {
            let mut cells = vec![self.site.get(row).cloned().unwrap_or_default()];
            if row == 0 {
                let figures = [count(self.waits), Nanos(self.waited).to_string(), percent(share(self.waited, all))];
                cells.extend(figures);
            } else {
                cells.resize(4, String::new());
            }
            cells.extend(match self.holders.get(row) {
                Some((holder, wait)) => [holder.clone(), percent(share(*wait, self.waited))],
                None if row == 0 => [UNKNOWN.to_owned(), String::new()],
                None => [String::new(), String::new()],
            });
            rows.push(cells);
        }
    }
}

/// The threads that waited longest for one another.
fn pairs(lock: &LockEntry, report: &Report) -> Option<String> {
    let comms: BTreeMap<u32, &str> = report.threads.iter().map(|t| (t.tid, t.comm.as_str())).collect();
    let thread = |tid| comms.get(&tid).map_or_else(|| format!("{tid}"), |comm| format!("{tid} ({comm})"));
    let pair = |p: &PairEntry| format!("{} waited {} for {}", thread(p.waiter), Nanos(p.wait_ns), thread(p.holder));
    let pairs: Vec<_> = lock.thread_pairs.iter().take(PAIRS).map(pair).collect();
    (!pairs.is_empty()).then(|| format!("Threads: {}.", pairs.join("; ")))
}

/// A place with a function name of bounded length.
pub(super) fn label(place: &Place) -> String {
    match (&place.function, &place.file, place.line) {
        (Some(function), Some(file), Some(line)) => {
            format!("{} ({}:{line})", clip(function, FUNCTION), file.rsplit('/').next().unwrap_or(file))
        }
        _ => clip(&place.symbol, FUNCTION),
    }
}

/// The callers of a place, nearest first; `None` if they are not known.
fn callers(place: &Place, stack: &[StackFrame]) -> Option<String> {
    let site = place.site.as_deref().and_then(|s| s.rsplit(':').next()).unwrap_or_default();
    let inside = stack.iter().rposition(|f| f.address == site).map_or(0, |last| last + 1);
    let names = stack.iter().skip(inside).filter(|f| !f.inlined).filter_map(|f| f.function.as_deref());
    let chain: Vec<_> = names.take(CALLERS).map(|name| format!("← {}", clip(name, CALLER))).collect();
    (!chain.is_empty()).then(|| chain.join(" "))
}
