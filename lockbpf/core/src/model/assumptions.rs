//! What has to hold for a prediction to hold, in words.

use super::predict::{QD_ABOVE, QD_BELOW, algorithm, sleeps};
use super::schema::{Algorithm, Input, Overhead, Point, Solver};
use super::{cores, play};
use crate::report::text::counted;

/// All that applies to what was asked and how it was solved.
pub(super) fn all(input: &Input, points: &[Point]) -> Vec<String> {
    let mut all = vec![
        "The number of threads is constant, and the program is in a steady state: what it does does not change with time."
            .to_owned(),
        match input.cores {
            None => "Threads wait for nothing but these locks, and there is a CPU for each thread that does not wait.".to_owned(),
            Some(cores) => format!(
                "Threads wait for nothing but these locks and for {}, which all share evenly that do not sleep.",
                counted(cores.into(), "CPU")
            ),
        },
        "Times in sections and between them do not depend on the number of threads.".to_owned(),
    ];
    if input.recorded.is_some_and(|recorded| recorded.without_observer) {
        all.push(
            "What observing cost, as it was measured on the machine of the recording, has been taken out of sections and of the time \
             between them. In a real program it may be 0.6 to 1.5 times that: intervals include it."
                .to_owned(),
        );
    }
    if points.iter().any(|point| cores::may_collapse(input, point.threads)) {
        all.push(
            "With more threads than CPUs a lock for which threads spin may all but stop, while whoever has its turn waits for a CPU: that \
             is not in this model, so intervals begin at 0: `lockbpf calibrate` measures what is needed to tell."
                .to_owned(),
        );
    }
    if let Some(shared) = points.iter().find_map(|point| play::shared(input, point.threads)) {
        all.push(format!(
            "With more threads than CPUs a thread has its CPU for {:.1} ms, then another one that wants it has, whether it holds a lock or not. \
             Intervals go to what comes out with half of that and twice that, and if threads never move to another CPU.",
            shared.slice_ns / 1e6
        ));
        if input.locks.iter().any(|lock| lock.spins && lock.in_turn) {
            all.push(
                "Locks that are waited for in turn all but stop from when one that has its turn loses its CPU for the first time: predicted is what it comes \
                 to then, and the high end of the interval is what may be before."
                    .to_owned(),
            );
        }
    }
    let is = |wanted| input.locks.iter().any(|lock| algorithm(input, lock) == wanted);
    let solved = |wanted| points.iter().any(|point| point.solver == wanted);
    let formula = solved(Solver::Exact) || solved(Solver::Schweitzer);
    if is(Algorithm::QdWait) && formula {
        all.push(format!(
            "QD locks: exponential sections, and one helper in the whole program. Intervals: waits from {:.0} % below to {:.0} \
             % above the model's, which is the mean error that its authors report (24 %; 14 % for sections of 1 µs and more), and \
             how far a simulated QD lock goes with other distributions (−16 % … +29 %).",
            QD_BELOW * 100.0,
            QD_ABOVE * 100.0
        ));
        if input.classes.len() > 1 {
            all.push("Threads of all classes are taken as of one pattern: the helper is any of them.".to_owned());
        }
    }
    if solved(Solver::Simulation) {
        all.push(
            "Simulated with exponential times, and sections of the coefficients of variation given; intervals are the simulation's own \
             95 %. Readers go before waiting writers."
                .to_owned(),
        );
        if is(Algorithm::Qd) {
            all.push(
                "QD locks: who delegates a section goes on at once, and needs nothing that the section brings about. Whoever holds the lock executes \
                 128 sections for others at most, then gives it back. What stays in one CPU's cache by that is not taken into account."
                    .to_owned(),
            );
        }
        if input.locks.iter().any(|lock| sleeps(input, lock)) {
            all.push(
                "Mutexes and reader–writer locks: who waits sleeps. Who gives one back wakes the longest sleeper, which then tries for it, in the time that was measured on \
                 this machine; whoever comes before that gets it. Intervals go to the quartiles of that measurement."
                    .to_owned(),
            );
        }
    }
    if formula && !is(Algorithm::QdWait) {
        let known = input.locks.iter().any(|lock| lock.hold_cv.is_some());
        let bound = if known { "of the coefficients of variation given" } else { "that are constant" };
        all.push(format!(
            "First come, first served, and exponential sections; intervals go to what sections {bound} would make of it. \
             Where times between sections hardly vary, waits may be shorter still."
        ));
    }
    if solved(Solver::Schweitzer) {
        all.push("Solved with Bard and Schweitzer's approximation: throughput is up to some 4 % off, 7 % where one lock is about to be saturated.".to_owned());
    }
    if input.locks.iter().any(|lock| matches!(lock.overhead_ns, Overhead::ByWaiters(_))) {
        all.push(
            "A lock's overhead depends on its waiters as given; with more than that, it is as with the most given."
                .to_owned(),
        );
    }
    if input.locks.iter().any(|lock| lock.shards.is_some_and(|k| k > 1)) {
        all.push(
            "A lock that is split is split evenly: each part is asked for equally often, whoever asks.".to_owned(),
        );
    }
    all
}
