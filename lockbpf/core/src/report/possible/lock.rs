//! One lock: its counts and times, who waited for it and who is to blame.

use super::super::schema::{Durations, LockEntry, LockSpread, Ns, PairEntry, Report, WaitingNow, WaitingPlace};
use super::{Check, blame};

/// Distinct threads are counted up to here.
const MOST_THREADS: u64 = 1_024;

pub(super) fn check(lock: &LockEntry, report: &Report, check: &mut Check) {
    let LockEntry {
        harm_ns,
        wait_ns,
        aplt_ns,
        recorded_wait_ns,
        unattributed_ns,
        attribution,
        open_wait_ns,
        woken_wait_ns,
        causes,
        waiting_now,
        wait_estimate,
        futex,
        spread,
        timed_out_wait_ns,
        attempt_unseen_wait_ns,
        // Looked at in the functions below.
        kernel: _,
        others: _,
        in_others: _,
        participants: _,
        inferred: _,
        mutex_type: _,
        pi: _,
        robust: _,
        shared: _,
        acquisitions: _,
        release_unseen: _,
        contended: _,
        try_failures: _,
        timeouts: _,
        errors: _,
        contended_wait_ns: _,
        hold_ns: _,
        in_turn,
        waiting_threads: _,
        waiters: _,
        holders: _,
        chains: _,
        thread_pairs: _,
        corrected: _,
        estimates: _,
        // What it is called, and what its word names although it is not believed.
        lock: _,
        name: _,
        label: _,
        kind: _,
        pid: _,
        comm: _,
        first_site: _,
        word_names: _,
    } = lock;
    let name = || format!("`{}` ({})", lock.label, lock.lock);
    kind(lock, check, &name);
    counts(lock, check, &name);
    times(lock, check, &name);
    holds(lock, report, check, &name);
    now(waiting_now, check, &name);
    divided(lock, check, &name);
    let harm = [wait_ns.sum, *timed_out_wait_ns, *attempt_unseen_wait_ns, waiting_now.sum_ns];
    check.adds_up(harm, *harm_ns, || format!("harm of {}", name()));
    check.attribution(*attribution, *harm_ns, || format!("waiting for {}", name()));
    check.within(*unattributed_ns, *recorded_wait_ns, || format!("blame of nobody for {}", name()));
    check.within(*woken_wait_ns, *recorded_wait_ns, || format!("recorded waits of the woken for {}", name()));
    check.demand(in_turn.is_none() || lock.inferred, || format!("{} is made of conditions, and is not", name()));
    in_turn.iter().for_each(|share| check.share(*share, || format!("waits in turn for {}", name())));
    check.within(*open_wait_ns, *recorded_wait_ns, || format!("recorded waits for {} that go on", name()));
    check.causes(causes.as_ref(), *recorded_wait_ns, &|| format!("the waiting for {}", name()));
    // A selection leaves out locks whose waiters this one's holders made wait.
    check.demand(
        report.selection.is_some() || check.at_most(aplt_ns.as_f64(), report.totals.recorded_wait_ns.as_f64(), 2),
        || format!("{aplt_ns} caused by {} of {} in all", name(), report.totals.recorded_wait_ns),
    );
    if let Some(sum) = wait_estimate {
        check.interval(sum, &name);
        let told = wait_ns.sum.as_f64();
        check
            .demand((sum.value - told).abs() <= 1.0 + 1e-6 * told, || format!("{}: {told} ns told of {sum:?}", name()));
    }
    if let Some(calls) = futex {
        check.futex_counts(calls, &name);
    }
    check.demand(spread.is_none() || report.runs.is_some(), || format!("{} of several runs in one", name()));
    if let Some(LockSpread { runs, aplt_sd_ns, wait_sd_ns, inconclusive }) = *spread {
        check.demand(runs > 0 && runs as f64 <= check.runs, || format!("{} was seen in {runs} runs", name()));
        check.deviation(aplt_sd_ns, *aplt_ns, || format!("caused by {}", name()));
        check.deviation(wait_sd_ns, wait_ns.sum, || format!("waits for {}", name()));
        let deviates = aplt_sd_ns > Ns::default() || wait_sd_ns > Ns::default();
        check.demand(deviates || !inconclusive, || format!("{} deviates and does not", name()));
    }
}

/// What is known of it follows from what it is.
fn kind(lock: &LockEntry, check: &mut Check, name: &dyn Fn() -> String) {
    let flags = [lock.pi, lock.robust, lock.shared];
    check.demand(flags.iter().all(|flag| flag.is_some() == lock.mutex_type.is_some()), || {
        format!("{} is half a mutex", name())
    });
    check.demand(lock.participants != Some(0), || format!("{} is a barrier of nobody", name()));
    check.demand(!(lock.others && lock.in_others), || format!("{} is one of itself", name()));
    let told = lock.acquisitions.is_some() || lock.try_failures > 0;
    // One of several runs may have seen its calls, the others not.
    check.demand(!(told && (lock.inferred || lock.kernel)) || check.runs > 1.0, || {
        format!("{}: calls that were not seen are counted", name())
    });
}

fn counts(lock: &LockEntry, check: &mut Check, name: &dyn Fn() -> String) {
    if let Some(acquisitions) = lock.acquisitions.filter(|_| !lock.inferred && !lock.kernel) {
        // Attempts that come to nothing may be contended, too.
        let attempts = (acquisitions + lock.timeouts + lock.errors).max(lock.release_unseen);
        check.count(lock.contended, attempts, || format!("{} contended", name()));
        // Where acquisitions are estimated, releases are counted in windows only.
        if lock.estimates.is_none() && lock.wait_estimate.is_none() {
            check.count(lock.release_unseen, acquisitions, || format!("{} without a release", name()));
        }
    }
    // Attempts that time out are counted in windows, and what they sleep always.
    if lock.estimates.is_none() {
        check.happened(lock.timeouts, lock.timed_out_wait_ns, || format!("waits for {} that timed out", name()));
    }
    if let Some(figures) = &lock.estimates {
        check.figures(figures, &name);
        let told = lock.acquisitions.unwrap_or_default() as f64;
        let fits = (figures.acquisitions.value - told).abs() <= 1.0 + 1e-6 * told;
        check.demand(fits || check.runs > 1.0, || format!("{}: {told} told of {:?}", name(), figures.acquisitions));
    }
}

fn now(now: &WaitingNow, check: &mut Check, name: &dyn Fn() -> String) {
    let WaitingNow { count, longest_ns, sum_ns, held_by, before_start, places } = now;
    let told = places.iter().map(|p| p.count).sum::<u64>();
    // A report of several runs shows the places and holders of one run.
    let one = check.runs <= 1.0;
    check.demand(told == *count || !one, || format!("{}: {told} of the {count} that wait now have places", name()));
    let most = longest_ns.as_f64() * (*count as f64 + if one { 0.0 } else { 1.0 });
    check.within(*longest_ns, Ns::from_f64(sum_ns.as_f64() * check.runs), || format!("waits for {} now", name()));
    check.within(*sum_ns, Ns::from_f64(most), || format!("waits for {} now", name()));
    check.demand(held_by.len() as u64 <= *count || !one, || format!("{}: held by {held_by:?} for {count}", name()));
    check.demand(*count > 0 || !before_start || !one, || format!("{}: nobody waits, and did before", name()));
    for WaitingPlace { place, count, stack } in places {
        check.place(place, name);
        check.stack(stack, name);
        check.demand(*count > 0, || format!("{}: nobody waits in {}", name(), place.symbol));
    }
}

fn times(lock: &LockEntry, check: &mut Check, name: &dyn Fn() -> String) {
    check.durations(&lock.wait_ns, lock.acquisitions, &|| format!("waits for {}", name()));
    // The entry of an estimated lock does not say how many waits were measured.
    let contended = (lock.estimates.is_none() && lock.wait_estimate.is_none()).then_some(lock.contended);
    check.durations(&lock.contended_wait_ns, contended, &|| format!("contended waits for {}", name()));
    check.adds_up([lock.wait_ns.sum], lock.contended_wait_ns.sum, || format!("waits for {} in two ways", name()));
    check.adds_up([lock.wait_ns.max], lock.contended_wait_ns.max, || format!("longest waits for {}", name()));
}

fn holds(lock: &LockEntry, report: &Report, check: &mut Check, name: &dyn Fn() -> String) {
    if let Some(left) = lock.corrected {
        let held = lock.hold_ns.as_ref().map(|hold: &Durations| hold.sum).unwrap_or_default();
        check.corrected(left, (Some(lock.contended), lock.wait_ns.sum, held), name);
        check.demand(lock.estimates.is_none() || check.runs > 1.0, || {
            format!("{}: an estimate corrected twice", name())
        });
    }
    let Some(hold) = &lock.hold_ns else { return };
    let held = lock.acquisitions.unwrap_or_default().saturating_sub(lock.release_unseen);
    check.durations(hold, Some(held), &|| format!("holds of {}", name()));
    // A lock that one holds at a time is not held longer than there is time.
    let duration = report.quality.duration_ns;
    let alone = lock.kind == "mutex" && lock.estimates.is_none() && check.runs <= 1.0 && lock.mutex_type.is_some();
    check.demand(!alone || hold.max <= duration || duration == 0, || {
        format!("{}: held {} in {duration}", name(), hold.max)
    });
}

/// Who waited, and who is to blame.
fn divided(lock: &LockEntry, check: &mut Check, name: &dyn Fn() -> String) {
    let recorded = lock.recorded_wait_ns;
    if lock.estimates.is_some() && check.runs <= 1.0 {
        check.within(recorded, lock.harm_ns, || format!("recorded waiting for {}", name()));
    }
    for w in &lock.waiters {
        blame::waiter(w, check, &|| format!("{} at {} waiting for {}", w.place.symbol, w.count, name()));
    }
    // The lists of means over several runs are cut off.
    check.parts(lock.waiters.iter().map(|w| w.wait_ns), recorded, || format!("waiters of {}", name()));
    check.shares(lock.waiters.iter().map(|w| w.share), || format!("waiters of {}", name()));
    check.longest_first(&lock.waiters, |w| w.wait_ns, || format!("waiters of {}", name()));
    let waits = lock.waiters.iter().map(|w| w.count).fold(0, u64::saturating_add);
    // A report of several runs shows the number of threads of the run that had most.
    let fits = lock.waiting_threads <= waits.min(MOST_THREADS) || check.runs > 1.0;
    check.demand(fits, || format!("{}: {} threads in {waits} waits", name(), lock.waiting_threads));
    let blamed = lock.holders.iter().map(|h| h.wait_ns).chain([lock.unattributed_ns]);
    check.adds_up(blamed, recorded, || format!("those to blame for the waiting for {}", name()));
    check.shares(lock.holders.iter().map(|h| h.share), || format!("holders of {}", name()));
    check.longest_first(&lock.holders, |h| h.wait_ns, || format!("holders of {}", name()));
    for h in &lock.holders {
        blame::holder(h, check, &|| format!("{} holding {}", h.place.symbol, name()));
    }
    for c in &lock.chains {
        blame::chain(c, recorded, check, &|| format!("a chain from {}", name()));
        check.demand(c.links.first().is_none_or(|l| l.lock == lock.lock) || check.runs > 1.0, || {
            format!("a chain from {} that begins elsewhere", name())
        });
    }
    check.longest_first(&lock.thread_pairs, |p| p.wait_ns, || format!("pairs of threads at {}", name()));
    for PairEntry { waiter: _, holder: _, wait_ns } in &lock.thread_pairs {
        check.within(*wait_ns, recorded, || format!("a pair of threads at {}", name()));
    }
}
