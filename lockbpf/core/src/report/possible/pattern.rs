//! Patterns of waiting: each beside its own evidence.

use super::super::schema::{
    Convoy, Evidence, FavouredEntry, LockStep, PatternEntry, Report, Starvation, StarvingEntry, ThunderingHerd,
};
use super::Check;

pub(super) fn check(report: &Report, check: &mut Check) {
    check.longest_first(&report.patterns, |p| p.wait_ns, || "patterns".to_owned());
    for p in &report.patterns {
        let PatternEntry { lock: _, name: _, wait_ns: _, share, evidence } = p;
        check.share(*share, || p.title());
        match evidence {
            Evidence::Starvation(s) => starvation(s, p, check),
            Evidence::ThunderingHerd(h) => herd(h, p, check),
            Evidence::Convoy(c) => convoy(c, p, check),
            Evidence::LockStep(l) => lock_step(l, p, check),
        }
    }
}

fn starvation(s: &Starvation, p: &PatternEntry, check: &mut Check) {
    let Starvation { starving, favoured, favoured_wait_ns } = s;
    check.parts(starving.iter().map(|t| t.wait_ns), p.wait_ns, || p.title());
    check.longest_first(starving, |t| t.wait_ns, || p.title());
    check.demand(!starving.is_empty(), || format!("{} of nobody", p.title()));
    for StarvingEntry { tid, wait_ns, waits, overtaken } in starving {
        check.demand(*overtaken >= *waits, || format!("{}: {tid} overtaken {overtaken} times in {waits}", p.title()));
        check.within(*favoured_wait_ns, *wait_ns, || {
            format!("{}: those who got it waited longer than {tid}", p.title())
        });
    }
    check.demand(favoured.is_sorted_by(|a, b| a.taken >= b.taken), || format!("{}: no order", p.title()));
    for FavouredEntry { tid, taken, wait_ns: _ } in favoured {
        let other = *taken > 0 && starving.iter().all(|t| t.tid != *tid);
        check.demand(other, || format!("{}: {tid} starves and does not", p.title()));
    }
}

fn herd(h: &ThunderingHerd, p: &PatternEntry, check: &mut Check) {
    let ThunderingHerd { wakes, woken, returns, in_vain } = *h;
    check.count(in_vain, returns, || format!("in vain, {}", p.title()));
    check.demand(0 < wakes && wakes <= woken, || format!("{}: {woken} woken by {wakes}", p.title()));
}

fn convoy(c: &Convoy, p: &PatternEntry, check: &mut Check) {
    let Convoy { threads, queue, queued_share, handed_share, free_share } = *c;
    for share in [queued_share, handed_share, free_share] {
        check.share(share, || p.title());
    }
    // Those who waited without a record are in the queue, and not among the threads.
    check.demand(threads > 0 && queue >= 0.0 && queue.is_finite(), || format!("{}: a queue of {queue}", p.title()));
}

fn lock_step(l: &LockStep, p: &PatternEntry, check: &mut Check) {
    let LockStep { threads, arrivals, waited_share, least_share } = *l;
    check.share(waited_share, || p.title());
    check.share(least_share, || p.title());
    check.demand(least_share <= waited_share + 1e-6, || {
        format!("{}: the least of {waited_share} is {least_share}", p.title())
    });
    check.demand(1 < threads && threads <= arrivals, || format!("{}: {threads} meet {arrivals} times", p.title()));
}
