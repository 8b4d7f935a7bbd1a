//! Waiting for locks of kinds that are not observed, as far as looks at the threads have found it: who says that no lock holds a program back
//! has to know of it.

use super::phrase::FUNCTION;
use super::schema::{FileHolderEntry, QualityEntry, UnwatchedEntry};
use super::text::{clip, counted, listed, percent};
use crate::observation::Observation;
use crate::quality::{KERNEL_LOCK, Unwatched};

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
    let mut all: Vec<UnwatchedEntry> = Vec::new();
    for found in runs.flat_map(|run| &run.unwatched) {
        match all.iter_mut().find(|known| told_of(known) == told_of(found)) {
            Some(known) => {
                known.looks = known.looks.saturating_add(found.looks);
                known.found = known.found.saturating_add(found.found);
                known.threads = mean(known.found, known.looks);
                // Another one each time.
                known.holder = known.holder.take().filter(|holder| found.holder.as_ref() == Some(holder));
            }
            None => all.push(found.clone()),
        }
    }
    all
}

/// What a sentence tells of it.
fn told_of(found: &UnwatchedEntry) -> (Option<&str>, &str, Option<&str>) {
    (found.comm.as_deref(), &found.call, found.file.as_deref())
}

/// Threads of processes with one name that wait in the same call, for the lock of the same file.
struct Group<'a> {
    first: &'a UnwatchedEntry,
    processes: usize,
    threads: f64,
    /// The part of the looks at which a process had the lock; of several looked at, the largest.
    holder: Option<&'a FileHolderEntry>,
}

fn groups(quality: &QualityEntry) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    // One thread that is met once may have been there for a moment.
    for found in quality.unwatched.iter().filter(|found| found.found > 1) {
        let holder = found.holder.as_ref();
        match groups.iter_mut().find(|group| told_of(group.first) == told_of(found)) {
            Some(group) => {
                group.processes += 1;
                group.threads += found.threads;
                let larger = |a: &&FileHolderEntry, b: &&FileHolderEntry| a.share.total_cmp(&b.share);
                group.holder = group.holder.into_iter().chain(holder).max_by(larger);
            }
            None => groups.push(Group { first: found, processes: 1, threads: found.threads, holder }),
        }
    }
    groups
}

/// Where threads were found, if there were enough of them to matter: `share` of one, all the time.
pub(super) fn found(quality: &QualityEntry, share: f64) -> Option<String> {
    let mut all: Vec<_> = groups(quality).into_iter().filter(|group| group.threads >= share).collect();
    all.sort_by(|a, b| b.threads.total_cmp(&a.threads));
    let is_kernels = |group: &Group<'_>| group.first.call == KERNEL_LOCK;
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
        (false, Some(_)) => "of `java.util.concurrent` are not seen (from JDK 24 on `--budget off` shows them)",
        (false, None) => "of `java.util.concurrent` are not seen (that takes JDK 24 and the machine's symbols)",
    };
    let told = format!("{processes} {whose} {run} Java's virtual threads, whose waits for locks {seen}");
    (!pids.is_empty()).then_some(told)
}

fn told(group: &Group<'_>) -> String {
    let Group { first, processes, threads, holder } = group;
    let whose = first.comm.as_ref().map(|comm| format!(" of `{}`", clip(comm, FUNCTION))).unwrap_or_default();
    let of = if *processes > 1 { format!(" ({processes} processes)") } else { String::new() };
    let at =
        if first.call == KERNEL_LOCK { "for locks of the kernel".to_owned() } else { format!("in `{}`", first.call) };
    let file = first.file.as_ref().map(|file| format!(" for the lock of `{}`", clip(file, PATH))).unwrap_or_default();
    let had = holder.filter(|holder| holder.share >= MOSTLY).map_or_else(String::new, |holder| {
        format!(
            ", which pid {} ({}) had at {} of them",
            holder.pid,
            clip(&holder.comm, FUNCTION),
            percent(holder.share)
        )
    });
    format!("{threads:.1}{whose}{of} asleep {at}{file} ({}{had})", counted(first.looks, "look"))
}
