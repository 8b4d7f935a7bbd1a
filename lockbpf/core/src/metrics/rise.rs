//! By how much sums have risen since they were looked at last, where they may also fall: estimates are corrected, and blame moves.

use std::collections::HashMap;
use std::hash::Hash;

/// The most that a sum has been.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peak(u64);

impl Peak {
    /// Takes the sum as it is now. Returns by how much it is above all before.
    pub(super) fn rise(&mut self, now: u64) -> u64 {
        let rise = now.saturating_sub(self.0);
        self.0 += rise;
        rise
    }
}

/// A sum and its parts. What moves from one part to another does not count twice.
#[derive(Clone, Debug)]
pub(super) struct Divided<K> {
    total: Peak,
    /// What was told of each part.
    told: HashMap<K, u64>,
}

impl<K> Default for Divided<K> {
    fn default() -> Self {
        Self { total: Peak::default(), told: HashMap::new() }
    }
}

impl<K: Eq + Hash + Clone> Divided<K> {
    /// Takes the sum and its parts, which add up to it, as they are now. Returns what the parts have risen by: together as much as the sum has.
    pub(super) fn rise(&mut self, total: u64, parts: impl IntoIterator<Item = (K, u64)>) -> Vec<(K, u64)> {
        let mut now: HashMap<K, u64> = HashMap::new();
        for (key, part) in parts {
            let sum = now.entry(key).or_default();
            *sum = sum.saturating_add(part);
        }
        let whole = u128::from(self.total.rise(total));
        if whole == 0 {
            return Vec::new();
        }
        let untold = |(key, part): (K, u64)| {
            let more = part.saturating_sub(self.told.get(&key).copied().unwrap_or(0));
            (more > 0).then_some((key, more))
        };
        let mut risen: Vec<(K, u64)> = now.into_iter().filter_map(untold).collect();
        let all: u128 = risen.iter().map(|(_, rise)| u128::from(*rise)).sum();
        if all > whole {
            let mut left = whole;
            for (_, rise) in &mut risen {
                let part = u128::from(*rise) * whole / all;
                left -= part;
                *rise = part as u64;
            }
            // What rounding has taken away.
            if let Some((_, largest)) = risen.iter_mut().max_by_key(|(_, rise)| *rise) {
                *largest += left as u64;
            }
        }
        risen.retain(|(_, rise)| *rise > 0);
        for (key, rise) in &risen {
            *self.told.entry(key.clone()).or_default() += rise;
        }
        risen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_moves_counts_once() {
        let mut divided = Divided::default();
        assert_eq!(divided.rise(10, [("a", 10)]), [("a", 10)]);
        // The blame for it has moved, and 2 came on top.
        assert_eq!(divided.rise(12, [("b", 12)]), [("b", 2)]);
        assert_eq!(divided.rise(12, [("a", 12)]), []);
    }

    proptest! {
        #[test]
        fn parts_rise_by_what_the_sum_does(looks in prop::collection::vec(prop::collection::vec(0u64..1_000, 4), 1..20)) {
            let mut divided = Divided::default();
            let (mut sum, mut peak) = (0, 0);
            for parts in looks {
                let total: u64 = parts.iter().sum();
                sum += divided.rise(total, parts.into_iter().enumerate()).iter().map(|(_, rise)| rise).sum::<u64>();
                peak = peak.max(total);
                prop_assert_eq!(sum, peak);
            }
        }
    }
}
