//! Where debug information tells of the variable at an address.
//!
//! Debug information has no index of variables that compilers write as a rule, and parsing all of it takes minutes for
//! large programs. But a variable's place is told by an expression of one operation, which is found by its bytes alone:
//! length, operation, address. That finds every variable, and a few places that only look alike; whoever looks one up
//! parses the unit that it is in, and checks.

use memchr::{memchr_iter, memmem};

/// Variables of one file at most.
const MAX_ENTRIES: usize = 1 << 22;
const DW_OP_ADDR: u8 = 0x03;
const DW_OP_ADDRX: u8 = 0xa1;
const DW_OP_CONST4U: u8 = 0x0c;
const DW_OP_CONST8U: u8 = 0x0e;
const DW_OP_FORM_TLS_ADDRESS: u8 = 0x9b;
const DW_OP_GNU_PUSH_TLS_ADDRESS: u8 = 0xe0;

/// Where a variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in super::super) enum Storage {
    /// At one address.
    Static,
    /// At one offset in the variables of each thread.
    ThreadLocal,
}

/// Places of variables and the offsets in `.debug_info` where they may be told, sorted.
#[derive(Debug, Default)]
pub(super) struct Index(Vec<(Storage, u64, usize)>);

impl Index {
    /// Finds what may be the place of a variable at an address that is `wanted`.
    ///
    /// `indexed` tells the address of a number (DWARF 5's `DW_OP_addrx`) used at an offset; it is `None` where no unit
    /// has a table of addresses.
    pub(super) fn of(
        info: &[u8],
        address_size: u8,
        big_endian: bool,
        wanted: impl Fn(u64) -> bool,
        indexed: Option<&dyn Fn(usize, u64) -> Option<u64>>,
    ) -> Self {
        let mut found = Vec::new();
        let mut take = |storage, addr, at| {
            if (storage == Storage::ThreadLocal || wanted(addr)) && found.len() < MAX_ENTRIES {
                found.push((storage, addr, at));
            }
        };
        for at in memmem::find_iter(info, &[address_size.wrapping_add(1), DW_OP_ADDR]) {
            if let Some(bytes) = info.get(at + 2..at + 2 + usize::from(address_size)) {
                take(Storage::Static, number(bytes, big_endian), at);
            }
        }
        let constant = if address_size == 8 { DW_OP_CONST8U } else { DW_OP_CONST4U };
        for at in memmem::find_iter(info, &[address_size.wrapping_add(2), constant]) {
            let end = at + 2 + usize::from(address_size);
            if let Some(bytes) = info.get(at + 2..end)
                && [Some(&DW_OP_FORM_TLS_ADDRESS), Some(&DW_OP_GNU_PUSH_TLS_ADDRESS)].contains(&info.get(end))
            {
                take(Storage::ThreadLocal, number(bytes, big_endian), at);
            }
        }
        if let Some(indexed) = indexed {
            for at in memchr_iter(DW_OP_ADDRX, info) {
                let length = at.checked_sub(1).and_then(|before| info.get(before)).copied().map_or(0, usize::from);
                let operand = if (2..=6).contains(&length) { info.get(at + 1..at + length) } else { None };
                if let Some(addr) = operand.and_then(uleb128).and_then(|number| indexed(at, number)) {
                    take(Storage::Static, addr, at - 1);
                }
            }
        }
        found.sort_unstable();
        Self(found)
    }

    /// The offsets where the variable at an address may be told.
    pub(super) fn at(&self, storage: Storage, addr: u64) -> impl Iterator<Item = usize> + '_ {
        let first = self.0.partition_point(|&(s, other, _)| (s, other) < (storage, addr));
        self.0.iter().skip(first).take_while(move |&&(s, other, _)| (s, other) == (storage, addr)).map(|&(.., at)| at)
    }
}

/// A number of up to eight bytes.
pub(super) fn number(bytes: &[u8], big_endian: bool) -> u64 {
    let fold = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
    if big_endian { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) }
}

/// A number of exactly these bytes, seven bits in each.
fn uleb128(bytes: &[u8]) -> Option<u64> {
    let (last, before) = bytes.split_last()?;
    let whole = last & 0x80 == 0 && before.iter().all(|byte| byte & 0x80 != 0);
    whole.then(|| bytes.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn places_of_variables() {
        let mut info = vec![9, 3, 1, 9, 3];
        info.extend([9, 3, 0x10, 0x20, 0, 0, 0, 0, 0, 0]);
        info.extend([2, 0xa1, 5, 3, 0xa1, 0x85, 1, 3, 0xa1, 5, 6]);
        let index = Index::of(&info, 8, false, |addr| addr < 0x10000, Some(&|_, number| Some(number)));
        let of = |addr| index.at(Storage::Static, addr).collect::<Vec<_>>();
        assert_eq!([of(5), of(0x85), of(0x2010), of(0x2011)], [vec![15], vec![18], vec![5], vec![]]);
        assert_eq!(index.at(Storage::ThreadLocal, 0x2010).count(), 0);
        let index = Index::of(&[10, 0x0e, 7, 0, 0, 0, 0, 0, 0, 0, 0xe0], 8, false, |_| false, None);
        assert_eq!(index.at(Storage::ThreadLocal, 7).collect::<Vec<_>>(), [0]);
        let info = [5, 3, 0, 0, 0x20, 0x10];
        assert_eq!(Index::of(&info, 4, true, |_| true, None).at(Storage::Static, 0x2010).count(), 1);
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(info in prop::collection::vec(prop_oneof![Just(9u8), Just(3), Just(0xa1), any::<u8>()], 0..200), size in any::<u8>()) {
            Index::of(&info, size, false, |_| true, Some(&|_, number| Some(number)));
        }
    }
}
