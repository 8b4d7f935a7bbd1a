//! Functions at addresses of files, as they were answered: each is asked for once.

use super::files::{FileId, ObjectFile};
use super::reader::Reader;
use crate::names::Frame;
use std::collections::HashMap;
use std::rc::Rc;

/// Resolved addresses kept; when there are more, all are asked for anew.
const MAX_CACHED: usize = 65_536;

/// The functions at addresses.
#[derive(Debug)]
pub(super) struct Frames {
    reader: Reader,
    cache: HashMap<(FileId, u64), Rc<[Frame]>>,
}

impl Frames {
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader, cache: HashMap::new() }
    }

    /// The functions at an address of a file, most deeply inlined first; empty if no symbol covers it. [`Frame::addr`]
    /// and [`Frame::module`] are left for the caller.
    pub(super) fn at(&mut self, id: FileId, file: &ObjectFile, addr: u64) -> Rc<[Frame]> {
        if let Some(frames) = self.cache.get(&(id, addr)) {
            return Rc::clone(frames);
        }
        let frames: Rc<[Frame]> = self.reader.frames(id, file, addr).into();
        if self.cache.len() >= MAX_CACHED {
            self.cache.clear();
        }
        self.cache.insert((id, addr), Rc::clone(&frames));
        frames
    }
}
