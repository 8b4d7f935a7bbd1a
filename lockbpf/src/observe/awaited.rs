//! Waits for described locks that no probe saw begin, since they were there before the observation: what processes say of them at its beginning and at its
//! end ([`crate::custom::Waiting`]).

use super::census::Census;
use crate::capture::awaited::Awaited;
use crate::custom::{Described, Waiting, catalogue};
use crate::id::{Lock, Process, Tid};
use crate::observation::OpenWait;
use crate::units::Time;
use lockbpf_common::kind::Via;
use std::collections::{HashMap, HashSet};
use std::fs;

/// What the observed processes said that they wait for.
pub(super) struct Before {
    waits: HashMap<Process, Awaited>,
    start: Time,
}

impl Before {
    /// At the beginning.
    pub(super) fn look(census: &Census, start: Time) -> Self {
        let waits = look(census).map(|(_, process, _, awaited)| (process, awaited)).collect();
        Self { waits, start }
    }

    /// The waits that are still there, and of which no probe saw the beginning (`seen`).
    pub(super) fn still_waiting(&self, seen: &[OpenWait], census: &mut Census) -> Vec<OpenWait> {
        let seen: HashSet<Tid> = seen.iter().map(|wait| wait.tid).collect();
        let is_same = |process, now: &Awaited| self.waits.get(&process).is_some_and(|before| before.is_same(now));
        let now: Vec<_> = look(census)
            .filter(|(pid, process, _, now)| !seen.contains(&Tid(*pid)) && is_same(*process, now))
            .collect();
        let waits = now.into_iter().map(|(pid, process, kind, awaited)| {
            let (tid, lock) = (Tid(pid), Lock { process, addr: awaited.lock });
            census.call(lock, &kind.name, kind.name_of_numbered(awaited.lock));
            let mut owner = awaited.owner;
            census.name(lock, process, &mut owner);
            OpenWait {
                tid,
                lock,
                site: None,
                since: self.start,
                owner: owner.filter(|&owner| owner != tid),
                stack: None,
                via: Via::CustomWait,
                expected: None,
                before_start: true,
            }
        });
        waits.collect()
    }
}

/// What processes wait for right now, by what they say.
fn look(census: &Census) -> impl Iterator<Item = (u32, Process, &'static Described, Awaited)> {
    let kinds: Vec<(&Described, &Waiting)> =
        catalogue().kinds().iter().filter_map(|kind| Some((kind, kind.waiting.as_ref()?))).collect();
    let processes = if kinds.is_empty() { HashMap::new() } else { census.pids() };
    processes.into_iter().filter_map(move |(process, pid)| {
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let name = program.file_name()?.to_str()?;
        kinds.iter().filter(|(kind, _)| kind.describes(&program)).find_map(|&(kind, waiting)| {
            let variable = census.names().variable_in(process, &waiting.variable, |file| file == name)?.start;
            Some((pid, process, kind, Awaited::of(pid, variable, kind, waiting)?))
        })
    })
}
