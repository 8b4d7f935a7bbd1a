//! One lock: its counts and times, who waited for it and who is to blame.

use super::super::schema::{ChainEntry, HolderEntry, LockEntry, Ns, Report, WaiterEntry};
use super::Check;

pub(super) fn check(lock: &LockEntry, report: &Report, check: &mut Check) {
    let name = || format!("`{}` ({})", lock.label, lock.lock);
    counts(lock, check, &name);
    times(lock, report, check, &name);
    if let Some(figures) = &lock.estimates {
        check.figures(figures, &name);
        let told = lock.acquisitions.unwrap_or_default() as f64;
        let fits = (figures.acquisitions.value - told).abs() <= 1.0 + 1e-6 * told;
        check.demand(fits || check.runs > 1.0, || format!("{}: {told} told of {:?}", name(), figures.acquisitions));
    }
    if let Some(sum) = &lock.wait_estimate {
        check.interval(sum, &name);
        let told = lock.wait_ns.sum.as_f64();
        check
            .demand((sum.value - told).abs() <= 1.0 + 1e-6 * told, || format!("{}: {told} ns told of {sum:?}", name()));
    }
    for w in &lock.waiters {
        waiter(w, check, &|| format!("{} at {} waiting for {}", w.place.symbol, w.count, name()));
    }
    // The lists of means over several runs are cut off.
    let all = lock.waiters.iter().map(|w| w.wait_ns);
    check.parts(all, lock.recorded_wait_ns, || format!("waiters of {}", name()));
    check.shares(lock.waiters.iter().map(|w| w.share), || format!("waiters of {}", name()));
    let blamed = lock.holders.iter().map(|h| h.wait_ns).chain([lock.unattributed_ns]);
    check.adds_up(blamed, lock.recorded_wait_ns, || format!("those to blame for the waiting for {}", name()));
    check.shares(lock.holders.iter().map(|h| h.share), || format!("holders of {}", name()));
    check.demand(lock.holders.is_sorted_by(|a, b| a.wait_ns >= b.wait_ns), || {
        format!("holders of {}: no order", name())
    });
    check.demand(lock.waiters.is_sorted_by(|a, b| a.wait_ns >= b.wait_ns), || {
        format!("waiters of {}: no order", name())
    });
    for h in &lock.holders {
        holder(h, check, &|| format!("{} holding {}", h.place.symbol, name()));
    }
    for c in &lock.chains {
        chain(c, lock.recorded_wait_ns, check, &|| format!("a chain from {}", name()));
    }
    for pair in &lock.thread_pairs {
        check.within(pair.wait_ns, lock.recorded_wait_ns, || format!("a pair of threads at {}", name()));
    }
}

fn counts(lock: &LockEntry, check: &mut Check, name: &dyn Fn() -> String) {
    if let Some(acquisitions) = lock.acquisitions.filter(|_| !lock.inferred && !lock.kernel) {
        // Attempts that come to nothing may be contended, too.
        let attempts = (acquisitions + lock.timeouts + lock.errors).max(lock.release_unseen);
        check.demand(check.count_at_most(lock.contended, attempts), || {
            format!("{}: {} contended of {attempts}", name(), lock.contended)
        });
    }
    let now = &lock.waiting_now;
    check.demand(now.places.iter().map(|p| p.count).sum::<u64>() <= now.count.max(1), || {
        format!("{}: more places than the {} that wait now", name(), now.count)
    });
    check.within(now.longest_ns, now.sum_ns, || format!("waits for {} now", name()));
}

fn times(lock: &LockEntry, report: &Report, check: &mut Check, name: &dyn Fn() -> String) {
    check.durations(&lock.wait_ns, lock.acquisitions, &|| format!("waits for {}", name()));
    // The entry of an estimated lock does not say how many waits were measured.
    let contended = (lock.estimates.is_none() && lock.wait_estimate.is_none()).then_some(lock.contended);
    check.durations(&lock.contended_wait_ns, contended, &|| format!("contended waits for {}", name()));
    check.adds_up([lock.wait_ns.sum], lock.contended_wait_ns.sum, || format!("waits for {} in two ways", name()));
    check.adds_up([lock.wait_ns.max], lock.contended_wait_ns.max, || format!("longest waits for {}", name()));
    let harm = [lock.wait_ns.sum, lock.timed_out_wait_ns, lock.waiting_now.sum_ns];
    check.adds_up(harm, lock.harm_ns, || format!("harm of {}", name()));
    check.within(lock.unattributed_ns, lock.recorded_wait_ns, || format!("blame of nobody for {}", name()));
    let parts = lock.attribution;
    check.adds_up([parts.exact_ns, parts.inferred_ns, parts.unknown_ns], lock.harm_ns, || {
        format!("waiting for {} by how surely it is charged", name())
    });
    check.within(lock.open_wait_ns, lock.recorded_wait_ns, || format!("recorded waits for {} that go on", name()));
    check.demand(lock.harm_ns > Ns::default() || lock.wait_ns.sum == Ns::default(), || format!("{}: no harm", name()));
    let Some(hold) = &lock.hold_ns else { return };
    if let Some(c) = lock.corrected {
        check.within(c.wait_ns, lock.wait_ns.sum, || format!("waits for {} without the observer", name()));
        check.within(c.hold_ns, hold.sum, || format!("holds of {} without the observer", name()));
        check.demand(check.count_at_most(c.contended, lock.contended), || {
            format!("{}: {} contended of {} without the observer", name(), c.contended, lock.contended)
        });
        check.demand(lock.estimates.is_none() || check.runs > 1.0, || {
            format!("{}: an estimate corrected twice", name())
        });
    }
    let held = lock.acquisitions.unwrap_or_default().saturating_sub(lock.release_unseen);
    check.durations(hold, Some(held), &|| format!("holds of {}", name()));
    // A lock that one holds at a time is not held longer than there is time.
    let duration = report.quality.duration_ns;
    let alone = lock.kind == "mutex" && lock.estimates.is_none() && check.runs <= 1.0 && lock.mutex_type.is_some();
    check.demand(!alone || hold.max <= duration || duration == 0, || {
        format!("{}: held {} in {duration}", name(), hold.max)
    });
}

fn waiter(w: &WaiterEntry, check: &mut Check, name: &dyn Fn() -> String) {
    check.within(w.max_ns, Ns::from_f64(w.wait_ns.as_f64() * check.runs), || format!("longest of {}", name()));
    let longest = w.max_ns.as_f64() * (w.count as f64 + if check.runs > 1.0 { 1.0 } else { 0.0 });
    check.demand(check.at_most(w.wait_ns.as_f64(), longest, w.count), || {
        format!("{}: {} of waits up to {}", name(), w.wait_ns, w.max_ns)
    });
    check.within(w.unattributed_ns, w.wait_ns, || format!("blame of nobody for {}", name()));
    let blamed = w.blamed.iter().map(|b| b.wait_ns).chain([w.unattributed_ns]);
    check.parts(blamed, w.wait_ns, || format!("those to blame for {}", name()));
    check.shares(w.blamed.iter().map(|b| b.share), || format!("those to blame for {}", name()));
}

fn holder(h: &HolderEntry, check: &mut Check, name: &dyn Fn() -> String) {
    check.within(h.nested_ns, h.wait_ns, || format!("through nesting, {}", name()));
    check.within(h.handoff_ns, h.wait_ns, || format!("in hand-offs, {}", name()));
    check.within(h.inferred_ns, h.wait_ns, || format!("by inference, {}", name()));
    check.demand(h.inferred || h.inferred_ns == Ns::default(), || format!("by inference and not, {}", name()));
    check.causes(h.causes.as_ref(), h.wait_ns, name);
    check.parts(h.off_stacks.iter().map(|o| o.wait_ns), h.wait_ns, || format!("stacks of {}", name()));
    check.callers(h.callers.as_ref(), h.wait_ns, name);
}

pub(super) fn chain(c: &ChainEntry, all: Ns, check: &mut Check, name: &dyn Fn() -> String) {
    check.within(c.wait_ns, all, name);
    check.share(c.share, name);
    check.demand(c.links.len() > 1, || format!("{} has one link only", name()));
}
