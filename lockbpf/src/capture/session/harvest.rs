//! What the kernel side has summed, the waits in progress, and the stacks of both.

use super::sum_slots::{self, SumSlot};
use super::{Session, now};
use crate::capture::CaptureError;
use crate::capture::batch;
use crate::capture::gates;
use crate::capture::open_stacks::{self, TakenStack, Waiter};
use crate::capture::stack_copies::{Numbered, StackCopies};
use crate::deadlock::LockOrder;
use crate::decode::{known_tid, thread_totals};
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::measures::counted::{Counted, CountedSite};
use crate::measures::library::{CallsOf, FUNCTIONS, LibraryCalls};
use crate::observation::{Harvest, OpenWait};
use crate::perturbation::Taken;
use crate::proc;
use crate::sums::KernelSums;
use crate::transitions::Transition;
use crate::units::Time;
use crate::unwind::Unwind;
use aya::maps::{Array, HashMap as BpfHashMap, MapData, PerCpuArray, StackTraceMap};
use aya::{Ebpf, Pod};
use lockbpf_common::config::{MAX_STACKS, MAX_THREADS};
use lockbpf_common::counter::Counter;
use lockbpf_common::counts::{SiteCounts, ThreadCounts};
use lockbpf_common::gate::MAX_SLOTS;
use lockbpf_common::kind::Via;
use lockbpf_common::library::{CallKey, CallSums};
use lockbpf_common::order::{OrderKey, OrderSums};
use lockbpf_common::process::{SERIAL_SLOT, SERIAL_TRANSITIONS};
use lockbpf_common::sums::{SumKey, Sums, ThreadSums};
use lockbpf_common::transition::TransitionSums;
use lockbpf_common::waiting::Waiting;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

impl Session {
    /// Reads what the kernel side has summed. Call after [`Session::deactivate`] and a last [`Session::drain`]. The stacks
    /// of waits in progress are unwound by `unwinder`, if stacks are to be.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn harvest(&mut self, end: Time, unwinder: &mut dyn Unwind) -> Result<Harvest, CaptureError> {
        let sums = self.sums()?;
        let used = self.threads_used()?;
        let threads = self
            .of_threads::<ThreadSums>("THREAD_SUMS")?
            .into_iter()
            .filter(|s| s.tid != 0)
            .map(|s| thread_totals(end, &s))
            .collect();
        let counted = self.counted(used)?;
        let library = self.library_calls()?;
        let mut open_waits = self.waits_with_stacks(unwinder)?;
        open_waits.extend(self.waits_of_no_threads()?);
        let orders = self.orders()?;
        let transitions = self.transitions()?;
        let stacks = self.stacks()?;
        let counters: PerCpuArray<_, u64> = self.map("COUNTERS")?.try_into()?;
        let mut quality = self.quality.clone();
        for &counter in Counter::ALL {
            let mut total: u64 = counters.get(&(counter as u32), 0)?.iter().sum();
            if counter == Counter::StackLost {
                total += self.stack_copies.as_ref().map_or(0, StackCopies::lost);
            }
            if total > 0 {
                quality.counters.insert(counter.name(), total);
            }
        }
        if let Some(used) = &self.children_ns {
            let used = used.load(Ordering::Relaxed);
            if used > 0 {
                *quality.counters.entry(Counter::ChildrenNs.name()).or_default() += used;
            }
        }
        quality.unobserved.extend_from_slice(self.witness.found());
        if self.refused > 0 {
            quality.counters.insert(Counter::SlotsFull.name(), self.refused);
        }
        Ok(Harvest {
            sums,
            counted,
            library,
            threads,
            bystanders: Vec::new(),
            open_waits,
            orders,
            transitions,
            stacks,
            quality,
            deadlocks: Vec::new(),
            estimates: None,
        })
    }

    /// Slots of threads that have been used.
    fn threads_used(&self) -> Result<u32, CaptureError> {
        let serials: Array<_, u64> = self.map("SERIALS")?.try_into()?;
        Ok(u32::try_from(serials.get(&SERIAL_SLOT, 0)?).unwrap_or(MAX_THREADS).min(MAX_THREADS))
    }

    /// What an array map has in the slots of threads that have been used.
    fn of_threads<T: Pod>(&self, name: &'static str) -> Result<Vec<T>, CaptureError> {
        batch::first(self.map(name)?, self.threads_used()?)
    }

    /// The threads that were seen and are there, and their processes.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn threads(&self) -> Result<Vec<(Process, Tid)>, CaptureError> {
        let sums = self.of_threads::<ThreadSums>("THREAD_SUMS")?.into_iter().filter(|sums| sums.tid != 0);
        Ok(sums.map(|sums| (Process(sums.process), Tid(sums.tid))).collect())
    }

    /// What was counted, in the first `used` slots of threads.
    fn counted(&self, used: u32) -> Result<Counted, CaptureError> {
        let Some(events) = &self.events else { return Ok(Counted::default()) };
        let which = events.which();
        let sites: Array<_, SiteCounts> = self.map("SITE_COUNTS")?.try_into()?;
        let sites = sum_slots::all(&self.ebpf)?
            .into_iter()
            .filter_map(|(key, slot)| CountedSite::new(&key, sites.get(&slot, 0).ok()?))
            .filter(|site| site.counts != SiteCounts::EMPTY)
            .map(|mut site| {
                for counts in [&mut site.counts.hold, &mut site.counts.wait, &mut site.counts.release] {
                    counts.complete(which);
                }
                site
            })
            .collect();
        let living: Array<_, ThreadCounts> = self.map("THREAD_COUNTS")?.try_into()?;
        let exited: BpfHashMap<_, u32, ThreadCounts> = self.map("EXITED_COUNTS")?.try_into()?;
        let threads = (0..used)
            .filter_map(|slot| living.get(&slot, 0).ok())
            .filter(|thread| thread.threads > 0)
            .chain(exited.iter().filter_map(Result::ok).map(|(_, threads)| threads))
            .map(|mut thread| {
                thread.execution.complete(which);
                thread
            })
            .collect();
        Ok(Counted { events: events.names().to_vec(), sites, threads })
    }

    /// Calls of the C library, if any are seen; which of its functions are is not known here.
    fn library_calls(&self) -> Result<LibraryCalls, CaptureError> {
        let Some(events) = &self.events else { return Ok(LibraryCalls::default()) };
        let which = events.which();
        let sums: BpfHashMap<_, CallKey, CallSums> = self.map("CALL_SUMS")?.try_into()?;
        let calls = sums.iter().filter_map(Result::ok).filter_map(|(key, mut sums)| {
            sums.counts.complete(which);
            let function = *FUNCTIONS.get(usize::try_from(key.function).ok()?)?;
            Some(CallsOf { process: Process(key.process), tid: Tid(key.tid), function, sums })
        });
        Ok(LibraryCalls { calls: calls.collect(), ..LibraryCalls::default() })
    }

    /// What observing has taken so far, of all slots together.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn taken(&self) -> Result<Taken, CaptureError> {
        let mut all = Taken::default();
        for slot in 0..MAX_SLOTS {
            all += gates::taken(&self.accounts, slot)?;
        }
        Ok(all)
    }

    /// The waits in progress whose beginning was seen, without their stacks.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn waits(&self) -> Result<Vec<OpenWait>, CaptureError> {
        Ok(self.waiting()?.iter().filter_map(open_wait).collect())
    }

    /// The stack of the thread's wait in progress, while it lasts.
    ///
    /// # Errors
    /// When the map is missing.
    pub fn stack_of_wait(&mut self, tid: Tid, unwinder: &mut dyn Unwind) -> Result<Option<StackId>, CaptureError> {
        let wait = self.waiting()?.into_iter().find(|wait| wait.tid == tid.0);
        Ok(wait.and_then(|wait| self.open_stack(waiter(&wait), unwinder)))
    }

    /// The same, to be read off later.
    ///
    /// # Errors
    /// When the map is missing.
    pub fn take_stack(&self, tid: Tid) -> Result<Option<TakenStack>, CaptureError> {
        let wait = self.waiting()?.into_iter().find(|wait| wait.tid == tid.0);
        Ok(wait.and_then(|wait| TakenStack::of(waiter(&wait), self.stack_copies.is_some())))
    }

    fn open_stack(&mut self, waiter: Waiter, unwinder: &mut dyn Unwind) -> Option<StackId> {
        self.open_stacks.of(waiter, if self.stack_copies.is_some() { Some(unwinder) } else { None })
    }

    fn waits_with_stacks(&mut self, unwinder: &mut dyn Unwind) -> Result<Vec<OpenWait>, CaptureError> {
        let waiting = self.waiting()?;
        self.open_stacks.keep(&waiting.iter().map(waiter).collect());
        let mut waits = Vec::with_capacity(waiting.len());
        for wait in &waiting {
            let stack = self.open_stack(waiter(wait), unwinder);
            waits.extend(open_wait(wait).map(|open| OpenWait { stack, ..open }));
        }
        Ok(waits)
    }

    fn waiting(&self) -> Result<Vec<Waiting>, CaptureError> {
        // Out of a call that users have described programs jump, too.
        let is_left =
            |wait: &Waiting| wait.via == Via::CustomWait as u32 && open_stacks::has_left(Tid(wait.tid), wait.expected);
        let waits = self.of_threads::<Waiting>("WAITS")?.into_iter().filter(Waiting::is_whole);
        let waits = waits.filter(|wait| !is_left(wait));
        // A wait from before may have ended unseen. If the thread sleeps on that word, it does so at least since then: its next
        // operation would have told.
        let Some(over) = self.lease().last_over() else { return Ok(waits.collect()) };
        let up_to_date = |mut wait: Waiting| {
            if wait.since_ns < over.0 {
                let sleeps = sleeps_on(wait.tid)? == wait.lock + u64::from(wait.word_offset);
                wait.since_ns = sleeps.then_some(over.0)?;
            }
            Some(wait)
        };
        Ok(waits.filter_map(up_to_date).collect())
    }

    /// The return addresses of one stack, innermost first; empty if it is not there.
    ///
    /// # Errors
    /// When the map is missing.
    pub fn stack(&self, id: StackId) -> Result<Vec<u64>, CaptureError> {
        if let Some(stack) = self.open_stacks.get(id) {
            return Ok(stack.to_vec());
        }
        if let Some(stack) = self.stack_copies.as_ref().and_then(|copies| copies.get(id)) {
            return Ok(stack.to_vec());
        }
        let (name, first) = *STACK_TABLES.iter().rfind(|(_, first)| *first <= id.0).unwrap_or(&STACK_TABLES[0]);
        let map: StackTraceMap<&MapData> = self.map(name)?.try_into()?;
        Ok(map.get(&(id.0 - first), 0).map(|trace| trace.frames().iter().map(|f| f.ip).collect()).unwrap_or_default())
    }

    /// The sums as they are now.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn sums(&self) -> Result<Vec<KernelSums>, CaptureError> {
        let mut all = Vec::new();
        self.each_sums(sum_slots::all(&self.ebpf)?, |key, sums| all.extend(KernelSums::new(key, sums)))?;
        Ok(all)
    }

    /// The same of the processes that are wanted only, as of this moment.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn sums_of(&mut self, wanted: impl Fn(Process) -> bool) -> Result<Vec<KernelSums>, CaptureError> {
        self.sum_slots.renew(&self.ebpf, now())?;
        let slots = self.sum_slots.of(wanted);
        let mut all = Vec::with_capacity(slots.len());
        self.each_sums(slots, |key, sums| all.extend(KernelSums::new(key, sums)))?;
        Ok(all)
    }

    /// Waits by key, as they are now.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub(in crate::capture) fn waits_by_key(&self) -> Result<Vec<(SumKey, u64)>, CaptureError> {
        let mut all = Vec::new();
        self.each_sums(sum_slots::all(&self.ebpf)?, |key, sums| all.push((*key, sums.wait_ns)))?;
        Ok(all)
    }

    fn each_sums(&self, slots: Vec<SumSlot>, mut take: impl FnMut(&SumKey, Sums)) -> Result<(), CaptureError> {
        // A copy that is not unwound yet may be so the next time.
        let numbered = |raw| match StackId::from_raw(raw).map(|id| self.numbered(id)) {
            Some(Numbered::Known(Some(id))) => id.0.cast_signed(),
            Some(Numbered::Known(None) | Numbered::NotYet) => -1,
            None => raw,
        };
        sum_slots::each(self.map("SUMS")?, slots, |key, sums| take(key, Sums { stack: numbered(sums.stack), ..sums }))
    }

    fn orders(&self) -> Result<Vec<LockOrder>, CaptureError> {
        let orders = entries::<OrderKey, OrderSums>(&self.ebpf, "ORDERS")?;
        Ok(orders.iter().map(|(key, sums)| lock_order(key, sums)).collect())
    }

    fn transitions(&self) -> Result<Vec<Transition>, CaptureError> {
        let sums: Array<_, TransitionSums> = self.map("TRANSITIONS")?.try_into()?;
        let serials: Array<_, u64> = self.map("SERIALS")?.try_into()?;
        // As many entries as the map was made with.
        let used = serials.get(&SERIAL_TRANSITIONS, 0)?.min(u64::from(sums.len())) as u32;
        let taken = (0..used).filter_map(|slot| sums.get(&slot, 0).ok());
        Ok(taken.filter(|sums| sums.count > 0).map(|sums| Transition::from(&sums)).collect())
    }

    fn stacks(&self) -> Result<HashMap<StackId, Vec<u64>>, CaptureError> {
        let mut stacks = HashMap::new();
        for (name, first) in STACK_TABLES {
            let map: StackTraceMap<&MapData> = self.map(name)?.try_into()?;
            let walked = map.iter().filter_map(Result::ok);
            stacks
                .extend(walked.map(|(id, trace)| (StackId(first + id), trace.frames().iter().map(|f| f.ip).collect())));
        }
        stacks.extend(self.open_stacks.all().map(|(id, stack)| (id, stack.to_vec())));
        stacks.extend(self.stack_copies.iter().flat_map(StackCopies::all).map(|(id, stack)| (id, stack.to_vec())));
        Ok(stacks)
    }
}

/// The kernel's tables of stacks, and the number of the first in each.
const STACK_TABLES: [(&str, u32); 2] = [("STACKS", 0), ("FURTHER_STACKS", MAX_STACKS)];

/// The entries of a hash map.
fn entries<K: Pod, V: Pod>(ebpf: &Ebpf, name: &'static str) -> Result<Vec<(K, V)>, CaptureError> {
    batch::entries(ebpf.map(name).ok_or(CaptureError::NoMap(name))?)
}

/// The first argument of the system call that a thread is in, which for a futex call is the word.
fn sleeps_on(tid: u32) -> Option<u64> {
    let text = proc::text(format!("/proc/{tid}/syscall")).ok()?;
    let mut words = text.split_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let word = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    (number >= 0).then_some(word)
}

fn lock_order(key: &OrderKey, sums: &OrderSums) -> LockOrder {
    let process = Process(key.process);
    LockOrder {
        outer: Lock { process, addr: key.outer },
        outer_site: Site { process, addr: sums.outer_site },
        inner: Lock { process, addr: key.inner },
        inner_site: Site { process, addr: sums.inner_site },
        tid: Tid(sums.tid),
        others: sums.others != 0,
        count: sums.count,
    }
}

fn waiter(wait: &Waiting) -> Waiter {
    Waiter {
        tid: wait.tid,
        since_ns: wait.since_ns,
        // Nobody has said how such a one sleeps.
        word: (wait.via != Via::CustomWait as u32).then_some(wait.lock + u64::from(wait.word_offset)),
        frame: wait.frame,
        process: Process(wait.process),
        site: wait.site,
    }
}

fn open_wait(wait: &Waiting) -> Option<OpenWait> {
    let process = Process(wait.process);
    let via = Via::from_u8(u8::try_from(wait.via).ok()?)?;
    Some(OpenWait {
        tid: Tid(wait.tid),
        lock: Lock { process, addr: wait.lock },
        site: (wait.site != 0).then_some(Site { process, addr: wait.site }),
        since: Time(wait.since_ns),
        owner: known_tid(wait.owner),
        stack: None,
        via,
        expected: matches!(via, Via::Futex | Via::CustomWait).then_some(wait.expected),
        before_start: false,
    })
}
