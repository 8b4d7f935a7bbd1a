//! Reports on several runs of the same program as one report.
//!
//! Every figure is the mean over all runs; what a run did not see counts 0 there (SyncProf ranks by the mean over the
//! runs). Locks and critical sections are matched by what the input calls them; those that only have an address
//! (`PID:0xaddress`), which differs from run to run, by name and symbol, and several of one name count together. Longest
//! durations are the longest of any run, quantiles the mean of the runs' own, weighted by occurrences. Intervals
//! of estimates are those of such means, each run being independent of the others. A deviation above
//! the bound makes a figure inconclusive.

mod blame;
mod counted;
mod over;
#[cfg(test)]
mod tests;
mod whole;

use super::possible::violations;
use super::schema::{
    CorrectedEntry, LockEntry, LockSpread, Ns, Report, RunsEntry, SCHEMA, SiteEntry, SiteSpread, WaitingNow,
};
use super::{distrust, site, sleep, verdict};
use over::{LockIds, Over};

/// How to combine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Standard deviation as part of the mean above which a figure is inconclusive.
    pub bound: f64,
    /// Only so many locks, the most harmful ones; `None` for all.
    pub top: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { bound: 0.5, top: None }
    }
}

/// Combines reports that were built alike, each with all its locks. A single one stays as it is, but for the number of
/// locks.
#[must_use]
pub fn combine(mut reports: Vec<Report>, options: &Options) -> Report {
    let mut report = match (reports.pop(), reports.len()) {
        (None, _) => Report { schema: SCHEMA.to_owned(), ..Report::default() },
        (Some(only), 0) => only,
        (Some(last), _) => {
            reports.push(last);
            several(&reports, options.bound)
        }
    };
    cut(&mut report, options.top);
    report
}

fn several(reports: &[Report], bound: f64) -> Report {
    let runs = reports.len();
    let Some(all) = Over::new(reports.iter().enumerate().collect(), runs) else { return Report::default() };
    let mut ids = LockIds::default();
    let mut locks = all.within(
        |r| &r.locks,
        over::lock_key,
        |all| {
            ids.insert(all, &all.largest(|l| l.harm_ns).lock);
            lock(all, bound)
        },
    );
    locks.sort_by(|a, b| (b.harm_ns, &a.name, &a.lock).cmp(&(a.harm_ns, &b.name, &b.lock)));
    let mut sites = all.within(|r| &r.sites, over::site_key, |all| section(all, bound, &ids));
    site::rank(&mut sites);
    let inconclusive = |s: &SiteEntry| s.spread.is_some_and(|spread| spread.inconclusive);
    let mut report = Report {
        runs: Some(RunsEntry {
            count: runs as u64,
            bound,
            inconclusive: sites.iter().any(inconclusive),
            targets: reports.iter().map(|r| r.quality.target.clone()).collect(),
        }),
        locks,
        sites,
        ..whole::report(&all, &ids)
    };
    report.quality.distrust = distrust::of(&report);
    report.quality.sleep = sleep::of(&report);
    report.verdict = verdict::sentences(&report);
    let possible = || reports.iter().all(|report| violations(report).is_empty());
    debug_assert!(violations(&report).is_empty() || !possible(), "means contradict: {:?}", violations(&report));
    report
}

/// Leaves only the most harmful locks, and their critical sections.
fn cut(report: &mut Report, top: Option<usize>) {
    let omitted = report.locks.len().saturating_sub(top.unwrap_or(usize::MAX));
    if omitted > 0 {
        report.locks.truncate(report.locks.len() - omitted);
        report.totals.locks_omitted += omitted as u64;
        let shown: std::collections::HashSet<&str> = report.locks.iter().map(|l| l.lock.as_str()).collect();
        report.sites.retain(|s| shown.contains(s.lock.as_str()));
        site::rank(&mut report.sites);
    }
}

fn lock(all: &Over<'_, LockEntry>, bound: f64) -> LockEntry {
    let like = all.largest(|l| l.harm_ns);
    let (aplt, aplt_sd) = all.spread(|l| l.aplt_ns);
    let (wait, wait_sd) = all.spread(|l| l.wait_ns.sum);
    // A run that has watched futex calls only tells waits, and nothing of sections.
    let known = all.things().all(|(_, l)| l.acquisitions.is_some());
    LockEntry {
        acquisitions: known.then(|| all.count(|l| l.acquisitions.unwrap_or_default())),
        release_unseen: all.count(|l| l.release_unseen),
        contended: all.count(|l| l.contended),
        try_failures: all.count(|l| l.try_failures),
        timeouts: all.count(|l| l.timeouts),
        errors: all.count(|l| l.errors),
        timed_out_wait_ns: all.ns(|l| l.timed_out_wait_ns),
        attempt_unseen_wait_ns: all.ns(|l| l.attempt_unseen_wait_ns),
        harm_ns: all.ns(|l| l.harm_ns),
        wait_ns: all.durations(|l| Some((l.wait_ns, l.acquisitions.unwrap_or(l.contended)))).unwrap_or_default(),
        contended_wait_ns: all.durations(|l| Some((l.contended_wait_ns, l.contended))).unwrap_or_default(),
        hold_ns: all.durations(|l| Some((l.hold_ns?, l.acquisitions?))).filter(|_| known),
        aplt_ns: aplt,
        recorded_wait_ns: all.ns(|l| l.recorded_wait_ns),
        unattributed_ns: all.ns(|l| l.unattributed_ns),
        attribution: blame::attribution(all, |l| l.attribution),
        open_wait_ns: all.ns(|l| l.open_wait_ns),
        woken_wait_ns: all.ns(|l| l.woken_wait_ns),
        causes: blame::causes(all, |l| l.causes),
        waiting_threads: all.most(|l| l.waiting_threads),
        // Who waits where is others in each run.
        waiting_now: WaitingNow {
            count: all.count(|l| l.waiting_now.count),
            longest_ns: all.largest(|l| l.waiting_now.longest_ns).waiting_now.longest_ns,
            sum_ns: all.ns(|l| l.waiting_now.sum_ns),
            ..all.largest(|l| l.waiting_now.sum_ns).waiting_now.clone()
        },
        waiters: blame::waiters(all),
        holders: blame::holders(all),
        chains: blame::chains(all),
        corrected: corrected(all, |l| l.corrected, |l| (l.contended, l.wait_ns.sum, l.hold_ns.unwrap_or_default().sum))
            .filter(|_| known),
        estimates: all.figures(|l| l.estimates, |l| l.acquisitions.unwrap_or_default()).filter(|_| known),
        wait_estimate: all.interval(|l| l.wait_estimate, |l| l.wait_ns.sum.as_f64()),
        // Threads are others in each run.
        thread_pairs: Vec::new(),
        spread: Some(LockSpread {
            runs: all.seen(),
            aplt_sd_ns: aplt_sd,
            wait_sd_ns: wait_sd,
            inconclusive: aplt_sd.share_of(aplt) > bound || wait_sd.share_of(wait) > bound,
        }),
        ..like.clone()
    }
}

/// Means of what remains without the observer; of runs that do not tell it, as they tell it.
fn corrected<T>(
    all: &Over<'_, T>,
    of: impl Fn(&T) -> Option<CorrectedEntry>,
    seen: impl Fn(&T) -> (u64, Ns, Ns),
) -> Option<CorrectedEntry> {
    let told = |thing: &T| {
        let (contended, wait_ns, hold_ns) = seen(thing);
        of(thing).unwrap_or(CorrectedEntry { contended, wait_ns, hold_ns })
    };
    all.any(|thing| of(thing).is_some()).then(|| CorrectedEntry {
        contended: all.count(|thing| told(thing).contended),
        wait_ns: all.ns(|thing| told(thing).wait_ns),
        hold_ns: all.ns(|thing| told(thing).hold_ns),
    })
}

fn section(all: &Over<'_, SiteEntry>, bound: f64, ids: &LockIds<'_>) -> SiteEntry {
    let (run, like) = all.largest_run(|s| s.apwt_ns);
    let (apwt, apwt_sd) = all.spread(|s| s.apwt_ns);
    let (cpwt, cpwt_sd) = all.spread(|s| s.cpwt_ns.unwrap_or_default());
    let (wait, wait_sd) = all.spread(|s| s.wait_ns);
    let critical = all.any(|s| s.cpwt_ns.is_some());
    SiteEntry {
        lock: ids.of(run, &like.lock),
        released: !all.any(|s| !s.released),
        instances: all.count(|s| s.instances),
        locks: all.most(|s| s.locks),
        wait_ns: wait,
        hold_ns: all.any(|s| s.hold_ns.is_some()).then(|| all.ns(|s| s.hold_ns.unwrap_or_default())),
        hold_estimate: all.interval(|s| s.hold_estimate, |s| s.hold_ns.unwrap_or_default().as_f64()),
        apwt_ns: apwt,
        callers: blame::callers(all, apwt, |s| s.callers.as_ref()),
        cpwt_ns: critical.then_some(cpwt),
        causes: blame::causes(all, |s| s.causes),
        corrected: corrected(all, |s| s.corrected, |s| (0, s.wait_ns, s.hold_ns.unwrap_or_default())),
        estimates: all.figures(|s| s.estimates, |s| s.instances),
        spread: Some(SiteSpread {
            runs: all.seen(),
            apwt_sd_ns: apwt_sd,
            cpwt_sd_ns: critical.then_some(cpwt_sd),
            wait_sd_ns: wait_sd,
            inconclusive: apwt_sd.share_of(apwt) > bound || cpwt_sd.share_of(cpwt) > bound,
        }),
        ..like.clone()
    }
}
