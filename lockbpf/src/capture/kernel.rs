//! What the programs on kernel locks have to know of the running kernel, and whether it has their tracepoints.

use super::btf::Btf;
use super::feature::{FeatureError, KernelVersion, Support};
use crate::kallsyms::Kallsyms;
use lockbpf_common::kernel::{Kernel, NO_OFFSET, Range};

/// Programs and their tracepoints.
pub(super) const PROGRAMS: [&str; 2] = ["contention_begin", "contention_end"];

/// Largest range of code that is taken for one function family, bytes: what lies farther apart does not belong together.
const MAX_FAMILY: u64 = 64 << 10;

/// Whether the kernel tells of its locks.
#[must_use]
pub fn support(types: &Btf) -> Support {
    if PROGRAMS.iter().all(|name| types.tracepoint(name).is_some()) {
        return Support::Supported;
    }
    let kernel = KernelVersion::running().map_or_else(|| "this kernel".to_owned(), |v| format!("kernel {v}"));
    Support::NotSupported(format!("{kernel} has no tracepoints for waits for its locks; they came with 5.19"))
}

/// Whether kernel locks can be observed.
///
/// # Errors
/// When the kernel has no such tracepoints, with its version.
pub fn require(types: &Btf) -> Result<(), FeatureError> {
    match support(types) {
        Support::Supported => Ok(()),
        Support::NotSupported(reason) | Support::NotPermitted(reason) => {
            let reason = format!("{reason}: observe without --kernel-locks");
            Err(FeatureError { name: "kernel locks", reason })
        }
    }
}

/// What the programs have to know. Without symbols, the callers of locking functions are not found.
#[must_use]
pub fn describe(types: &Btf, symbols: Option<&Kallsyms>) -> Kernel {
    let offset = |structure, member| types.member_offset(structure, member).unwrap_or(NO_OFFSET);
    // arm64 keeps the count with the thread, x86-64 with the CPU.
    let preempt_count = types
        .member_offset("task_struct", "thread_info")
        .zip(types.member_offset("thread_info", "preempt_count"))
        .and_then(|(outer, inner)| outer.checked_add(inner));
    let range = |range: Option<std::ops::Range<u64>>| {
        range.map_or(Range::default(), |range| Range { start: range.start, end: range.end })
    };
    let between = |from: &str, to: &str| symbols.and_then(|s| Some(s.address(from)?..s.address(to)?));
    let family = |wanted: fn(&str) -> bool| {
        symbols.and_then(|s| s.span(wanted)).filter(|range| range.end - range.start <= MAX_FAMILY)
    };
    Kernel {
        locking: [
            range(between("__sched_text_start", "__sched_text_end")),
            range(between("__lock_text_start", "__lock_text_end")),
            // Before 6.10 and so, these are not among the others.
            range(family(|name| name.ends_with("queued_spin_lock_slowpath"))),
            range(family(|name| matches!(name, "queued_read_lock_slowpath" | "queued_write_lock_slowpath"))),
        ],
        interrupts: range(family(|name| {
            name.starts_with("asm_sysvec_") || matches!(name, "asm_common_interrupt" | "asm_spurious_interrupt")
        })),
        task_mm: offset("task_struct", "mm"),
        mmap_lock: offset("mm_struct", "mmap_lock"),
        task_sighand: offset("task_struct", "sighand"),
        siglock: offset("sighand_struct", "siglock"),
        mutex_owner: offset("mutex", "owner"),
        rwsem_owner: offset("rw_semaphore", "owner"),
        task_pid: offset("task_struct", "pid"),
        preempt_count: preempt_count.unwrap_or(NO_OFFSET),
        rwsem_count: offset("rw_semaphore", "count"),
        task_stack: offset("task_struct", "stack"),
        task_on_cpu: offset("task_struct", "on_cpu"),
        task_tgid: offset("task_struct", "tgid"),
        system_call: offset("pt_regs", if cfg!(target_arch = "aarch64") { "syscallno" } else { "orig_ax" }),
        reserved: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_is_described() {
        let types = Btf::kernel().unwrap();
        let kernel = describe(types, None);
        assert_ne!(kernel.task_pid, NO_OFFSET);
        assert_ne!((kernel.task_mm, kernel.mmap_lock), (NO_OFFSET, NO_OFFSET));
        let of_holders =
            [kernel.task_stack, kernel.task_on_cpu, kernel.task_tgid, kernel.system_call, kernel.rwsem_count];
        assert!(!of_holders.contains(&NO_OFFSET), "{of_holders:?}");
        let text = "ffffffff81000000 T asm_exc_page_fault\nffffffff81000040 T asm_common_interrupt\n\
            ffffffff81000080 T asm_sysvec_reboot\nffffffff810000c0 T __irqentry_text_end\n\
            ffffffff82000000 T __lock_text_start\nffffffff82000100 T __lock_text_end\n";
        let kernel = describe(types, Some(&Kallsyms::parse(text.to_owned()).unwrap()));
        assert_eq!(kernel.interrupts, Range { start: 0xffff_ffff_8100_0040, end: 0xffff_ffff_8100_00c0 });
        assert!(kernel.locking[1].covers(0xffff_ffff_8200_00ff) && !kernel.locking[1].covers(0xffff_ffff_8200_0100));
        assert_eq!(kernel.locking[0], Range::default());
    }

    #[test]
    fn old_kernels_are_told_which_version_it_takes() {
        let Support::NotSupported(reason) = support(&Btf::default()) else { panic!("no types, no tracepoints") };
        assert!(reason.contains("5.19"), "{reason}");
    }
}
