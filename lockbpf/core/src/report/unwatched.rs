//! Waiting for locks of kinds that are not observed, as far as looks at the threads have found it: who says that no lock holds a program back
//! has to know of it.

use super::phrase::FUNCTION;
use super::schema::{QualityEntry, UnwatchedEntry};
use super::text::{clip, counted, listed};
use crate::observation::Observation;
use crate::quality::{KERNEL_LOCK, Unwatched};

/// Calls named.
const NAMED: usize = 3;

/// The entry.
pub(super) fn entry(found: &Unwatched, observation: &Observation) -> UnwatchedEntry {
    let seen = observation.processes.values().find(|seen| seen.pid == found.pid);
    let looks = found.looks.max(1);
    UnwatchedEntry {
        pid: found.pid,
        comm: seen.map(|seen| seen.comm.clone()),
        call: found.call.clone(),
        looks,
        found: found.threads,
        threads: mean(found.threads, looks),
    }
}

fn mean(found: u64, looks: u64) -> f64 {
    found as f64 / looks as f64
}

/// The same programs' in several runs, added up.
pub(super) fn together<'a>(runs: impl Iterator<Item = &'a QualityEntry>) -> Vec<UnwatchedEntry> {
    let mut all: Vec<UnwatchedEntry> = Vec::new();
    for found in runs.flat_map(|run| &run.unwatched) {
        match all.iter_mut().find(|known| known.comm == found.comm && known.call == found.call) {
            Some(known) => {
                known.looks = known.looks.saturating_add(found.looks);
                known.found = known.found.saturating_add(found.found);
                known.threads = mean(known.found, known.looks);
            }
            None => all.push(found.clone()),
        }
    }
    all
}

/// Where threads were found, if there were enough of them to matter: `share` of one, all the time.
pub(super) fn found(quality: &QualityEntry, share: f64) -> Option<String> {
    // One thread that is met once may have been there for a moment.
    let matters = |found: &&UnwatchedEntry| found.threads >= share && found.found > 1;
    let mut all: Vec<&UnwatchedEntry> = quality.unwatched.iter().filter(matters).collect();
    all.sort_by(|a, b| b.threads.total_cmp(&a.threads));
    let is_kernels = |found: &&UnwatchedEntry| found.call == KERNEL_LOCK;
    let which = match (all.iter().any(is_kernels), all.iter().all(is_kernels)) {
        (_, true) => ", of which `--kernel-locks` tells more",
        (true, _) => "; of these only locks of the kernel can be observed, by `--kernel-locks`",
        (false, _) => ", for locks of files or semaphores of System V, which are not observed",
    };
    let told: Vec<String> = all.into_iter().map(told).collect();
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

fn told(found: &UnwatchedEntry) -> String {
    let whose = found.comm.as_ref().map(|comm| format!(" of `{}`", clip(comm, FUNCTION))).unwrap_or_default();
    let at =
        if found.call == KERNEL_LOCK { "for locks of the kernel".to_owned() } else { format!("in `{}`", found.call) };
    format!("{:.1}{whose} asleep {at} ({})", found.threads, counted(found.looks, "look"))
}
