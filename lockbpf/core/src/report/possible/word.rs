//! What is no lock: condition variables and futex words.

use super::super::schema::{ConditionEntry, FutexEntry, Ns, Report, ThreadWait};
use super::super::sleepers::SEMAPHORE;
use super::{Check, blame};

pub(super) fn check(report: &Report, check: &mut Check) {
    check.longest_first(&report.conditions, ConditionEntry::waited_ns, || "condition variables".to_owned());
    check.longest_first(&report.futexes, |f| f.wait_ns.sum, || "futex words".to_owned());
    report.conditions.iter().for_each(|c| condition(c, check));
    report.futexes.iter().for_each(|f| futex(f, check));
}

fn condition(c: &ConditionEntry, check: &mut Check) {
    let ConditionEntry {
        label,
        kind,
        permits,
        waits,
        timeouts,
        errors,
        idle_ns,
        slept_ns: _,
        blocked_again,
        wake_latency_ns,
        waiting_now,
        waiting_now_ns,
        purpose,
        // Who it is.
        condition: _,
        name: _,
        pid: _,
        comm: _,
        first_site: _,
        // Of those woken at the beginning and the end one call only was seen, and under a budget waits are seen in windows, wakes always.
        wakes: _,
        wakes_of_none: _,
        woken: _,
    } = c;
    let name = || format!("condition variable {label}");
    check.durations(idle_ns, None, &|| format!("idle time of {}", name()));
    check.durations(wake_latency_ns, None, &|| format!("wake latency of {}", name()));
    let ended = waits.saturating_add(*timeouts).saturating_add(*errors);
    check.happened(ended, idle_ns.sum, || format!("idle time of {}", name()));
    let slack = if check.runs > 1.0 { 2 } else { 0 };
    check.count(*blocked_again, ended.saturating_add(slack), || format!("blocked again after {}", name()));
    check.happened(*waiting_now, *waiting_now_ns, || format!("waits for {} now", name()));
    permits.iter().for_each(|permits| check.count(*waits, *permits, || format!("waits for permits of {}", name())));
    check.demand((kind == SEMAPHORE) == permits.is_some(), || format!("permits of {}", name()));
    let known = ["condvar", SEMAPHORE].contains(&kind.as_str());
    check.demand(known && !purpose.is_empty(), || format!("{} is a {kind} for {purpose}", name()));
}

fn futex(f: &FutexEntry, check: &mut Check) {
    let FutexEntry {
        label,
        kind,
        purpose,
        counts,
        wait_ns,
        waiting_now,
        waiting_now_ns,
        owners,
        wakers,
        waiters,
        // Who it is.
        futex: _,
        name: _,
        pid: _,
        comm: _,
    } = f;
    let name = || format!("futex word {label}");
    check.durations(wait_ns, None, &name);
    check.futex_counts(counts, &name);
    check.adds_up([counts.wait_sum_ns], wait_ns.sum, || format!("waits of {} in two ways", name()));
    check.happened(*waiting_now, *waiting_now_ns, || format!("waits of {} now", name()));
    check.demand(kind == "futex" && !purpose.is_empty(), || format!("{} is a {kind} for {purpose}", name()));
    check.shares(waiters.iter().map(|w| w.share), || format!("waiters of {}", name()));
    check.longest_first(waiters, |w| w.wait_ns, || format!("waiters of {}", name()));
    for w in waiters {
        blame::waiter(w, check, &|| format!("{} waiting for {}", w.place.symbol, name()));
    }
    // All recorded waits are some place's, and some thread's if that is known.
    let (waits, time) =
        (waiters.iter().map(|w| w.count).fold(0, u64::saturating_add), waiters.iter().map(|w| w.wait_ns));
    let time: Ns = time.sum();
    for (threads, what) in [(owners, "owners"), (wakers, "wakers")] {
        check.longest_first(threads, |t| t.wait_ns, || format!("{what} of {}", name()));
        let mut all = (0, Ns::default());
        for ThreadWait { tid: _, count, wait_ns } in threads {
            all = (count.saturating_add(all.0), all.1 + *wait_ns);
        }
        // Where records stand for others, each place's sum is rounded down.
        let rounding = waiters.len() as u64;
        check.count(all.0, waits.saturating_add(rounding), || format!("waits by {what} of {}", name()));
        check.within(all.1, time + Ns::new(rounding), || format!("waits by {what} of {}", name()));
    }
}
