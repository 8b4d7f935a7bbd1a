//! Two recordings to one comparison.

use super::change::{Change, Estimate, SECOND, Thresholds};
use super::findings::findings;
use super::matching::{Pair, pairs, without_line};
use super::recording::{Key, LockSums, Recording, SiteSums};
use super::schema::{Diff, LockDiff, Overall, Presence, RecordingEntry, SCHEMA, SiteDiff};
use super::{DiffError, Which};
use crate::report::Report;

/// Compares two recordings of which these are the reports, with all their locks.
///
/// # Errors
/// When one of them has no duration.
pub fn diff(a: &Report, b: &Report, thresholds: Thresholds) -> Result<Diff, DiffError> {
    let recordings = [Recording::of(a), Recording::of(b)];
    let [ra, rb] = &recordings;
    for (recording, which) in [(ra, Which::A), (rb, Which::B)] {
        if recording.time <= 0.0 {
            return Err(DiffError::NoDuration(which));
        }
    }
    let compare = Compare { thresholds, a: ra, b: rb };
    let loose_key = |key: &Key| Key { comm: key.comm.clone(), name: without_line(&key.name) };
    let mut locks: Vec<_> =
        pairs(&ra.locks, &rb.locks, loose_key).into_iter().map(|pair| compare.lock(&pair)).collect();
    locks.sort_by(|x, y| {
        let key = |l: &LockDiff| (l.wait_ns_per_s.difference().abs(), l.held_share.difference().abs());
        let ((wait_x, held_x), (wait_y, held_y)) = (key(x), key(y));
        wait_y.total_cmp(&wait_x).then(held_y.total_cmp(&held_x)).then_with(|| x.name.cmp(&y.name))
    });
    let mut sites: Vec<_> =
        pairs(&ra.sites, &rb.sites, loose_key).into_iter().map(|pair| compare.site(&pair)).collect();
    sites.sort_by(|x, y| {
        let key = |s: &SiteDiff| s.apwt_ns_per_s.difference().abs();
        key(y).total_cmp(&key(x)).then_with(|| (&x.symbol, &x.lock).cmp(&(&y.symbol, &y.lock)))
    });
    let overall = compare.overall();
    Ok(Diff {
        schema: SCHEMA.to_owned(),
        a: entry(a, ra),
        b: entry(b, rb),
        thresholds,
        gate: Vec::new(),
        findings: findings(&overall, &locks, &sites, &thresholds),
        overall,
        locks,
        sites,
    })
}

fn entry(report: &Report, recording: &Recording) -> RecordingEntry {
    RecordingEntry {
        target: report.quality.target.clone(),
        observed_ns: recording.time,
        threads: report.threads.len() as u64,
        incomplete: report.quality.incomplete,
    }
}

struct Compare<'a> {
    thresholds: Thresholds,
    a: &'a Recording,
    b: &'a Recording,
}

impl Compare<'_> {
    /// Applies a measure to both sides. What was not seen on a side counts as `absent` there.
    fn both<V>(&self, a: Option<&V>, b: Option<&V>, measure: impl Fn(&V, f64) -> Option<Estimate>) -> Sides {
        // What was not there did not happen: its rates are 0.
        let absent = Some(Estimate::exact(0.0));
        Sides {
            a: a.map_or(absent, |v| measure(v, self.a.time)),
            b: b.map_or(absent, |v| measure(v, self.b.time)),
            present: (a.is_some(), b.is_some()),
        }
    }

    fn change(&self, sides: Sides, matters: impl FnOnce(f64, f64) -> bool) -> Change {
        self.thresholds.change(sides.a, sides.b, matters)
    }

    /// A rate in ns per second, which matters as a part of the time.
    fn time_rate(&self, sides: Sides) -> Change {
        let enough = self.thresholds.share * SECOND;
        self.change(sides, |a, b| (a - b).abs() >= enough)
    }

    fn lock(&self, pair: &Pair<'_, Key, LockSums>) -> LockDiff {
        let (a, b) = (pair.a.map(|(_, v)| v), pair.b.map(|(_, v)| v));
        let share = self.thresholds.share;
        let complete = |s: &LockSums| s.complete.then_some(());
        let waiting = |sum: f64, s: &LockSums, t: f64| Estimate::sum(sum, s.longest_wait, t).within(s.doubt.wait / t);
        let wait_ns_per_s = self.time_rate(self.both(a, b, |s, t| Some(waiting(s.wait, s, t).times(SECOND))));
        let held_share = self.change(
            self.both(a, b, |s, t| {
                complete(s).map(|()| Estimate::sum(s.hold, s.longest_hold, t).within(s.doubt.hold / t))
            }),
            |a, b| (a - b).abs() >= share,
        );
        let counts = wait_ns_per_s.greater() >= share * SECOND || held_share.greater() >= share;
        let acquisitions_per_s = self.change(
            self.both(a, b, |s, t| {
                complete(s).map(|()| Estimate::rate(s.acquisitions, t).within(s.doubt.acquisitions / t).times(SECOND))
            }),
            |_, _| counts,
        );
        let rate = acquisitions_per_s.greater();
        let (name, name_a) = names(pair.a.map(|(k, _)| k.label()), pair.b.map(|(k, _)| k.label()));
        LockDiff {
            name,
            name_a,
            kind: b.or(a).map(|s| s.kind.clone()).unwrap_or_default(),
            presence: presence(a.is_some(), b.is_some()),
            instances: [a, b].map(|s| s.map_or(0, |s| s.instances)),
            acquisitions_per_s,
            contended_share: self.change(
                self.both(a, b, |s, _| {
                    Some(Estimate::share(s.contended, s.acquisitions)?.within(s.doubt.contended_share()))
                })
                .seen(),
                |_, _| counts,
            ),
            wait_ns_per_s,
            mean_hold_ns: self.change(
                self.both(a, b, |s, _| {
                    Some(Estimate::mean(s.hold, s.longest_hold, s.acquisitions)?.within(s.doubt.mean_hold()))
                })
                .seen(),
                |a, b| (a - b).abs() * rate >= share * SECOND,
            ),
            held_share,
            aplt_ns_per_s: self.time_rate(self.both(a, b, |s, t| Some(waiting(s.aplt, s, t).times(SECOND)))),
        }
    }

    fn site(&self, pair: &Pair<'_, Key, SiteSums>) -> SiteDiff {
        let (a, b) = (pair.a.map(|(_, v)| v), pair.b.map(|(_, v)| v));
        let share = self.thresholds.share;
        let wait_ns_per_s =
            self.time_rate(self.both(a, b, |s, t| Some(Estimate::sum(s.wait, s.longest_wait, t).times(SECOND))));
        let apwt_ns_per_s =
            self.time_rate(self.both(a, b, |s, t| Some(Estimate::sum(s.apwt, s.longest_wait, t).times(SECOND))));
        let held = self.both(a, b, |s, t| Some(Estimate::sum(s.hold?, s.longest_hold, t))).greater();
        let counts = apwt_ns_per_s.greater().max(wait_ns_per_s.greater()) >= share * SECOND || held >= share;
        let instances_per_s = self.change(
            self.both(a, b, |s, t| Some(Estimate::rate(s.instances, t).within(s.doubt.acquisitions / t).times(SECOND))),
            |_, _| counts,
        );
        let rate = instances_per_s.greater();
        let symbol = |side: Option<(&Key, &SiteSums)>| side.map(|(key, _)| key.name.clone());
        let (symbol, symbol_a) = names(symbol(pair.a), symbol(pair.b));
        SiteDiff {
            symbol,
            symbol_a,
            lock: b.or(a).map(|s| s.lock.clone()).unwrap_or_default(),
            presence: presence(a.is_some(), b.is_some()),
            instances_per_s,
            wait_ns_per_s,
            mean_hold_ns: self.change(
                self.both(a, b, |s, _| {
                    Some(Estimate::mean(s.hold?, s.longest_hold, s.instances)?.within(s.doubt.mean_hold()))
                })
                .seen(),
                |a, b| (a - b).abs() * rate >= share * SECOND,
            ),
            apwt_ns_per_s,
        }
    }

    fn overall(&self) -> Overall {
        let share = self.thresholds.share;
        let sum = |r: &Recording, of: fn(&LockSums) -> f64| r.locks.values().map(of).sum::<f64>();
        let both =
            |of: &dyn Fn(&Recording) -> Option<Estimate>| Sides { a: of(self.a), b: of(self.b), present: (true, true) };
        let per_thread = |r: &Recording, all: Estimate| (r.threads > 0.0).then(|| all.times(1.0 / r.threads));
        let doubt = |r: &Recording, of: fn(&LockSums) -> f64| r.locks.values().map(of).fold(0.0, f64::hypot) / r.time;
        let waiting = |r: &Recording| {
            Estimate::sum(sum(r, |l| l.wait), r.longest_wait, r.time).within(doubt(r, |l| l.doubt.wait))
        };
        let holding = |r: &Recording| Estimate::sum(r.held_union, r.longest_hold, r.time);
        let locks = |r: &Recording| Estimate::exact(sum(r, |l| l.instances as f64));
        let rate = |r: &Recording| {
            let all = Estimate::rate(sum(r, |l| l.acquisitions), r.time);
            all.within(doubt(r, |l| l.doubt.acquisitions)).times(SECOND)
        };
        let part_of_time = |a: f64, b: f64| (a - b).abs() >= share;
        let busiest = rate(self.a).value.max(rate(self.b).value);
        Overall {
            lock_time_share: self.change(both(&|r| per_thread(r, waiting(r))), part_of_time),
            waiting_threads: self.change(both(&|r| Some(waiting(r))), part_of_time),
            held_share: self.change(both(&|r| per_thread(r, holding(r))), part_of_time),
            holding_threads: self.change(both(&|r| Some(holding(r))), part_of_time),
            mean_hold_ns: self.change(
                both(&|r| Estimate::mean(sum(r, |l| l.hold), r.longest_hold, sum(r, |l| l.acquisitions))),
                |a, b| (a - b).abs() * busiest >= share * SECOND,
            ),
            contended_share: self.change(
                both(&|r| {
                    let all = sum(r, |l| l.acquisitions);
                    let doubt =
                        r.locks.values().map(|l| l.doubt.contended_share() * l.acquisitions).fold(0.0, f64::hypot);
                    Some(Estimate::share(sum(r, |l| l.contended), all)?.within(doubt / all))
                }),
                |_, _| true,
            ),
            static_locks: self.change(both(&|r| Some(locks(r))), |_, _| true),
            static_locks_per_thread: self.change(both(&|r| per_thread(r, locks(r))), |_, _| true),
            dynamic_locks_per_s: self.change(both(&|r| Some(rate(r))), |_, _| true),
        }
    }
}

/// One quantity in both recordings.
#[derive(Clone, Copy)]
struct Sides {
    a: Option<Estimate>,
    b: Option<Estimate>,
    present: (bool, bool),
}

impl Sides {
    /// For quantities of which absence says nothing: a mean, a share.
    fn seen(self) -> Self {
        Self { a: self.a.filter(|_| self.present.0), b: self.b.filter(|_| self.present.1), ..self }
    }

    fn greater(&self) -> f64 {
        [self.a, self.b].into_iter().flatten().map(|e| e.value).fold(0.0, f64::max)
    }
}

fn presence(a: bool, b: bool) -> Presence {
    match (a, b) {
        (true, false) => Presence::Vanished,
        (false, true) => Presence::New,
        _ => Presence::Both,
    }
}

/// B's name, and A's if it is another.
fn names(a: Option<String>, b: Option<String>) -> (String, Option<String>) {
    match (a, b) {
        (Some(a), Some(b)) if a != b => (b, Some(a)),
        (a, b) => (b.or(a).unwrap_or_default(), None),
    }
}
