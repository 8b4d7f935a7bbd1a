//! Ring-buffer records to events. Bytes come from the kernel side, but also from files: every number is checked, and what
//! makes no sense is an error of a named kind, which the caller counts.

use crate::event::{
    Event, FutexResult, FutexWait, OffCpu, Outcome, ProcessSeen, Section, ThreadTotals, Via, Wake, flag,
};
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::op::{Action, Arrival, Doing, Hold, OffReason, Op, Round};
use crate::units::{Nanos, Time};
use crate::untrusted::shown_bytes;
use bytes::Buf;
use lockbpf_common::barrier::BarrierRecord;
use lockbpf_common::kernel::{self, HolderRecord, KernelRecord};
use lockbpf_common::off_cpu::{OffCpuRecord, Reason};
use lockbpf_common::record::{CALLERS, FutexRecord, SectionRecord, TOP_WORDS, Tag, ThreadExitRecord, WakeRecord};
use lockbpf_common::sums::ThreadSums;

/// Why a record could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It ends before its last field.
    #[error("truncated record")]
    Truncated,
    /// Its tag is none that any version has written.
    #[error("unknown record tag")]
    UnknownTag,
    /// A number in it stands for nothing.
    #[error("unknown value in record")]
    UnknownValue,
}

impl DecodeError {
    /// Name under which the quality report counts it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::UnknownTag => "unknown_tag",
            Self::UnknownValue => "unknown_value",
        }
    }
}

/// An event, and what its record says beside it.
pub type Decoded = (Event, Beside);

/// What a record says beside its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// The words at the top of the stack of a thread in a futex call. The call's caller is among them.
    Top([u64; TOP_WORDS]),
    /// The return addresses of a thread that gives a lock back, innermost first. Zeros follow.
    Callers([u64; TOP_WORDS]),
    /// The image from which a process has just been forked.
    Parent(Process),
}

/// Decodes one record.
///
/// # Errors
/// When the record is truncated or contains numbers that no version has written.
pub fn decode(mut record: impl Buf) -> Result<Decoded, DecodeError> {
    let time = word(&mut record)?;
    let tagged = word(&mut record)?;
    match Tag::of(tagged).ok_or(DecodeError::UnknownTag)? {
        Tag::Section => Ok((Event::Section(section(time, tagged, &mut record)?), Beside::Nothing)),
        Tag::Futex => {
            let fields = [time, tagged, word(&mut record)?, word(&mut record)?, word(&mut record)?, word(&mut record)?];
            Ok((Event::FutexWait(futex_wait(&fields)?), Beside::Top(top_words(&mut record)?)))
        }
        Tag::Wake => {
            let fields = [time, tagged, word(&mut record)?, word(&mut record)?, word(&mut record)?, word(&mut record)?];
            let words = top_words(&mut record)?;
            let tells_calls = WakeRecord::unpack(&fields).woken & CALLERS != 0;
            let beside = if tells_calls { Beside::Callers(words) } else { Beside::Top(words) };
            Ok((Event::Wake(wake(&fields)), beside))
        }
        Tag::Process => {
            let start = Time(word(&mut record)?);
            let process = Process(half(&mut record)?);
            let pid = half(&mut record)?;
            let comm = text(&comm(&mut record)?);
            let beside = match tagged as u32 {
                0 => Beside::Nothing,
                parent => Beside::Parent(Process(parent)),
            };
            Ok((Event::Process(ProcessSeen { time: Time(time), process, pid, start, comm }), beside))
        }
        Tag::ThreadExit => {
            let sums = ThreadSums {
                tid: half(&mut record)?,
                process: half(&mut record)?,
                acquisitions: word(&mut record)?,
                wait_ns: word(&mut record)?,
                kernel_wait_ns: word(&mut record)?,
                held_sum_ns: word(&mut record)?,
                held_union_ns: word(&mut record)?,
                comm: comm(&mut record)?,
            };
            let ends_process = tagged & ThreadExitRecord::ENDS_PROCESS != 0;
            let totals = ThreadTotals { ends_process, ..thread_totals(Time(time), &sums) };
            Ok((Event::ThreadExit(totals), Beside::Nothing))
        }
        Tag::OffCpu => {
            let words = [time, tagged, word(&mut record)?, word(&mut record)?, word(&mut record)?];
            Ok((Event::OffCpu(off_cpu(OffCpuRecord(words))?), Beside::Nothing))
        }
        Tag::Kernel => {
            let mut words = [time, tagged, 0, 0, 0, 0];
            for slot in &mut words[2..] {
                *slot = word(&mut record)?;
            }
            Ok((Event::Section(kernel_wait(KernelRecord(words))?), Beside::Nothing))
        }
        Tag::Holder => {
            let words = [time, tagged, word(&mut record)?, word(&mut record)?, word(&mut record)?];
            Ok((Event::Step(hold(HolderRecord(words))?), Beside::Nothing))
        }
        Tag::Barrier => {
            let words = [time, tagged, word(&mut record)?, word(&mut record)?, word(&mut record)?];
            Ok((Event::Step(arrival(BarrierRecord(words))), Beside::Nothing))
        }
    }
}

/// A thread's sums as an event.
#[must_use]
pub fn thread_totals(time: Time, sums: &ThreadSums) -> ThreadTotals {
    ThreadTotals {
        time,
        tid: Tid(sums.tid),
        process: Process(sums.process),
        comm: text(&sums.comm),
        acquisitions: sums.acquisitions,
        wait: Nanos(sums.wait_ns),
        kernel_wait: Nanos(sums.kernel_wait_ns),
        held_sum: Nanos(sums.held_sum_ns),
        held_union: Nanos(sums.held_union_ns),
        ends_process: false,
    }
}

fn section(time: u64, tagged: u64, record: &mut impl Buf) -> Result<Section, DecodeError> {
    let mut words = [time, tagged, 0, 0, 0, 0, 0];
    for slot in &mut words[2..] {
        *slot = word(record)?;
    }
    let f = SectionRecord(words).unpack();
    let (via, outcome) = SectionRecord::known(&f).ok_or(DecodeError::UnknownValue)?;
    let process = Process(f.process);
    Ok(Section {
        end: Time(f.end_ns),
        wait: Nanos(f.wait_ns),
        hold: Nanos(f.hold_ns),
        lock: Lock { process, addr: f.lock },
        site: Site { process, addr: f.site },
        tid: Tid(f.tid),
        process,
        owner: known_tid(f.owner),
        waker: known_tid(f.waker),
        stack: StackId::from_raw(f.stack),
        flags: f.flags,
        via,
        outcome,
        mutex_kind: f.mutex_kind,
    })
}

/// A wait for a kernel lock: a section of which only the waiting is known.
fn kernel_wait(record: KernelRecord) -> Result<Section, DecodeError> {
    let f = record.unpack();
    if u32::from(f.flags) & !kernel::flag::ALL != 0 {
        return Err(DecodeError::UnknownValue);
    }
    Ok(Section {
        end: Time(f.end_ns),
        wait: Nanos(f.wait_ns),
        hold: Nanos(0),
        lock: Lock { process: Process::KERNEL, addr: f.lock },
        site: Site { process: Process::KERNEL, addr: f.site },
        tid: Tid(f.tid),
        process: Process(f.process),
        owner: known_tid(f.owner),
        waker: None,
        stack: StackId::from_raw(f.stack),
        flags: flag::CONTENDED,
        via: Via::Kernel,
        outcome: if f.failed { Outcome::Failed } else { Outcome::Released },
        mutex_kind: f.flags,
    })
}

/// A look at who holds a kernel lock. Where that is follows from the stack.
fn hold(record: HolderRecord) -> Result<Op, DecodeError> {
    let f = record.unpack();
    let doing = Doing::from_u8(f.doing).ok_or(DecodeError::UnknownValue)?;
    Ok(Op {
        time: Time(f.time_ns),
        tid: Tid(f.tid),
        process: Process(f.process),
        action: Action::Holds(Hold {
            lock: Lock { process: Process::KERNEL, addr: f.lock },
            holder: Tid(f.holder),
            site: None,
            stack: StackId::from_raw(f.stack),
            doing,
        }),
    })
}

fn futex_wait(fields: &[u64; 6]) -> Result<FutexWait, DecodeError> {
    let f = FutexRecord::unpack(fields);
    let result = FutexResult::from_u8(f.result).ok_or(DecodeError::UnknownValue)?;
    Ok(FutexWait {
        weight: f.weight,
        end: Time(f.end_ns),
        wait: Nanos(f.wait_ns),
        word: Lock { process: Process(f.process), addr: f.word },
        site: None,
        tid: Tid(f.tid),
        expected: f.expected,
        owner: known_tid(f.owner),
        waker: known_tid(f.waker),
        stack: StackId::from_raw(f.stack),
        result,
    })
}

fn wake(fields: &[u64; 6]) -> Wake {
    let f = WakeRecord::unpack(fields);
    let process = Process(f.process);
    Wake {
        time: Time(f.time_ns),
        since: (f.since_ns != u64::MAX).then_some(Nanos(f.since_ns)),
        watched: Nanos(f.watched_ns),
        word: Lock { process, addr: f.word },
        site: None,
        process,
        tid: Tid(f.tid),
        woken: f.woken & !CALLERS,
        stack: StackId::from_raw(f.stack),
    }
}

fn off_cpu(record: OffCpuRecord) -> Result<OffCpu, DecodeError> {
    let f = record.unpack();
    let reason = match Reason::from_u8(f.reason).ok_or(DecodeError::UnknownValue)? {
        Reason::Runnable => OffReason::Runnable,
        Reason::Blocked => OffReason::Blocked,
        Reason::Sleeping => OffReason::Sleeping,
        Reason::Futex => OffReason::Futex,
    };
    let off = Nanos(f.off_ns);
    Ok(OffCpu {
        end: Time(f.end_ns),
        off,
        runnable: Nanos(f.runnable_ns).min(off),
        process: Process(f.process),
        tid: Tid(f.tid),
        reason,
        stack: StackId::from_raw(f.stack),
    })
}

/// An arrival. The region that it begins has no call of its own: it goes by the same return address as the one it ends,
/// which is where its code begins.
fn arrival(record: BarrierRecord) -> Op {
    let f = record.unpack();
    let process = Process(f.process);
    let site = Site { process, addr: f.site };
    Op {
        time: Time(f.time_ns),
        tid: Tid(f.tid),
        process,
        action: Action::Barrier(Arrival {
            barrier: Lock { process, addr: f.barrier },
            participants: f.participants,
            round: Round::of_code(f.round),
            site,
            post: site,
        }),
    }
}

/// A tid of a record, where 0 means unknown.
#[must_use]
pub fn known_tid(raw: u32) -> Option<Tid> {
    (raw != 0).then_some(Tid(raw))
}

fn word(record: &mut impl Buf) -> Result<u64, DecodeError> {
    record.try_get_u64_ne().map_err(|_| DecodeError::Truncated)
}

fn half(record: &mut impl Buf) -> Result<u32, DecodeError> {
    record.try_get_u32_ne().map_err(|_| DecodeError::Truncated)
}

fn top_words(record: &mut impl Buf) -> Result<[u64; TOP_WORDS], DecodeError> {
    let mut top = [0; TOP_WORDS];
    for slot in &mut top {
        *slot = word(record)?;
    }
    Ok(top)
}

fn comm(record: &mut impl Buf) -> Result<[u8; 16], DecodeError> {
    let mut comm = [0; 16];
    record.try_copy_to_slice(&mut comm).map_err(|_| DecodeError::Truncated)?;
    Ok(comm)
}

/// A NUL-padded kernel string.
fn text(raw: &[u8]) -> String {
    let end = raw.iter().position(|&b| b == 0).unwrap_or(raw.len());
    shown_bytes(&raw[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockbpf_common::kernel::{HolderFields, KernelFields};
    use lockbpf_common::record::{FutexFields, SectionFields};
    use proptest::prelude::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn a_section_record_becomes_a_section() {
        let fields = SectionFields {
            end_ns: 1_000,
            wait_ns: 300,
            hold_ns: 500,
            lock: 0x7f00_0000_1000,
            site: 0x40_1234,
            process: 3,
            tid: 12,
            owner: 11,
            waker: 0,
            stack: -17,
            flags: flag::CONTENDED | flag::SLEPT,
            via: Via::Lock as u8,
            outcome: Outcome::Released as u8,
            mutex_kind: 1,
        };
        let (Event::Section(s), Beside::Nothing) = decode(&bytes(&SectionRecord::pack(&fields).0)[..]).unwrap() else {
            panic!("not a section")
        };
        assert_eq!((s.attempt(), s.acquire(), s.end), (Time(200), Time(500), Time(1_000)));
        assert_eq!((s.owner, s.waker, s.stack), (Some(Tid(11)), None, None));
        assert!(s.has(flag::SLEPT) && !s.has(flag::OUTER) && s.acquired());
    }

    #[test]
    fn a_kernel_wait_is_a_section_without_a_hold() {
        let fields = KernelFields {
            end_ns: 1_000,
            wait_ns: 300,
            lock: 0xffff_8880_0000_1000,
            site: 0xffff_ffff_8100_0000,
            process: 3,
            tid: 12,
            owner: 11,
            stack: 5,
            flags: kernel::flag::READ as u8,
            failed: false,
        };
        let record = KernelRecord::pack(&fields);
        let (Event::Section(s), Beside::Nothing) = decode(&bytes(&record.0)[..]).unwrap() else {
            panic!("not a section")
        };
        assert!(s.lock.is_kernel() && s.is_shared() && s.has(flag::CONTENDED));
        assert_eq!((s.attempt(), s.acquire(), s.end), (Time(700), Time(1_000), Time(1_000)));
        assert_eq!((s.process, s.tid, s.owner), (Process(3), Tid(12), Some(Tid(11))));
        let unknown = KernelRecord::pack(&KernelFields { flags: 0x80, ..fields });
        assert_eq!(decode(&bytes(&unknown.0)[..]), Err(DecodeError::UnknownValue));
    }

    #[test]
    fn a_look_at_a_holder_is_a_step_of_who_looked() {
        let fields = HolderFields {
            time_ns: 9,
            lock: 0xffff_8880_0000_1000,
            process: 3,
            holder: 11,
            tid: 12,
            stack: 5,
            doing: Doing::Sleeping as u8,
        };
        let record = HolderRecord::pack(&fields);
        let (Event::Step(op), Beside::Nothing) = decode(&bytes(&record.0)[..]).unwrap() else { panic!("no step") };
        let lock = Lock { process: Process::KERNEL, addr: fields.lock };
        let hold = Hold { lock, holder: Tid(11), site: None, stack: Some(StackId(5)), doing: Doing::Sleeping };
        assert_eq!(op, Op { time: Time(9), tid: Tid(12), process: Process(3), action: Action::Holds(hold) });
        let unknown = HolderRecord::pack(&HolderFields { doing: 9, ..fields });
        assert_eq!(decode(&bytes(&unknown.0)[..]), Err(DecodeError::UnknownValue));
    }

    #[test]
    fn a_futex_record_brings_its_stack_words() {
        let fields = FutexFields { end_ns: 9, wait_ns: 4, expected: 2, owner: 5, ..FutexFields::default() };
        let mut words = FutexRecord::pack(&fields).to_vec();
        words.extend(1..=TOP_WORDS as u64);
        let (Event::FutexWait(w), Beside::Top(top)) = decode(&bytes(&words)[..]).unwrap() else {
            panic!("not a futex wait")
        };
        assert_eq!((w.wait, w.expected, w.owner), (Nanos(4), 2, Some(Tid(5))));
        assert_eq!(top[TOP_WORDS - 1], TOP_WORDS as u64);
    }

    #[test]
    fn defects_have_names() {
        assert_eq!(decode(&[][..]), Err(DecodeError::Truncated));
        assert_eq!(decode(&bytes(&[1, 15 << 60])[..]), Err(DecodeError::UnknownTag));
        assert_eq!(decode(&bytes(&[1, 1 << 60, 0, 0, 0, 0, 0])[..]), Err(DecodeError::UnknownValue));
        assert_eq!(decode(&bytes(&[1, 1 << 60, 1 << 60])[..]), Err(DecodeError::Truncated));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = decode(&bytes[..]);
        }
    }
}
