//! What threads did while others waited for them, where no section tells: running, or absent from the CPU, and why.

use super::findings::Cause;
use super::log::{Log, Timed};
use crate::event::OffCpu;
use crate::id::{StackId, Tid};
use crate::op::OffReason;
use crate::units::Time;

/// A part of a time, and what a thread did in it; with the stack with which it left the CPU.
pub(super) type Part = (Time, Time, Cause, Option<StackId>);

/// Absences that are remembered, and of these those of one thread: waits are divided some time after their end.
const MAX_ABSENCES: usize = 1 << 19;
const MAX_OF_THREAD: usize = 1 << 14;

/// Threads' absences.
#[derive(Clone, Debug, Default)]
pub(super) struct Absences(Log<Tid, OffCpu, MAX_ABSENCES, MAX_OF_THREAD>);

impl Timed for OffCpu {
    fn time(&self) -> Time {
        self.end
    }
}

impl Absences {
    /// Takes note of one.
    pub(super) fn add(&mut self, off: &OffCpu) {
        self.0.add(off.tid, *off);
    }

    /// Divides a time of a thread whose absences are all told since `told`.
    pub(super) fn divide(&self, tid: Tid, (from, to): (Time, Time), told: Time) -> Vec<Part> {
        let mut parts = Parts { told, reached: from, list: Vec::new() };
        for off in self.0.after(tid, from).take_while(|off| off.end - off.off < to) {
            let (cause, stack) = why(off);
            parts.on_cpu(off.end - off.off);
            parts.add((off.end - off.runnable).min(to), cause, stack);
            parts.add(off.end.min(to), Cause::Runnable, None);
        }
        parts.on_cpu(to);
        parts.list
    }
}

/// A time that is being divided.
struct Parts {
    told: Time,
    /// So far.
    reached: Time,
    list: Vec<Part>,
}

impl Parts {
    fn add(&mut self, to: Time, cause: Cause, stack: Option<StackId>) {
        if self.reached < to {
            self.list.push((self.reached, to, cause, stack));
            self.reached = to;
        }
    }

    /// Nothing tells of an absence until then.
    fn on_cpu(&mut self, to: Time) {
        self.add(self.told.min(to), Cause::Unknown, None);
        self.add(to, Cause::Running, None);
    }
}

fn why(off: &OffCpu) -> (Cause, Option<StackId>) {
    let cause = match off.reason {
        OffReason::Runnable => Cause::Runnable,
        OffReason::Blocked => Cause::Blocked,
        OffReason::Sleeping => Cause::Sleeping,
        OffReason::Futex => Cause::Lock,
    };
    (cause, off.stack)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Process;
    use crate::units::Nanos;
    use proptest::prelude::*;

    fn off(end: u64, off: u64, runnable: u64) -> OffCpu {
        OffCpu {
            end: Time(end),
            off: Nanos(off),
            runnable: Nanos(runnable),
            process: Process(1),
            tid: Tid(1),
            reason: OffReason::Blocked,
            stack: Some(StackId(7)),
        }
    }

    fn parts(all: &[OffCpu], from: u64, to: u64, told: u64) -> Vec<(u64, u64, Cause)> {
        let mut absences = Absences::default();
        all.iter().for_each(|off| absences.add(off));
        let parts = absences.divide(Tid(1), (Time(from), Time(to)), Time(told));
        parts.into_iter().map(|(from, to, cause, _)| (from.0, to.0, cause)).collect()
    }

    #[test]
    fn a_hold_is_what_its_thread_did() {
        use Cause::{Blocked, Runnable, Running, Unknown};
        let absences = [off(150, 30, 10), off(190, 10, 0)];
        let expected = [
            (100, 110, Unknown),
            (110, 120, Running),
            (120, 140, Blocked),
            (140, 150, Runnable),
            (150, 180, Running),
            (180, 190, Blocked),
            (190, 200, Running),
        ];
        assert_eq!(parts(&absences, 100, 200, 110), expected);
        assert_eq!(parts(&absences, 130, 145, 0), [(130, 140, Blocked), (140, 145, Runnable)]);
        assert_eq!(parts(&[], 100, 200, 300), [(100, 200, Unknown)]);
    }

    proptest! {
        #[test]
        fn parts_are_the_whole(
            all in proptest::collection::vec((1u64..500, 0u64..200, 0u64..200), 0..12),
            from in 0u64..300,
            len in 1u64..300,
            told in 0u64..600,
        ) {
            let all: Vec<OffCpu> = all.iter().map(|&(end, len, run)| off(end, len.min(end), run.min(len).min(end))).collect();
            let parts = parts(&all, from, from + len, told);
            prop_assert_eq!(parts.first().map(|part| part.0), Some(from));
            prop_assert_eq!(parts.last().map(|part| part.1), Some(from + len));
            prop_assert!(parts.windows(2).all(|two| two[0].1 == two[1].0), "{parts:?}");
        }
    }
}
