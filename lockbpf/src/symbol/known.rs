//! What is known of one observed process.

use super::files::FileId;
use super::generated::Generated;
use super::identity::{Identity, Layout};
use super::space::AddressSpace;
use super::threads::Threads;
use std::ops::Range;

/// What is known of one process.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) pid: u32,
    /// `None` until a snapshot succeeded.
    pub(super) identity: Option<Identity>,
    /// As far as it may be known.
    pub(super) layout: Option<Layout>,
    pub(super) space: AddressSpace,
    pub(super) generated: Generated,
    pub(super) threads: Threads,
    /// What it executes.
    pub(super) program: Option<FileId>,
    /// Code of an interpreter whose functions are known.
    pub(super) interpreter: Option<Range<u64>>,
}

impl Known {
    pub(super) fn new(pid: u32) -> Self {
        Self {
            pid,
            identity: None,
            layout: None,
            space: AddressSpace::default(),
            generated: Generated::default(),
            threads: Threads::default(),
            program: None,
            interpreter: None,
        }
    }

    /// Whether this is its image, as far as it is known.
    pub(super) fn is(&self, identity: Option<Identity>, layout: Option<Layout>) -> bool {
        match self.identity {
            Some(_) => self.identity == identity,
            None => self.layout.is_none() || self.layout == layout,
        }
    }
}
