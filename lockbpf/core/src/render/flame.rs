//! Waiting by stack as a tree, from which flame graphs are drawn. It leaves out small branches, and counts them.

use super::name;
use crate::report::profile::Sample;
use crate::report::schema::Ns;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// Frames of a stack that the tree has: the innermost ones.
const MAX_DEPTH: usize = 96;

/// A tree of calls. The innermost frame of each stack is the lock, in brackets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Flame {
    /// Each call before those that it makes, which come in the order of their names.
    pub(super) nodes: Vec<Call>,
    /// How deep it is.
    pub(super) depth: usize,
    /// All waiting.
    pub(super) wait_ns: Ns,
    /// Calls left out, and the waiting in those of which the caller was not left out.
    pub(super) left_out: (usize, Ns),
}

/// A call with the same callers, and the waiting in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Call {
    /// The function, or the lock.
    pub(super) name: String,
    /// How many callers it has.
    pub(super) depth: usize,
    /// Waiting before it, in the order of nodes: where it begins in the picture.
    pub(super) before_ns: Ns,
    /// Waiting in it and in what it calls.
    pub(super) wait_ns: Ns,
}

#[derive(Default)]
struct Grown {
    wait_ns: Ns,
    depth: usize,
    calls: IndexMap<String, usize, FxBuildHasher>,
}

impl Flame {
    /// The tree of samples. It has the `most` calls with most waiting.
    pub(super) fn of(samples: &[Sample], most: usize) -> Self {
        let mut arena = vec![Grown::default()];
        for sample in samples {
            let lock = format!("[{}]", sample.lock);
            let frames = sample.frames.iter().take(MAX_DEPTH).rev().map(name).chain([lock]);
            let mut at = 0;
            arena[0].wait_ns += sample.wait_ns;
            for (depth, name) in frames.enumerate() {
                let new = arena.len();
                let next = *arena[at].calls.entry(name).or_insert(new);
                if next == new {
                    arena.push(Grown { depth, ..Grown::default() });
                }
                at = next;
                arena[at].wait_ns += sample.wait_ns;
            }
        }
        Self::cut(&mut arena, most)
    }

    fn cut(arena: &mut [Grown], most: usize) -> Self {
        let mut waits: Vec<Ns> = arena[1..].iter().map(|grown| grown.wait_ns).collect();
        waits.sort_unstable_by(|a, b| b.cmp(a));
        // A call never has more waiting than its caller, so whoever stays has its callers.
        let least = waits.get(most).copied();
        let keeps = |grown: &Grown| grown.wait_ns > Ns::default() && least.is_none_or(|least| grown.wait_ns > least);
        let mut flame = Self { wait_ns: arena[0].wait_ns, ..Self::default() };
        let mut stack = vec![(0, String::new(), Ns::default())];
        while let Some((at, name, before_ns)) = stack.pop() {
            if at > 0 {
                let Grown { wait_ns, depth, .. } = arena[at];
                flame.depth = flame.depth.max(depth + 1);
                flame.nodes.push(Call { name, depth, before_ns, wait_ns });
            }
            let mut calls: Vec<(String, usize)> = std::mem::take(&mut arena[at].calls).into_iter().collect();
            calls.sort_unstable();
            let mut from = before_ns;
            let first = stack.len();
            for (name, call) in calls {
                if keeps(&arena[call]) {
                    stack.push((call, name, from));
                    from += arena[call].wait_ns;
                } else {
                    flame.left_out.1 += arena[call].wait_ns;
                }
            }
            stack[first..].reverse();
        }
        flame.left_out.0 = arena.len() - 1 - flame.nodes.len();
        flame
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::schema::StackFrame;

    fn sample(stack: &[&str], lock: &str, wait: u64) -> Sample {
        let frame = |name: &&str| StackFrame { function: Some((*name).to_owned()), ..StackFrame::default() };
        let frames = stack.iter().rev().map(frame).collect();
        Sample { frames, lock: lock.to_owned(), wait_ns: Ns::new(wait), ..Sample::default() }
    }

    fn drawn(flame: &Flame) -> Vec<(usize, &str, u64, u64)> {
        flame.nodes.iter().map(|n| (n.depth, n.name.as_str(), n.before_ns.whole(), n.wait_ns.whole())).collect()
    }

    #[test]
    fn the_same_calls_are_put_together() {
        let samples =
            [sample(&["main", "g"], "L", 20), sample(&["main", "f"], "L", 5), sample(&["main", "g"], "L", 10)];
        let flame = Flame::of(&samples, 100);
        let expected = [(0, "main", 0, 35), (1, "f", 0, 5), (2, "[L]", 0, 5), (1, "g", 5, 30), (2, "[L]", 5, 30)];
        assert_eq!(drawn(&flame), expected);
        assert_eq!((flame.depth, flame.wait_ns, flame.left_out), (3, Ns::new(35), (0, Ns::default())));
    }

    #[test]
    fn what_is_left_out_is_told() {
        let samples = [sample(&["main", "g"], "L", 20), sample(&["main", "f"], "L", 5)];
        let flame = Flame::of(&samples, 3);
        assert_eq!(drawn(&flame), [(0, "main", 0, 25), (1, "g", 0, 20), (2, "[L]", 0, 20)]);
        assert_eq!(flame.left_out, (2, Ns::new(5)));
        assert_eq!(Flame::of(&[], 3), Flame::default());
    }

    #[test]
    fn no_stack_is_too_deep() {
        let deep: Vec<&str> = vec!["f"; 100_000];
        assert_eq!(Flame::of(&[sample(&deep, "L", 1)], 1_000).depth, MAX_DEPTH + 1);
    }
}
