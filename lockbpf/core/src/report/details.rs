//! One lock in the text report: who waited for it, and who held it meanwhile.

use super::phrase::{self, Threads, label, remark};
use super::schema::{HolderEntry, LockEntry, Ns, PairEntry, Place, Report, StackFrame};
use super::table::{UNKNOWN, table};
use super::text::{clip, count, counted, percent, wrap};
use super::verdict;
use std::cmp::Reverse;

/// Waiting sites shown, and holders per waiting site.
const SITES: usize = 3;
/// Pairs of threads shown.
const PAIRS: usize = 3;
/// Callers shown of a stack.
const CALLERS: usize = 3;
/// Characters of a caller's name.
const CALLER: usize = 28;

/// Renders the details of a lock, without a newline at the end.
pub(super) fn render(lock: &LockEntry, report: &Report, width: u16) -> String {
    let mut lines = vec![lock.label.clone()];
    if lock.recorded_wait_ns > Ns::default() {
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
    if let Some(named) = lock.word_names.filter(|_| lock.waiting_now.count == 0) {
        remarks.push(format!("Its word names {named} as its holder, which is {}.", verdict::stranger(lock)));
    }
    if lock.timeouts > 0 {
        let waited = match lock.timed_out_wait_ns {
            ns if ns == 0 => String::new(),
            ns => format!(" after {ns} of waiting in all"),
        };
        remarks.push(format!("{} timed out{waited}.", counted(lock.timeouts, "attempt")));
    }
    let earlier = lock.attempt_unseen_wait_ns;
    if earlier > Ns::default() {
        remarks.push(format!(
            "{earlier} of that is the sleep of calls that began before they could be seen: means, percentiles and counts are without them."
        ));
    }
    let covered = verdict::coverage(lock);
    if covered < 0.99 {
        let why = match report.quality.min_wait_ns {
            min if lock.kernel && min == 0 => "the rest was part of waits for other locks".to_owned(),
            _ if lock.estimates.is_some() => "the rest was outside the windows".to_owned(),
            min if min == 0 => "the records of the rest are missing".to_owned(),
            min => format!("waits below {min} were not recorded, or records were lost"),
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
    waited: Ns,
    holders: Vec<(String, Ns)>,
    nobody: Ns,
}

/// A block of rows per waiting site, and one over all of them if there are several.
fn blame(lock: &LockEntry, width: u16) -> String {
    let all = lock.recorded_wait_ns;
    let blocks = blocks(lock);
    let total = Block {
        site: vec![format!("all {}", counted(blocks.len() as u64, "site"))],
        waits: lock.waiters.iter().map(|w| w.count).sum(),
        waited: all,
        holders: lock.holders.iter().map(|h| (holder(h), h.wait_ns)).collect(),
        nobody: lock.unattributed_ns,
    };
    let mut rows = Vec::new();
    if blocks.len() == 1 {
        let site = blocks.into_iter().flat_map(|block| block.site).collect();
        Block { site, ..total }.rows(all, &mut rows);
    } else {
        blocks.into_iter().take(SITES).for_each(|block| block.rows(all, &mut rows));
        total.rows(all, &mut rows);
    }
    table(&["Waited at", "Waits", "Waited", "Share", "Held meanwhile by", "Share"], &[0, 4], rows, width)
}

/// The sites that look different, those first that waited longest. Processes that share a lock have the same ones.
fn blocks(lock: &LockEntry) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for w in &lock.waiters {
        let callers = callers(&w.place, &w.stack).map(|c| format!("  {c}"));
        let site: Vec<String> = std::iter::once(label(&w.place)).chain(callers).collect();
        let holders = w.blamed.iter().map(|b| (label(&b.place), b.wait_ns)).collect();
        let block = Block { site, waits: w.count, waited: w.wait_ns, holders, nobody: w.unattributed_ns };
        match blocks.iter_mut().find(|known| known.site == block.site) {
            Some(known) => known.add(block),
            None => blocks.push(block),
        }
    }
    blocks.sort_by_key(|block| Reverse(block.waited));
    blocks
}

/// A holder, the other lock that it held if it is one, and what it was doing if that is worth a word.
fn holder(h: &HolderEntry) -> String {
    let held = h.lock_name.as_ref().map(|name| format!(" holding `{name}`")).unwrap_or_default();
    let handoff = h.handoff_ns.share_of(h.wait_ns);
    let doing = match remark(h.causes.as_ref(), &h.off_stacks) {
        _ if handoff >= 0.1 => format!(", {} of it in hand-off", percent(handoff)),
        Some(remark) => format!(", {remark}"),
        None => String::new(),
    };
    let callers = h.callers.as_ref().map(|c| format!("\n  {}", phrase::callers(c))).unwrap_or_default();
    format!("{}{held}{doing}{callers}", label(&h.place))
}

impl Block {
    /// Adds what is known of the same site in another process.
    fn add(&mut self, other: Self) {
        self.waits += other.waits;
        self.waited += other.waited;
        self.nobody += other.nobody;
        for (holder, wait) in other.holders {
            match self.holders.iter_mut().find(|(known, _)| *known == holder) {
                Some((_, sum)) => *sum += wait,
                None => self.holders.push((holder, wait)),
            }
        }
        self.holders.sort_by_key(|&(_, wait)| Reverse(wait));
    }

    /// One row per holder with its share of this block's wait; the first carries the site's figures.
    fn rows(mut self, all: Ns, rows: &mut Vec<Vec<String>>) {
        let rest = self.holders.split_off(self.holders.len().min(SITES));
        let others: Ns = rest.iter().map(|&(_, wait)| wait).sum();
        if others > Ns::default() {
            self.holders.push((counted(rest.len() as u64, "other"), others));
        }
        if self.nobody > Ns::default() {
            self.holders.push(("nobody known".to_owned(), self.nobody));
        }
        for row in 0..self.site.len().max(self.holders.len()).max(1) {
            let mut cells = vec![self.site.get(row).cloned().unwrap_or_default()];
            if row == 0 {
                let figures = [count(self.waits), self.waited.to_string(), percent(self.waited.share_of(all))];
                cells.extend(figures);
            } else {
                cells.resize(4, String::new());
            }
            cells.extend(match self.holders.get(row) {
                Some((holder, wait)) => [holder.clone(), percent(wait.share_of(self.waited))],
                None if row == 0 => [UNKNOWN.to_owned(), String::new()],
                None => [String::new(), String::new()],
            });
            rows.push(cells);
        }
    }
}

/// The threads that waited longest for one another.
fn pairs(lock: &LockEntry, report: &Report) -> Option<String> {
    let threads = Threads::of(report);
    let pair =
        |p: &PairEntry| format!("{} waited {} for {}", threads.short(&p.waiter), p.wait_ns, threads.short(&p.holder));
    let pairs: Vec<_> = lock.thread_pairs.iter().take(PAIRS).map(pair).collect();
    (!pairs.is_empty()).then(|| format!("Threads: {}.", pairs.join("; ")))
}

/// The callers of a place, nearest first; `None` if they are not known.
fn callers(place: &Place, stack: &[StackFrame]) -> Option<String> {
    let site = place.site.as_deref().and_then(|s| s.rsplit(':').next()).unwrap_or_default();
    // Beyond the place itself, which is not at its site if that is a runtime's own.
    let site = if stack.iter().any(|f| f.address == site) { site } else { stack.first().map_or("", |f| &f.address) };
    let inside = stack.iter().rposition(|f| f.address == site).map_or(0, |last| last + 1);
    let names = stack.iter().skip(inside).filter(|f| !f.inlined).filter_map(|f| f.function.as_deref());
    let chain: Vec<_> = names.take(CALLERS).map(|name| format!("← {}", clip(name, CALLER))).collect();
    (!chain.is_empty()).then(|| chain.join(" "))
}
