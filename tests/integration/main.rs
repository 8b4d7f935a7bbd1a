//! lockbpf against the truth: C workloads that count and time their own locks, servers from the distribution, and every
//! way in which an observation can begin, end and fail. All but the workloads' own checks need the right to load eBPF
//! programs; without it they prove the lack and say that they were skipped.

mod harness;

mod access;
mod advise;
mod agent;
mod barriers;
mod blame;
mod budget;
mod calibrate;
mod calibration;
mod causes;
mod cgroup;
mod cli;
mod condvar;
mod containers;
mod contention;
mod counters;
mod cpp;
mod described;
mod diff;
mod ends;
mod errors;
mod exact;
mod examples;
mod export;
mod failing;
mod fleet;
mod focus;
mod forks;
mod functions;
mod go;
mod hostile;
mod html;
mod java;
mod kernel_locks;
mod kinds;
#[cfg(target_arch = "x86_64")]
mod lackey;
mod libc_locks;
mod lifecycle;
mod looks;
mod musl;
mod names;
mod newcomers;
mod outputs;
mod predict;
mod python;
mod recordings;
mod runtimes;
mod rwlock;
mod safety;
mod select;
mod servers;
mod shared;
mod signals;
mod stopped;
mod stuck;
mod system_wide;
mod top;
mod transitions;
mod unwind;
mod verdicts;
mod what_if;
mod workloads;
