//! What lockbpf's eBPF programs and its user space must agree on, byte for byte: ring-buffer records, map keys
//! and values, loss counters and the configuration. `no_std`, no padding, sizes asserted at compile time.
#![no_std]

pub mod access;
pub mod barrier;
pub mod config;
pub mod counter;
pub mod counts;
pub mod custom;
pub mod focus;
pub mod function;
pub mod gate;
pub mod gil;
pub mod goroutine;
pub mod kernel;
pub mod kind;
pub mod layout;
pub mod library;
pub mod off_cpu;
pub mod order;
pub mod parking;
pub mod process;
pub mod python;
pub mod record;
pub mod stack_copy;
pub mod sums;
pub mod task;
pub mod thin;
pub mod transition;
pub mod via;
pub mod virtual_thread;
pub mod waiting;
