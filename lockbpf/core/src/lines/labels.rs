//! What the lines call threads, locks and sites. Identities inside lockbpf are numbers; these tables give the texts back.
//!
//! Memory grows with the number of different names, not with the number of lines, and ends at [`MAX_NAMES`] per table.

use super::error::Problem;
use super::fields::ThreadId;
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::names::{Frame, Names};
use crate::op::LockKind;
use crate::untrusted::shown;
use foldhash::fast::RandomState;
use indexmap::IndexSet;
use std::collections::{HashMap, HashSet};

/// Names kept in each table.
pub const MAX_NAMES: usize = 1 << 24;

/// Threads whose number is below this are known by it; those beyond, or named by a string, are numbered from here.
const FIRST_NAMED: u32 = 1 << 31;

/// Functions on stacks are numbered from here: beyond all sites.
const FIRST_FUNCTION: u64 = 1 << 32;

type Map<K, V> = HashMap<K, V, RandomState>;

/// The names in a file of event lines.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    locks: Table,
    sites: Table,
    /// The functions on stacks. A site of the same text may be called otherwise; a function is called what its line calls it.
    functions: Table,
    threads: Table,
    /// Named threads that the lines write as numbers.
    large: HashSet<Tid, RandomState>,
    /// Threads known by their number that the lines write as strings.
    quoted: HashSet<Tid, RandomState>,
    lock_names: Map<Lock, Box<str>>,
    symbols: Map<Site, Box<str>>,
    kinds: Map<Lock, Box<str>>,
    comms: Map<Tid, Box<str>>,
    pids: Map<u32, Process>,
    processes: Map<Tid, Process>,
    stacks: IndexSet<Box<[u64]>, RandomState>,
}

/// Texts by number, counted from 1.
#[derive(Clone, Debug, Default)]
struct Table(IndexSet<Box<str>, RandomState>);

impl Table {
    fn number(&mut self, text: &str, what: &'static str) -> Result<u64, Problem> {
        if let Some(known) = self.0.get_index_of(text) {
            return Ok(known as u64 + 1);
        }
        if self.0.len() >= MAX_NAMES {
            return Err(Problem::TooManyNames(what));
        }
        let (index, _new) = self.0.insert_full(text.into());
        Ok(index as u64 + 1)
    }

    fn text(&self, number: u64) -> Option<&str> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        self.0.get_index(index).map(|text| &**text)
    }
}

/// Remembers a text, if it is not what is remembered already.
fn remember<K: std::hash::Hash + Eq>(map: &mut Map<K, Box<str>>, key: K, text: &str) {
    match map.get_mut(&key) {
        Some(known) if **known == *text => {}
        Some(known) => *known = text.into(),
        None => {
            map.insert(key, text.into());
        }
    }
}

impl Labels {
    /// What the lines call the thread itself, its latest `comm`.
    #[must_use]
    pub fn comm(&self, tid: Tid) -> Option<&str> {
        self.comms.get(&tid).map(|comm| &**comm)
    }

    /// The stacks that lines carry: as [`crate::observation::Observation::stacks`] has them.
    #[must_use]
    pub fn stacks(&self) -> HashMap<StackId, Vec<u64>> {
        (0..).map(StackId).zip(self.stacks.iter().map(|stack| stack.to_vec())).collect()
    }

    pub(super) fn lock(&mut self, text: &str) -> Result<Lock, Problem> {
        self.locks.number(text, "locks").map(|addr| Lock { process: Process(0), addr })
    }

    pub(super) fn site(&mut self, text: &str) -> Result<Site, Problem> {
        self.sites.number(text, "sites").map(|addr| Site { process: Process(0), addr })
    }

    /// The site that follows a barrier's region if the line does not name it.
    pub(super) fn site_after(&mut self, text: &str) -> Result<Site, Problem> {
        self.site(&[text, AFTER].concat())
    }

    /// The thread that a line speaks of. 5 and "5" are the same.
    pub(super) fn thread(&mut self, id: &ThreadId<'_>) -> Result<Tid, Problem> {
        match id {
            ThreadId::Number(n) => match own_number(*n) {
                Some(tid) => Ok(tid),
                None => {
                    let tid = self.named(&n.to_string())?;
                    self.large.insert(tid);
                    Ok(tid)
                }
            },
            ThreadId::Text(text) => match canonical(text).and_then(own_number) {
                Some(tid) => {
                    self.quoted.insert(tid);
                    Ok(tid)
                }
                None => self.named(text),
            },
        }
    }

    fn named(&mut self, text: &str) -> Result<Tid, Problem> {
        let number = self.threads.number(text, "threads")?;
        // The table holds fewer than 2^31 names.
        let below = u32::try_from(number - 1).map_err(|_| Problem::TooManyNames("threads"))?;
        Ok(Tid(FIRST_NAMED | below))
    }

    /// The process of a thread: the one that the line names, else the one that an earlier line named. The second value
    /// tells whether this is the first time that the process is named.
    pub(super) fn process(&mut self, tid: Tid, pid: Option<u32>) -> Result<(Process, bool), Problem> {
        let Some(pid) = pid else {
            // Most files name no process at all.
            let known = if self.processes.is_empty() { None } else { self.processes.get(&tid) };
            return Ok((known.copied().unwrap_or_default(), false));
        };
        let next = u32::try_from(self.pids.len() + 1).map_err(|_| Problem::TooManyNames("processes"))?;
        if self.pids.len() >= MAX_NAMES && !self.pids.contains_key(&pid) {
            return Err(Problem::TooManyNames("processes"));
        }
        let process = *self.pids.entry(pid).or_insert(Process(next));
        self.processes.insert(tid, process);
        Ok((process, process == Process(next)))
    }

    pub(super) fn set_comm(&mut self, tid: Tid, comm: &str) {
        remember(&mut self.comms, tid, &shown(comm));
    }

    pub(super) fn set_lock_name(&mut self, lock: Lock, name: &str) {
        remember(&mut self.lock_names, lock, name);
    }

    /// What the kind of a lock is called, whatever its rules.
    pub(super) fn set_kind_name(&mut self, lock: Lock, name: &str) {
        remember(&mut self.kinds, lock, name);
    }

    pub(super) fn set_symbol(&mut self, site: Site, symbol: &str) {
        remember(&mut self.symbols, site, symbol);
    }

    /// The kind that a line names; one that lockbpf has no rules for is remembered by name.
    pub(super) fn kind_of(&mut self, lock: Lock, text: &str) -> LockKind {
        match text {
            "mutex" => LockKind::Mutex,
            "rwlock" => LockKind::Rwlock,
            "spin" => LockKind::Spin,
            "semaphore" => LockKind::Semaphore,
            "once" => LockKind::Once,
            "gil" => LockKind::Gil,
            "barrier" => LockKind::Barrier,
            "futex" => LockKind::Futex,
            other => {
                remember(&mut self.kinds, lock, other);
                LockKind::Other
            }
        }
    }

    /// A stack by the texts of its functions, innermost first.
    pub(super) fn stack<'t>(&mut self, functions: impl Iterator<Item = &'t str>) -> Result<StackId, Problem> {
        let stack: Box<[u64]> = functions
            .map(|text| Ok(FIRST_FUNCTION + self.functions.number(text, "functions")?))
            .collect::<Result<_, Problem>>()?;
        if self.stacks.len() >= MAX_NAMES {
            return Err(Problem::TooManyNames("stacks"));
        }
        let (index, _new) = self.stacks.insert_full(stack);
        u32::try_from(index).map(StackId).map_err(|_| Problem::TooManyNames("stacks"))
    }
}

/// What is appended to a barrier's site for the region after it.
pub(super) const AFTER: &str = ":after";

/// The number of a thread that is known by its own.
fn own_number(n: u64) -> Option<Tid> {
    u32::try_from(n).ok().filter(|&n| n < FIRST_NAMED).map(Tid)
}

/// A string that is how a number would be written.
fn canonical(text: &str) -> Option<u64> {
    let written = !text.starts_with('+') && (text == "0" || !text.starts_with('0'));
    if written { text.parse().ok() } else { None }
}

impl Names for Labels {
    fn frames(&mut self, _process: Process, return_addr: u64) -> Vec<Frame> {
        let text = match return_addr.checked_sub(FIRST_FUNCTION) {
            Some(number) => self.functions.text(number),
            None => {
                let site = Site { process: Process(0), addr: return_addr };
                self.symbols.get(&site).map(|text| &**text).or_else(|| self.sites.text(return_addr))
            }
        };
        let mut frame = text.map(|text| Frame::from_symbol(&shown(text))).unwrap_or_default();
        frame.addr = return_addr;
        vec![frame]
    }

    fn global(&mut self, lock: Lock) -> Option<String> {
        self.lock_names.get(&lock).map(|name| shown(name).into_owned()).or_else(|| self.lock_id(lock))
    }

    fn call_stack(&mut self, _process: Process, raw: &[u64], _site: Option<u64>) -> Vec<u64> {
        raw.to_vec()
    }

    fn lock_id(&mut self, lock: Lock) -> Option<String> {
        self.locks.text(lock.addr).map(|text| shown(text).into_owned())
    }

    fn site_id(&mut self, site: Site) -> Option<String> {
        self.sites.text(site.addr).map(|text| shown(text).into_owned())
    }

    fn thread_id(&mut self, tid: Tid) -> Option<String> {
        match tid.0.checked_sub(FIRST_NAMED) {
            Some(index) => self.threads.text(u64::from(index) + 1).map(|text| shown(text).into_owned()),
            None => self.quoted.contains(&tid).then(|| tid.0.to_string()),
        }
    }

    fn thread_number(&mut self, tid: Tid) -> Option<u64> {
        if self.large.contains(&tid) { self.thread_id(tid)?.parse().ok() } else { None }
    }

    fn comm(&mut self, tid: Tid) -> Option<String> {
        Self::comm(self, tid).map(str::to_owned)
    }

    fn kind(&mut self, lock: Lock) -> Option<String> {
        self.kinds.get(&lock).map(|kind| shown(kind).into_owned())
    }
}
