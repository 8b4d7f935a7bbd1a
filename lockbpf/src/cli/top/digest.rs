//! From snapshots to frames: what grew in the last second and the last ten, which locks deserve a closer look, and what there is to warn of.

use super::frame::{Detail, Frame, HolderNow, LinkNow, Part, Row};
use super::now::{LockNow, Now};
use super::warnings;
use crate::growth::{History, Span};
use crate::report::Report;
use crate::report::histograms::Histograms;
use crate::report::schema::{LockEntry, Ns, QualityEntry, SiteEntry, ThreadEntry};
use crate::report::text::percent;
use crate::units::{Nanos, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Snapshots of which sums are kept: for a minute at one a second.
const KEPT: usize = 61;
/// Points of a spark line.
const POINTS: usize = 60;
/// Lines of a view.
const MAX_ROWS: usize = 100;
/// Locks that are shown closely, beside those that are waited for now.
const MAX_DETAILS: usize = 16;
/// Links of a chain.
const MAX_CHAIN: usize = 8;
/// Parts of a lock's waiting that are named.
const MAX_PARTS: usize = 5;
/// A part of a lock's waiting below which a chain is not worth a line.
const NOTABLE: f64 = 0.01;
const SECOND: Nanos = Nanos(1_000_000_000);
const TEN_SECONDS: Nanos = Nanos(10_000_000_000);

/// A snapshot, and what was seen at its moment.
pub(super) struct Snapshot {
    /// When it was taken.
    pub at: Time,
    /// The report so far, with all locks.
    pub report: Report,
    /// One for each lock of the report.
    pub histograms: Vec<Histograms>,
    /// Who holds and waits.
    pub now: Now,
    /// CPU time that lockbpf itself has used since the snapshot before, and in what time.
    pub own_cpu: (Duration, Duration),
}

/// Makes frames.
pub(super) struct Digest {
    start: Time,
    locks: History<String>,
    sites: History<String>,
    threads: History<String>,
    processes: History<String>,
}

impl Digest {
    /// The digest of an observation that began at this time.
    pub(super) fn new(start: Time) -> Self {
        let history = || History::new(start, KEPT);
        Self { start, locks: history(), sites: history(), threads: history(), processes: history() }
    }

    /// Makes a frame of the next snapshot.
    pub(super) fn take(&mut self, snapshot: Snapshot) -> Frame {
        let Snapshot { at, report, histograms, now, own_cpu } = snapshot;
        let processes = processes(&report);
        self.locks.push(at, report.locks.iter().map(|lock| (lock.lock.clone(), lock.harm_ns.whole())));
        self.sites.push(at, report.sites.iter().map(|site| (site_id(site), site.apwt_ns.whole())));
        self.threads.push(at, report.threads.iter().map(|thread| (thread_id(thread), thread.wait_ns.whole())));
        self.processes.push(at, processes.iter().map(|process| (process.id.clone(), process.wait_ns)));
        let spans = [self.locks.span(SECOND), self.locks.span(TEN_SECONDS)];
        let time = at.since(self.start);
        let whole = |row: Row, history: &History<String>| with_growth(row, history, spans, time);
        let locks = top(report.locks.iter().map(|lock| whole(lock_row(lock), &self.locks)));
        let culprits = top(report.sites.iter().map(|site| whole(site_row(site, &report), &self.sites)));
        let waits = waits_for(&now);
        let threads = top(report.threads.iter().map(|thread| whole(thread_row(thread, &waits), &self.threads)));
        let processes = top(processes.into_iter().map(|process| whole(process, &self.processes)));
        let wanted: Vec<&str> =
            locks.iter().take(MAX_DETAILS).map(|row| row.id.as_str()).chain(now.keys().map(String::as_str)).collect();
        let details = report
            .locks
            .iter()
            .zip(&histograms)
            .filter(|(lock, _)| wanted.contains(&lock.lock.as_str()))
            .map(|(lock, histograms)| (lock.lock.clone(), detail(lock, histograms, &now, &report)))
            .collect();
        Frame {
            at_ns: time.0,
            spans_ns: spans.map(|span| span.length.0),
            target: report.quality.target.clone(),
            warnings: warnings::of(&report, &locks),
            coverage: coverage(&report.quality),
            cost: cost(&report.quality, own_cpu),
            verdict: report.verdict,
            locks,
            culprits,
            threads,
            processes,
            details,
        }
    }
}

/// How many threads waited on average.
fn average(wait_ns: u64, time: Nanos) -> f64 {
    if time.0 == 0 { 0.0 } else { wait_ns as f64 / time.0 as f64 }
}

fn with_growth(row: Row, history: &History<String>, spans: [Span; 2], time: Nanos) -> Row {
    let grew = spans.map(|span| average(history.grew(&row.id, span), span.length));
    let spark = history.steps(&row.id, POINTS).into_iter().map(|(grew, length)| average(grew, length)).collect();
    Row { waiting: [grew[0], grew[1], average(row.wait_ns, time)], spark, ..row }
}

/// The lines that matter in any of the spans, most first.
fn top(rows: impl Iterator<Item = Row>) -> Vec<Row> {
    let most = |row: &Row| row.waiting.iter().copied().fold(0.0, f64::max);
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_by(|a, b| most(b).total_cmp(&most(a)).then_with(|| a.name.cmp(&b.name)));
    rows.truncate(MAX_ROWS);
    rows
}

fn lock_row(lock: &LockEntry) -> Row {
    Row {
        id: lock.lock.clone(),
        name: lock.label.clone(),
        about: if lock.inferred { format!("{}, inferred", lock.kind) } else { lock.kind.clone() },
        pid: lock.pid,
        lock: Some(lock.lock.clone()),
        wait_ns: lock.harm_ns.whole(),
        estimated: lock.wait_estimate.is_some(),
        waiting_now: Some(lock.waiting_now.count),
        ..Row::default()
    }
}

fn site_id(site: &SiteEntry) -> String {
    format!("{} {}", site.site, site.lock)
}

fn site_row(site: &SiteEntry, report: &Report) -> Row {
    let lock = report.locks.iter().find(|lock| lock.lock == site.lock);
    let doing = site.off_in.as_ref().map(|function| format!(", mostly in {function}")).unwrap_or_default();
    let caller = site.callers.as_ref().and_then(|callers| callers.dominating());
    let caller = caller.map(|caller| format!(", mostly for {}", caller.name())).unwrap_or_default();
    Row {
        id: site_id(site),
        name: site.symbol.clone(),
        about: format!("{}{caller}{doing}", lock.map_or(site.lock.as_str(), |lock| lock.label.as_str())),
        pid: lock.and_then(|lock| lock.pid),
        lock: Some(site.lock.clone()),
        wait_ns: site.apwt_ns.whole(),
        ..Row::default()
    }
}

fn thread_id(thread: &ThreadEntry) -> String {
    format!("{}:{}", thread.pid.unwrap_or_default(), thread.tid)
}

fn thread_row(thread: &ThreadEntry, waits: &BTreeMap<&str, &str>) -> Row {
    let tid = thread.tid.to_string();
    let lock = waits.get(tid.as_str()).map(|&lock| lock.to_owned());
    Row {
        id: thread_id(thread),
        name: format!("{} ({tid})", thread.comm),
        about: thread.pid.map(|pid| format!("pid {pid}")).unwrap_or_default(),
        pid: thread.pid,
        waiting_now: Some(u64::from(lock.is_some())),
        lock,
        wait_ns: thread.wait_ns.whole(),
        estimated: thread.estimated,
        ..Row::default()
    }
}

/// The lock that each thread waits for now.
fn waits_for(now: &Now) -> BTreeMap<&str, &str> {
    now.iter().flat_map(|(lock, now)| now.waiters.iter().map(|w| (w.tid.as_str(), lock.as_str()))).collect()
}

/// Waiting by process. Of locks in `others` the process's other line has the waiting.
fn processes(report: &Report) -> Vec<Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for lock in report.locks.iter().filter(|lock| !lock.in_others) {
        let id = lock.pid.map_or_else(|| "kernel".to_owned(), |pid| pid.to_string());
        let row = rows.entry(id.clone()).or_insert_with(|| Row {
            name: match (&lock.comm, lock.pid) {
                (Some(comm), Some(pid)) => format!("{comm} ({pid})"),
                (None, Some(pid)) => format!("process {pid}"),
                (_, None) => "the kernel's locks".to_owned(),
            },
            id,
            pid: lock.pid,
            waiting_now: Some(0),
            ..Row::default()
        });
        row.wait_ns = row.wait_ns.saturating_add(lock.harm_ns.whole());
        row.estimated |= lock.wait_estimate.is_some();
        row.waiting_now = row.waiting_now.map(|n| n + lock.waiting_now.count);
        if row.about.is_empty() && lock.harm_ns > Ns::default() {
            row.about = format!("mostly {}", lock.name);
            row.lock = Some(lock.lock.clone());
        }
    }
    rows.into_values().collect()
}

fn detail(lock: &LockEntry, histograms: &Histograms, now: &Now, report: &Report) -> Detail {
    let seen = now.get(&lock.lock).cloned().unwrap_or_else(|| LockNow {
        holder: HolderNow::Unknown("nobody waits for it, so nobody has looked: choose it, and wait a second"),
        ..LockNow::default()
    });
    let part = |what: &str, share, inferred| Part { what: what.to_owned(), share, inferred };
    let matters = |share: f64| share >= NOTABLE;
    let chains = lock.chains.iter().filter(|chain| chain.links.len() > 1 && matters(chain.share));
    let chains = chains.take(MAX_PARTS).map(|chain| {
        let links: Vec<_> = chain.links.iter().map(|link| link.name.as_str()).collect();
        part(&links.join(" → "), chain.share, false)
    });
    let holders = lock.holders.iter().take(MAX_PARTS);
    let waiters = lock.waiters.iter().take(MAX_PARTS);
    Detail {
        name: lock.label.clone(),
        kind: if lock.inferred { format!("{}, inferred", lock.kind) } else { lock.kind.clone() },
        process: match (&lock.comm, lock.pid) {
            (Some(comm), Some(pid)) => format!("{comm} (pid {pid})"),
            (_, Some(pid)) => format!("pid {pid}"),
            _ => String::new(),
        },
        holder: seen.holder,
        waiters: seen.waiters,
        more_waiters: seen.more_waiters,
        chain: chain(&lock.lock, now, report),
        chains: chains.collect(),
        acquisitions: lock.acquisitions.filter(|_| lock.estimates.is_none()),
        contended: lock.contended,
        waits: histograms.wait.clone(),
        blamed: holders.map(|holder| part(&holder.place.symbol, holder.share, holder.inferred)).collect(),
        waited_at: waiters.map(|waiter| part(&waiter.place.symbol, waiter.share, false)).collect(),
    }
}

/// From the lock that the holder of this one waits for, on to the last one. One that comes twice ends it: it is a circle.
fn chain(lock: &str, now: &Now, report: &Report) -> Vec<LinkNow> {
    let mut passed = vec![lock];
    let mut links = Vec::new();
    while let Some(HolderNow::Thread(holder)) = passed.last().and_then(|lock| now.get(*lock)).map(|now| &now.holder)
        && let Some(next) = &holder.waits_for
        && links.len() < MAX_CHAIN
    {
        let entry = report.locks.iter().find(|entry| entry.lock == *next);
        links.push(LinkNow {
            lock: entry.map_or(next.as_str(), |entry| entry.label.as_str()).to_owned(),
            holder: now.get(next).map_or_else(HolderNow::default, |now| now.holder.clone()),
        });
        if passed.contains(&next.as_str()) {
            break;
        }
        passed.push(next);
    }
    links
}

/// How much of the time was observed.
fn coverage(quality: &QualityEntry) -> String {
    if quality.futex_only {
        return "waits that sleep only (--futex-only)".to_owned();
    }
    match &quality.observed {
        Some(observed) if observed.overall.estimated => format!(
            "every wait that sleeps; every lock operation for {} of the CPU time, in {} windows",
            percent(observed.overall.cpu_share),
            observed.overall.windows
        ),
        // A process is told of from the end of its first cycle on.
        Some(observed) if observed.processes.is_empty() => {
            "how much is told when the first windows are over".to_owned()
        }
        _ => "every lock operation".to_owned(),
    }
}

/// What observing costs.
fn cost(quality: &QualityEntry, (own, time): (Duration, Duration)) -> String {
    let own = if time.is_zero() { 0.0 } else { own.as_secs_f64() / time.as_secs_f64() };
    let of_target = match &quality.observed {
        Some(observed) => {
            let bound = observed.budget.map(|budget| format!(" (budget {})", percent(budget))).unwrap_or_default();
            format!("{} of its CPU time{bound}", percent(observed.overall.cost_share))
        }
        None => "told at the end (no budget)".to_owned(),
    };
    format!("{of_target}; lockbpf itself: {} of a core", percent(own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::top::frame::HolderThread;
    use crate::report::schema::{ChainEntry, WaitingNow};

    fn lock(id: &str, pid: u32, harm_s: u64) -> LockEntry {
        LockEntry {
            lock: id.to_owned(),
            label: format!("{id}_lock"),
            name: format!("{id}_lock"),
            kind: "mutex".to_owned(),
            pid: Some(pid),
            comm: Some("demo".to_owned()),
            harm_ns: Ns::new(harm_s * SECOND.0),
            waiting_now: WaitingNow { count: 1, ..WaitingNow::default() },
            chains: vec![ChainEntry::default()],
            ..LockEntry::default()
        }
    }

    fn snapshot(second: u64, locks: Vec<LockEntry>, now: Now) -> Snapshot {
        let histograms = vec![Histograms::default(); locks.len()];
        let report = Report { locks, ..Report::default() };
        let at = Time((100 + second) * SECOND.0);
        Snapshot { at, report, histograms, now, own_cpu: (Duration::from_millis(15), Duration::from_secs(1)) }
    }

    #[test]
    fn what_matters_now_is_first_and_sums_agree() {
        let mut digest = Digest::new(Time(100 * SECOND.0));
        for second in 1..=12 {
            // The one waited at the beginning, the other begins late.
            let late = second.max(10) - 10;
            let locks = vec![lock("early", 7, second.min(8) * 2), lock("late", 7, late), lock("other", 8, 0)];
            let frame = digest.take(snapshot(second, locks, Now::new()));
            let [locks, processes] = [&frame.locks, &frame.processes];
            let of = |span: usize| locks.iter().map(|row| row.waiting[span]).sum::<f64>();
            for span in 0..3 {
                let by_process = processes.iter().map(|row| row.waiting[span]).sum::<f64>();
                assert!((of(span) - by_process).abs() < 1e-9, "{frame:?}");
            }
            if second == 12 {
                let waiting = |id: &str| locks.iter().find(|row| row.id == id).unwrap().waiting;
                assert_eq!(frame.spans_ns, [SECOND.0, 10 * SECOND.0]);
                assert_eq!((waiting("early"), waiting("late")), ([0.0, 1.2, 16.0 / 12.0], [1.0, 0.2, 2.0 / 12.0]));
                assert_eq!(processes[0].name, "demo (7)");
                assert!(frame.cost.contains("1.5 % of a core"), "{}", frame.cost);
            }
        }
    }

    #[test]
    fn a_chain_ends_where_nobody_is_known_or_it_closes() {
        let holds = |waits_for: Option<&str>| LockNow {
            holder: HolderNow::Thread(Box::new(HolderThread {
                waits_for: waits_for.map(str::to_owned),
                ..HolderThread::default()
            })),
            ..LockNow::default()
        };
        let report = Report { locks: vec![lock("b", 7, 0)], ..Report::default() };
        let now = Now::from([("a".to_owned(), holds(Some("b"))), ("b".to_owned(), holds(None))]);
        let links = chain("a", &now, &report);
        assert_eq!(links.iter().map(|link| link.lock.as_str()).collect::<Vec<_>>(), ["b_lock"]);
        assert!(chain("b", &now, &report).is_empty() && chain("nobody's", &now, &report).is_empty());
        let circle = Now::from([("a".to_owned(), holds(Some("b"))), ("b".to_owned(), holds(Some("a")))]);
        assert_eq!(chain("a", &circle, &report).len(), 2);
    }
}
