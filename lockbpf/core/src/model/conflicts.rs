//! p_c of PinCS: how often executions of one critical section by different threads would conflict, from what each of them
//! read and wrote.
//!
//! Who of the other threads' nearest executions wrote a location is kept as a bit per thread, so that an execution is
//! compared with all of them at once: the time is that of going over all accesses twice, for each 64 threads.

/// Probability of another execution's finishing first.
pub const OTHER_FIRST: f64 = 0.5;
/// Memory for the bits at one time, in words of 64 threads: 256 MiB. More threads are gone through in groups.
const MAX_WORDS: usize = 1 << 25;
/// Stands for a location or thread that has no number yet.
const NONE: u32 = u32::MAX;

/// What one execution of a critical section read and wrote, those of sections inside it included. Threads and locations are
/// numbered from 0: memory goes by the highest numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution<'a> {
    /// The thread.
    pub thread: u32,
    /// Locations read.
    pub reads: &'a [u32],
    /// Locations written.
    pub writes: &'a [u32],
}

/// Compares executions. It may be asked often: what it needs by location and thread it keeps.
#[derive(Clone, Debug, Default)]
pub struct Comparer {
    locations: Numbers,
    threads: Numbers,
}

impl Comparer {
    /// p_c: the mean over all executions of the mean conflict with the nearest execution of each other thread before and
    /// after, by runs of the program, each in the order in which the section was entered. 0 of none.
    ///
    /// ```
    /// use lockbpf_core::model::conflicts::{Comparer, Execution};
    ///
    /// let increment = |thread| Execution { thread, reads: &[7], writes: &[7] };
    /// assert_eq!(Comparer::default().pairwise(&[vec![increment(1), increment(2)]]), 0.5);
    /// ```
    #[must_use]
    pub fn pairwise(&mut self, runs: &[Vec<Execution<'_>>]) -> f64 {
        let executions: usize = runs.iter().map(Vec::len).sum();
        let sum: f64 = runs.iter().map(|run| self.each(run).iter().sum::<f64>()).sum();
        if executions == 0 { 0.0 } else { sum / executions as f64 }
    }

    /// p_tr of each execution of a run: its mean conflict with the nearest execution of each other thread before and after.
    /// 0 where there is none.
    #[must_use]
    pub fn each(&mut self, run: &[Execution<'_>]) -> Vec<f64> {
        let run = Dense::new(run, self);
        let all = run.thread_of.len();
        let mut neighbours = vec![0_u32; all];
        let mut conflicts = vec![0_u32; all];
        let words = run.threads.div_ceil(64);
        let at_once = (MAX_WORDS / run.locations.max(1)).clamp(1, words.max(1));
        for backward in [false, true] {
            run.count_neighbours(backward, &mut neighbours);
            for first in (0..words).step_by(at_once) {
                run.count_conflicts(backward, first, at_once.min(words - first), &mut conflicts);
            }
        }
        let share = |(&conflicts, &neighbours): (&u32, &u32)| match neighbours {
            0 => 0.0,
            n => OTHER_FIRST * f64::from(conflicts) / f64::from(n),
        };
        conflicts.iter().zip(&neighbours).map(share).collect()
    }
}

/// Small numbers for the few that a run has of many, in the order in which they come.
#[derive(Clone, Debug, Default)]
struct Numbers {
    /// By member: its small number, or `NONE`.
    of: Vec<u32>,
    members: Vec<u32>,
}

impl Numbers {
    fn number(&mut self, member: u32) -> u32 {
        let index = member as usize;
        if index >= self.of.len() {
            self.of.resize(index + 1, NONE);
        }
        let number = &mut self.of[index];
        if *number == NONE {
            *number = self.members.len() as u32;
            self.members.push(member);
        }
        *number
    }

    fn find(&self, member: u32) -> Option<u32> {
        self.of.get(member as usize).copied().filter(|&number| number != NONE)
    }

    /// Forgets all, and returns how many there were.
    fn clear(&mut self) -> usize {
        self.members.iter().for_each(|&member| self.of[member as usize] = NONE);
        let all = self.members.len();
        self.members.clear();
        all
    }
}

/// A run with threads and locations by small numbers. Locations that nobody writes are left out.
struct Dense {
    threads: usize,
    locations: usize,
    /// By execution: its thread.
    thread_of: Vec<u32>,
    /// Locations accessed, execution by execution, and where those of each end.
    accessed: Vec<u32>,
    accessed_ends: Vec<usize>,
    /// The same of locations written.
    written: Vec<u32>,
    written_ends: Vec<usize>,
}

impl Dense {
    fn new(run: &[Execution<'_>], Comparer { locations, threads }: &mut Comparer) -> Self {
        for &location in run.iter().flat_map(|execution| execution.writes) {
            locations.number(location);
        }
        let mut dense = Self {
            threads: 0,
            locations: 0,
            thread_of: run.iter().map(|execution| threads.number(execution.thread)).collect(),
            accessed: Vec::new(),
            accessed_ends: Vec::with_capacity(run.len()),
            written: Vec::new(),
            written_ends: Vec::with_capacity(run.len()),
        };
        for execution in run {
            let known = |&location: &u32| locations.find(location);
            dense.accessed.extend(execution.reads.iter().filter_map(known));
            let reads = dense.accessed.len();
            dense.accessed.extend(execution.writes.iter().filter_map(known));
            dense.accessed_ends.push(dense.accessed.len());
            dense.written.extend_from_slice(&dense.accessed[reads..]);
            dense.written_ends.push(dense.written.len());
        }
        (dense.locations, dense.threads) = (locations.clear(), threads.clear());
        dense
    }

    fn accessed(&self, execution: usize) -> &[u32] {
        part(&self.accessed, &self.accessed_ends, execution)
    }

    fn written(&self, execution: usize) -> &[u32] {
        part(&self.written, &self.written_ends, execution)
    }

    fn order(&self, backward: bool) -> impl Iterator<Item = usize> + use<> {
        let all = self.thread_of.len();
        (0..all).map(move |step| if backward { all - 1 - step } else { step })
    }

    /// How many other threads have an execution before (or after) each.
    fn count_neighbours(&self, backward: bool, neighbours: &mut [u32]) {
        let mut seen = vec![false; self.threads];
        let mut threads = 0;
        for i in self.order(backward) {
            let own = std::mem::replace(&mut seen[self.thread_of[i] as usize], true);
            neighbours[i] += threads - u32::from(own);
            threads += u32::from(!own);
        }
    }

    /// How many of these executions wrote what each accesses, of the threads whose bits are in these words.
    fn count_conflicts(&self, backward: bool, first: usize, words: usize, conflicts: &mut [u32]) {
        let mut writers = vec![0_u64; self.locations * words];
        let mut nearest: Vec<Option<usize>> = vec![None; self.threads];
        let mut met = vec![0_u64; words];
        for i in self.order(backward) {
            let thread = self.thread_of[i] as usize;
            met.fill(0);
            for &location in self.accessed(i) {
                let from = location as usize * words;
                met.iter_mut().zip(&writers[from..from + words]).for_each(|(met, writers)| *met |= writers);
            }
            let (own, bit) = ((thread / 64).checked_sub(first).filter(|&word| word < words), 1 << (thread % 64));
            if let Some(word) = own {
                met[word] &= !bit;
                for &location in nearest[thread].replace(i).map_or(&[][..], |before| self.written(before)) {
                    writers[location as usize * words + word] &= !bit;
                }
                for &location in self.written(i) {
                    writers[location as usize * words + word] |= bit;
                }
            }
            conflicts[i] += met.iter().map(|word| word.count_ones()).sum::<u32>();
        }
    }
}

fn part<'a>(all: &'a [u32], ends: &[usize], i: usize) -> &'a [u32] {
    let from = i.checked_sub(1).map_or(0, |before| ends[before]);
    &all[from..ends[i]]
}
