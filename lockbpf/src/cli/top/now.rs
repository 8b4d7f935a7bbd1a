//! Who holds and who waits at the moment of a snapshot: looked at at once, told in words when the report has names.

use super::frame::{HolderNow, HolderThread, WaiterNow};
use crate::alert::HeldFor;
use crate::capture::holder::{Holder, Holders, Named};
use crate::capture::session::{Session, now};
use crate::cli::holders::{Naming, held, in_words, naming_of, nobody};
use crate::id::{Lock, Process, Tid};
use crate::names::{self, Names};
use crate::observation::{Observation, OpenWait};
use crate::observe::census::Census;
use crate::proc;
use crate::report::Report;
use crate::report::schema::LockEntry;
use crate::units::Time;
use crate::untrusted::shown_bytes;
use lockbpf_common::kind::Via;
use std::collections::{BTreeMap, HashMap};

/// Locks whose holders are looked for, those with the longest waits.
const MAX_LOCKS: usize = 16;
/// Waiters listed of each.
const MAX_WAITERS: usize = 32;

/// The locks that are waited for, and the one that is looked at, by the names that the report knows them by.
pub(super) type Now = BTreeMap<String, LockNow>;

/// One lock.
#[derive(Clone, Debug, Default)]
pub(super) struct LockNow {
    /// Who holds it.
    pub holder: HolderNow,
    /// Who waits for it, longest first.
    pub waiters: Vec<WaiterNow>,
    /// How many more.
    pub more_waiters: u64,
}

/// A lock as it was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    id: String,
    lock: Lock,
    holder: Result<Holder, &'static str>,
    /// For how long it is held, as far as futex calls tell.
    held: Option<HeldFor>,
    /// The longest waits, with their stacks, if there are any.
    waits: Vec<(OpenWait, Option<Vec<u64>>)>,
    /// How many more.
    more: u64,
}

/// What was found at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Glance {
    at: Time,
    /// When the waits in progress were read.
    end: Time,
    locks: Vec<Found>,
    /// What each thread waits for.
    waits_for: HashMap<Tid, Lock>,
    pids: HashMap<Process, u32>,
}

/// Looks at a target again and again.
#[derive(Debug, Default)]
pub(super) struct Looker {
    holders: Holders,
    /// How the locks of the last report name their holders.
    naming: HashMap<String, Naming>,
}

impl Looker {
    /// Looks for the holders of the locks that are waited for, and of the chosen one.
    pub(super) fn glance(
        &mut self,
        observation: &Observation,
        chosen: Option<&str>,
        session: &Session,
        census: &mut Census,
    ) -> Glance {
        self.holders.forget();
        let pids = census.pids();
        let mut waits: HashMap<Lock, Vec<OpenWait>> = HashMap::new();
        let mut waits_for = HashMap::new();
        for wait in observation.open_waits.iter().filter(|wait| wait.via != Via::CondWait) {
            waits.entry(wait.lock).or_default().push(*wait);
            waits_for.insert(wait.tid, wait.lock);
        }
        for of_lock in waits.values_mut() {
            of_lock.sort_by_key(|wait| (wait.since, wait.tid));
        }
        let mut wanted: Vec<(Lock, Vec<OpenWait>)> = waits.into_iter().collect();
        wanted.sort_by_key(|(lock, waits)| (waits.first().map(|wait| wait.since), *lock));
        let chosen = chosen.and_then(|id| lock_called(id, census));
        let at = chosen.and_then(|chosen| wanted.iter().position(|(lock, _)| *lock == chosen));
        match (at, chosen) {
            (Some(at), _) => wanted.swap(0, at),
            (None, Some(chosen)) => wanted.insert(0, (chosen, Vec::new())),
            (None, None) => {}
        }
        wanted.truncate(MAX_LOCKS);
        let mut locks = Vec::with_capacity(wanted.len());
        for (lock, waits) in wanted {
            let Some(&pid) = pids.get(&lock.process) else { continue };
            let id = format!("{pid}:{:#x}", lock.addr);
            let naming = waits.first().map(|wait| naming_of(wait.via)).or_else(|| self.naming.get(&id).copied());
            let naming = naming.unwrap_or(Err("it was not seen in use yet"));
            let holder = naming.and_then(|named| {
                let holder = self.holders.of(session, pid, lock, named, census.symbols());
                // Who waits for it does not hold it: the word may be out of date.
                holder.filter(|holder| waits.iter().all(|wait| wait.tid != holder.tid)).ok_or(nobody(named))
            });
            let held = held(session, lock, waits.first(), now());
            let more = waits.len().saturating_sub(MAX_WAITERS) as u64;
            let stack = |wait: &OpenWait| wait.stack.and_then(|id| observation.stacks.get(&id)).cloned();
            let waits = waits.into_iter().take(MAX_WAITERS).map(|wait| (wait, stack(&wait))).collect();
            locks.push(Found { id, lock, holder, held, waits, more });
        }
        Glance { at: now(), end: observation.end, locks, waits_for, pids }
    }

    /// What was found, in words.
    pub(super) fn tell(&mut self, glance: Glance, report: &Report, census: &mut Census) -> Now {
        self.naming = report.locks.iter().map(|lock| (lock.lock.clone(), naming(lock))).collect();
        let Glance { at, end, locks, waits_for, pids } = glance;
        let id = |lock: Lock| Some(format!("{}:{:#x}", pids.get(&lock.process)?, lock.addr));
        let mut now = Now::new();
        for Found { id: own, lock, holder, held, waits, more } in locks {
            let holder = match holder {
                Ok(holder) => {
                    let inner = waits_for.get(&holder.tid).filter(|inner| **inner != lock).and_then(|inner| id(*inner));
                    HolderNow::Thread(Box::new(thread(lock.process, (holder, held), inner, at, census)))
                }
                Err(why) => HolderNow::Unknown(why),
            };
            let waiters = waits.iter().map(|(wait, stack)| waiter(wait, stack.as_deref(), end, census)).collect();
            now.insert(own, LockNow { holder, waiters, more_waiters: more });
        }
        now
    }
}

/// How a lock of a report names its holder.
fn naming(lock: &LockEntry) -> Naming {
    match lock.kind.as_str() {
        _ if lock.kernel => naming_of(Via::Kernel),
        _ if lock.others => Err("this line stands for several locks"),
        _ if lock.inferred => Ok(Named::Word),
        "mutex" => Ok(Named::Mutex),
        "rwlock" => Ok(Named::ReadWrite),
        _ => naming_of(Via::SemWait),
    }
}

/// The lock that the report calls so.
fn lock_called(id: &str, census: &Census) -> Option<Lock> {
    let (pid, addr) = id.split_once(":0x")?;
    Some(Lock { process: census.number(pid.parse().ok()?)?, addr: u64::from_str_radix(addr, 16).ok()? })
}

fn thread(
    process: Process,
    (holder, held): (Holder, Option<HeldFor>),
    waits_for: Option<String>,
    at: Time,
    census: &mut Census,
) -> HolderThread {
    let Holder { tid, hold, doing, off_since, stack } = holder;
    let taken_at = hold.and_then(|hold| place(process, hold.site, census));
    let is_in = program(process, &stack, census);
    let (tid, comm) = named(process, tid, census);
    HolderThread {
        tid,
        comm,
        doing: if waits_for.is_some() { "waiting for a lock itself".to_owned() } else { in_words(doing) },
        off_ns: off_since.map(|since| at.since(since).0),
        held: hold.map(|hold| HeldFor::Exactly(at.since(hold.since))).or(held),
        taken_at,
        is_in,
        waits_for,
    }
}

fn waiter(wait: &OpenWait, stack: Option<&[u64]>, end: Time, census: &mut Census) -> WaiterNow {
    let process = wait.lock.process;
    let (tid, comm) = named(process, wait.tid, census);
    let asked = wait.site.and_then(|site| place(site.process, site.addr, census));
    WaiterNow {
        tid,
        comm,
        waited_ns: end.since(wait.since).0,
        at_least: wait.before_start,
        place: asked.or_else(|| program(process, stack?, census)),
    }
}

/// The innermost function of the program on a stack.
fn program(process: Process, stack: &[u64], census: &mut Census) -> Option<String> {
    let own = census.symbols().call_stack(process, stack, None);
    own.first().and_then(|&addr| place(process, addr, census))
}

/// What a thread is called: its number, or what its runtime says, and its name.
fn named(process: Process, tid: Tid, census: &mut Census) -> (String, String) {
    if let Some(own) = census.symbols().thread_id(tid) {
        return (own, String::new());
    }
    let pid = census.processes().get(&process).map_or(tid.0, |seen| seen.pid);
    let comm = proc::read(format!("/proc/{pid}/task/{}/comm", tid.0)).unwrap_or_default();
    (tid.0.to_string(), shown_bytes(comm.trim_ascii_end()))
}

fn place(process: Process, addr: u64, census: &mut Census) -> Option<String> {
    if addr == 0 {
        return None;
    }
    names::place(&census.symbols().frames(process, addr)).map(names::Frame::symbol)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_lock_names_its_holder() {
        let entry = |kind: &str| LockEntry { kind: kind.to_owned(), ..LockEntry::default() };
        assert_eq!(naming(&entry("mutex")), Ok(Named::Mutex));
        assert_eq!(naming(&LockEntry { inferred: true, ..entry("futex") }), Ok(Named::Word));
        assert!(naming(&entry("semaphore")).is_err());
        assert!(naming(&LockEntry { kernel: true, ..entry("mutex") }).is_err());
        assert!(naming(&LockEntry { others: true, ..entry("mutex") }).is_err());
        assert_eq!(naming_of(Via::TimedWriteLock), Ok(Named::ReadWrite));
    }
}
