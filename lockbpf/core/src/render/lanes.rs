//! Intervals on tracks on which they nest: viewers draw what begins and ends in any other order wrongly.

use crate::report::schema::Ns;
use std::cmp::Reverse;

/// An interval, and what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval<T> {
    pub(super) start: Ns,
    pub(super) end: Ns,
    pub(super) what: T,
}

/// What happens on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge<T> {
    /// An interval begins at a time.
    Begin(Ns, T),
    /// The one that began last, of those that have not ended, ends at a time.
    End(Ns),
}

/// Puts intervals on as few lanes as nesting allows, and takes each lane apart into its beginnings and ends, in order. An interval comes to
/// the first lane on which it nests.
pub(super) fn lanes<T: Copy>(mut intervals: Vec<Interval<T>>) -> Vec<Vec<Edge<T>>> {
    intervals.sort_by_key(|interval| (interval.start, Reverse(interval.end)));
    let mut lanes: Vec<(Vec<Ns>, Vec<Edge<T>>)> = Vec::new();
    for Interval { start, end, what } in intervals {
        let at = lanes.iter().position(|(open, _)| nests(open, start, end)).unwrap_or_else(|| {
            lanes.push((Vec::new(), Vec::new()));
            lanes.len() - 1
        });
        let (open, edges) = &mut lanes[at];
        while let Some(&until) = open.last().filter(|&&until| until <= start) {
            edges.push(Edge::End(until));
            open.pop();
        }
        open.push(end);
        edges.push(Edge::Begin(start, what));
    }
    let close = |(open, mut edges): (Vec<Ns>, Vec<Edge<T>>)| {
        edges.extend(open.into_iter().rev().map(Edge::End));
        edges
    };
    lanes.into_iter().map(close).collect()
}

/// Whether an interval lies within the innermost of those that have not ended when it begins.
fn nests(open: &[Ns], start: Ns, end: Ns) -> bool {
    open.iter().rev().find(|&&until| until > start).is_none_or(|&until| until >= end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn interval(start: u64, end: u64) -> Interval<(u64, u64)> {
        Interval { start: Ns::new(start), end: Ns::new(end), what: (start, end) }
    }

    #[test]
    fn what_overlaps_comes_to_another_lane() {
        use Edge::{Begin, End};
        let at = Ns::new;
        let found = lanes(vec![interval(0, 10), interval(5, 15), interval(2, 5), interval(10, 12)]);
        let first = vec![
            Begin(at(0), (0, 10)),
            Begin(at(2), (2, 5)),
            End(at(5)),
            End(at(10)),
            Begin(at(10), (10, 12)),
            End(at(12)),
        ];
        assert_eq!(found, [first, vec![Begin(at(5), (5, 15)), End(at(15))]]);
    }

    proptest! {
        /// Each interval comes out once as it went in, and no lane goes back in time.
        #[test]
        fn intervals_come_out_as_they_went_in(intervals in prop::collection::vec((0u64..50, 1u64..20), 0..40)) {
            let mut given: Vec<(u64, u64)> = intervals.into_iter().map(|(start, length)| (start, start + length)).collect();
            let mut found = Vec::new();
            for lane in lanes(given.iter().map(|&(start, end)| interval(start, end)).collect()) {
                let (mut open, mut last) = (Vec::new(), Ns::default());
                for edge in lane {
                    let time = match edge {
                        Edge::Begin(time, what) => {
                            open.push(what);
                            time
                        }
                        Edge::End(time) => {
                            let what = open.pop().unwrap();
                            prop_assert_eq!(time, Ns::new(what.1));
                            found.push(what);
                            time
                        }
                    };
                    prop_assert!(time >= last);
                    last = time;
                }
                prop_assert!(open.is_empty());
            }
            given.sort_unstable();
            found.sort_unstable();
            prop_assert_eq!(found, given);
        }
    }
}
