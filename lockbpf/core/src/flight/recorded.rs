//! What the events of a stretch tell beside sums: what began before it, and the longest waits and holds.

use crate::event::{Event, FutexResult};
use crate::id::{Lock, Process, Site, Tid};
use crate::units::{Nanos, Time};
use lockbpf_common::kind::Via;
use lockbpf_common::sums::{BUCKETS, bucket};
use std::collections::HashMap;

/// Whose sums.
pub(super) type Key = (Lock, Site, Via);

/// A duration as the kernel side has summed it, and the part of it in the stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    whole: Nanos,
    inside: Nanos,
}

impl Cut {
    /// Leaves the part in the stretch of it in sums.
    pub(super) fn of_sums(self, sum: &mut u64, histogram: &mut [u64; BUCKETS]) {
        let Self { whole, inside } = self;
        *sum = sum.saturating_sub((whole - inside).0);
        let (from, to) = (bucket(whole.0), bucket(inside.0));
        if let Some(count) = histogram.get_mut(from).filter(|count| **count > 0) {
            *count -= 1;
            if let Some(count) = histogram.get_mut(to) {
                *count = count.saturating_add(1);
            }
        }
    }
}

/// The longest wait and hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Longest {
    pub(super) wait: Nanos,
    pub(super) hold: Nanos,
}

/// What events have told.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    longest: HashMap<Key, Longest>,
    /// Waits and holds of which a part was before the stretch.
    began_before: HashMap<Key, Vec<(Cut, Cut)>>,
    /// By thread: time waited before the stretch, time held, and the longest such hold.
    before: HashMap<(Process, Tid), (Nanos, Nanos, Nanos)>,
}

impl Recorded {
    /// Takes an event of a stretch that begins at `start`; leaves the part in the stretch of it.
    pub(super) fn take(&mut self, event: &mut Event, start: Time) {
        let (key, who, wait, hold) = match event {
            Event::Section(s) => {
                let (wait, hold) = (s.wait, s.hold);
                s.hold = hold.min(s.end.since(start));
                s.wait = wait.min((s.end - s.hold).since(start));
                if !s.acquired() {
                    return;
                }
                let (wait, hold) = (Cut { whole: wait, inside: s.wait }, Cut { whole: hold, inside: s.hold });
                ((s.lock, s.site, s.via), (s.process, s.tid), wait, hold)
            }
            Event::FutexWait(w) => {
                let wait = Cut { whole: w.wait, inside: w.wait.min(w.end.since(start)) };
                w.wait = wait.inside;
                if w.result != FutexResult::Slept {
                    return;
                }
                let (key, none) = ((w.word, Site { process: w.word.process, addr: 0 }, Via::Futex), Nanos(0));
                (key, (w.word.process, w.tid), wait, Cut { whole: none, inside: none })
            }
            Event::OffCpu(o) => {
                o.off = o.off.min(o.end.since(start));
                o.runnable = o.runnable.min(o.off);
                return;
            }
            Event::Wake(_) | Event::Op(_) | Event::Step(_) | Event::Process(_) | Event::ThreadExit(_) => return,
        };
        let longest = self.longest.entry(key).or_default();
        longest.wait = longest.wait.max(wait.inside);
        longest.hold = longest.hold.max(hold.inside);
        if wait.whole == wait.inside && hold.whole == hold.inside {
            return;
        }
        self.began_before.entry(key).or_default().push((wait, hold));
        // Threads' sums do not have what only futex calls show.
        if key.2 != Via::Futex {
            let (waited, held, longest) = self.before.entry(who).or_default();
            let before = hold.whole - hold.inside;
            *waited += wait.whole - wait.inside;
            *held += before;
            *longest = (*longest).max(before);
        }
    }

    /// The longest that were recorded.
    pub(super) fn longest(&self, key: &Key) -> Longest {
        self.longest.get(key).copied().unwrap_or_default()
    }

    /// The waits and holds of which a part was before the stretch.
    pub(super) fn began_before(&self, key: &Key) -> &[(Cut, Cut)] {
        self.began_before.get(key).map_or(&[], Vec::as_slice)
    }

    /// For how long a thread had waited and held locks before the stretch, of what is summed in it, and the longest such hold.
    pub(super) fn before(&self, process: Process, tid: Tid) -> (Nanos, Nanos, Nanos) {
        self.before.get(&(process, tid)).copied().unwrap_or_default()
    }
}
