//! Circles in who waits for whom at one moment.
#![forbid(unsafe_code)]

use crate::id::{Lock, Tid};
use std::collections::HashMap;

/// The circles among `waits`, each a wait of a thread, what it waits for, and who holds that. A circle is given as indices
/// into `waits`, each waiting for the next one and the last for the first; it begins with its smallest index. A thread
/// waits for one thing at a time: of several waits of one, only the last counts. Linear in the number of waits.
#[must_use]
pub fn find(waits: &[(Tid, Lock, Tid)]) -> Vec<Vec<usize>> {
    let wait_of: HashMap<Tid, usize> = waits.iter().enumerate().map(|(i, &(waiter, ..))| (waiter, i)).collect();
    let next = |i: usize| waits.get(i).and_then(|(.., holder)| wait_of.get(holder)).copied();
    // The walk in which a wait was first passed; a walk that meets itself has closed a circle.
    let mut passed: HashMap<usize, usize> = HashMap::new();
    let mut circles = Vec::new();
    for &start in wait_of.values() {
        let mut at = Some(start);
        while let Some(i) = at {
            match passed.get(&i) {
                None => _ = passed.insert(i, start),
                Some(&walk) if walk == start => {
                    circles.push(circle_through(i, next));
                    break;
                }
                Some(_) => break,
            }
            at = next(i);
        }
    }
    circles.sort_unstable();
    circles
}

fn circle_through(first: usize, next: impl Fn(usize) -> Option<usize>) -> Vec<usize> {
    let mut circle = vec![first];
    let mut at = next(first);
    while let Some(i) = at.filter(|&i| i != first) {
        circle.push(i);
        at = next(i);
    }
    let smallest = circle.iter().enumerate().min_by_key(|&(_, &i)| i).map_or(0, |(position, _)| position);
    circle.rotate_left(smallest);
    circle
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wait(waiter: u32, holder: u32) -> (Tid, Lock, Tid) {
        (Tid(waiter), Lock { addr: u64::from(holder), ..Lock::default() }, Tid(holder))
    }

    #[test]
    fn circles_of_any_size_are_found() {
        assert_eq!(find(&[wait(1, 2), wait(2, 1)]), [vec![0, 1]]);
        assert_eq!(find(&[wait(1, 1)]), [vec![0]], "a thread that waits for itself");
        // Two circles, and waits that lead into one of them.
        let waits = [wait(9, 1), wait(3, 1), wait(1, 2), wait(2, 3), wait(5, 6), wait(6, 5), wait(8, 9)];
        assert_eq!(find(&waits), [vec![1, 2, 3], vec![4, 5]]);
        assert!(find(&[]).is_empty());
    }

    #[test]
    fn chains_are_no_circles() {
        assert!(find(&[wait(1, 2), wait(2, 3), wait(3, 4), wait(5, 3)]).is_empty());
    }

    proptest! {
        /// Each thread waits for one with a greater number.
        #[test]
        fn without_a_way_back_there_is_none(steps in prop::collection::vec(1u32..9, 0..60)) {
            let waits: Vec<_> = steps.iter().enumerate().map(|(i, s)| wait(i as u32, i as u32 + s)).collect();
            prop_assert!(find(&waits).is_empty());
        }

        /// A circle planted among chains that lead anywhere.
        #[test]
        fn a_planted_circle_is_found(len in 1u32..9, chains in prop::collection::vec(0u32..40, 0..40)) {
            let mut waits: Vec<_> = (0..len).map(|i| wait(i, (i + 1) % len)).collect();
            waits.extend(chains.iter().enumerate().map(|(i, &to)| wait(100 + i as u32, to)));
            prop_assert_eq!(find(&waits), vec![(0..len as usize).collect::<Vec<_>>()]);
        }

        /// Whatever comes in, what comes out are circles.
        #[test]
        fn circles_close(pairs in prop::collection::vec((0u32..12, 0u32..12), 0..40)) {
            let waits: Vec<_> = pairs.iter().map(|&(a, b)| wait(a, b)).collect();
            for circle in find(&waits) {
                for (k, &i) in circle.iter().enumerate() {
                    prop_assert_eq!(waits[i].2, waits[circle[(k + 1) % circle.len()]].0);
                }
            }
        }
    }
}
