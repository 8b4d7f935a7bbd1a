//! Waits for described locks that no probe saw begin, since they were there before the observation: what processes say of them at its beginning and at its
//! end ([`crate::custom::Waiting`]).

use super::census::Census;
use crate::capture::awaited::Awaited;
use crate::custom::{Described, Waiting, catalogue};
use crate::id::{Lock, Process, Tid};
use crate::observation::OpenWait;
use crate::proc;
use crate::units::Time;
use lockbpf_common::kind::Via;
use std::collections::HashSet;

/// The observed processes that said at the beginning that they wait.
pub(super) struct Before(Vec<Said>);

/// What a process said.
struct Said {
    pid: u32,
    process: Process,
    /// Where its variable is.
    variable: u64,
    kind: &'static Described,
    waiting: &'static Waiting,
    awaited: Awaited,
}

impl Before {
    /// Asks all of them.
    pub(super) fn look(census: &Census) -> Self {
        let kinds: Vec<(&Described, &Waiting)> =
            catalogue().kinds().iter().filter_map(|kind| Some((kind, kind.waiting.as_ref()?))).collect();
        if kinds.is_empty() {
            return Self(Vec::new());
        }
        let said = census.pids().into_iter().filter_map(|(process, pid)| {
            let program = proc::link(format!("/proc/{pid}/exe")).ok()?;
            let name = program.file_name()?.to_str()?;
            kinds.iter().filter(|(kind, _)| kind.describes(&program)).find_map(|&(kind, waiting)| {
                let variable = census.names().variable_in(process, &waiting.variable, |file| file == name)?.start;
                let awaited = Awaited::of(pid, variable, kind, waiting)?;
                Some(Said { pid, process, variable, kind, waiting, awaited })
            })
        });
        Self(said.collect())
    }

    /// The waits that are still there, and of which no probe saw the beginning (`seen`): they count from `start` on.
    pub(super) fn still_waiting(&self, start: Time, seen: &[OpenWait], census: &mut Census) -> Vec<OpenWait> {
        let seen: HashSet<Tid> = seen.iter().map(|wait| wait.tid).collect();
        let unseen = self.0.iter().filter(|said| !seen.contains(&Tid(said.pid)));
        let waits = unseen.filter_map(|&Said { pid, process, variable, kind, waiting, awaited }| {
            let now = Awaited::of(pid, variable, kind, waiting).filter(|now| now.is_same(&awaited))?;
            let (tid, lock) = (Tid(pid), Lock { process, addr: now.lock });
            census.call(lock, &kind.name, kind.name_of_numbered(now.lock));
            let mut owner = now.owner;
            census.name(lock, process, &mut owner);
            Some(OpenWait {
                tid,
                lock,
                site: None,
                since: start,
                owner: owner.filter(|&owner| owner != tid),
                stack: None,
                via: Via::CustomWait,
                expected: None,
                before_start: true,
            })
        });
        waits.collect()
    }
}
