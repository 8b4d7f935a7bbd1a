//! Status flags, as far as they are known, and the conditions of branches.

use iced_x86::{ConditionCode, Mnemonic};

const CARRY: u64 = 1;
const PARITY: u64 = 1 << 2;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const DIRECTION: u64 = 1 << 10;
const OVERFLOW: u64 = 1 << 11;

/// Status flags that are all known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    carry: bool,
    parity: bool,
    zero: bool,
    sign: bool,
    overflow: bool,
}

/// Whether string instructions go downwards.
#[must_use]
pub fn is_down(flags: u64) -> bool {
    flags & DIRECTION != 0
}

impl Flags {
    /// Those of a flags register.
    #[must_use]
    pub fn of(register: u64) -> Self {
        let is = |bit| register & bit != 0;
        Self { carry: is(CARRY), parity: is(PARITY), zero: is(ZERO), sign: is(SIGN), overflow: is(OVERFLOW) }
    }

    /// Whether a branch on this condition is taken.
    #[must_use]
    pub fn holds(self, condition: ConditionCode) -> Option<bool> {
        let Self { carry, parity, zero, sign, overflow } = self;
        Some(match condition {
            ConditionCode::None => return None,
            ConditionCode::o => overflow,
            ConditionCode::no => !overflow,
            ConditionCode::b => carry,
            ConditionCode::ae => !carry,
            ConditionCode::e => zero,
            ConditionCode::ne => !zero,
            ConditionCode::be => carry || zero,
            ConditionCode::a => !carry && !zero,
            ConditionCode::s => sign,
            ConditionCode::ns => !sign,
            ConditionCode::p => parity,
            ConditionCode::np => !parity,
            ConditionCode::l => sign != overflow,
            ConditionCode::ge => sign == overflow,
            ConditionCode::le => zero || sign != overflow,
            ConditionCode::g => !zero && sign == overflow,
        })
    }

    /// What an operation on `bytes`-sized operands gives: its result, and the flags after it. `None` if it is not known here.
    /// `carry` is the flag before it, which some leave alone.
    #[must_use]
    pub fn after(
        operation: Mnemonic,
        a: u64,
        b: u64,
        bytes: usize,
        carry: Option<bool>,
    ) -> Option<(u64, Option<Self>)> {
        let bits = 8 * u32::try_from(bytes).ok()?;
        let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        let (a, b) = (a & mask, b & mask);
        let top = |value: u64| value >> (bits - 1) & 1 == 1;
        let flags = |result: u64, carry: bool, overflow: bool| Self {
            carry,
            parity: (result as u8).count_ones().is_multiple_of(2),
            zero: result == 0,
            sign: top(result),
            overflow,
        };
        let sum = a.wrapping_add(b) & mask;
        let difference = a.wrapping_sub(b) & mask;
        let added = || flags(sum, sum < a, top(a) == top(b) && top(sum) != top(a));
        let subtracted = || flags(difference, a < b, top(a) != top(b) && top(difference) != top(a));
        let logical = |result| (result, Some(flags(result, false, false)));
        Some(match operation {
            Mnemonic::Add => (sum, Some(added())),
            Mnemonic::Sub | Mnemonic::Cmp => (difference, Some(subtracted())),
            Mnemonic::Inc => (sum, carry.map(|carry| Self { carry, ..added() })),
            Mnemonic::Dec => (difference, carry.map(|carry| Self { carry, ..subtracted() })),
            Mnemonic::And | Mnemonic::Test => logical(a & b),
            Mnemonic::Or => logical(a | b),
            Mnemonic::Xor => logical(a ^ b),
            // Their flags depend on more; what is moved out is seldom branched on.
            Mnemonic::Shl => (a.checked_shl(b as u32 & shift_mask(bits)).unwrap_or(0) & mask, None),
            Mnemonic::Shr => (a >> (b as u32 & shift_mask(bits)), None),
            _ => return None,
        })
    }

    /// The carry flag.
    #[must_use]
    pub fn carry(self) -> bool {
        self.carry
    }
}

fn shift_mask(bits: u32) -> u32 {
    if bits == 64 { 63 } else { 31 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn signs_and_carries() {
        let cmp = |a: u64, b: u64, bytes| Flags::after(Mnemonic::Cmp, a, b, bytes, None).unwrap().1.unwrap();
        for (a, b, bytes, below, less) in
            [(1, 2, 8, true, true), (u64::MAX, 1, 8, false, true), (0x80, 1, 1, false, true), (5, 5, 4, false, false)]
        {
            let flags = cmp(a, b, bytes);
            assert_eq!(flags.holds(ConditionCode::b), Some(below), "{a:#x} {b:#x}");
            assert_eq!(flags.holds(ConditionCode::l), Some(less), "{a:#x} {b:#x}");
            assert_eq!(flags.holds(ConditionCode::e), Some(a == b));
        }
        assert_eq!(Flags::of(ZERO | CARRY).holds(ConditionCode::be), Some(true));
        assert!(is_down(0x400) && !is_down(0x202));
    }

    proptest! {
        #[test]
        fn comparisons_of_words(a: u64, b: u64) {
            let flags = Flags::after(Mnemonic::Cmp, a, b, 8, None).unwrap().1.unwrap();
            prop_assert_eq!(flags.holds(ConditionCode::b), Some(a < b));
            prop_assert_eq!(flags.holds(ConditionCode::a), Some(a > b));
            prop_assert_eq!(flags.holds(ConditionCode::l), Some((a as i64) < b as i64));
            prop_assert_eq!(flags.holds(ConditionCode::g), Some(a as i64 > b as i64));
            let (sum, added) = Flags::after(Mnemonic::Add, a, b, 4, None).unwrap();
            prop_assert_eq!(sum, u64::from((a as u32).wrapping_add(b as u32)));
            prop_assert_eq!(added.unwrap().holds(ConditionCode::b), Some((a as u32).checked_add(b as u32).is_none()));
            prop_assert_eq!(added.unwrap().holds(ConditionCode::o), Some((a as i32).checked_add(b as i32).is_none()));
        }
    }
}
