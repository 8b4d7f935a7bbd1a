use super::super::schema::{
    CulpritEntry, Durations, Ns, OffStackEntry, Place, QualityEntry, StackFrame, ThreadEntry, ThreadId, Totals,
};
use super::super::table::{Layout, render};
use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn durations(sum: u64) -> Durations {
    Durations { sum: Ns::new(sum), max: Ns::new(sum), ..Durations::default() }
}

/// One run in which `flush` made others wait for `log_lock` that long, at addresses of its own.
fn run(number: u64, apwt: u64, cpwt: Option<u64>) -> Report {
    let (lock, site) = (format!("{number}:0x{number}000"), format!("{number}:0x{number}abc"));
    let place = Place { site: Some(site.clone()), symbol: "flush (wal.c:210)".into(), ..Place::default() };
    let culprit = CulpritEntry {
        place,
        lock: lock.clone(),
        name: "log_lock".into(),
        locks: 1,
        kind: "mutex".into(),
        wait_ns: Ns::new(apwt),
        share: 1.0,
        ..CulpritEntry::default()
    };
    Report {
        schema: SCHEMA.into(),
        totals: Totals { harm_ns: Ns::new(apwt), recorded_wait_ns: Ns::new(apwt), locks: 1, ..Totals::default() },
        culprits: vec![culprit],
        locks: vec![LockEntry {
            lock: lock.clone(),
            name: "log_lock".into(),
            label: "log_lock".into(),
            kind: "mutex".into(),
            comm: Some("server".into()),
            acquisitions: Some(10 * number),
            contended: 5,
            harm_ns: Ns::new(apwt),
            wait_ns: durations(apwt),
            hold_ns: Some(durations(7)),
            aplt_ns: Ns::new(apwt),
            recorded_wait_ns: Ns::new(apwt),
            ..LockEntry::default()
        }],
        sites: vec![SiteEntry {
            site,
            lock,
            symbol: "flush (wal.c:210)".into(),
            locks: 1,
            instances: 4,
            apwt_ns: Ns::new(apwt),
            cpwt_ns: cpwt.map(Ns::new),
            rank: 1,
            ..SiteEntry::default()
        }],
        threads: vec![ThreadEntry { tid: ThreadId::Number(number), wait_ns: Ns::new(apwt), ..ThreadEntry::default() }],
        quality: QualityEntry {
            target: "server".into(),
            duration_ns: Ns::new(10 * SECOND),
            observed_share: 1.0,
            events: 3,
            ..QualityEntry::default()
        },
        ..Report::default()
    }
}

#[test]
fn runs_are_matched_by_name_and_ranked_by_their_mean() {
    let combined = combine(vec![run(1, 2 * SECOND, Some(10)), run(2, 4 * SECOND, None)], &Options::default());
    let site = &combined.sites[0];
    assert_eq!((combined.sites.len(), site.rank), (1, 1));
    assert_eq!((site.apwt_ns, site.cpwt_ns), (Ns::new(3 * SECOND), Some(Ns::new(5))));
    let spread = site.spread.unwrap();
    assert_eq!((spread.runs, spread.apwt_sd_ns.whole()), (2, 1_414_213_562));
    assert_eq!(spread.cpwt_sd_ns.map(Ns::whole), Some(7));
    assert!(spread.inconclusive, "the critical-path wait time deviates by more than half");
    let lock = &combined.locks[0];
    assert_eq!((lock.acquisitions, lock.wait_ns.sum), (Some(15), Ns::new(3 * SECOND)));
    assert_eq!(lock.wait_ns.mean, Ns::new(6 * SECOND / 30));
    assert!(!lock.spread.unwrap().inconclusive);
    assert_eq!((&site.lock, &combined.culprits[0].lock), (&lock.lock, &lock.lock), "one identity of three");
    assert_eq!((combined.quality.events, combined.quality.duration_ns), (6, Ns::new(10 * SECOND)));
    assert_eq!(combined.totals.locks, 1);
}

#[test]
fn a_run_without_a_site_counts_nothing_for_it() {
    let mut without = run(3, SECOND, None);
    without.sites.clear();
    let combined = combine(vec![run(1, 3 * SECOND, None), run(2, 3 * SECOND, None), without], &Options::default());
    let site = &combined.sites[0];
    assert_eq!((site.apwt_ns, site.cpwt_ns, site.instances), (Ns::new(2 * SECOND), None, 3));
    let spread = site.spread.unwrap();
    assert_eq!((spread.runs, spread.cpwt_sd_ns, spread.inconclusive), (2, None, true));
    let lax = Options { bound: 1.0, ..Options::default() };
    let again = combine(vec![run(1, 3 * SECOND, None), run(2, SECOND, None)], &lax);
    assert!(!again.runs.unwrap().inconclusive);
}

#[test]
fn what_one_run_does_not_tell_is_not_known_in_the_mean() {
    // As where one run has watched futex calls only.
    let mut waits_only = run(2, SECOND, None);
    (waits_only.locks[0].acquisitions, waits_only.locks[0].hold_ns) = (None, None);
    let combined = combine(vec![run(1, SECOND, None), waits_only], &Options::default());
    let lock = &combined.locks[0];
    assert_eq!((lock.acquisitions, lock.hold_ns, lock.contended), (None, None, 5));
    assert_eq!(lock.wait_ns.sum, Ns::new(SECOND));
}

#[test]
fn stacks_of_holders_are_means_too() {
    let off = |number, wait, functions: &[&str]| {
        let stack = |wait, function: &&str| OffStackEntry {
            cause: "sleeping".into(),
            function: Some((*function).into()),
            wait_ns: Ns::new(wait),
            // Each process is loaded somewhere else.
            stack: vec![StackFrame {
                address: format!("0x{number}00"),
                function: Some((*function).into()),
                ..StackFrame::default()
            }],
        };
        let mut report = run(number, wait, None);
        let part = wait / functions.len() as u64;
        report.culprits[0].off_stacks = functions.iter().map(|function| stack(part, function)).collect();
        report
    };
    let combined = combine(vec![off(1, 8, &["fsync"]), off(2, 4, &["fsync", "read"])], &Options::default());
    let culprit = &combined.culprits[0];
    let stacks = culprit.off_stacks.iter().map(|s| (s.function.as_deref().unwrap_or(""), s.wait_ns.as_f64()));
    assert_eq!(stacks.collect::<Vec<_>>(), [("fsync", 5.0), ("read", 1.0)], "of {}", culprit.wait_ns);
}

#[test]
fn what_the_input_names_is_matched_by_that() {
    let named = |id: &str, apwt| {
        let mut report = run(1, apwt, None);
        (report.sites[0].site, report.sites[0].lock) = (id.into(), "L".into());
        (report.locks[0].lock, report.locks[0].name) = ("L".into(), "any".into());
        report
    };
    let combined = combine(vec![named("3", 8), named("4", 6), named("3", 1)], &Options::default());
    let sites: Vec<_> = combined.sites.iter().map(|s| (s.site.as_str(), s.apwt_ns.as_f64())).collect();
    assert_eq!(sites, [("3", 3.0), ("4", 2.0)]);
    assert_eq!(combined.locks.len(), 1);
}

#[test]
fn one_run_stays_as_it_is_and_none_is_empty() {
    assert_eq!(combine(vec![run(1, 5, None)], &Options::default()), run(1, 5, None));
    assert_eq!(combine(Vec::new(), &Options::default()).schema, SCHEMA);
}

#[test]
fn the_table_says_how_far_runs_agree() {
    let combined = combine(vec![run(1, SECOND, None), run(2, 9 * SECOND, None)], &Options::default());
    let text = render(&combined, &Layout::default());
    let expected = "\
100 % of all waiting is caused by `flush (wal.c:210)` holding `log_lock`; what it did meanwhile is not known.
`log_lock` (mutex) holds server back: threads waited 5.00 s for it in 10.0 s.
Inconclusive: over 2 runs the waiting that flush (wal.c:210) caused deviates by 113 % of its mean.

Means over 2 runs ± standard deviation. 1 critical section deviates by more than 50 % of its mean: inconclusive.
";
    assert!(text.starts_with(expected), "{text}");
    assert!(
        text.contains("flush (wal.c:210)  log_lock         4    0 ns     –  5.00 s ± 5.66 s  inconclusive"),
        "{text}"
    );
    let json = serde_json::to_string(&combined).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), combined);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["runs"]["count"], &json["sites"][0]["inconclusive"]), (&2.into(), &true.into()));
}

proptest! {
    #[test]
    fn means_and_deviations_are_those_of_the_runs(waits in prop::collection::vec(0u64..1 << 40, 2..6), top in 0usize..3) {
        let reports = (1..).zip(&waits).map(|(i, &wait)| run(i, wait, None)).collect();
        let combined = combine(reports, &Options { top: Some(top), ..Options::default() });
        let n = waits.len() as f64;
        let mean = waits.iter().map(|&w| w as f64).sum::<f64>() / n;
        prop_assert!((combined.totals.harm_ns.as_f64() - mean).abs() < 0.01);
        let threads: f64 = combined.threads.iter().map(|t| t.wait_ns.as_f64()).sum();
        prop_assert!((threads - mean).abs() < 0.01);
        prop_assert_eq!((combined.locks.len(), combined.sites.len()), (top.min(1), top.min(1)));
        prop_assert_eq!(combined.totals.locks_omitted, 1 - top.min(1) as u64);
        for site in &combined.sites {
            let variance = waits.iter().map(|&w| (w as f64 - mean).powi(2)).sum::<f64>() / (n - 1.0);
            let spread = site.spread.unwrap();
            prop_assert!((site.apwt_ns.as_f64() - mean).abs() < 0.01);
            prop_assert!((spread.apwt_sd_ns.as_f64() - variance.sqrt()).abs() < 0.01 + mean * 1e-9);
            prop_assert_eq!(spread.inconclusive, spread.apwt_sd_ns.share_of(site.apwt_ns) > 0.5);
        }
    }
}
