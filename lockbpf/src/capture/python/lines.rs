//! CPython's table of source lines (3.11 and later, `Objects/locations.md`): entries, each of which stands for some instructions.

/// What an entry says, in bits 3 to 6 of its first byte.
mod kind {
    /// Line and columns as numbers of any size.
    pub(super) const LONG: u8 = 14;
    /// A line without columns.
    pub(super) const NO_COLUMNS: u8 = 13;
    /// The first of three: so many lines more, with two bytes of columns.
    pub(super) const ONE_LINE: u8 = 10;
    /// No place.
    pub(super) const NONE: u8 = 15;
}

/// The line of an instruction, which is the `unit`-th of two bytes of its code. `None` if the table has none, or is no such table.
pub(super) fn line(table: &[u8], first_line: i32, unit: u64) -> Option<u32> {
    let mut rest = table.iter().copied();
    let mut line = i64::from(first_line);
    let mut end = 0;
    loop {
        let first = rest.next()?;
        if first & 0x80 == 0 {
            return None;
        }
        let kind = first >> 3 & 15;
        end += u64::from(first & 7) + 1;
        match kind {
            kind::NONE => {}
            kind::LONG => {
                line += signed(&mut rest)?;
                for _ in 0..3 {
                    number(&mut rest)?;
                }
            }
            kind::NO_COLUMNS => line += signed(&mut rest)?,
            kind::ONE_LINE.. => {
                line += i64::from(kind - kind::ONE_LINE);
                rest.nth(1)?;
            }
            _ => {
                rest.next()?;
            }
        }
        if unit < end {
            return if kind == kind::NONE { None } else { u32::try_from(line).ok().filter(|&line| line > 0) };
        }
    }
}

/// Six bits a byte, the lowest first; one more tells that others follow.
fn number(rest: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let mut number = 0;
    for shift in [0, 6, 12, 18, 24, 30] {
        let byte = rest.next()?;
        number |= i64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(number);
        }
    }
    None
}

/// The sign is the lowest bit.
fn signed(rest: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let number = number(rest)?;
    Some(if number & 1 == 0 { number >> 1 } else { -(number >> 1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `co_linetable` of a function with `with`, `if` and calls on its lines 13 to 19, by CPython 3.11.2.
    const TABLE: &[u8] = &[
        0x80, 0x00, 0xdd, 0x09, 0x13, 0xf0, 0x00, 0x03, 0x05, 0x1e, 0xf0, 0x00, 0x03, 0x05, 0x1e, 0xdd, 0x08, 0x0d,
        0x8f, 0x0b, 0x8a, 0x0b, 0x89, 0x0d, 0x8c, 0x0d, 0x88, 0x0d, 0xdd, 0x0f, 0x14, 0xf0, 0x00, 0x01, 0x09, 0x1e,
        0xdd, 0x0c, 0x10, 0x8c, 0x4a, 0x90, 0x75, 0xd1, 0x0c, 0x1d, 0xd4, 0x0c, 0x1d, 0xd0, 0x0c, 0x1d, 0xf0, 0x07,
        0x03, 0x05, 0x1e, 0xf0, 0x00, 0x03, 0x05, 0x1e, 0xf0, 0x00, 0x03, 0x05, 0x1e, 0xf1, 0x00, 0x03, 0x05, 0x1e,
        0xf4, 0x00, 0x03, 0x05, 0x1e, 0xf0, 0x00, 0x03, 0x05, 0x1e, 0xf0, 0x00, 0x03, 0x05, 0x1e, 0xf0, 0x00, 0x03,
        0x05, 0x1e, 0xf0, 0x00, 0x03, 0x05, 0x1e, 0xf0, 0x00, 0x03, 0x05, 0x1e, 0xf0, 0x00, 0x03, 0x05, 0x1e, 0xf8,
        0xf8, 0xf8, 0xf0, 0x00, 0x03, 0x05, 0x1e, 0xf0, 0x00, 0x03, 0x05, 0x1e, 0xf0, 0x00, 0x03, 0x05, 0x1e, 0xf0,
        0x00, 0x03, 0x05, 0x1e, 0xf5, 0x08, 0x00, 0x08, 0x0d, 0xf0, 0x00, 0x01, 0x05, 0x1a, 0xdd, 0x08, 0x0c, 0x8c,
        0x0a, 0x90, 0x35, 0xd1, 0x08, 0x19, 0xd4, 0x08, 0x19, 0xd0, 0x08, 0x19, 0xd0, 0x08, 0x19, 0xd0, 0x08, 0x19,
        0xf0, 0x03, 0x01, 0x05, 0x1a, 0xf0, 0x00, 0x01, 0x05, 0x1a,
    ];

    #[test]
    fn lines_of_a_function() {
        // As its `co_lines()` tells: the last unit of each, and the line.
        let expected = [
            (0, Some(13)),
            (8, Some(14)),
            (33, Some(15)),
            (40, Some(16)),
            (60, Some(17)),
            (76, Some(14)),
            (79, None),
            (83, Some(14)),
            (90, Some(18)),
            (112, Some(19)),
            (114, Some(18)),
        ];
        let mut next = 0;
        for (last, expected) in expected {
            for unit in next..=last {
                assert_eq!(line(TABLE, 13, unit), expected, "unit {unit}");
            }
            next = last + 1;
        }
        assert_eq!(line(TABLE, 13, next), None);
    }

    #[test]
    fn each_kind_of_entry() {
        let entry = |kind: u8, units: u8| 0x80 | kind << 3 | (units - 1);
        // Two lines back, then none, one line on, and a hundred lines on.
        let table =
            [entry(13, 2), 5, entry(15, 1), entry(11, 1), 0, 9, entry(14, 8), 0x48, 0x03, 0, 1, 2, entry(3, 1), 0x12];
        let lines: Vec<_> = [0, 1, 2, 3, 4, 11, 12, 13].map(|unit| line(&table, 10, unit)).into();
        assert_eq!(lines, [Some(8), Some(8), None, Some(9), Some(109), Some(109), Some(109), None]);
    }

    proptest! {
        #[test]
        fn noise_never_panics(table: Vec<u8>, first_line: i32, unit: u64) {
            line(&table, first_line, unit);
        }
    }
}
