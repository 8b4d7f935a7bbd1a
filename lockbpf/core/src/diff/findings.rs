//! The changes that are worth a word, in words.

use super::change::{Change, Thresholds};
use super::schema::{Finding, LockDiff, Overall, Presence, SiteDiff};
use crate::report::text::{count, counted, percent};
use crate::units::Nanos;

/// Everything to call out, most important first: locks by the change of their waiting, then sites by the change of the
/// waiting that they cause, then what came and went, then the program as a whole.
pub(super) fn findings(
    overall: &Overall,
    locks: &[LockDiff],
    sites: &[SiteDiff],
    thresholds: &Thresholds,
) -> Vec<Finding> {
    let mut all = Vec::new();
    for lock in locks {
        let text = match lock.presence {
            Presence::Both => changed(lock, thresholds),
            Presence::New | Presence::Vanished => came_or_went(lock),
        };
        all.extend(text.map(|text| Finding { about: "lock", name: Some(lock.name.clone()), text }));
    }
    for site in sites.iter().filter(|s| s.apwt_ns_per_s.called_out) {
        let what = format!("waiting caused by `{}` holding `{}`", site.symbol, site.lock);
        let text = direction(&what, &site.apwt_ns_per_s, per_second);
        all.push(Finding { about: "site", name: Some(site.symbol.clone()), text: sentence(&text) });
    }
    let mut whole = |text: String| all.push(Finding { about: "overall", name: None, text });
    let of = |presence| locks.iter().filter(|l| l.presence == presence).count() as u64;
    let (new, vanished) = (of(Presence::New), of(Presence::Vanished));
    if new + vanished > 0 {
        whole(format!("{} new, {} vanished.", counted(new, "lock"), count(vanished)));
    }
    whole_program(overall).into_iter().for_each(whole);
    all
}

/// A lock of both recordings, if something of it is called out.
fn changed(lock: &LockDiff, thresholds: &Thresholds) -> Option<String> {
    let name = &lock.name;
    let (head, causes) = if lock.wait_ns_per_s.called_out {
        let head = direction(&format!("wait for `{name}`"), &lock.wait_ns_per_s, per_second);
        (head, [cause(lock, thresholds), contended(lock)])
    } else if lock.mean_hold_ns.called_out {
        let held = lock.held_share.called_out.then(|| format!("held {}", from_to(&lock.held_share, percent)));
        (direction(&format!("mean hold of `{name}`"), &lock.mean_hold_ns, time), [held, rate(lock)])
    } else if lock.held_share.called_out {
        (direction(&format!("time that `{name}` is held"), &lock.held_share, percent), [rate(lock), None])
    } else if lock.acquisitions_per_s.called_out {
        let head = direction(&format!("acquisitions of `{name}`"), &lock.acquisitions_per_s, frequency);
        (head, [contended(lock), None])
    } else if lock.contended_share.called_out {
        (direction(&format!("contended acquisitions of `{name}`"), &lock.contended_share, percent), [None, None])
    } else {
        return None;
    };
    let parts: Vec<_> = std::iter::once(head).chain(causes.into_iter().flatten()).collect();
    Some(sentence(&parts.join("; ")))
}

/// Why waiting changed, as far as holds and rate tell.
fn cause(lock: &LockDiff, thresholds: &Thresholds) -> Option<String> {
    let hold = hold(lock);
    match (hold, rate(lock)) {
        (Some(hold), Some(rate)) => Some(format!("{hold}, {rate}")),
        (Some(hold), None) if thresholds.same(&lock.acquisitions_per_s) => Some(format!("{hold} at the same rate")),
        (Some(hold), None) => Some(hold),
        (None, Some(rate)) if thresholds.same(&lock.mean_hold_ns) => Some(format!("{rate}, held as long each time")),
        (None, Some(rate)) => Some(rate),
        (None, None) => (thresholds.same(&lock.acquisitions_per_s) && thresholds.same(&lock.mean_hold_ns))
            .then(|| "holds and rate are the same".to_owned()),
    }
}

fn hold(lock: &LockDiff) -> Option<String> {
    let ratio = lock.mean_hold_ns.ratio.filter(|_| lock.mean_hold_ns.called_out)?;
    Some(if ratio >= 1.0 {
        format!("holds {} longer", times(ratio))
    } else {
        format!("holds {} shorter", times(1.0 / ratio))
    })
}

fn rate(lock: &LockDiff) -> Option<String> {
    let ratio = lock.acquisitions_per_s.ratio.filter(|_| lock.acquisitions_per_s.called_out)?;
    Some(format!("acquired {} as often", times(ratio)))
}

fn contended(lock: &LockDiff) -> Option<String> {
    let share = &lock.contended_share;
    share.called_out.then(|| format!("contended {}", from_to(share, percent)))
}

/// A lock of one recording only, if it matters there.
fn came_or_went(lock: &LockDiff) -> Option<String> {
    if !lock.wait_ns_per_s.called_out && !lock.held_share.called_out {
        return None;
    }
    let (verb, side): (_, fn(&Change) -> Option<f64>) = match lock.presence {
        Presence::Vanished => ("is gone:", |c| c.a),
        Presence::New | Presence::Both => ("is new:", |c| c.b),
    };
    let wait = side(&lock.wait_ns_per_s).filter(|&wait| wait > 0.0);
    let wait = wait.map(|wait| format!("{} of waiting", per_second(wait)));
    let held = side(&lock.held_share).map(|share| format!("held {} of the time", percent(share)));
    let parts: Vec<_> = wait.into_iter().chain(held).collect();
    Some(format!("`{}` {verb} {}.", lock.name, parts.join(", ")))
}

/// A quantity's name, its values and how they are shown.
pub(super) type Quantity<'a> = (&'static str, &'a Change, fn(f64) -> String);

fn whole_program(overall: &Overall) -> Vec<String> {
    let quantities: [Quantity<'_>; 5] = [
        ("lock time", &overall.lock_time_share, percent),
        ("held time", &overall.held_share, percent),
        ("average hold", &overall.mean_hold_ns, time),
        ("static locks", &overall.static_locks, |n| count(n as u64)),
        ("dynamic locks", &overall.dynamic_locks_per_s, frequency),
    ];
    let called_out = quantities.iter().filter(|(_, change, _)| change.called_out);
    called_out.map(|(what, change, show)| sentence(&direction(what, change, *show))).collect()
}

/// `wait 3.1x up: 120 ms -> 372 ms per s`.
fn direction(what: &str, change: &Change, show: fn(f64) -> String) -> String {
    let way = match (change.ratio, change.a, change.b) {
        (Some(ratio), ..) if ratio >= 1.0 => format!("{} up", times(ratio)),
        (Some(ratio), ..) if ratio > 0.0 => format!("{} down", times(1.0 / ratio)),
        (Some(_), ..) => "gone".to_owned(),
        (None, ..) => "from nothing".to_owned(),
    };
    format!("{what} {way}: {}", from_to(change, show))
}

/// `120 ms -> 372 ms per s`: the unit of the whole once.
pub(super) fn from_to(change: &Change, show: fn(f64) -> String) -> String {
    let [a, b] = [change.a, change.b].map(|v| v.map_or_else(|| "unknown".to_owned(), show));
    let a = a.strip_suffix(" per s").unwrap_or(&a);
    format!("{a} -> {b}")
}

/// `3.1x`.
pub(super) fn times(ratio: f64) -> String {
    match ratio {
        r if r < 0.01 => "<0.01x".to_owned(),
        r if r < 0.095 => format!("{r:.2}x"),
        r if r < 9.95 => format!("{r:.1}x"),
        r => format!("{}x", count(r.round() as u64)),
    }
}

/// ns as a duration.
pub(super) fn time(ns: f64) -> String {
    Nanos(ns.round() as u64).to_string()
}

/// ns per second.
pub(super) fn per_second(ns: f64) -> String {
    format!("{} per s", time(ns))
}

/// Occurrences per second.
pub(super) fn frequency(per_s: f64) -> String {
    if per_s > 0.0 && per_s < 9.95 {
        format!("{per_s:.1} per s")
    } else {
        format!("{} per s", count(per_s.round() as u64))
    }
}

fn sentence(text: &str) -> String {
    format!("{text}.")
}
