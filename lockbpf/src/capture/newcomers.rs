//! Processes that begin, and files that are mapped as code, while an observation runs. The kernel tells of each mapping, so
//! a program is noticed right after its exec and a library right after it is loaded. Processes that only fork, or join a
//! cgroup, tell it by their futex calls, or are found by looking.

use super::cgroup::Cgroup;
use super::mmap_events::{CodeFile, MmapEvents};
use super::put_off;
use super::target::{self, Library, Process, Survey, Targets, Unusable};
use crate::leader;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::time::Instant;

/// Files remembered at most; beyond that they are learnt anew.
const MAX_FILES: usize = 1 << 16;

/// Whom to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Everybody.
    All,
    /// Who is in this cgroup.
    Cgroup(Cgroup),
    /// Nobody: those that are observed are known.
    Nobody,
}

/// What is known of who is there, and of what they have mapped.
pub struct Newcomers {
    whom: Whom,
    /// Whether probes are in all processes at once, so that only further files matter.
    shared: bool,
    survey: Survey,
    events: Option<MmapEvents>,
    known: HashSet<u32>,
    /// Files that were mapped: whether there are lock functions in them.
    files: HashMap<CodeFile, bool>,
    /// Processes to be looked at.
    noticed: BTreeMap<u32, Noticed>,
    /// Whether not all was told.
    deaf: bool,
}

/// A process that is to be looked at.
struct Noticed {
    since: Instant,
    /// For whose sake.
    files: Vec<CodeFile>,
}

impl Default for Noticed {
    fn default() -> Self {
        Self { since: Instant::now(), files: Vec::new() }
    }
}

/// What has turned up.
#[derive(Debug, Default)]
pub struct Found {
    /// Processes to be observed from now on, and such as have mapped more.
    pub processes: Vec<Process>,
    /// Files.
    pub libraries: Vec<Library>,
}

impl Newcomers {
    /// Begins to listen, before anybody is looked at. Also returns why libraries that are loaded later will not be noticed at
    /// once, if so.
    #[must_use]
    pub fn listen() -> (Self, Option<io::Error>) {
        let (events, error) = match MmapEvents::listen() {
            Ok(events) => (Some(events), None),
            Err(error) => (None, Some(error)),
        };
        let newcomers = Self {
            whom: Whom::Nobody,
            shared: false,
            survey: Survey::default(),
            deaf: events.is_none(),
            events,
            known: HashSet::from([std::process::id()]),
            files: HashMap::new(),
            noticed: BTreeMap::new(),
        };
        (newcomers, error)
    }

    /// Looks for these from now on; whoever is among the targets is known. `shared`: what is probed is probed in all processes.
    pub fn look_for(&mut self, whom: Whom, shared: bool, targets: &Targets) {
        self.known.extend(targets.processes.iter().filter_map(|process| process.pid));
        self.whom = whom;
        self.shared = shared;
    }

    /// What is known of files.
    pub fn survey(&mut self) -> &mut Survey {
        &mut self.survey
    }

    /// Whether one of these processes has mapped files that nobody had mapped before.
    pub fn heard_of(&mut self, pids: &[u32]) -> bool {
        self.hear();
        let noticed = std::mem::take(&mut self.noticed);
        let mut some = false;
        for (pid, Noticed { files, .. }) in noticed {
            some |= pids.contains(&pid);
            // Where another process maps them, they may still matter.
            if pids.contains(&pid) {
                self.files.extend(files.into_iter().map(|file| (file, true)));
            }
        }
        some
    }

    /// These have done something for the first time.
    pub fn notice(&mut self, pids: impl IntoIterator<Item = u32>) {
        for pid in pids {
            if self.whom != Whom::Nobody {
                self.noticed.entry(pid).or_default();
            }
        }
    }

    /// Who and what has turned up since the last look; looking at all processes that there are takes a while, and is done
    /// only if `thorough`. With `busy`, processes are put off until they have lived for a while: those that come fastest have gone by then.
    pub fn look(&mut self, thorough: bool, busy: bool) -> Found {
        self.hear();
        if thorough && (!self.shared || self.deaf) {
            self.list();
            self.deaf = self.events.is_none();
        }
        let mut found = Found::default();
        let waits = |noticed: &Noticed| busy && !put_off::left(noticed.since).is_zero();
        for (pid, noticed) in std::mem::take(&mut self.noticed) {
            if waits(&noticed) {
                self.noticed.insert(pid, noticed);
                continue;
            }
            if leader::is_gone(pid) {
                continue;
            }
            let Targets { processes, libraries, .. } = self.survey.of_all(&[pid], std::process::id());
            found.libraries.extend(libraries);
            // Else it is gone.
            let Some(process) = processes.into_iter().next() else { continue };
            self.known.insert(pid);
            for file in noticed.files {
                let has_locks = process.files.iter().any(|&(_, inode)| inode == file.inode);
                self.files.insert(file, has_locks);
            }
            // What translates code translates breakpoints, too.
            if !matches!(process.unusable, Some(Unusable::Translated(_))) {
                found.processes.push(process);
            }
        }
        found
    }

    /// Reads what the kernel has told.
    fn hear(&mut self) {
        let Self { whom, shared, events: Some(events), known, files, noticed, .. } = self else { return };
        if files.len() > MAX_FILES {
            files.clear();
        }
        let own = std::process::id();
        // An exec maps several files.
        let mut members: HashMap<u32, bool> = HashMap::new();
        self.deaf |= events.drain(|pid, file| {
            let matters = match files.get(&file) {
                None => true,
                Some(has_locks) => *has_locks && !*shared,
            };
            let mut is_member =
                |cgroup: &Cgroup| known.contains(&pid) || *members.entry(pid).or_insert_with(|| cgroup.contains(pid));
            if pid != own && matters && !matches!(whom, Whom::Cgroup(cgroup) if !is_member(cgroup)) {
                noticed.entry(pid).or_default().files.push(file);
            }
        });
    }

    /// Notices all who were not there at the last look. Those that have gone since are forgotten.
    fn list(&mut self) {
        let there: HashSet<u32> = match &self.whom {
            // A /proc that cannot be read now may be at the next look.
            Whom::All => target::all().unwrap_or_default().into_iter().collect(),
            Whom::Cgroup(cgroup) => cgroup.pids().into_iter().collect(),
            Whom::Nobody => return,
        };
        for &pid in there.iter().filter(|pid| !self.known.contains(pid)) {
            self.noticed.entry(pid).or_default();
        }
        self.known = there;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn who_comes_is_found_once() {
        let (mut newcomers, _) = Newcomers::listen();
        newcomers.look_for(Whom::All, false, &Targets::default());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let mut looks_until_found = || (0..).find(|_| has(&newcomers.look(true, false), child.id())).unwrap();
        fn has(found: &Found, pid: u32) -> bool {
            found.processes.iter().any(|process| process.pid == Some(pid))
        }
        assert_eq!(looks_until_found(), 0);
        // Its loader may have mapped more meanwhile, but not for ever.
        while has(&newcomers.look(true, false), child.id()) {}
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn without_time_who_comes_is_found_later_if_at_all() {
        let (mut newcomers, _) = Newcomers::listen();
        newcomers.look_for(Whom::All, false, &Targets::default());
        newcomers.look(true, false);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        newcomers.notice([child.id(), 1 << 25]);
        let mut found = Vec::new();
        while !found.contains(&Some(child.id())) {
            found.extend(newcomers.look(false, true).processes.into_iter().map(|process| process.pid));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!found.contains(&Some(1 << 25)) && !newcomers.noticed.contains_key(&(1 << 25)));
    }
}
