//! Functions at addresses of files, as they were answered: each is asked for once.

use super::files::{FileId, ObjectFile};
use super::kept::Kept;
use super::reader::Reader;
use crate::names::Frame;
use std::rc::Rc;

/// The functions at addresses.
#[derive(Debug)]
pub(super) struct Frames {
    reader: Reader,
    kept: Kept<(FileId, u64), Rc<[Frame]>>,
}

impl Frames {
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader, kept: Kept::default() }
    }

    /// The functions at an address of a file, most deeply inlined first; empty if no symbol covers it. [`Frame::addr`]
    /// and [`Frame::module`] are left for the caller.
    pub(super) fn at(&mut self, id: FileId, file: &ObjectFile, addr: u64) -> Rc<[Frame]> {
        Rc::clone(self.kept.get((id, addr), || self.reader.frames(id, file, addr).into()))
    }
}
