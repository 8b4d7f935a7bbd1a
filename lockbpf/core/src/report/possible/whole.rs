//! What is said of all locks together, of critical sections and of threads.

use super::super::schema::{
    LockEntry, Ns, Report, RunsEntry, SCHEMA, Selection, SiteEntry, SiteSpread, ThreadEntry, Totals,
};
use super::{Check, blame, counted, danger, functions, graph, lock, pattern, quality, word};

pub(super) fn check(report: &Report, check: &mut Check) {
    let Report {
        schema,
        verdict,
        runs,
        selection,
        culprits,
        locks,
        counters,
        functions: of_library,
        critical_path,
        graph: of_waits,
        // Looked at in the functions below.
        totals: _,
        deadlocks: _,
        ended_circles: _,
        inversions: _,
        patterns: _,
        sites: _,
        threads: _,
        conditions: _,
        futexes: _,
        quality: _,
    } = report;
    check.demand(schema == SCHEMA, || format!("the schema {schema}"));
    check.demand(verdict.iter().all(|s| s.ends_with(['.', '!', '?'])), || format!("no sentences: {verdict:?}"));
    if let Some(runs) = runs {
        self::runs(runs, report, check);
    }
    if let Some(Selection { lock, site }) = selection {
        check.demand(!(lock.is_empty() && site.is_empty()), || "a selection of everything".to_owned());
    }
    locks.iter().for_each(|l| lock::check(l, report, check));
    totals(report, check);
    culprits.iter().for_each(|c| blame::culprit(c, report, check));
    check.shares(culprits.iter().map(|c| c.share), || "culprits".to_owned());
    check.shares(culprits.iter().map(|c| c.share_of_all), || "culprits, of all waiting".to_owned());
    check.longest_first(culprits, |c| c.wait_ns, || "culprits".to_owned());
    sites(report, check);
    threads(report, check);
    danger::check(report, check);
    pattern::check(report, check);
    word::check(report, check);
    if let Some(path) = critical_path {
        graph::path(path, check);
    }
    if let Some(graph) = of_waits {
        graph::check(graph, check);
    }
    if let Some(counters) = counters {
        counted::check(counters, report, check);
    }
    if let Some(functions) = of_library {
        functions::check(functions, check);
    }
    quality::check(report, check);
}

fn runs(runs: &RunsEntry, report: &Report, check: &mut Check) {
    let RunsEntry { count, bound, inconclusive, targets } = runs;
    check.demand(*count > 1 && targets.len() as u64 == *count, || format!("{count} runs of {targets:?}"));
    check.demand(*bound >= 0.0, || format!("a bound of {bound}"));
    // Those left out may be the ones that are.
    let told = report.sites.iter().any(|s| s.spread.is_some_and(|spread| spread.inconclusive));
    check.demand(*inconclusive || !told, || "a site is inconclusive, the report is not".to_owned());
}

fn totals(report: &Report, check: &mut Check) {
    let Totals {
        locks,
        locks_omitted,
        acquisitions,
        contended,
        wait_ns,
        harm_ns,
        recorded_wait_ns,
        unattributed_ns,
        attribution,
        waiting_now,
    } = report.totals;
    let told = locks - locks_omitted.min(locks);
    check.demand(told == report.locks.len() as u64 || check.runs > 1.0, || {
        format!("{} locks told, {locks_omitted} of {locks} left out", report.locks.len())
    });
    let slack = if check.runs > 1.0 { told } else { 0 };
    let mut count = |of: &dyn Fn(&LockEntry) -> u64, all: u64, exactly: bool, what: &str| {
        let sum: u64 = report.locks.iter().map(of).fold(0, u64::saturating_add);
        let fits = sum <= all.saturating_add(slack) && (!exactly || sum.saturating_add(slack) >= all);
        check.demand(fits, || format!("{what}: {sum} of the locks, {all} in all"));
    };
    let whole = locks_omitted == 0;
    // Acquisitions of runtimes' locks are in the total only.
    let all_known = report.locks.iter().all(|l| l.acquisitions.is_some());
    count(&|l| l.acquisitions.unwrap_or_default(), acquisitions, whole && all_known, "acquisitions");
    // A lock that was summed together with others is in their sums, too.
    count(&|l| if l.in_others { 0 } else { l.contended }, contended, whole, "contended acquisitions");
    count(&|l| l.waiting_now.count, waiting_now, whole, "waits now");
    let mut time = |of: fn(&LockEntry) -> Ns, all: Ns, what: &str| {
        let parts = report.locks.iter().map(of);
        if whole {
            check.adds_up(parts, all, || format!("{what} of all locks"));
        } else {
            check.parts(parts, all, || format!("{what} of the locks told"));
        }
    };
    time(|l| if l.in_others { Ns::default() } else { l.wait_ns.sum }, wait_ns, "waiting");
    time(|l| if l.in_others { Ns::default() } else { l.harm_ns }, harm_ns, "harm");
    time(|l| l.recorded_wait_ns, recorded_wait_ns, "recorded waiting");
    time(|l| l.unattributed_ns, unattributed_ns, "waiting without anybody to blame");
    check.attribution(attribution, harm_ns, || "all waiting".to_owned());
    check.within(unattributed_ns, recorded_wait_ns, || "waiting without anybody to blame".to_owned());
    check.within(wait_ns, harm_ns, || "waiting beside harm".to_owned());
    check.longest_first(&report.locks, |l| l.harm_ns, || "locks".to_owned());
}

fn sites(report: &Report, check: &mut Check) {
    for (s, rank) in report.sites.iter().zip(1..) {
        check.demand(s.rank == rank, || format!("{} has rank {}, not {rank}", s.symbol, s.rank));
        site(s, report, check);
    }
    check.longest_first(&report.sites, |s| s.apwt_ns, || "sections".to_owned());
}

fn site(s: &SiteEntry, report: &Report, check: &mut Check) {
    let SiteEntry {
        symbol,
        locks,
        released,
        instances,
        wait_ns,
        hold_ns,
        hold_estimate,
        apwt_ns,
        cpwt_ns,
        causes,
        off_in,
        callers,
        corrected,
        estimates,
        spread,
        rank: _,
        // Who it is.
        site: _,
        lock: _,
    } = s;
    let name = || symbol.clone();
    check.demand(*locks > 0, || format!("{symbol} is a section of no lock"));
    check.callers(callers.as_ref(), *apwt_ns, &name);
    if let Some(cpwt) = cpwt_ns {
        check.within(*cpwt, *apwt_ns, || format!("CPWT of {symbol}"));
    }
    // A selection leaves out locks whose waiters its sections made wait.
    let all = report.totals.recorded_wait_ns;
    check.demand(report.selection.is_some() || check.at_most(apwt_ns.as_f64(), all.as_f64(), 2), || {
        format!("{apwt_ns} caused by {symbol} of {all} in all")
    });
    check.causes(causes.as_ref(), *apwt_ns, &name);
    check.demand(off_in.is_none() || *apwt_ns > Ns::default(), || format!("{symbol} makes nobody wait in {off_in:?}"));
    // Where no window saw a section, threads may still have been seen to wait for one.
    if hold_ns.is_some() || report.quality.observed.is_none() {
        check.happened(*instances, *wait_ns, || format!("waits at {symbol}"));
    }
    let counted = *instances > 0 || *wait_ns > Ns::default() || hold_ns.is_some();
    check.demand(!released || !counted, || format!("{symbol} is where locks are given back, and counted as a section"));
    if let Some(left) = *corrected {
        // Beside the sections of a site it is not told how many were contended.
        check.corrected(left, (None, *wait_ns, hold_ns.unwrap_or_default()), &name);
    }
    check.demand(spread.is_none() || report.runs.is_some(), || format!("{symbol} of several runs in one"));
    if let Some(SiteSpread { runs, apwt_sd_ns, cpwt_sd_ns, wait_sd_ns, inconclusive }) = *spread {
        check.demand(runs > 0 && runs as f64 <= check.runs, || format!("{symbol} was seen in {runs} runs"));
        let critical = cpwt_sd_ns.unwrap_or_default();
        check.deviation(apwt_sd_ns, *apwt_ns, || format!("APWT of {symbol}"));
        check.deviation(critical, cpwt_ns.unwrap_or_default(), || format!("CPWT of {symbol}"));
        check.deviation(wait_sd_ns, *wait_ns, || format!("waits at {symbol}"));
        let deviates = apwt_sd_ns > Ns::default() || critical > Ns::default();
        check.demand(deviates || !inconclusive, || format!("{symbol} deviates and does not"));
    }
    let Some(figures) = estimates else { return };
    check.figures(figures, &name);
    let fits = (figures.acquisitions.value - *instances as f64).abs() <= 1.0 + 1e-6 * *instances as f64;
    check.demand(fits || check.runs > 1.0, || format!("{symbol}: {instances} sections of {figures:?}"));
    if let Some(hold) = hold_ns {
        let most = hold_estimate.map_or(f64::INFINITY, |sum| sum.high);
        let product = (figures.acquisitions.value * figures.hold_mean_ns.value).min(most);
        let fits = (hold.as_f64() - product).abs() <= 2.0 + figures.acquisitions.value + 1e-6 * product;
        check.demand(fits || check.runs > 1.0, || format!("{symbol}: held {hold}, but {figures:?}"));
    }
    if let Some(sum) = hold_estimate {
        check.demand(sum.low <= sum.value && sum.value <= sum.high, || format!("{symbol}: held {sum:?}"));
    }
}

fn threads(report: &Report, check: &mut Check) {
    let time = report.quality.duration_ns;
    check.longest_first(&report.threads, |t| t.wait_ns, || "threads".to_owned());
    if check.runs <= 1.0 && report.selection.is_none() && report.threads.iter().all(|t| t.estimated) {
        let waits = report.threads.iter().map(|t| t.wait_ns - t.kernel_wait_ns);
        check.parts(waits, report.totals.harm_ns, || "threads that wait for locks".to_owned());
    }
    for t in &report.threads {
        let ThreadEntry {
            tid,
            wait_ns,
            kernel_wait_ns,
            held_union_ns,
            held_sum_ns,
            // Holds that were cut are no completed sections.
            acquisitions: _,
            pid: _,
            comm: _,
            estimated: _,
        } = t;
        // What exited threads did beyond those listed is one entry, which no thread has time for.
        let one = *tid != 0 && time > Ns::default();
        check.within(*held_union_ns, *held_sum_ns, || format!("thread {tid} holds"));
        check.within(*kernel_wait_ns, *wait_ns, || format!("thread {tid} waits in the kernel"));
        for (part, what) in [(*held_union_ns, "holds"), (*wait_ns, "waits")].into_iter().filter(|_| one) {
            check.within(part, time, || format!("thread {tid} {what}"));
        }
    }
}
