//! What is said of the observation itself.

use super::super::in_turn;
use super::super::schema::{
    CoverageEntry, DistrustEntry, FailedProbeEntry, FileHolderEntry, LengthenedEntry, Ns, ObservedEntry,
    PerturbationEntry, ProcessCoverageEntry, QualityEntry, Report, SleepEntry, SleepPlace, ThrottledEntry,
    UnobservedEntry, UnwatchedEntry,
};
use super::super::sleep::for_locks_of_java;
use super::Check;
use std::collections::BTreeMap;

pub(super) fn check(report: &Report, check: &mut Check) {
    let QualityEntry {
        duration_ns,
        observed_share,
        lost,
        late,
        impossible,
        edges,
        observed,
        perturbation: taken,
        unobserved: gaps,
        throttled,
        unwatched,
        distrust: doubt,
        sleep: slept,
        open_at_end,
        failed_probes,
        notes,
        incomplete,
        // What was observed, what was asked for, and counts of what is in no other figure. With futex calls alone kernel locks are counted.
        target: _,
        futex_only: _,
        processes: _,
        min_wait_ns: _,
        events: _,
        unfocused: _,
        thinned: _,
        kernel_in_interrupts: _,
        virtual_threads: _,
    } = &report.quality;
    check.share(*observed_share, || "the time observed".to_owned());
    for counts in [lost, impossible, edges] {
        let zero = |counts: &BTreeMap<String, u64>| counts.values().any(|&n| n == 0);
        check.demand(!zero(counts), || format!("none of {counts:?}"));
    }
    let missing = !(lost.is_empty() && failed_probes.is_empty() && gaps.is_empty()) || *late > 0;
    check.demand(*incomplete || !missing, || "something is missing, but nothing is incomplete".to_owned());
    for FailedProbeEntry { probe, file: _, reason } in failed_probes {
        check.demand(!probe.is_empty() && !reason.is_empty(), || format!("a probe {probe} that failed: {reason}"));
    }
    open(*open_at_end, report, check);
    check.demand(notes.iter().all(|note| note.ends_with(['.', '!', '?'])), || format!("no sentences: {notes:?}"));
    if let Some(o) = observed {
        self::observed(o, check);
    }
    if let Some(p) = taken {
        perturbation(p, check);
    }
    for gap in gaps {
        unobserved(gap, *duration_ns, check);
    }
    for ThrottledEntry { cgroup, quota_cpus, periods, throttled_periods, throttled_ns: _, pids: _, comms: _ } in
        throttled
    {
        let possible = throttled_periods <= periods && quota_cpus.is_finite() && *quota_cpus >= 0.0;
        check.demand(possible, || {
            format!("{cgroup}: {quota_cpus} CPUs used up in {throttled_periods} of {periods} periods")
        });
    }
    for UnwatchedEntry { pid: _, comm: _, call, looks, found, threads, file, holder } in unwatched {
        let mean = *found as f64 / (*looks).max(1) as f64;
        check.demand(*looks > 0 && *found > 0 && (threads - mean).abs() <= 1e-6 * mean, || {
            format!("{threads} threads on average in {call}: {found} in {looks} looks")
        });
        if let Some(FileHolderEntry { pid, comm: _, share }) = holder {
            check.demand(file.is_some() && (0.0..=1.0).contains(share), || {
                format!("pid {pid} had the lock of {file:?} for {share} of the time")
            });
        }
    }
    if let Some(d) = doubt {
        distrust(d, report, check);
    }
    if let Some(s) = slept {
        sleep(s, report, check);
    }
}

/// Waits that had not ended: for locks, for conditions, on words.
fn open(all: u64, report: &Report, check: &mut Check) {
    let conditions = report.conditions.iter().map(|c| c.waiting_now);
    let words = report.futexes.iter().map(|f| f.waiting_now);
    let told = conditions.chain(words).chain([report.totals.waiting_now]).fold(0, u64::saturating_add);
    check.demand(all >= told || check.runs > 1.0, || format!("{all} waits open, but {told} told"));
}

fn observed(o: &ObservedEntry, check: &mut Check) {
    let ObservedEntry { budget, hold_bias_ns, overall, processes } = o;
    check.demand(budget.is_none_or(|b| b >= 0.0 && b.is_finite()), || format!("a budget of {budget:?}"));
    check.interval(hold_bias_ns, &|| "what observing adds to a hold".to_owned());
    coverage(overall, "all", check);
    let (mut windows, mut cpus, mut any) = (0_u64, 0.0, false);
    for ProcessCoverageEntry { pid: _, comm: _, coverage: of } in processes {
        coverage(of, "a process", check);
        (windows, cpus, any) = (windows.saturating_add(of.windows), cpus + of.cost_cpus, any || of.estimated);
    }
    // Processes are others in each run.
    let fits =
        windows == overall.windows && any == overall.estimated && (cpus - overall.cost_cpus).abs() <= 1e-6 * cpus;
    check.demand(fits || check.runs > 1.0, || {
        format!("{windows} windows at {cpus} CPUs of processes, estimated: {any}; of all {overall:?}")
    });
}

fn coverage(c: &CoverageEntry, who: &str, check: &mut Check) {
    // Whether it was estimated follows from stretches, of which a window may have covered all.
    let CoverageEntry { time_share, cpu_share, cost_share, cost_cpus, windows: _, estimated: _ } = *c;
    for share in [time_share, cpu_share, cost_share] {
        check.share(share, || format!("what was observed of {who}"));
    }
    check.demand(cost_cpus >= 0.0 && cost_cpus.is_finite(), || format!("{cost_cpus} CPUs for observing {who}"));
}

fn perturbation(p: &PerturbationEntry, check: &mut Check) {
    let PerturbationEntry {
        hits,
        stepped_hits,
        futex_calls,
        switches,
        records,
        record_bytes,
        stack_bytes,
        cost_ns,
        cost_share,
        futex_cost_share,
        children,
        children_cost_at_most_ns,
        // A price, whether anything was bought or not, and whose it is.
        hold_bias_ns: _,
        measured: _,
    } = *p;
    check.demand(stepped_hits <= hits, || format!("{stepped_hits} of {hits} hits single-stepped"));
    let bytes = Ns::new(record_bytes);
    check.happened(records, bytes, || format!("{record_bytes} bytes in {records} records"));
    let taken = [hits, futex_calls, switches, records, stack_bytes].into_iter().fold(0, u64::saturating_add);
    check.happened(taken, cost_ns, || "the cost of observing".to_owned());
    check.demand(cost_share.is_some() == futex_cost_share.is_some() || futex_cost_share.is_none(), || {
        format!("futex calls cost {futex_cost_share:?} of {cost_share:?}")
    });
    if let Some(share) = cost_share {
        check.share(share, || "the cost of observing".to_owned());
        let futex = futex_cost_share.unwrap_or_default();
        check.demand((0.0..=share + 1e-6).contains(&futex), || format!("futex calls cost {futex} of {share}"));
    }
    check.happened(children, children_cost_at_most_ns, || "what children paid".to_owned());
}

fn unobserved(gap: &UnobservedEntry, duration: Ns, check: &mut Check) {
    let UnobservedEntry { pid, comm: _, from_ns, to_ns } = gap;
    let to = to_ns.unwrap_or(duration);
    // Each run has its own duration.
    let fits = *from_ns <= to && (to <= duration || check.runs > 1.0);
    check.demand(fits, || format!("process {pid} not observed from {from_ns} to {to_ns:?} in {duration}"));
}

fn distrust(d: &DistrustEntry, report: &Report, check: &mut Check) {
    let DistrustEntry { cost_share, unranked, times_waited, off_cpu_share, hold_bias_ns, lengthened } = d;
    cost_share.iter().for_each(|share| check.share(*share, || "the cost of observing".to_owned()));
    off_cpu_share.iter().for_each(|share| check.share(*share, || "waiting for those off the CPU".to_owned()));
    let reasons = [*unranked, times_waited.is_some(), off_cpu_share.is_some()];
    let reasons = reasons.into_iter().filter(|&is| is).count();
    check.demand(cost_share.is_some() || reasons == 0, || format!("an observation that costs little and much: {d:?}"));
    check.demand(reasons <= 1, || format!("waits are and are not of observing: {d:?}"));
    check.demand(cost_share.is_some() || !lengthened.is_empty(), || "doubt of nothing".to_owned());
    for LengthenedEntry { lock, name, median_hold_ns, may_make_wait } in lengthened {
        let known = report.locks.iter().find(|l| l.lock == *lock);
        let seen = known.and_then(|l| l.hold_ns).map(|hold| hold.p50);
        // Locks may be left out of a report after it was made.
        let fits = known.is_none() || seen.is_some_and(|seen| *median_hold_ns <= seen);
        check.demand(fits, || format!("`{name}`: held {median_hold_ns} without the observer, {seen:?} with it"));
        check.demand(*hold_bias_ns > Ns::default(), || format!("`{name}` is lengthened by nothing"));
        let waits = known.is_none_or(|lock| lock.harm_ns > Ns::default());
        check.demand(waits || *may_make_wait, || format!("nobody waits for `{name}`, and not for observing"));
    }
}

fn sleep(s: &SleepEntry, report: &Report, check: &mut Check) {
    let SleepEntry { locks_ns, conditions_ns, joins_ns, parked_ns, runtimes_ns, unknown_ns, places } = s;
    check.adds_up([*locks_ns], report.totals.harm_ns, || "sleep for locks".to_owned());
    let runtimes = runtimes_ns.unwrap_or_default();
    let conditions = report.conditions.iter().flat_map(|c| [c.waited_ns(), c.waiting_now_ns]);
    let words = report.futexes.iter().flat_map(|f| [f.wait_ns.sum, f.counts.timed_out_wait_ns, f.waiting_now_ns]);
    let all = *conditions_ns + *joins_ns + *parked_ns + runtimes + *unknown_ns;
    let rows: Vec<Ns> = conditions.chain(words).collect();
    let told = for_locks_of_java(report) + in_turn::told(report);
    if told.is_zero() {
        check.adds_up(rows, all, || "sleep for other things".to_owned());
    } else {
        check.parts([all], rows.iter().copied().sum(), || "sleep for other things".to_owned());
        check.parts(rows, all + told, || "sleep for other things and locks that are made of them".to_owned());
    }
    check.parts(places.iter().map(|p| p.slept_ns), *parked_ns + runtimes + *unknown_ns, || {
        "places in which threads slept".to_owned()
    });
    check.longest_first(places, |p| p.slept_ns, || "places in which threads slept".to_owned());
    for SleepPlace { symbol, slept_ns } in places {
        check.demand(*slept_ns > Ns::default(), || format!("nobody slept in {symbol}"));
    }
}
