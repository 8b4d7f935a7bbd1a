//! Live capture: the eBPF object, where its probes go, and the stream of events that comes back.

pub mod btf;
pub mod elf;
pub mod feature;
pub mod privilege;
pub mod probe_table;
pub mod prologue;
pub mod target;
