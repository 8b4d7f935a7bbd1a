//! Equal parts of a piece of time among several holders, exact to the ns however the piece is cut.

/// Splits within splits that are followed.
const MAX_SPLITS: usize = 4;

/// One part: of `of` parts, number `part`; and of that part again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Split {
    parts: [(u32, u32); MAX_SPLITS],
    depth: u8,
}

impl Split {
    /// A part of this part; `None` if splits are nested too deeply.
    pub(super) fn part(mut self, part: u32, of: u32) -> Option<Self> {
        if of > 1 {
            *self.parts.get_mut(usize::from(self.depth))? = (of, part);
            self.depth += 1;
        }
        Some(self)
    }

    /// What this part has of the first `t` ns. Each ns belongs to one part, in turns; so this grows with `t`, and over all
    /// parts sums up to `t`.
    fn until(&self, t: u64) -> u64 {
        let parts = self.parts.iter().take(usize::from(self.depth));
        parts.fold(t, |t, &(of, part)| {
            let (of, part) = (u64::from(of), u64::from(part));
            t / of + (t % of + (of - 1).saturating_sub(part)) / of
        })
    }

    /// What this part has of the time from `from` to `to`, both since the holders came together.
    pub(super) fn of(&self, from: u64, to: u64) -> u64 {
        if self.depth == 0 { to.saturating_sub(from) } else { self.until(to).saturating_sub(self.until(from)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_sum_up_however_they_are_cut(k in 1u32..9, l in 1u32..5, from in 0u64..1000, cut in 0u64..100, to in 0u64..100) {
            let (cut, to) = (from + cut, from + cut + to);
            let parts: Vec<Split> = (0..k).flat_map(|j| {
                let part = Split::default().part(j, k).unwrap();
                (0..l).map(move |i| part.part(i, l).unwrap())
            }).collect();
            let sum: u64 = parts.iter().map(|p| p.of(from, to)).sum();
            prop_assert_eq!(sum, to - from);
            for p in &parts {
                prop_assert_eq!(p.of(from, cut) + p.of(cut, to), p.of(from, to));
                prop_assert!(p.of(0, to) * u64::from(k * l) <= to + u64::from(k * l));
            }
        }
    }

    #[test]
    fn the_first_have_what_is_left_over() {
        let of_ten: Vec<u64> = (0..3).map(|j| Split::default().part(j, 3).unwrap().of(0, 10)).collect();
        assert_eq!(of_ten, [4, 3, 3]);
    }
}
