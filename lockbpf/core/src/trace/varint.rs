//! Numbers of variable length: seven bits a byte, the lowest first (LEB128); signed ones zigzag coded, so that small
//! differences of either sign stay short. Reading never goes beyond the bytes there are.

use super::Malformed;

/// Appends a number.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the difference between two numbers; it may wrap around.
pub(super) fn put_delta(out: &mut Vec<u8>, from: u64, to: u64) {
    let delta = to.wrapping_sub(from) as i64;
    put(out, (delta << 1 ^ delta >> 63) as u64);
}

/// Appends a number that may be missing.
pub(super) fn put_option(out: &mut Vec<u8>, value: Option<u32>) {
    put(out, value.map_or(0, |v| u64::from(v) + 1));
}

/// Appends text with its length.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Bytes yet to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&byte, rest) = self.0.split_first().ok_or(Malformed::Truncated)?;
        self.0 = rest;
        Ok(byte)
    }

    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        // Most numbers are one byte.
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        let mut shift = 7;
        loop {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || shift == 63 && bits > 1 {
                return Err(Malformed::TooLarge);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    pub(super) fn number32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed::TooLarge)
    }

    #[inline]
    pub(super) fn delta(&mut self, from: u64) -> Result<u64, Malformed> {
        let coded = self.number()?;
        let delta = (coded >> 1) as i64 ^ -((coded & 1) as i64);
        Ok(from.wrapping_add(delta as u64))
    }

    pub(super) fn option(&mut self) -> Result<Option<u32>, Malformed> {
        let coded = self.number()?;
        match coded.checked_sub(1) {
            None => Ok(None),
            Some(value) => u32::try_from(value).map(Some).map_err(|_| Malformed::TooLarge),
        }
    }

    /// A count of things of which each takes at least one of the bytes left.
    pub(super) fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.number()?;
        if count > self.0.len() as u64 { Err(Malformed::TooMany) } else { Ok(count as usize) }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = self.count()?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(Malformed::Truncated)?;
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_| Malformed::Unknown("text that is no UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_survive(a in any::<u64>(), b in any::<u64>(), c in any::<Option<u32>>(), text in ".{0,20}") {
            let mut out = Vec::new();
            put(&mut out, a);
            put_delta(&mut out, a, b);
            put_option(&mut out, c);
            put_text(&mut out, &text);
            let mut cursor = Cursor(&out);
            prop_assert_eq!(cursor.number(), Ok(a));
            prop_assert_eq!(cursor.delta(a), Ok(b));
            prop_assert_eq!(cursor.option(), Ok(c));
            prop_assert_eq!(cursor.text(), Ok(text.as_str()));
            prop_assert!(cursor.is_empty());
        }

        #[test]
        fn any_bytes_are_a_number_or_not(bytes in prop::collection::vec(any::<u8>(), 0..16)) {
            let mut cursor = Cursor(&bytes);
            while cursor.number().is_ok() {}
        }
    }

    #[test]
    fn small_is_short_and_large_is_refused() {
        let mut out = Vec::new();
        put_delta(&mut out, 1_000, 950);
        assert_eq!(out.len(), 1);
        assert_eq!(Cursor(&[0x80]).number(), Err(Malformed::Truncated));
        assert_eq!(Cursor(&[0xff; 11]).number(), Err(Malformed::TooLarge));
        assert_eq!(Cursor(&[0xff, 0xff, 0xff, 0xff, 0x7f]).number32(), Err(Malformed::TooLarge));
        assert_eq!(Cursor(&[3, 1, 1]).count(), Err(Malformed::TooMany));
    }
}
