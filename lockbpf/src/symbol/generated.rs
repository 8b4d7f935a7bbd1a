//! The code that a process generates: what it lists in a perf map, and what is read from its memory.

use super::perf_map::{Budget, PerfMap};
use super::reader::Reader;
use super::unwind::Outside;
use crate::untrusted::cleaned;
use std::collections::BTreeMap;
use std::ops::Range;

/// Pieces kept that were read from memory.
const MAX_PIECES: usize = 1 << 18;

/// A piece of generated code that was read from the process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it is.
    pub range: Range<u64>,
    /// The function's name.
    pub name: String,
    /// What its frames are like.
    pub frames: Frames,
    /// The source file and line, of an instruction that is interpreted.
    pub location: Option<(String, u32)>,
}

/// How the frames of a piece of code are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// By a frame pointer.
    Pointer,
    /// By their size in bytes. The return address is the last word of a frame, the caller's frame pointer the word before it.
    Size(u64),
    /// By a frame pointer. The interpreted method's address lies in the frame.
    Interpreter {
        /// Words from the frame pointer down to that address.
        below: u64,
    },
}

/// What is known of it. Code that is gone keeps its name until other code takes its place.
#[derive(Debug, Default)]
pub(super) struct Generated {
    listed: PerfMap,
    /// By the start; never overlapping.
    pieces: BTreeMap<u64, Piece>,
}

impl Generated {
    /// Reads what was added to the perf map of a thread's process.
    pub(super) fn refresh(&mut self, tid: u32, reader: &Reader, budget: &mut Budget) {
        self.listed.refresh(tid, reader, budget);
    }

    /// Takes in what was read from memory.
    pub(super) fn know(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        for piece in pieces {
            let location = piece.location.map(|(file, line)| (cleaned(file), line));
            let piece = Piece { name: cleaned(piece.name), location, ..piece };
            if self.pieces.get(&piece.range.start) == Some(&piece) {
                continue;
            }
            while let Some((&start, _)) = self
                .pieces
                .range(..piece.range.end)
                .next_back()
                .filter(|(_, other)| other.range.end > piece.range.start)
            {
                self.pieces.remove(&start);
            }
            if self.pieces.len() < MAX_PIECES && !piece.range.is_empty() {
                self.pieces.insert(piece.range.start, piece);
            }
        }
    }

    /// The function at an address.
    pub(super) fn function(&self, addr: u64) -> Option<&str> {
        self.listed.function(addr).or_else(|| self.piece(addr).map(|piece| &*piece.name))
    }

    /// The function and the source file and line of an instruction that is interpreted.
    pub(super) fn interpreted(&self, addr: u64) -> Option<(&str, &(String, u32))> {
        let piece = self.piece(addr)?;
        Some((&piece.name, piece.location.as_ref()?))
    }

    /// How a stack goes on there.
    pub(super) fn outside(&self, addr: u64) -> Outside {
        match self.piece(addr).map(|piece| piece.frames) {
            Some(Frames::Size(bytes)) => Outside::Frame(bytes),
            Some(Frames::Interpreter { below }) => Outside::Interpreter { below },
            Some(Frames::Pointer) => Outside::Code,
            None if self.listed.function(addr).is_some() => Outside::Code,
            None => Outside::Nothing,
        }
    }

    fn piece(&self, addr: u64) -> Option<&Piece> {
        let (_, piece) = self.pieces.range(..=addr).next_back()?;
        piece.range.contains(&addr).then_some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(range: Range<u64>, name: &str, frames: Frames) -> Piece {
        Piece { range, name: name.to_owned(), frames, location: None }
    }

    #[test]
    fn instructions_that_are_interpreted_have_lines() {
        let mut generated = Generated::default();
        let location = Some(("cart.py".to_owned(), 42));
        generated.know([Piece { location: location.clone(), ..piece(10..11, "Cart.add", Frames::Pointer) }]);
        generated.know([piece(20..30, "compiled", Frames::Pointer)]);
        assert_eq!(generated.interpreted(10), location.as_ref().map(|location| ("Cart.add", location)));
        assert_eq!([9, 11, 20].map(|addr| generated.interpreted(addr)), [None; 3]);
    }

    #[test]
    fn later_code_takes_the_place_of_earlier() {
        use Frames::{Pointer, Size};
        let mut generated = Generated::default();
        generated.know([piece(10..20, "a", Size(48)), piece(20..30, "b", Pointer), piece(40..40, "empty", Pointer)]);
        generated.know([piece(18..22, "c", Size(16)), piece(50..60, "d", Pointer)]);
        let functions: Vec<_> = [9, 10, 18, 21, 22, 40, 59, 60].map(|addr| generated.function(addr)).into();
        assert_eq!(functions, [None, None, Some("c"), Some("c"), None, None, Some("d"), None]);
        assert_eq!(
            [generated.outside(18), generated.outside(50), generated.outside(60)],
            [Outside::Frame(16), Outside::Code, Outside::Nothing]
        );
    }
}
