//! lockbpf's kernel side. Programs on uprobes turn lock calls into sums and records; programs on futex tracepoints
//! tell who slept and who woke whom; programs on scheduler tracepoints follow exec and exit.
//!
//! Cost rules: an uncontended section touches its thread's storage, one entry of the sums map and its thread's slot,
//! and writes no record. Nothing here allocates on that path.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![expect(internal_features, reason = "the only way to an atomic addition on this target")]

mod access;
mod atomic;
mod barrier;
mod calls;
mod clock;
mod cond;
mod context;
mod counts;
mod custom;
mod custom_call;
mod earlier;
mod emit;
mod focus;
mod follow;
mod futex;
mod futex_call;
mod gate;
mod gil;
mod go;
mod goroutine;
mod held;
mod holder;
mod kernel;
mod lasting;
mod lease;
mod library;
mod lock;
mod maps;
mod memory;
mod off_cpu;
mod once;
mod orders;
mod parking;
mod permit;
mod probes;
mod process;
mod python;
mod reading;
mod registers;
mod sched;
mod section;
mod section_sums;
mod signal;
mod slots;
mod spin;
mod stack;
mod task;
mod thread;
mod tokio;
mod told;
mod transitions;
mod unended;
mod unexplained;
mod unseen;
mod virtual_absence;
mod virtual_monitor;
mod virtual_thread;
mod watched;
mod wrapper;

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Helpers such as `bpf_get_current_task_btf` and `bpf_get_stackid` are for GPL-compatible programs.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
