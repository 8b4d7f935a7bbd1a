//! What the Go toolchain writes into its programs, and `strip` leaves there: the release ([`buildinfo`]) and the table of
//! functions with their lines ([`pclntab`]). Works on bytes alone; a damaged or hostile file has less to tell, and never
//! makes lockbpf panic.

pub mod buildinfo;
pub mod pclntab;
mod program;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

pub use program::{Program, Segment};

/// A little-endian number of 4 bytes.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// A little-endian number of 8 bytes.
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
