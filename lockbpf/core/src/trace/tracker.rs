//! What a recording has to name: every address, lock, site and thread that was mentioned, each once.

use super::names::{Named, NamedSite, NamedThread};
use super::v1::names::NamesEncoder;
use crate::event::Event;
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::names::Names;
use crate::observation::Harvest;
use crate::op::Action;
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// Things of one sort that are named; later ones are counted.
const MAX_TRACKED: usize = 1 << 23;

/// Things of one sort: which were mentioned, and which of these are to be named yet.
#[derive(Debug)]
struct Mentioned<T> {
    seen: HashSet<T, RandomState>,
    waiting: Vec<T>,
    /// Mentions of what was too much.
    beyond: u64,
}

impl<T> Default for Mentioned<T> {
    fn default() -> Self {
        Self { seen: HashSet::default(), waiting: Vec::new(), beyond: 0 }
    }
}

impl<T: Copy + Eq + Hash> Mentioned<T> {
    fn mention(&mut self, thing: T) {
        if self.seen.len() >= MAX_TRACKED {
            self.beyond += u64::from(!self.seen.contains(&thing));
        } else if self.seen.insert(thing) {
            self.waiting.push(thing);
        }
    }
}

/// Follows what is mentioned.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    addresses: Mentioned<(Process, u64)>,
    locks: Mentioned<Lock>,
    sites: Mentioned<Site>,
    threads: Mentioned<Tid>,
    stacks: Mentioned<(Process, StackId)>,
    /// Numbers of the stacks that were mentioned.
    numbers: HashSet<StackId>,
}

impl Tracker {
    /// Takes over what another one has not named yet.
    pub(super) fn inherit(&mut self, other: Self) {
        other.addresses.waiting.into_iter().for_each(|address| self.addresses.mention(address));
        other.locks.waiting.into_iter().for_each(|lock| self.locks.mention(lock));
        other.sites.waiting.into_iter().for_each(|site| self.sites.mention(site));
        other.threads.waiting.into_iter().for_each(|tid| self.threads.mention(tid));
        other.stacks.waiting.into_iter().for_each(|(process, id)| self.stack(process, Some(id)));
    }

    /// Takes note of what an event mentions.
    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::Section(s) => {
                self.lock(s.lock);
                self.site(s.site);
                self.threads([Some(s.tid), s.owner, s.waker]);
                self.stack(s.lock.process, s.stack);
            }
            Event::FutexWait(w) => {
                self.lock(w.word);
                self.threads([Some(w.tid), w.owner, w.waker]);
                w.site.into_iter().for_each(|site| self.site(site));
                self.stack(w.word.process, w.stack);
            }
            Event::Wake(w) => {
                self.lock(w.word);
                self.threads([Some(w.tid), None, None]);
                w.site.into_iter().for_each(|site| self.site(site));
                self.stack(w.process, w.stack);
            }
            Event::OffCpu(o) => {
                self.threads([Some(o.tid), None, None]);
                self.stack(o.process, o.stack);
            }
            Event::ThreadExit(totals) => self.threads([Some(totals.tid), None, None]),
            Event::Op(op) | Event::Step(op) => {
                self.threads([Some(op.tid), None, None]);
                self.action(op.process, &op.action);
            }
            Event::Process(_) => {}
        }
    }

    fn action(&mut self, process: Process, action: &Action) {
        match *action {
            Action::Attempt(a) => {
                self.lock(a.lock);
                self.site(a.site);
                self.threads([a.owner, None, None]);
                self.stack(a.lock.process, a.stack);
                // Locks of event lines belong to no process, their threads may.
                self.stack(process, a.stack);
            }
            Action::Acquire { lock, waker } => {
                self.lock(lock);
                self.threads([waker, None, None]);
            }
            Action::Release { lock, .. } | Action::Fail { lock, .. } => self.lock(lock),
            Action::Barrier(a) => {
                self.lock(a.barrier);
                self.site(a.site);
                self.site(a.post);
            }
            Action::CondWait { condition, site } => {
                self.lock(condition);
                self.site(site);
            }
            Action::CondWake { condition } => self.lock(condition),
            Action::Off { stack, .. } => self.stack(process, stack),
            Action::Holds(hold) => {
                self.lock(hold.lock);
                hold.site.into_iter().for_each(|site| self.site(site));
                self.threads([Some(hold.holder), None, None]);
                self.stack(process, hold.stack);
            }
            Action::On | Action::Join { .. } | Action::Exit { .. } => {}
        }
    }

    /// Takes note of what a harvest mentions.
    pub(super) fn harvest(&mut self, harvest: &Harvest) {
        for k in &harvest.sums {
            self.lock(k.lock);
            self.site(k.site);
            self.stack(k.lock.process, StackId::from_raw(k.sums.stack));
        }
        for site in &harvest.counted.sites {
            self.lock(site.lock);
            self.site(site.site);
        }
        for w in &harvest.open_waits {
            self.lock(w.lock);
            w.site.into_iter().for_each(|site| self.site(site));
            self.stack(w.lock.process, w.stack);
        }
        for o in &harvest.orders {
            self.lock(o.outer);
            self.lock(o.inner);
            self.site(o.outer_site);
            self.site(o.inner_site);
        }
        for t in &harvest.transitions {
            [t.from, t.to].into_iter().flatten().for_each(|lock| self.lock(lock));
            self.threads([Some(t.tid), None, None]);
        }
        for member in harvest.deadlocks.iter().flat_map(|d| &d.members) {
            self.lock(member.lock);
            member.site.into_iter().for_each(|site| self.site(site));
            self.stack(member.lock.process, member.stack);
        }
    }

    fn lock(&mut self, lock: Lock) {
        self.locks.mention(lock);
    }

    fn site(&mut self, site: Site) {
        if self.sites.seen.contains(&site) {
            return;
        }
        self.sites.mention(site);
        self.addresses.mention((site.process, site.addr));
    }

    fn threads(&mut self, tids: [Option<Tid>; 3]) {
        tids.into_iter().flatten().for_each(|tid| self.threads.mention(tid));
    }

    fn stack(&mut self, process: Process, stack: Option<StackId>) {
        if let Some(id) = stack {
            self.stacks.mention((process, id));
            self.numbers.insert(id);
        }
    }

    /// Mentions of things that stay without names, because there are too many.
    pub(super) fn beyond(&self) -> u64 {
        let Self { addresses, locks, sites, threads, stacks, .. } = self;
        addresses.beyond + locks.beyond + sites.beyond + threads.beyond + stacks.beyond
    }

    /// Whether a stack was mentioned.
    pub(super) fn mentions(&self, stack: StackId) -> bool {
        self.numbers.contains(&stack)
    }

    /// Names what was mentioned since the last time; of the addresses, `limit` at most. Addresses on stacks are known
    /// once the harvest has the stack. `full` is called whenever a frame is worth writing.
    pub(super) fn name<E>(
        &mut self,
        stacks: &HashMap<StackId, Vec<u64>>,
        names: &mut dyn Names,
        limit: usize,
        out: &mut NamesEncoder,
        mut full: impl FnMut(&mut NamesEncoder) -> Result<(), E>,
    ) -> Result<(), E> {
        let addresses = &mut self.addresses;
        self.stacks.waiting.retain(|&(process, id)| match stacks.get(&id) {
            None => true,
            Some(stack) => {
                stack.iter().for_each(|&addr| addresses.mention((process, addr)));
                false
            }
        });
        for lock in self.locks.waiting.drain(..) {
            let (global, id, kind) = (names.global(lock), names.lock_id(lock), names.kind(lock));
            let on_stack = global.is_none() && names.is_on_stack(lock);
            let named = Named { global, id, kind, on_stack };
            if named != Named::default() {
                out.lock(lock, &named);
                full(out)?;
            }
        }
        for site in self.sites.waiting.drain(..) {
            let named = NamedSite { id: names.site_id(site), member: names.member(site) };
            if named != NamedSite::default() {
                out.site(site, &named);
                full(out)?;
            }
        }
        for tid in self.threads.waiting.drain(..) {
            let (id, number) = (names.thread_id(tid), names.thread_number(tid));
            let named = NamedThread { id, number, comm: names.comm(tid) };
            if named != NamedThread::default() {
                out.thread(tid, &named);
                full(out)?;
            }
        }
        let keep = self.addresses.waiting.len().saturating_sub(limit);
        for (process, addr) in self.addresses.waiting.drain(keep..) {
            let frames = names.frames(process, addr);
            out.address(process, addr, names.role(process, addr), &frames);
            full(out)?;
        }
        Ok(())
    }
}
