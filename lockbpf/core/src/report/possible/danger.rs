//! Deadlocks, and orders of locking.

use super::super::schema::{BlockedEntry, DeadlockEntry, InversionEntry, Ns, OrderEntry, Report};
use super::Check;

pub(super) fn check(report: &Report, check: &mut Check) {
    for d in &report.deadlocks {
        deadlock(d, check);
        check.demand(d.ended_ns.is_none(), || "a deadlock that ended".to_owned());
    }
    for d in &report.ended_circles {
        deadlock(d, check);
        check.demand(d.ended_ns.is_some() && !d.exited, || "a circle that ended and did not".to_owned());
    }
    for InversionEntry { orders } in &report.inversions {
        inversion(orders, check);
    }
}

fn deadlock(d: &DeadlockEntry, check: &mut Check) {
    // What was there before the observation may have closed at any time.
    let DeadlockEntry { found_ns, ended_ns, lasted_ns, exited, for_ever, before_start: _, threads } = d;
    check.demand(!threads.is_empty(), || "a deadlock of nobody".to_owned());
    check.demand(!(*for_ever && (*exited || ended_ns.is_some())), || "a deadlock for ever that ended".to_owned());
    let mut closed = Ns::default();
    let before = threads.iter().cycle().skip(threads.len().saturating_sub(1));
    for (member, before) in threads.iter().zip(before) {
        // A stack may be there where the place is not known, and the other way round.
        let BlockedEntry { tid, lock, name, holds, holds_name, site, symbol, since_ns, comm: _, stack } = member;
        let who = || format!("thread {tid} in a deadlock");
        check.within(*since_ns, *found_ns, || format!("{}, which waits since after it was found", who()));
        check.demand((holds, holds_name) == (&before.lock, &before.name), || {
            format!("{} holds `{holds_name}`, but `{}` is waited for", who(), before.name)
        });
        check.demand(threads.len() == 1 || lock != holds, || format!("{} waits for itself at `{name}`", who()));
        check.demand(site.is_none() || symbol.is_some(), || format!("a place without a name, of {}", who()));
        check.stack(stack, &who);
        closed = closed.max(*since_ns);
    }
    if let Some(ended) = ended_ns {
        check.within(closed, *ended, || "a circle that ended before it closed".to_owned());
        check.adds_up([closed, *lasted_ns], *ended, || "how long a circle stood".to_owned());
    }
    // It stood when it was found.
    let stood = *found_ns - closed;
    check.demand(ended_ns.is_some() || *lasted_ns >= stood, || format!("a deadlock of {lasted_ns}, found at {stood}"));
}

fn inversion(orders: &[OrderEntry], check: &mut Check) {
    check.demand(orders.len() > 1, || "a lock order that cannot deadlock".to_owned());
    for (order, next) in orders.iter().zip(orders.iter().cycle().skip(1)) {
        let OrderEntry {
            outer,
            outer_name,
            inner,
            inner_name,
            count,
            other_threads,
            // Where and by whom.
            outer_site: _,
            outer_symbol: _,
            inner_site: _,
            inner_symbol: _,
            tid: _,
        } = order;
        check.demand(*count > u64::from(*other_threads), || {
            format!("`{outer_name}` before `{inner_name}`, but {count} times by others, too: {other_threads}")
        });
        check.demand(outer != inner && *inner == next.outer, || {
            format!("`{outer_name}` before `{inner_name}`, then `{}`: no circle", next.outer_name)
        });
    }
}
