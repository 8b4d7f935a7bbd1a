//! Names as a recording has them: everything is known, nothing is looked up.

use super::Malformed;
use crate::id::{Lock, Process, Site, Tid};
use crate::names::{Frame, Names};
use crate::stack::{Role, call_stack};
use std::collections::HashMap;

/// Bytes of memory for names at most, about.
const MAX_BYTES: usize = 1 << 30;
/// Bytes that a name takes beside its texts, about.
const ENTRY: usize = 64;

/// What a lock is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// In the symbol tables.
    pub global: Option<String>,
    /// In the input itself.
    pub id: Option<String>,
    /// Its kind, where it is none that this crate knows.
    pub kind: Option<String>,
    /// Whether it is on a stack.
    pub on_stack: bool,
}

/// What a site is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NamedSite {
    /// In the input itself.
    pub id: Option<String>,
    /// The member that holds the lock asked for there.
    pub member: Option<String>,
}

/// What a thread is called in the input itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NamedThread {
    /// Where that is not its number.
    pub id: Option<String>,
    /// Where that is a number too large for [`Tid`].
    pub number: Option<u64>,
    /// Its name.
    pub comm: Option<String>,
}

/// The names in a recording.
#[derive(Clone, Debug, Default)]
pub struct TraceNames {
    addresses: HashMap<(Process, u64), (Role, Vec<Frame>)>,
    locks: HashMap<Lock, Named>,
    sites: HashMap<Site, NamedSite>,
    threads: HashMap<Tid, NamedThread>,
    bytes: usize,
}

impl TraceNames {
    pub(super) fn add_address(
        &mut self,
        process: Process,
        addr: u64,
        role: Role,
        frames: Vec<Frame>,
    ) -> Result<(), Malformed> {
        let length = |text: Option<&String>| text.map_or(0, String::len);
        let texts = |f: &Frame| {
            let (location, module) = (f.location.as_ref().map(|l| &l.0), f.module.as_ref().map(|m| &m.0));
            length(f.function.as_ref()) + length(location) + length(module) + size_of::<Frame>()
        };
        self.spend(frames.iter().map(texts).sum())?;
        self.addresses.insert((process, addr), (role, frames));
        Ok(())
    }

    pub(super) fn add_lock(&mut self, lock: Lock, named: Named) -> Result<(), Malformed> {
        let texts = [&named.global, &named.id, &named.kind].into_iter().flatten().map(String::len).sum();
        self.spend(texts)?;
        self.locks.insert(lock, named);
        Ok(())
    }

    pub(super) fn add_site(&mut self, site: Site, named: NamedSite) -> Result<(), Malformed> {
        self.spend([&named.id, &named.member].into_iter().flatten().map(String::len).sum())?;
        self.sites.insert(site, named);
        Ok(())
    }

    pub(super) fn add_thread(&mut self, tid: Tid, named: NamedThread) -> Result<(), Malformed> {
        self.spend([&named.id, &named.comm].into_iter().flatten().map(String::len).sum())?;
        self.threads.insert(tid, named);
        Ok(())
    }

    /// Adds the names of a recording that goes on where this one ends. What both name is called as in the later one, but a name is not lost to
    /// an address without one. Beyond the bound on memory names are left out.
    pub fn add(&mut self, later: Self) {
        for ((process, addr), (role, frames)) in later.addresses {
            let has_name = |frames: &[Frame]| frames.iter().any(|frame| frame.function.is_some());
            let known = self.addresses.get(&(process, addr)).is_some_and(|(_, known)| has_name(known));
            if !known || has_name(&frames) {
                let _ = self.add_address(process, addr, role, frames);
            }
        }
        for (lock, named) in later.locks {
            let _ = self.add_lock(lock, named);
        }
        for (site, named) in later.sites {
            let _ = self.add_site(site, named);
        }
        for (tid, named) in later.threads {
            let _ = self.add_thread(tid, named);
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Malformed> {
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(ENTRY);
        if self.bytes > MAX_BYTES { Err(Malformed::TooMany) } else { Ok(()) }
    }
}

impl Names for TraceNames {
    fn frames(&mut self, process: Process, return_addr: u64) -> Vec<Frame> {
        let known = self.addresses.get(&(process, return_addr)).map(|(_, frames)| frames.clone());
        let unknown = || vec![Frame { addr: return_addr, ..Frame::default() }];
        known.filter(|frames| !frames.is_empty()).unwrap_or_else(unknown)
    }

    fn global(&mut self, lock: Lock) -> Option<String> {
        self.locks.get(&lock)?.global.clone()
    }

    fn call_stack(&mut self, process: Process, raw: &[u64], site: Option<u64>) -> Vec<u64> {
        call_stack(raw, site, |addr| self.role(process, addr))
    }

    fn role(&mut self, process: Process, return_addr: u64) -> Role {
        self.addresses.get(&(process, return_addr)).map_or(Role::Program, |&(role, _)| role)
    }

    fn lock_id(&mut self, lock: Lock) -> Option<String> {
        self.locks.get(&lock)?.id.clone()
    }

    fn site_id(&mut self, site: Site) -> Option<String> {
        self.sites.get(&site)?.id.clone()
    }

    fn is_on_stack(&mut self, lock: Lock) -> bool {
        self.locks.get(&lock).is_some_and(|named| named.on_stack)
    }

    fn member(&mut self, site: Site) -> Option<String> {
        self.sites.get(&site)?.member.clone()
    }

    fn thread_id(&mut self, tid: Tid) -> Option<String> {
        self.threads.get(&tid)?.id.clone()
    }

    fn thread_number(&mut self, tid: Tid) -> Option<u64> {
        self.threads.get(&tid)?.number
    }

    fn comm(&mut self, tid: Tid) -> Option<String> {
        self.threads.get(&tid)?.comm.clone()
    }

    fn kind(&mut self, lock: Lock) -> Option<String> {
        self.locks.get(&lock)?.kind.clone()
    }
}
