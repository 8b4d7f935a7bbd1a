//! Where those waited whose waits only the kernel has seen in full.

use crate::id::Site;
use crate::sums::{Measure, SiteSums};
use crate::units::Nanos;
use std::collections::BTreeMap;

/// Gives a lock's `rows` the waits for it that the kernel has seen: in proportion to what was `recorded` at their places, or, if nothing was, to what
/// windows saw there. A place that no window saw gets a row, of which nothing but the waiting is known.
///
/// The row with most of the waiting also gets how it is distributed. How many waited or gave up is counted at a row that windows saw.
pub(super) fn distribute(
    sums: &mut Vec<SiteSums>,
    rows: &[usize],
    slept: &SiteSums,
    mut recorded: BTreeMap<Site, Nanos>,
) {
    let mut weights = weights(sums, rows, &recorded);
    let heaviest = |sums: &[SiteSums], weights: &[(usize, u64)]| {
        weights.iter().max_by_key(|&&(at, weight)| (weight, sums.get(at).map(SiteSums::seen))).map(|&(at, _)| at)
    };
    let Some(counted) = heaviest(sums, &weights) else { return };
    let mut contended = 0;
    for row in rows.iter().filter_map(|&at| sums.get(at)) {
        contended += row.contended;
        recorded.remove(&row.site);
    }
    // What is left was recorded where no window saw a section.
    let all: u128 = weights.iter().map(|row| row.1).chain(recorded.values().map(|time| time.0)).map(u128::from).sum();
    let part = |weight: u64| (u128::from(slept.wait.sum.0) * u128::from(weight) / all.max(1)) as u64;
    for (site, time) in recorded.into_iter().filter(|(_, time)| part(time.0) > 0) {
        let Some(&SiteSums { lock, via, kind, mutex_kind, first, .. }) = sums.get(counted) else { continue };
        weights.push((sums.len(), time.0));
        sums.push(SiteSums { kind, mutex_kind, ..SiteSums::new(lock, site, via, first) });
    }
    let most = heaviest(sums, &weights);
    let mut rest = slept.wait.sum;
    for (at, weight) in weights {
        let Some(row) = sums.get_mut(at) else { continue };
        row.wait = Measure { sum: Nanos(part(weight)), ..Measure::default() };
        (row.timeouts, row.timed_out) = (0, Nanos(0));
        rest = rest - row.wait.sum;
    }
    if let Some(row) = most.and_then(|at| sums.get_mut(at)) {
        row.wait = Measure { sum: row.wait.sum + rest, ..slept.wait.clone() };
    }
    if let Some(row) = sums.get_mut(counted) {
        // Whoever slept was contended, whatever windows saw.
        row.contended += slept.acquisitions.saturating_sub(contended);
        row.acquisitions = row.acquisitions.max(row.contended);
        (row.timeouts, row.timed_out) = (slept.timeouts, slept.timed_out);
    }
}

/// The rows, and the waiting at each. What was recorded at a place goes to the best known of the rows that it has, since a record does not say by
/// which call the thread waited.
fn weights(sums: &[SiteSums], rows: &[usize], recorded: &BTreeMap<Site, Nanos>) -> Vec<(usize, u64)> {
    let rows = || rows.iter().filter_map(|&at| sums.get(at).map(|row| (at, row)));
    if recorded.values().all(|&time| time == Nanos(0)) {
        return rows().map(|(at, row)| (at, row.wait.sum.0)).collect();
    }
    let mut best: BTreeMap<Site, (usize, &SiteSums)> = BTreeMap::new();
    for (at, row) in rows() {
        let known = best.entry(row.site).or_insert((at, row));
        if row.seen() > known.1.seen() {
            *known = (at, row);
        }
    }
    let there =
        |at: usize, row: &SiteSums| best.get(&row.site).filter(|known| known.0 == at).and(recorded.get(&row.site));
    rows().map(|(at, row)| (at, there(at, row).map_or(0, |time| time.0))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Lock, Process};
    use crate::units::Time;
    use lockbpf_common::kind::Via;

    const LOCK: Lock = Lock { process: Process(1), addr: 0x1000 };

    fn site(addr: u64) -> Site {
        Site { process: Process(1), addr }
    }

    fn row(at: u64, via: Via, seen: (u64, u64)) -> SiteSums {
        let mut row = SiteSums::new(LOCK, site(at), via, Time(1));
        (row.acquisitions, row.contended) = (seen.0, seen.1);
        (0..seen.1).for_each(|_| row.wait.add(Nanos(10)));
        row
    }

    /// What each place waited, and which of them have sections, after 100 waits of 9 ns.
    fn told(mut sums: Vec<SiteSums>, recorded: &[(u64, u64)]) -> Vec<(u64, u64, bool)> {
        let mut slept = SiteSums::new(LOCK, site(0), Via::Futex, Time(1));
        slept.acquisitions = 100;
        (0..100).for_each(|_| slept.wait.add(Nanos(9)));
        let rows: Vec<usize> = (0..sums.len()).collect();
        let recorded = recorded.iter().map(|&(at, ns)| (site(at), Nanos(ns))).collect();
        distribute(&mut sums, &rows, &slept, recorded);
        assert_eq!(sums.iter().map(|row| row.wait.sum.0).sum::<u64>(), 900, "all of it, whatever windows saw");
        let most = sums.iter().max_by_key(|row| row.wait.sum).unwrap();
        assert_eq!(most.wait.histogram.count(), 100, "how they are distributed is where most of it is");
        let contended: u64 = sums.iter().map(|row| row.contended).sum();
        assert_eq!(contended, 100);
        sums.iter().map(|row| (row.site.addr, row.wait.sum.0, row.acquisitions > 0)).collect()
    }

    #[test]
    fn waiting_is_where_it_was_recorded() {
        let rows = || vec![row(0xa, Via::Lock, (500, 0)), row(0xb, Via::Lock, (20, 1))];
        assert_eq!(told(rows(), &[(0xa, 300), (0xb, 100)]), [(0xa, 675, true), (0xb, 225, true)]);
        // Without records windows tell, and where they saw none either, the place of most sections.
        assert_eq!(told(rows(), &[]), [(0xa, 0, true), (0xb, 900, true)]);
        assert_eq!(told(vec![row(0xa, Via::Lock, (500, 0))], &[(0xa, 0)]), [(0xa, 900, true)]);
    }

    #[test]
    fn a_place_that_no_window_saw_is_told_by_its_waiting_alone() {
        let rows = vec![row(0xa, Via::Lock, (500, 2))];
        // Where all gave up, nobody waited for an acquisition.
        assert_eq!(told(rows, &[(0xa, 100), (0xc, 200), (0xd, 0)]), [(0xa, 300, true), (0xc, 600, false)]);
    }

    #[test]
    fn of_the_calls_at_a_place_the_best_known_one_waited() {
        let rows = vec![row(0xa, Via::TimedLock, (3, 1)), row(0xa, Via::Lock, (500, 2)), row(0xb, Via::Lock, (1, 0))];
        let told = told(rows, &[(0xa, 400), (0xb, 50)]);
        assert_eq!(told, [(0xa, 0, true), (0xa, 800, true), (0xb, 100, true)]);
    }
}
