//! What spans several locks, as text: critical sections, chains of waiting, the critical path, threads, runs.

use super::columns::{Column, Filled, fill, fitted};
use super::phrase::{self, Threads};
use super::schema::{ChainEntry, CorrectedEntry, LockEntry, Ns, Report, SiteEntry};
use super::table::{MATTERS, NAME, UNKNOWN, table};
use super::text::{clip, count, counted, percent, wrap};
use super::{distrust, estimated};
use std::collections::BTreeMap;

/// Locks of the critical path that are named.
const PATH_LOCKS: usize = 3;
/// Characters of a critical section's symbol.
const SYMBOL: usize = 56;

/// Part of a figure from which on it is worth a column what it would be without the observer.
const NOTABLE: f64 = 0.02;

/// The text of a critical section in a column.
type Text<'a> = Box<dyn Fn(&SiteEntry) -> String + 'a>;

/// The critical sections that others waited for, if there are any.
pub(super) fn sites(report: &Report, most: usize, width: u16) -> Option<String> {
    let labels: BTreeMap<&str, &str> = report.locks.iter().map(|l| (l.lock.as_str(), l.label.as_str())).collect();
    let lock = |s: &SiteEntry| {
        let name = clip(labels.get(s.lock.as_str()).copied().unwrap_or(&s.lock), NAME);
        if s.locks > 1 { format!("{name} and {}", counted(s.locks - 1, "other")) } else { name }
    };
    let deviation = |sd: Option<Ns>| sd.map(|sd| format!(" ± {sd}")).unwrap_or_default();
    let apwt = |s: &SiteEntry| format!("{}{}", s.apwt_ns, deviation(s.spread.map(|d| d.apwt_sd_ns)));
    let cpwt = |s: &SiteEntry| {
        let sd = deviation(s.spread.and_then(|d| d.cpwt_sd_ns));
        s.cpwt_ns.map_or_else(|| UNKNOWN.to_owned(), |cpwt| format!("{cpwt}{sd}"))
    };
    let doubt = |s: &SiteEntry| if s.spread.is_some_and(|d| d.inconclusive) { "inconclusive" } else { "" }.to_owned();
    let corrected = |s: &SiteEntry, seen: Ns, left: fn(&CorrectedEntry) -> Ns| {
        s.corrected
            .as_ref()
            .map(left)
            .filter(|left| (seen - *left).share_of(seen) >= NOTABLE)
            .map(|ns| ns.to_string())
            .unwrap_or_default()
    };
    let columns: [Column<Text<'_>>; 11] = [
        ("Critical section", 0, Box::new(section)),
        ("Lock", 100, Box::new(lock)),
        (
            "Sections",
            100,
            Box::new(|s| match &s.estimates {
                Some(f) => estimated::count(&f.acquisitions),
                // Nobody counted its sections: 0 would be wrong.
                None if s.instances == 0 => UNKNOWN.to_owned(),
                None => count(s.instances),
            }),
        ),
        ("Waited", 0, Box::new(|s| if s.released { UNKNOWN.to_owned() } else { s.wait_ns.to_string() })),
        ("Without\nlockbpf", 80, Box::new(move |s| corrected(s, s.wait_ns, |c| c.wait_ns))),
        (
            "Held",
            110,
            Box::new(|s| match (&s.hold_estimate, s.hold_ns) {
                (Some(sum), Some(_)) => estimated::held(sum),
                (_, hold) => hold.map_or_else(|| UNKNOWN.to_owned(), |h| h.to_string()),
            }),
        ),
        ("Without\nlockbpf", 110, Box::new(move |s| corrected(s, s.hold_ns.unwrap_or_default(), |c| c.hold_ns))),
        ("APWT", 0, Box::new(apwt)),
        ("CPWT", 0, Box::new(cpwt)),
        ("Meanwhile", 108, Box::new(meanwhile)),
        ("Runs", 0, Box::new(doubt)),
    ];
    let harmful: Vec<_> = report.sites.iter().filter(|s| s.apwt_ns > Ns::default()).collect();
    let shown = &harmful[..most.min(harmful.len())];
    let mut columns = fill(&columns, shown, width);
    columns.retain(|c: &Filled| c.header != "CPWT" || c.cells.iter().any(|text| text != UNKNOWN));
    let rest = harmful.len() - shown.len();
    let more = if rest > 0 { format!("\nand {} more", count(rest as u64)) } else { String::new() };
    (!shown.is_empty() && !distrust::is_unranked(report)).then(|| {
        let cpwt = if columns.iter().any(|c| c.header == "CPWT") { "; CPWT: on the critical paths" } else { "" };
        let title = format!("Critical sections by the waiting that they caused (APWT{cpwt})");
        format!(
            "{}\n{}{more}",
            wrap(&title, width.into()),
            fitted(columns, &["Critical section", "Lock", "Meanwhile", "Runs"], width)
        )
    })
}

/// A section, and on a second line for whom it locks, if it has several callers.
fn section(site: &SiteEntry) -> String {
    let callers = site.callers.as_ref().map(|c| format!("\n  {}", phrase::callers(c))).unwrap_or_default();
    let released = if site.released { ", given back" } else { "" };
    format!("{}{released}{callers}", clip(&site.symbol, SYMBOL))
}

/// What the threads of a section were mostly doing while others waited for them.
fn meanwhile(site: &SiteEntry) -> String {
    let Some((share, doing)) = phrase::causes(site.causes.as_ref(), &[]).into_iter().next() else {
        return String::new();
    };
    let doing = match (doing.as_str(), &site.off_in) {
        (phrase::PREEMPTED, _) => "preempted".to_owned(),
        ("blocked in I/O", Some(function)) => format!("blocked in {}", clip(function, SYMBOL)),
        ("asleep", Some(function)) => format!("asleep in {}", clip(function, SYMBOL)),
        _ => doing,
    };
    format!("{} {doing}", percent(share))
}

/// Through which locks waiting comes about, the most of it first.
pub(super) fn chains(report: &Report, most: usize, width: u16) -> Option<String> {
    let mut chains: Vec<(&LockEntry, &ChainEntry)> =
        report.locks.iter().flat_map(|l| l.chains.iter().map(move |c| (l, c))).collect();
    chains.retain(|(_, chain)| chain.wait_ns.share_of(report.totals.harm_ns) >= MATTERS);
    chains.sort_by_key(|(_, chain)| std::cmp::Reverse(chain.wait_ns));
    let threads = Threads::of(report);
    let mut lines = vec!["Chains: locks waited for by the holder of another one".to_owned()];
    for (lock, chain) in chains.iter().take(most) {
        let waiter = lock.waiters.first().map(|w| w.place.symbol.as_str());
        let how = phrase::chain(chain, waiter, &threads);
        let share = percent(chain.share);
        lines.push(format!("  {} ({share} of the waiting for `{}`): {how}", chain.wait_ns, lock.label));
    }
    (lines.len() > 1).then(|| lines.iter().map(|line| wrap(line, width.into())).collect::<Vec<_>>().join("\n"))
}

/// The critical path, if some of it is waiting.
pub(super) fn critical_path(report: &Report, width: u16) -> Option<String> {
    let path = report.critical_path.as_ref().filter(|p| p.waiting_ns > Ns::default())?;
    let locks: Vec<_> = path
        .locks
        .iter()
        .take(PATH_LOCKS)
        .map(|l| format!("`{}` {} ({})", l.name, percent(l.share), l.wait_ns))
        .collect();
    let more = match path.locks.len().saturating_sub(PATH_LOCKS) as u64 {
        0 => String::new(),
        n => format!(", {}", counted(n, "other lock")),
    };
    let truncated = if path.truncated { ", as far back as waits are remembered" } else { "" };
    let threads = Threads::of(report);
    let end = match &path.last_thread {
        Some(tid) if path.ended => format!(", back from the end of the program by {}", threads.long(tid)),
        // Where there is one thread's end only, that is it.
        Some(tid) if path.ends > 1 => format!(", back from the last event ({})", threads.long(tid)),
        _ => String::new(),
    };
    let agree = match (path.ended, path.ends) {
        (true, _) | (_, 0 | 1) => String::new(),
        (_, ends) if ends == path.agreeing => {
            format!(" So it is back from any of {} threads' last events.", count(ends))
        }
        (_, ends) => format!(
            " The end of the program was not seen: back from {} of {} threads' last events it is the same lock that is waited \
             for longest.",
            count(path.agreeing),
            count(ends),
        ),
    };
    let text = format!(
        "Critical path: {}{end}{truncated}, {} from thread to thread; {} of it spent waiting: {}{more}.{agree}",
        path.length_ns,
        counted(path.hops, "hop"),
        percent(path.waiting_share),
        locks.join(", "),
    );
    Some(wrap(&text, width.into()))
}

/// The threads that waited longest.
pub(super) fn threads(report: &Report, most: usize, width: u16) -> Option<String> {
    let waited: Vec<_> = report.threads.iter().filter(|t| t.wait_ns > Ns::default()).collect();
    let time = report.quality.duration_ns;
    let in_kernel = waited.iter().any(|t| t.kernel_wait_ns > Ns::default());
    let rows = waited.iter().take(most).map(|t| {
        let about = if t.estimated { "~" } else { "" };
        let mut row = vec![
            t.tid.to_string(),
            clip(&t.comm, NAME),
            format!("{about}{}", t.wait_ns),
            format!("{about}{}", percent(t.wait_ns.share_of(time))),
            format!("{about}{}", t.held_union_ns),
            if t.estimated { estimated::about(t.acquisitions) } else { count(t.acquisitions) },
        ];
        if in_kernel {
            row.insert(4, t.kernel_wait_ns.to_string());
        }
        row
    });
    let mut headers = vec!["Thread", "Name", "Waited", "%", "Held a lock", "Acquired"];
    if in_kernel {
        headers.insert(4, "In kernel locks");
    }
    let more = match waited.len().saturating_sub(most) as u64 {
        0 => String::new(),
        n => format!("\nand {}", counted(n, "more thread")),
    };
    (!waited.is_empty()).then(|| format!("{}{more}", table(&headers, &[0, 1], rows.collect(), width)))
}

/// What the figures are means of, in a report on several runs.
pub(super) fn runs(report: &Report, width: u16) -> Option<String> {
    let runs = report.runs.as_ref()?;
    let inconclusive = report.sites.iter().filter(|s| s.spread.is_some_and(|d| d.inconclusive)).count() as u64;
    let doubt = match inconclusive {
        0 => String::new(),
        n => {
            let bound = percent(runs.bound);
            format!(" {} deviates by more than {bound} of its mean: inconclusive.", counted(n, "critical section"))
        }
    };
    let text = format!("Means over {} ± standard deviation.{doubt}", counted(runs.count, "run"));
    Some(wrap(&text, width.into()))
}
