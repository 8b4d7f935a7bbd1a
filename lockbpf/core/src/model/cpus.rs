//! Who has a CPU, where there are fewer CPUs than threads that want one: each CPU has a queue of its own, and takes turns among those in it. Whoever
//! wakes up takes an idle CPU, or its turn; a CPU that has nobody takes one from the longest queue. Where threads stay, neither is so: a kernel
//! moves a thread to another CPU only if it takes that to be worth it.

use std::collections::VecDeque;

/// The CPUs, and who wants one.
#[derive(Clone, Debug)]
pub(super) struct Cpus {
    running: Vec<Option<usize>>,
    queues: Vec<VecDeque<usize>>,
    stay: bool,
    /// By thread: where it runs, or did last.
    home: Vec<usize>,
    /// By thread: whether it runs.
    on: Vec<bool>,
}

impl Cpus {
    /// So many CPUs with nobody on them.
    pub(super) fn new(cpus: usize, threads: usize, stay: bool) -> Self {
        let cpus = cpus.max(1);
        Self {
            running: vec![None; cpus],
            queues: vec![VecDeque::new(); cpus],
            stay,
            home: (0..threads).map(|thread| thread % cpus).collect(),
            on: vec![false; threads],
        }
    }

    /// Whether a thread has a CPU.
    pub(super) fn has(&self, thread: usize) -> bool {
        self.on[thread]
    }

    /// Whether some CPU has nothing to do.
    pub(super) fn any_idle(&self) -> bool {
        self.running.iter().any(Option::is_none)
    }

    /// Whether this one has nothing to do.
    pub(super) fn is_idle(&self, cpu: usize) -> bool {
        self.running[cpu].is_none()
    }

    /// A thread wants a CPU. Returns the one that it gets at once; without one it waits for its turn.
    pub(super) fn ready(&mut self, thread: usize) -> Option<usize> {
        let home = self.home[thread];
        let idle = |cpu: &usize| self.running[*cpu].is_none();
        let other = || (0..self.running.len()).find(idle).filter(|_| !self.stay);
        let Some(cpu) = Some(home).filter(idle).or_else(other) else {
            self.queues[home].push_back(thread);
            return None;
        };
        self.run(cpu, thread);
        Some(cpu)
    }

    /// A thread wants its CPU no longer: who has it next, and on which.
    pub(super) fn leave(&mut self, thread: usize) -> Option<(usize, usize)> {
        let cpu = self.home[thread];
        self.on[thread] = false;
        self.running[cpu] = None;
        let longest = (0..self.queues.len()).max_by_key(|&other| (self.queues[other].len(), other == cpu))?;
        let from = if self.queues[cpu].is_empty() && !self.stay { longest } else { cpu };
        let next = self.queues[from].pop_front()?;
        self.run(cpu, next);
        Some((cpu, next))
    }

    /// A CPU's time slice is over: who leaves it, and who has it next; `None` if nobody else wants it.
    pub(super) fn turn(&mut self, cpu: usize) -> Option<(usize, usize)> {
        let thread = self.running[cpu]?;
        let next = self.queues[cpu].pop_front()?;
        self.on[thread] = false;
        self.queues[cpu].push_back(thread);
        self.run(cpu, next);
        Some((thread, next))
    }

    fn run(&mut self, cpu: usize, thread: usize) {
        self.running[cpu] = Some(thread);
        (self.home[thread], self.on[thread]) = (cpu, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns_and_idle_cpus_help() {
        let mut cpus = Cpus::new(2, 5, false);
        assert_eq!([0, 1, 2, 3].map(|thread| cpus.ready(thread)), [Some(0), Some(1), None, None]);
        assert!(cpus.has(0) && !cpus.has(2) && !cpus.any_idle());
        assert_eq!(cpus.turn(0), Some((0, 2)));
        // 3 waits for CPU 1, 0 for CPU 0: nobody waits there any more when both have gone.
        assert_eq!(cpus.leave(2), Some((0, 0)));
        assert_eq!(cpus.leave(0), Some((0, 3)));
        assert_eq!(cpus.leave(3), None);
        assert_eq!(cpus.turn(0), None);
        assert!(cpus.any_idle() && cpus.is_idle(0));
        assert_eq!(cpus.ready(1 + 3), Some(0));
    }

    #[test]
    fn threads_that_stay_leave_other_cpus_idle() {
        let mut cpus = Cpus::new(2, 4, true);
        assert_eq!([0, 2, 1].map(|thread| cpus.ready(thread)), [Some(0), None, Some(1)]);
        assert_eq!(cpus.leave(1), None);
        assert!(cpus.is_idle(1));
        assert_eq!(cpus.leave(0), Some((0, 2)));
    }
}
