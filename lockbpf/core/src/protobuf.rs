//! Messages in protobuf's encoding, as far as formats of others need it.

/// The fields of a message, encoded in the order in which they are put in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(Vec<u8>);

/// What follows a field's number.
#[derive(Clone, Copy)]
enum Wire {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
}

impl Message {
    /// A number (`uint64`, `int64` that is not negative, `bool`, an enumeration).
    pub(crate) fn number(&mut self, field: u32, value: u64) -> &mut Self {
        self.key(field, Wire::Varint);
        self.varint(value);
        self
    }

    /// A `fixed64`.
    pub(crate) fn fixed64(&mut self, field: u32, value: u64) -> &mut Self {
        self.key(field, Wire::Fixed64);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A `string` or `bytes`.
    pub(crate) fn bytes(&mut self, field: u32, value: &[u8]) -> &mut Self {
        self.key(field, Wire::Bytes);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// A message within this one.
    pub(crate) fn message(&mut self, field: u32, value: &Self) -> &mut Self {
        self.bytes(field, &value.0)
    }

    /// Repeated numbers, packed.
    pub(crate) fn numbers(&mut self, field: u32, values: impl IntoIterator<Item = u64>) -> &mut Self {
        let mut packed = Self::default();
        values.into_iter().for_each(|value| packed.varint(value));
        self.message(field, &packed)
    }

    /// Repeated `fixed64`s, packed.
    pub(crate) fn fixed64s(&mut self, field: u32, values: impl IntoIterator<Item = u64>) -> &mut Self {
        let packed: Vec<u8> = values.into_iter().flat_map(u64::to_le_bytes).collect();
        self.bytes(field, &packed)
    }

    /// The message as bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn key(&mut self, field: u32, wire: Wire) {
        self.varint(u64::from(field) << 3 | wire as u64);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of protobuf's own description of its encoding.
    #[test]
    fn encoded_as_protobuf_describes_it() {
        let mut test1 = Message::default();
        test1.number(1, 150);
        assert_eq!(test1.as_bytes(), [0x08, 0x96, 0x01]);
        let mut test2 = Message::default();
        test2.bytes(2, b"testing");
        assert_eq!(test2.as_bytes(), b"\x12\x07testing");
        let mut test3 = Message::default();
        test3.message(3, &test1);
        assert_eq!(test3.as_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut fixed = Message::default();
        fixed.fixed64(4, 0x0102);
        assert_eq!(fixed.as_bytes(), [0x21, 2, 1, 0, 0, 0, 0, 0, 0]);
        let mut packed = Message::default();
        packed.fixed64s(5, [1, 2]);
        assert_eq!(packed.as_bytes(), [0x2a, 16, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        let mut test5 = Message::default();
        test5.numbers(6, [3, 270, 86_942]);
        assert_eq!(test5.as_bytes(), [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
    }
}
