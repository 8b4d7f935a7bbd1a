//! Rows of snapshots: what the kernel side sums up beside the events. A snapshot tells only what has changed since the
//! one before it; all of them together are the state at the last.

use super::super::Malformed;
use super::super::varint::{Cursor, put, put_option};
use super::decode::totals;
use super::encode::put_totals;
use super::shape::{code_in, put_stack, stack};
use crate::deadlock::{Blocked, Deadlock, LockOrder};
use crate::event::{ThreadTotals, Via};
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::measures::counted::CountedSite;
use crate::observation::{Harvest, OpenWait};
use crate::sums::KernelSums;
use crate::transitions::Transition;
use crate::units::{Nanos, Time};
use lockbpf_common::counts::{Counts, SiteCounts, ThreadCounts};
use lockbpf_common::sums::{BUCKETS, Sums};
use std::collections::HashMap;

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in super::super) enum Key {
    Sums(Lock, Site, Via),
    Thread(Process, Tid),
    Wait(Tid, Lock),
    Order(Lock, Site, Lock, Site),
    Deadlock(u32),
    Stack(StackId),
    SiteCounts(Lock, Site, Via),
    ThreadCounts(Process, Tid),
    Bystander(Process, Tid),
    Transition(Process, Tid, Option<Lock>, Option<Lock>),
}

/// What it says.
#[derive(Clone, Debug)]
pub(in super::super) enum Row {
    Sums(Box<KernelSums>),
    Thread(ThreadTotals),
    Wait(OpenWait),
    Order(LockOrder),
    Deadlock(Deadlock),
    Stack(Vec<u64>),
    SiteCounts(Box<CountedSite>),
    ThreadCounts(Box<ThreadCounts>),
    Transition(Box<Transition>),
    Bystander,
}

/// Set in a row's tag: the row is no more.
const GONE: u8 = 0x80;

impl Key {
    fn tag(&self) -> u8 {
        match self {
            Self::Sums(..) => 1,
            Self::Thread(..) => 2,
            Self::Wait(..) => 3,
            Self::Order(..) => 4,
            Self::Deadlock(_) => 5,
            Self::Stack(_) => 6,
            Self::SiteCounts(..) => 7,
            Self::ThreadCounts(..) => 8,
            Self::Transition(..) => 9,
            Self::Bystander(..) => 10,
        }
    }

    fn put(&self, out: &mut Vec<u8>, gone: bool) {
        out.push(self.tag() | if gone { GONE } else { 0 });
        match *self {
            Self::Sums(lock, site, via) | Self::SiteCounts(lock, site, via) => {
                put_lock(out, lock);
                put_site(out, site);
                out.push(via as u8);
            }
            Self::Thread(process, tid) | Self::ThreadCounts(process, tid) => {
                put(out, u64::from(process.0));
                put(out, u64::from(tid.0));
            }
            Self::Transition(process, tid, from, to) => {
                put(out, u64::from(process.0));
                put(out, u64::from(tid.0));
                put_some_lock(out, from);
                put_some_lock(out, to);
            }
            Self::Wait(tid, lock) => {
                put(out, u64::from(tid.0));
                put_lock(out, lock);
            }
            Self::Order(outer, outer_site, inner, inner_site) => {
                put_lock(out, outer);
                put_site(out, outer_site);
                put_lock(out, inner);
                put_site(out, inner_site);
            }
            Self::Deadlock(number) => put(out, u64::from(number)),
            Self::Bystander(process, tid) => {
                put(out, u64::from(process.0));
                put(out, u64::from(tid.0));
            }
            Self::Stack(id) => put(out, u64::from(id.0)),
        }
    }

    fn read(tag: u8, from: &mut Cursor) -> Result<Self, Malformed> {
        Ok(match tag & !GONE {
            1 => Self::Sums(lock(from)?, site(from)?, via(from)?),
            2 => Self::Thread(Process(from.number32()?), Tid(from.number32()?)),
            3 => Self::Wait(Tid(from.number32()?), lock(from)?),
            4 => Self::Order(lock(from)?, site(from)?, lock(from)?, site(from)?),
            5 => Self::Deadlock(from.number32()?),
            6 => Self::Stack(StackId(from.number32()?)),
            7 => Self::SiteCounts(lock(from)?, site(from)?, via(from)?),
            8 => Self::ThreadCounts(Process(from.number32()?), Tid(from.number32()?)),
            9 => {
                let (process, tid) = (Process(from.number32()?), Tid(from.number32()?));
                Self::Transition(process, tid, some_lock(from)?, some_lock(from)?)
            }
            10 => Self::Bystander(Process(from.number32()?), Tid(from.number32()?)),
            _ => return Err(Malformed::Unknown("sort of row")),
        })
    }
}

/// What is said of a deadlock.
mod deadlock {
    pub(super) const BEFORE_START: u8 = 1;
    /// When it was seen last follows.
    pub(super) const SEEN: u8 = 1 << 1;
    /// When it ended follows.
    pub(super) const ENDED: u8 = 1 << 2;
    pub(super) const EXITED: u8 = 1 << 3;
    pub(super) const OWNED: u8 = 1 << 4;
    pub(super) const ALL: u8 = (OWNED << 1) - 1;
}

impl Row {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sums(k) => put_sums(out, &k.sums),
            Self::Thread(totals) => {
                put(out, totals.time.0);
                put_totals(out, totals);
            }
            Self::Wait(w) => {
                put(out, w.since.0);
                out.extend([w.via as u8, u8::from(w.before_start)]);
                put_some_site(out, w.site);
                put_option(out, w.owner.map(|t| t.0));
                put_option(out, w.expected);
                put_stack(out, w.stack);
            }
            Self::Order(o) => {
                put(out, u64::from(o.tid.0));
                put(out, o.count);
                out.push(u8::from(o.others));
            }
            Self::Deadlock(d) => {
                put(out, d.found.0);
                out.push(
                    u8::from(d.before_start)
                        | deadlock::SEEN
                        | if d.ended.is_some() { deadlock::ENDED } else { 0 }
                        | if d.exited { deadlock::EXITED } else { 0 }
                        | if d.owned { deadlock::OWNED } else { 0 },
                );
                put(out, d.seen.0);
                d.ended.iter().for_each(|ended| put(out, ended.0));
                put(out, d.members.len() as u64);
                for member in &d.members {
                    put(out, u64::from(member.tid.0));
                    put_lock(out, member.lock);
                    put_some_site(out, member.site);
                    put(out, member.since.0);
                    put_stack(out, member.stack);
                }
            }
            Self::Bystander => {}
            Self::Stack(addresses) => {
                put(out, addresses.len() as u64);
                addresses.iter().for_each(|&addr| put(out, addr));
            }
            Self::SiteCounts(site) => put_site_counts(out, &site.counts),
            Self::ThreadCounts(counts) => put_thread_counts(out, counts),
            Self::Transition(t) => {
                let (low, high) = (t.squares as u64, (t.squares >> u64::BITS) as u64);
                for number in [t.first.0, t.count, t.local.0, t.visits, t.hold.0, t.cut.0, low, high] {
                    put(out, number);
                }
            }
        }
    }

    fn read(key: &Key, from: &mut Cursor) -> Result<Self, Malformed> {
        Ok(match *key {
            Key::Sums(lock, site, via) => Self::Sums(Box::new(KernelSums { lock, site, via, sums: sums(from)? })),
            Key::Thread(process, tid) => {
                let time = Time(from.number()?);
                // The key is repeated in the value: it counts.
                Self::Thread(ThreadTotals { process, tid, ..totals(time, from)? })
            }
            Key::Wait(tid, lock) => {
                let since = Time(from.number()?);
                let via = via(from)?;
                let before_start = code_in(&[false, true], from)?;
                let site = some_site(from)?;
                let owner = from.option()?.map(Tid);
                let expected = from.option()?;
                Self::Wait(OpenWait { tid, lock, site, since, owner, stack: stack(from)?, via, expected, before_start })
            }
            Key::Order(outer, outer_site, inner, inner_site) => {
                let (tid, count) = (Tid(from.number32()?), from.number()?);
                let others = code_in(&[false, true], from)?;
                Self::Order(LockOrder { outer, outer_site, inner, inner_site, tid, others, count })
            }
            Key::Deadlock(_) => {
                let found = Time(from.number()?);
                let flags = from.byte()?;
                if flags & !deadlock::ALL != 0 {
                    return Err(Malformed::Unknown("mark of a deadlock"));
                }
                let has = |flag| flags & flag != 0;
                // Older recordings do not say when it was seen last.
                let seen = if has(deadlock::SEEN) { Time(from.number()?) } else { found };
                let ended = if has(deadlock::ENDED) { Some(Time(from.number()?)) } else { None };
                let (before_start, exited, owned) =
                    (has(deadlock::BEFORE_START), has(deadlock::EXITED), has(deadlock::OWNED));
                let mut members = Vec::new();
                for _ in 0..from.count()? {
                    let tid = Tid(from.number32()?);
                    let (lock, site) = (lock(from)?, some_site(from)?);
                    members.push(Blocked { tid, lock, site, since: Time(from.number()?), stack: stack(from)? });
                }
                Self::Deadlock(Deadlock { found, seen, ended, exited, members, before_start, owned })
            }
            Key::Bystander(..) => Self::Bystander,
            Key::Stack(_) => {
                let mut addresses = Vec::new();
                for _ in 0..from.count()? {
                    addresses.push(from.number()?);
                }
                Self::Stack(addresses)
            }
            Key::SiteCounts(lock, site, via) => {
                Self::SiteCounts(Box::new(CountedSite { lock, site, via, counts: site_counts(from)? }))
            }
            Key::ThreadCounts(process, tid) => {
                let (process, tid) = (process.0, tid.0);
                Self::ThreadCounts(Box::new(ThreadCounts { process, tid, ..thread_counts(from)? }))
            }
            Key::Transition(process, tid, came, to) => {
                let (first, count, local) = (Time(from.number()?), from.number()?, Nanos(from.number()?));
                let (visits, hold, cut) = (from.number()?, Nanos(from.number()?), Nanos(from.number()?));
                let squares = u128::from(from.number()?) | u128::from(from.number()?) << u64::BITS;
                let transition =
                    Transition { process, tid, from: came, to, first, count, local, visits, hold, cut, squares };
                Self::Transition(Box::new(transition))
            }
        })
    }
}

/// Every row of a harvest. Of its stacks, those that `wanted` are.
pub(in super::super) fn of(harvest: &Harvest, wanted: impl Fn(StackId) -> bool) -> impl Iterator<Item = (Key, Row)> {
    let sums = harvest.sums.iter().map(|k| (Key::Sums(k.lock, k.site, k.via), Row::Sums(Box::new(*k))));
    let threads = harvest.threads.iter().map(|t| (Key::Thread(t.process, t.tid), Row::Thread(t.clone())));
    let waits = harvest.open_waits.iter().map(|&w| (Key::Wait(w.tid, w.lock), Row::Wait(w)));
    let orders = harvest.orders.iter().map(|&o| {
        let key = Key::Order(o.outer, o.outer_site, o.inner, o.inner_site);
        (key, Row::Order(o))
    });
    let deadlocks = harvest.deadlocks.iter().enumerate();
    let deadlocks = deadlocks.map(|(i, d)| (Key::Deadlock(i as u32), Row::Deadlock(d.clone())));
    let stacks = harvest.stacks.iter().filter(move |&(&id, _)| wanted(id));
    let stacks = stacks.map(|(&id, addresses)| (Key::Stack(id), Row::Stack(addresses.clone())));
    let counted = harvest.counted.sites.iter();
    let counted = counted.map(|s| (Key::SiteCounts(s.lock, s.site, s.via), Row::SiteCounts(Box::new(*s))));
    let counting = harvest.counted.threads.iter();
    let counting =
        counting.map(|t| (Key::ThreadCounts(Process(t.process), Tid(t.tid)), Row::ThreadCounts(Box::new(*t))));
    let transitions = harvest.transitions.iter();
    let transitions =
        transitions.map(|t| (Key::Transition(t.process, t.tid, t.from, t.to), Row::Transition(Box::new(*t))));
    let first = sums.chain(counted).chain(threads).chain(counting);
    let bystanders = harvest.bystanders.iter();
    let bystanders = bystanders.map(|&(process, tid)| (Key::Bystander(process, tid), Row::Bystander));
    first.chain(bystanders).chain(waits).chain(orders).chain(transitions).chain(deadlocks).chain(stacks)
}

/// Appends a row.
pub(in super::super) fn put_row(out: &mut Vec<u8>, key: &Key, row: &Row) {
    key.put(out, false);
    row.put(out);
}

/// Appends that a row is no more.
pub(in super::super) fn put_gone(out: &mut Vec<u8>, key: &Key) {
    key.put(out, true);
}

/// Rows of one recording at most; more than the kernel side can keep.
const MAX_ROWS: usize = 1 << 20;
/// Bytes of rows between two whole snapshots at most, as they were written.
const MAX_BYTES: usize = 1 << 30;

/// The rows read so far.
#[derive(Debug, Default)]
pub(in super::super) struct Rows {
    rows: HashMap<Key, Row>,
    bytes: usize,
}

impl Rows {
    /// Takes the rows of one frame.
    pub(in super::super) fn read(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        let mut from = Cursor(payload);
        while !from.is_empty() {
            let before = from.0.len();
            let tag = from.byte()?;
            let key = Key::read(tag, &mut from)?;
            if tag & GONE != 0 {
                self.rows.remove(&key);
                continue;
            }
            let row = Row::read(&key, &mut from)?;
            self.bytes = self.bytes.saturating_add(before - from.0.len());
            if self.rows.len() >= MAX_ROWS || self.bytes > MAX_BYTES {
                return Err(Malformed::TooMany);
            }
            self.rows.insert(key, row);
        }
        Ok(())
    }

    /// Forgets everything: a snapshot begins that tells it all.
    pub(in super::super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All rows as the harvest that they are, but for its losses. In the order of their keys.
    pub(in super::super) fn harvest(self) -> Harvest {
        let mut harvest = Harvest::default();
        let mut rows: Vec<_> = self.rows.into_iter().collect();
        rows.sort_unstable_by_key(|&(key, _)| key);
        for (key, row) in rows {
            match row {
                Row::Sums(sums) => harvest.sums.push(*sums),
                Row::Thread(totals) => harvest.threads.push(totals),
                Row::Wait(wait) => harvest.open_waits.push(wait),
                Row::Order(order) => harvest.orders.push(order),
                Row::Deadlock(deadlock) => harvest.deadlocks.push(deadlock),
                Row::Transition(transition) => harvest.transitions.push(*transition),
                Row::SiteCounts(site) => harvest.counted.sites.push(*site),
                Row::ThreadCounts(counts) => harvest.counted.threads.push(*counts),
                Row::Bystander => {
                    if let Key::Bystander(process, tid) = key {
                        harvest.bystanders.push((process, tid));
                    }
                }
                Row::Stack(addresses) => {
                    if let Key::Stack(id) = key {
                        harvest.stacks.insert(id, addresses);
                    }
                }
            }
        }
        harvest
    }
}

pub(super) fn put_lock(out: &mut Vec<u8>, lock: Lock) {
    put(out, u64::from(lock.process.0));
    put(out, lock.addr);
}

pub(super) fn lock(from: &mut Cursor) -> Result<Lock, Malformed> {
    Ok(Lock { process: Process(from.number32()?), addr: from.number()? })
}

pub(super) fn put_site(out: &mut Vec<u8>, site: Site) {
    put(out, u64::from(site.process.0));
    put(out, site.addr);
}

pub(super) fn site(from: &mut Cursor) -> Result<Site, Malformed> {
    Ok(Site { process: Process(from.number32()?), addr: from.number()? })
}

fn put_some_lock(out: &mut Vec<u8>, lock: Option<Lock>) {
    out.push(u8::from(lock.is_some()));
    if let Some(lock) = lock {
        put_lock(out, lock);
    }
}

fn some_lock(from: &mut Cursor) -> Result<Option<Lock>, Malformed> {
    if code_in(&[false, true], from)? { lock(from).map(Some) } else { Ok(None) }
}

fn put_some_site(out: &mut Vec<u8>, site: Option<Site>) {
    out.push(u8::from(site.is_some()));
    if let Some(site) = site {
        put_site(out, site);
    }
}

fn some_site(from: &mut Cursor) -> Result<Option<Site>, Malformed> {
    if code_in(&[false, true], from)? { site(from).map(Some) } else { Ok(None) }
}

pub(super) fn via(from: &mut Cursor) -> Result<Via, Malformed> {
    Via::from_u8(from.byte()?).ok_or(Malformed::Unknown("call"))
}

fn put_sums(out: &mut Vec<u8>, s: &Sums) {
    let kind = u64::from(s.kind);
    for number in [
        s.first_ns,
        s.acquisitions,
        s.contended,
        s.unseen,
        s.try_failures,
        s.timeouts,
        s.timeout_ns,
        s.errors,
        s.wakes,
        s.wakes_of_none,
        s.wait_ns,
        s.wait_max_ns,
        s.hold_ns,
        s.hold_max_ns,
        kind,
    ] {
        put(out, number);
    }
    put_stack(out, StackId::from_raw(s.stack));
    put_histograms(out, [&s.wait_hist, &s.hold_hist]);
}

fn put_histograms<const N: usize>(out: &mut Vec<u8>, histograms: [&[u64; BUCKETS]; N]) {
    for histogram in histograms {
        put(out, histogram.iter().filter(|&&n| n > 0).count() as u64);
        for (bucket, &count) in histogram.iter().enumerate().filter(|&(_, &n)| n > 0) {
            out.push(bucket as u8);
            put(out, count);
        }
    }
}

fn read_histograms<const N: usize>(from: &mut Cursor, histograms: [&mut [u64; BUCKETS]; N]) -> Result<(), Malformed> {
    for histogram in histograms {
        for _ in 0..from.count()? {
            let slot = histogram.get_mut(usize::from(from.byte()?)).ok_or(Malformed::TooLarge)?;
            *slot = from.number()?;
        }
    }
    Ok(())
}

fn put_counts(out: &mut Vec<u8>, counts: &Counts) {
    put(out, counts.on_cpu_ns);
    put(out, counts.preempted_ns);
    for (&counted_ns, &count) in counts.counted_ns.iter().zip(&counts.counts) {
        // As a rule it was counted all the time.
        put(out, counts.on_cpu_ns.wrapping_sub(counted_ns));
        put(out, count);
    }
}

fn read_counts(from: &mut Cursor) -> Result<Counts, Malformed> {
    let mut counts = Counts { on_cpu_ns: from.number()?, preempted_ns: from.number()?, ..Counts::NONE };
    for (counted_ns, count) in counts.counted_ns.iter_mut().zip(&mut counts.counts) {
        *counted_ns = counts.on_cpu_ns.wrapping_sub(from.number()?);
        *count = from.number()?;
    }
    Ok(counts)
}

fn put_site_counts(out: &mut Vec<u8>, c: &SiteCounts) {
    for number in [c.sections, c.waits, c.releases] {
        put(out, number);
    }
    for counts in [&c.hold, &c.wait, &c.release] {
        put_counts(out, counts);
    }
    put_histograms(out, [&c.hold_hist, &c.wait_hist, &c.release_hist]);
}

fn site_counts(from: &mut Cursor) -> Result<SiteCounts, Malformed> {
    let mut c = SiteCounts::EMPTY;
    for slot in [&mut c.sections, &mut c.waits, &mut c.releases] {
        *slot = from.number()?;
    }
    for counts in [&mut c.hold, &mut c.wait, &mut c.release] {
        *counts = read_counts(from)?;
    }
    read_histograms(from, [&mut c.hold_hist, &mut c.wait_hist, &mut c.release_hist])?;
    Ok(c)
}

fn put_thread_counts(out: &mut Vec<u8>, t: &ThreadCounts) {
    put(out, t.threads);
    put_counts(out, &t.execution);
    for number in [t.wait, t.release, t.outside, t.held_union, t.held_sum] {
        put(out, number);
    }
}

fn thread_counts(from: &mut Cursor) -> Result<ThreadCounts, Malformed> {
    let mut t = ThreadCounts { threads: from.number()?, execution: read_counts(from)?, ..ThreadCounts::default() };
    for slot in [&mut t.wait, &mut t.release, &mut t.outside, &mut t.held_union, &mut t.held_sum] {
        *slot = from.number()?;
    }
    Ok(t)
}

fn sums(from: &mut Cursor) -> Result<Sums, Malformed> {
    let mut s = Sums::EMPTY;
    for slot in [
        &mut s.first_ns,
        &mut s.acquisitions,
        &mut s.contended,
        &mut s.unseen,
        &mut s.try_failures,
        &mut s.timeouts,
        &mut s.timeout_ns,
        &mut s.errors,
        &mut s.wakes,
        &mut s.wakes_of_none,
        &mut s.wait_ns,
        &mut s.wait_max_ns,
        &mut s.hold_ns,
        &mut s.hold_max_ns,
    ] {
        *slot = from.number()?;
    }
    s.kind = from.number32()?;
    s.stack = stack(from)?.and_then(|id| i32::try_from(id.0).ok()).unwrap_or(Sums::EMPTY.stack);
    read_histograms(from, [&mut s.wait_hist, &mut s.hold_hist])?;
    Ok(s)
}
