//! What is one location. Accesses of different sizes overlap, so the locations are the stretches of memory that no access divides:
//! two sections touch the same location exactly if they touch the same byte.

use std::collections::BTreeSet;

/// The boundaries of all accesses.
#[derive(Clone, Debug, Default)]
pub struct Locations {
    boundaries: BTreeSet<u64>,
}

impl Locations {
    /// Of accesses, each its first byte and its size.
    #[must_use]
    pub fn of(accesses: impl Iterator<Item = (u64, u64)>) -> Self {
        let boundaries = accesses.flat_map(|(address, size)| [address, address.saturating_add(size)]).collect();
        Self { boundaries }
    }

    /// The locations that an access consists of, by their first bytes. It is one of those that this was made of.
    pub fn parts(&self, address: u64, size: u64) -> impl Iterator<Item = u64> + '_ {
        self.boundaries.range(address..address.saturating_add(size)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_copy_and_the_fields_in_it() {
        let all = [(0x100, 64), (0x108, 4), (0x108, 8), (0x140, 8)];
        let locations = Locations::of(all.into_iter());
        let parts = |(address, size)| locations.parts(address, size).collect::<Vec<_>>();
        assert_eq!(parts(all[0]), [0x100, 0x108, 0x10c, 0x110]);
        assert_eq!(parts(all[1]), [0x108]);
        assert_eq!(parts(all[2]), [0x108, 0x10c]);
        assert_eq!(parts(all[3]), [0x140]);
    }

    proptest! {
        #[test]
        fn locations_are_shared_if_bytes_are(all in prop::collection::vec((0u64..64, 1u64..16), 2..8)) {
            let locations = Locations::of(all.iter().copied());
            for &(a, n) in &all {
                for &(b, m) in &all {
                    let bytes = a < b + m && b < a + n;
                    let parts: BTreeSet<u64> = locations.parts(a, n).collect();
                    prop_assert_eq!(locations.parts(b, m).any(|part| parts.contains(&part)), bytes);
                }
            }
        }
    }
}
