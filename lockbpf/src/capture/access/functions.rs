//! Where a process has its lock functions in memory.

use crate::capture::maps::Mapping;
use crate::capture::probe_table::Runtime;
use crate::capture::target::Library;
use lockbpf_common::function::{COND_WAIT, RELEASE, SPIN_RELEASE, SPIN_TRIED};
use lockbpf_common::via::Via;
use std::collections::HashMap;

/// What a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Requests the lock that is its first argument.
    Request(Via),
    /// Gives it back.
    Release,
    /// Gives back the mutex that is its second argument, waits, and takes it again.
    Waits,
}

impl Role {
    fn of(code: u64) -> Option<Self> {
        match code {
            RELEASE | SPIN_RELEASE => Some(Self::Release),
            COND_WAIT => Some(Self::Waits),
            SPIN_TRIED => Some(Self::Request(Via::SpinLock)),
            code => {
                let via = Via::from_u8(u8::try_from(code).ok()?)?;
                let held = code < u64::from(Via::RUNTIMES) && !via.is_semaphore() && via != Via::Once;
                held.then_some(Self::Request(via))
            }
        }
    }
}

/// Addresses of lock functions.
#[derive(Clone, Debug, Default)]
pub(super) struct Functions(HashMap<u64, Role>);

impl Functions {
    /// Those of a process that maps these files.
    pub(super) fn find(libraries: &[Library], mappings: &[Mapping]) -> Self {
        let mut found = HashMap::new();
        for library in libraries {
            let sites = library.sites.iter().filter(|s| matches!(s.function.runtime, Runtime::Glibc | Runtime::Musl));
            for site in sites {
                let Some(role) = Role::of(site.function.code) else { continue };
                let Some(entry) = site.file_offset.checked_sub(site.placement.offset) else { continue };
                let here = |mapping: &&Mapping| {
                    mapping.executable && (mapping.inode == library.ino || mapping.path == library.display)
                };
                for mapping in mappings.iter().filter(here) {
                    let inside =
                        entry.checked_sub(mapping.offset).filter(|&o| o < mapping.range.end - mapping.range.start);
                    if let Some(inside) = inside {
                        found.insert(mapping.range.start + inside, role);
                    }
                }
            }
        }
        Self(found)
    }

    /// What the function that begins here does.
    pub(super) fn role(&self, address: u64) -> Option<Role> {
        self.0.get(&address).copied()
    }

    /// Where the functions begin by which locks are requested in this way.
    pub(super) fn requests(&self, via: Via) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().filter(move |&(_, &role)| role == Role::Request(via)).map(|(&address, _)| address)
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
