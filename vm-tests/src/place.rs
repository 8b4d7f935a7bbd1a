//! Where things are inside a machine.

/// lockbpf.
pub const LOCKBPF: &str = "/bin/lockbpf";
/// The folder of the workloads, each under its own name.
pub const WORKLOADS: &str = "/workloads";
/// The workloads that must be there, sources of this name in `tests/workloads/`.
pub const WORKLOAD_NAMES: [&str; 17] = [
    "condvar",
    "counted",
    "counter",
    "filtered",
    "functions",
    "hold",
    "holder",
    "instructions",
    "kernel_held",
    "late",
    "library",
    "nesting",
    "orders",
    "stuck",
    "threads",
    "timeouts",
    "trylock",
];
