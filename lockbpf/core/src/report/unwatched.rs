//! Waiting for locks of kinds that are not observed, as far as looks at the threads have found it: who says that no lock holds a program back
//! has to know of it.

use super::phrase::FUNCTION;
use super::schema::{FileHolderEntry, QualityEntry, UnwatchedEntry};
use super::text::{clip, counted, listed};
use crate::observation::Observation;
use crate::quality::{KERNEL_LOCK, Unwatched};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Calls named.
const NAMED: usize = 3;
/// Columns of a file's path.
const PATH: usize = 60;
/// Who had a lock at this part of the looks is named.
const MOSTLY: f64 = 0.5;

/// The entry.
pub(super) fn entry(found: &Unwatched, observation: &Observation) -> UnwatchedEntry {
    let seen = observation.processes.values().find(|seen| seen.pid == found.pid);
    let looks = found.looks.max(1);
    let holder = found.holder.as_ref().map(|holder| FileHolderEntry {
        pid: holder.pid,
        comm: holder.comm.clone(),
        share: mean(holder.looks.min(holder.of_looks), holder.of_looks.max(1)),
    });
    UnwatchedEntry {
        pid: found.pid,
        comm: seen.map(|seen| seen.comm.clone()),
        call: found.call.clone(),
        looks,
        found: found.threads,
        threads: mean(found.threads, looks),
        file: found.file.clone(),
        holder,
    }
}

fn mean(found: u64, looks: u64) -> f64 {
    found as f64 / looks as f64
}

/// The same programs' in several runs, added up.
pub(super) fn together<'a>(runs: impl Iterator<Item = &'a QualityEntry>) -> Vec<UnwatchedEntry> {
    let mut all: BTreeMap<_, UnwatchedEntry> = BTreeMap::new();
    for found in runs.flat_map(|run| &run.unwatched) {
        match all.entry((&found.comm, &found.call, &found.file)) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.looks = known.looks.saturating_add(found.looks);
                known.found = known.found.saturating_add(found.found);
                known.threads = mean(known.found, known.looks);
                // Another one each time.
                let same =
                    |a: &FileHolderEntry| found.holder.as_ref().is_some_and(|b| (a.pid, &a.comm) == (b.pid, &b.comm));
                known.holder = known.holder.take().filter(same);
            }
            Entry::Vacant(place) => drop(place.insert(found.clone())),
        }
    }
    all.into_values().collect()
}

/// Threads of processes with one name that wait in the same call.
#[derive(Default)]
struct Group<'a> {
    comm: Option<&'a str>,
    call: &'a str,
    looks: u64,
    found: u64,
    threads: f64,
    processes: BTreeSet<u32>,
    /// By file: threads, and whoever had its lock most often.
    files: BTreeMap<&'a str, (f64, Option<&'a FileHolderEntry>)>,
}

fn groups(quality: &QualityEntry) -> Vec<Group<'_>> {
    let mut groups: BTreeMap<(Option<&str>, &str), Group<'_>> = BTreeMap::new();
    for found in &quality.unwatched {
        let (comm, call) = (found.comm.as_deref(), found.call.as_str());
        let group = groups.entry((comm, call)).or_insert_with(|| Group { comm, call, ..Group::default() });
        group.looks = group.looks.max(found.looks);
        group.found += found.found;
        group.threads += found.threads;
        group.processes.insert(found.pid);
        if let Some(file) = &found.file {
            let (threads, holder) = group.files.entry(file).or_default();
            *threads += found.threads;
            let larger = |a: &&FileHolderEntry, b: &&FileHolderEntry| a.share.total_cmp(&b.share);
            *holder = holder.iter().copied().chain(&found.holder).max_by(larger);
        }
    }
    groups.into_values().collect()
}

/// Where threads were found, if there were enough of them to matter: `share` of one, all the time.
pub(super) fn found(quality: &QualityEntry, share: f64) -> Option<String> {
    // One thread that is met once may have been there for a moment.
    let matters = |group: &Group<'_>| group.found > 1 && group.threads >= share;
    let mut all: Vec<_> = groups(quality).into_iter().filter(matters).collect();
    all.sort_by(|a, b| b.threads.total_cmp(&a.threads));
    let is_kernels = |group: &Group<'_>| group.call == KERNEL_LOCK;
    let which = match (all.iter().any(is_kernels), all.iter().all(is_kernels)) {
        (_, true) => ", of which `--kernel-locks` tells more",
        (true, _) => "; of these only locks of the kernel can be observed, by `--kernel-locks`",
        (false, _) => "; locks of files and semaphores of System V are not observed otherwise",
    };
    let told: Vec<String> = all.iter().map(told).collect();
    (!told.is_empty()).then(|| format!("looks at the threads found on average {}{which}", listed(&told, NAMED)))
}

/// In which processes virtual threads run, and what is not seen of them.
pub(super) fn virtual_threads(quality: &QualityEntry) -> Option<String> {
    let pids: Vec<String> = quality.virtual_threads.iter().map(u32::to_string).collect();
    let (processes, run) = if pids.len() == 1 { ("process", "runs") } else { ("processes", "run") };
    let whose = listed(&pids, NAMED);
    let seen = match (quality.futex_only, &quality.observed) {
        (true, _) => "are seen only where they block the thread that carries them",
        (false, Some(_)) => "of `java.util.concurrent` are not all seen (from JDK 24 on `--budget off` shows them)",
        (false, None) => "of `java.util.concurrent` are not seen (that takes JDK 24 and the machine's symbols)",
    };
    let told = format!("{processes} {whose} {run} Java's virtual threads, whose waits for locks {seen}");
    (!pids.is_empty()).then_some(told)
}

fn told(group: &Group<'_>) -> String {
    let whose = group.comm.map(|comm| format!(" of `{}`", clip(comm, FUNCTION))).unwrap_or_default();
    let of = match group.processes.len() {
        0 | 1 => String::new(),
        several => format!(" ({several} processes)"),
    };
    let at =
        if group.call == KERNEL_LOCK { "for locks of the kernel".to_owned() } else { format!("in `{}`", group.call) };
    let most = group.files.iter().max_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b));
    let file = most.map_or_else(String::new, |(file, _)| match group.files.len() {
        1 => format!(" for the lock of `{}`", clip(file, PATH)),
        several => format!(" for the locks of {several} files, most for that of `{}`", clip(file, PATH)),
    });
    let holder = most.and_then(|(_, &(_, holder))| holder).filter(|holder| holder.share >= MOSTLY);
    let had = holder.map_or_else(String::new, |holder| {
        format!("; {} (pid {}) had it most often", clip(&holder.comm, FUNCTION), holder.pid)
    });
    format!("{:.1}{whose}{of} asleep {at}{file} ({}{had})", group.threads, counted(group.looks, "look"))
}
