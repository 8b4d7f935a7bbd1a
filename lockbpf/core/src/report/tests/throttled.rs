//! Quotas of CPU time, in words.

use super::*;
use crate::quality::Throttled;
use crate::report::throttled::together;

fn group(cgroup: &str, [throttled_periods, periods]: [u64; 2], ns: u64) -> Throttled {
    let cgroup = cgroup.to_owned();
    Throttled { cgroup, pids: vec![1234], millicpus: 500, periods, throttled_periods, throttled_ns: ns }
}

fn with(groups: &[Throttled]) -> Run {
    let mut o = observation();
    feed(&mut o, &section(0x1000, 11, 0x300, [10, 10, 20]), true);
    feed(&mut o, &section(0x1000, 12, 0x400, [15, 20, 21]), true);
    o.quality.throttled = groups.to_vec();
    o
}

#[test]
fn a_quota_that_is_used_up_often_is_told() {
    let often = group("/kubepods/a", [83, 98], 4_200 * MS);
    let told = verdict(&with(&[group("/", [1, 98], 5 * MS), often.clone()]));
    let expected = "The CPU quota of cgroup /kubepods/a (0.5 CPUs) was used up in 83 of 98 periods, and stopped `server` for 4.20 s";
    assert!(told.contains(expected), "{told}");
    let entries = report(&with(&[often])).quality.throttled;
    assert_eq!(
        (entries[0].quota_cpus, entries[0].comms.clone(), entries[0].throttled_ns),
        (0.5, vec!["server".to_owned()], ms(4_200))
    );
}

#[test]
fn one_that_seldom_stops_anybody_is_not() {
    for group in [group("/a", [9, 98], 4_200 * MS), group("/a", [83, 98], 5 * MS), group("/a", [0, 0], 0)] {
        let told = verdict(&with(&[group]));
        assert!(!told.contains("quota"), "{told}");
    }
}

#[test]
fn runs_are_added_up_by_cgroup() {
    let runs =
        [[83, 98], [10, 100]].map(|periods| report(&with(&[group("/a", periods, 100 * MS), group("/b", [1, 2], MS)])));
    let together = together(runs.iter().map(|run| &run.quality));
    let periods: Vec<_> =
        together.iter().map(|group| (&*group.cgroup, group.throttled_periods, group.periods)).collect();
    assert_eq!(periods, [("/a", 93, 198), ("/b", 2, 4)]);
    assert_eq!((together[0].throttled_ns, together[0].pids.len(), together[0].comms.len()), (ms(200), 1, 1));
}
