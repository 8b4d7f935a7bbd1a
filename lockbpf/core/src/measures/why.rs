//! Ratios of events in sections, and why sections are long, in a word.

use super::counted::{CLOCK, scaled};
use super::event::TASK_CLOCK;
use lockbpf_common::counts::Counts;

/// Off the CPU for this share of the hold or more, that is why: preempted, if it could have run for as much of that time.
pub const OFF_CPU: f64 = 0.5;
/// In the kernel for this share of its own time or more, that is why.
pub const KERNEL: f64 = 0.5;
/// What a page fault takes at least, ns: where they make up [`KERNEL`] of the time, that is why, even if the time in the kernel
/// is not counted.
pub const FAULT_NS: f64 = 500.0;
/// So many cache misses per thousand instructions, and memory is why.
pub const MANY_MISSES: f64 = 10.0;
/// Fewer instructions a cycle than this, and memory is why if there are [`SOME_MISSES`].
pub const FEW_INSTRUCTIONS: f64 = 0.5;
/// So many cache misses per thousand instructions explain few instructions a cycle.
pub const SOME_MISSES: f64 = 2.0;

/// Why sections are long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Their threads could have run, but others did.
    Preempted,
    /// Their threads slept, or were blocked.
    Asleep,
    /// They were in the kernel.
    Kernel,
    /// They waited for memory.
    Memory,
    /// They computed.
    Compute,
    /// They ran; what kept them was not counted.
    Running,
}

impl Why {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Preempted => "preempted",
            Self::Asleep => "asleep",
            Self::Kernel => "kernel-bound",
            Self::Memory => "memory-bound",
            Self::Compute => "compute",
            Self::Running => "running",
        }
    }
}

/// Ratios of what was counted; `None` where an event that it takes was not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratios {
    /// Instructions a cycle.
    pub ipc: Option<f64>,
    /// The same in the program's own code.
    pub ipc_user: Option<f64>,
    /// The same in the kernel.
    pub ipc_kernel: Option<f64>,
    /// Cache misses per thousand instructions.
    pub mpki: Option<f64>,
    /// The same in the program's own code.
    pub mpki_user: Option<f64>,
    /// The same in the kernel.
    pub mpki_kernel: Option<f64>,
    /// Branch misses per thousand instructions.
    pub branch_mpki: Option<f64>,
    /// Share of the cycles (else of the instructions) in the kernel.
    pub kernel_share: Option<f64>,
    /// Share of the time on a CPU that page faults took, at least.
    pub fault_share: Option<f64>,
    /// Share of the hold, by the wall clock, in which there was no CPU.
    pub off_cpu_share: f64,
    /// The part of that in which there could have been one, as a share of the hold.
    pub preempted_share: f64,
}

/// How long sections took, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// By the wall clock.
    pub hold_ns: f64,
    /// The part of that on a CPU.
    pub on_cpu_ns: f64,
    /// The part of that without a CPU, though there could have been one.
    pub preempted_ns: f64,
}

impl Ratios {
    /// The ratios of counts of these events, in sections that took so long by the wall clock.
    #[must_use]
    pub fn of(events: &[String], counts: &Counts, hold_ns: f64) -> Self {
        let times = Times { hold_ns, on_cpu_ns: counts.on_cpu_ns as f64, preempted_ns: counts.preempted_ns as f64 };
        Self::by_name(|name| scaled(counts, events.iter().position(|event| event == name)?), times)
    }

    /// The ratios of counts that `of` knows by their events' names.
    #[must_use]
    pub fn by_name(of: impl Fn(&str) -> Option<f64>, times: Times) -> Self {
        let Times { hold_ns, on_cpu_ns, preempted_ns } = times;
        let part = |name: &str, modifier: &str| of(&format!("{name}:{modifier}"));
        // All of an event, even if its parts were counted.
        let whole = |name: &str| of(name).or_else(|| Some(part(name, "u")? + part(name, "k")?));
        // The part that was not counted is what the whole has more.
        let in_kernel = |name: &str| part(name, "k").or_else(|| Some((of(name)? - part(name, "u")?).max(0.0)));
        let in_user = |name: &str| part(name, "u").or_else(|| Some((of(name)? - part(name, "k")?).max(0.0)));
        let ratio = |a: Option<f64>, b: Option<f64>| a.zip(b).filter(|&(_, b)| b > 0.0).map(|(a, b)| a / b);
        let instructions = whole("instructions");
        let kilo = instructions.map(|n| n / 1e3);
        let share_of = |name: &str| ratio(in_kernel(name), whole(name));
        let faults = of("page-faults").or_else(|| of("minor-faults"));
        Self {
            ipc: ratio(instructions, whole("cycles")),
            ipc_user: ratio(in_user("instructions"), in_user("cycles")),
            ipc_kernel: ratio(in_kernel("instructions"), in_kernel("cycles")),
            mpki: ratio(whole("cache-misses"), kilo),
            mpki_user: ratio(in_user("cache-misses"), in_user("instructions").map(|n| n / 1e3)),
            mpki_kernel: ratio(in_kernel("cache-misses"), in_kernel("instructions").map(|n| n / 1e3)),
            branch_mpki: ratio(whole("branch-misses"), kilo),
            kernel_share: share_of("cycles").or_else(|| share_of("instructions")),
            fault_share: ratio(faults.map(|n| n * FAULT_NS), Some(on_cpu_ns)),
            off_cpu_share: if hold_ns > 0.0 { (1.0 - on_cpu_ns / hold_ns).clamp(0.0, 1.0) } else { 0.0 },
            preempted_share: if hold_ns > 0.0 { (preempted_ns / hold_ns).clamp(0.0, 1.0) } else { 0.0 },
        }
    }

    /// Why sections with these ratios are long.
    #[must_use]
    pub fn why(&self) -> Why {
        let is = |ratio: Option<f64>, test: fn(f64) -> bool| ratio.is_some_and(test);
        if self.off_cpu_share >= OFF_CPU {
            if self.preempted_share >= OFF_CPU * self.off_cpu_share { Why::Preempted } else { Why::Asleep }
        } else if is(self.kernel_share, |share| share >= KERNEL)
            || self.kernel_share.is_none() && is(self.fault_share, |share| share >= KERNEL)
        {
            Why::Kernel
        } else if is(self.mpki, |n| n >= MANY_MISSES)
            || is(self.mpki, |n| n >= SOME_MISSES) && is(self.ipc, |n| n < FEW_INSTRUCTIONS)
        {
            Why::Memory
        } else if self.ipc.is_some() && (self.mpki.is_some() || is(self.ipc, |n| n >= FEW_INSTRUCTIONS)) {
            Why::Compute
        } else {
            Why::Running
        }
    }
}

/// What the clock counts: `cycles`, or `ns`.
#[must_use]
pub fn unit(events: &[String]) -> &'static str {
    if events.get(CLOCK).is_some_and(|name| name == TASK_CLOCK) { "ns" } else { "cycles" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratios(events: &[(&str, u64)], on_cpu_ns: u64) -> Ratios {
        let mut counts = Counts { on_cpu_ns, counted_ns: [on_cpu_ns; 5], ..Counts::NONE };
        for (to, &(_, n)) in counts.counts.iter_mut().zip(events) {
            *to = n;
        }
        let names: Vec<String> = events.iter().map(|&(name, _)| name.to_owned()).collect();
        Ratios::of(&names, &counts, on_cpu_ns as f64)
    }

    #[test]
    fn ratios_need_their_events() {
        let r = ratios(&[("cycles", 2_000), ("instructions", 1_000), ("cache-misses", 5)], 1_000);
        assert_eq!((r.ipc, r.mpki), (Some(0.5), Some(5.0)));
        assert_eq!((r.kernel_share, r.branch_mpki, r.ipc_user), (None, None, None));
        assert_eq!(ratios(&[("task-clock", 9)], 9), Ratios::default());
        let r = ratios(&[("cycles", 0), ("instructions", 0)], 0);
        assert_eq!(r.ipc, None, "of nothing");
    }

    #[test]
    fn user_and_kernel_apart() {
        let names = [("cycles", 4_000), ("cycles:u", 3_000), ("cycles:k", 1_000), ("instructions:u", 6_000)];
        let r = ratios(&[&names[..], &[("instructions:k", 500)]].concat(), 1_000);
        assert_eq!((r.ipc, r.ipc_user, r.ipc_kernel), (Some(6_500.0 / 4_000.0), Some(2.0), Some(0.5)));
        assert_eq!(r.kernel_share, Some(0.25));
        // One part is known by the other.
        let r = ratios(&[("cycles", 4_000), ("cycles:u", 3_000)], 1_000);
        assert_eq!(r.kernel_share, Some(0.25));
    }

    #[test]
    fn each_reason_has_its_threshold() {
        let of = |ipc, mpki, kernel_share, fault_share, off_cpu_share| {
            Ratios { ipc, mpki, kernel_share, fault_share, off_cpu_share, ..Ratios::default() }.why()
        };
        assert_eq!(of(None, None, None, None, 0.5), Why::Asleep);
        assert_eq!(of(None, None, None, None, 0.49), Why::Running);
        assert_eq!(of(Some(2.0), Some(0.0), Some(0.5), None, 0.1), Why::Kernel);
        assert_eq!(of(None, None, None, Some(0.5), 0.1), Why::Kernel);
        assert_eq!(
            of(Some(2.0), Some(0.0), Some(0.1), Some(0.9), 0.1),
            Why::Compute,
            "the time in the kernel was counted"
        );
        assert_eq!(of(Some(2.0), Some(10.0), None, None, 0.1), Why::Memory);
        assert_eq!(of(Some(0.4), Some(2.0), None, None, 0.1), Why::Memory);
        assert_eq!(of(Some(0.4), Some(1.9), None, None, 0.1), Why::Compute);
        assert_eq!(of(Some(0.5), Some(2.0), None, None, 0.1), Why::Compute);
        assert_eq!(of(Some(0.5), None, None, None, 0.1), Why::Compute);
        assert_eq!(of(Some(0.4), None, None, None, 0.1), Why::Running, "misses were not counted");
    }

    #[test]
    fn time_off_the_cpu() {
        let of =
            |preempted_ns, hold_ns| Ratios::of(&[], &Counts { on_cpu_ns: 250, preempted_ns, ..Counts::NONE }, hold_ns);
        let r = of(500, 1_000.0);
        assert!((r.off_cpu_share - 0.75).abs() < 1e-9 && (r.preempted_share - 0.5).abs() < 1e-9);
        assert_eq!(r.why(), Why::Preempted);
        assert_eq!(of(300, 1_000.0).why(), Why::Asleep);
        assert_eq!((of(0, 200.0).off_cpu_share, of(0, 0.0).off_cpu_share), (0.0, 0.0));
    }
}
