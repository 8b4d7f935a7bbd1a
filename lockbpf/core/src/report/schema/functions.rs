//! Calls of the C library's functions (`--functions`).

use super::value::{Ns, ThreadId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What calls of the C library took. A call is charged with everything inside of it, calls of other functions included: these are
/// counted as nested, and not charged again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionsEntry {
    /// The events counted, the clock first.
    pub events: Vec<String>,
    /// What the clock counts: `cycles`, or `ns` on a CPU.
    pub unit: String,
    /// In all threads, since they first called one of the functions or locked something, by the clock.
    pub execution: f64,
    /// Share of the execution in these functions.
    pub library_share: f64,
    /// The rest of it.
    pub program_share: f64,
    /// Share of the execution in the kernel, whoever called it; left out where that is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_share: Option<f64>,
    /// By category, in the order `io`, `memory`, `pthread`: those that were asked for.
    pub categories: Vec<CallsEntry>,
    /// By function, most calls first.
    pub functions: Vec<CallsEntry>,
    /// By thread and category, most time first.
    pub threads: Vec<ThreadCallsEntry>,
    /// Functions whose ends cannot be seen: their calls are counted, what happens inside of them is not theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endless: Vec<String>,
    /// Functions that were left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutEntry>,
    /// Names of functions that are another's as well, and that name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shared: BTreeMap<String, String>,
}

/// Calls of a function, or of a category.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallsEntry {
    /// The function; left out of a category.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// `io`, `memory` or `pthread`.
    pub category: String,
    /// Calls inside of no other.
    pub calls: u64,
    /// Calls inside of others.
    pub nested: u64,
    /// Calls whose end was seen: all below is theirs. The others were going on, are of `endless` functions, or ended
    /// by a jump or a cancellation.
    pub ended: u64,
    /// Ended calls whose events were not counted: their CPU could not be read.
    pub uncounted: u64,
    /// From beginning to end, by the wall clock.
    pub time_ns: Ns,
    /// The part of that on a CPU.
    pub on_cpu_ns: Ns,
    /// Counts by event, scaled; an event that was never counted is missing.
    pub counts: BTreeMap<String, f64>,
    /// Share of the execution, by the clock.
    pub share: f64,
    /// The part of `share` in the program's and the library's own code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_user: Option<f64>,
    /// The part of `share` in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_kernel: Option<f64>,
    /// Cycles an instruction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpi: Option<f64>,
    /// The same outside of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpi_user: Option<f64>,
    /// The same in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpi_kernel: Option<f64>,
    /// Cache misses per thousand instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses_per_kilo_instruction: Option<f64>,
    /// The same outside of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses_per_kilo_instruction_user: Option<f64>,
    /// The same in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses_per_kilo_instruction_kernel: Option<f64>,
}

/// One thread's calls of a category.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadCallsEntry {
    /// The thread.
    pub tid: ThreadId,
    /// Its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What the calls were for, and what they took.
    #[serde(flatten)]
    pub calls: CallsEntry,
}

/// A function that was not probed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutEntry {
    /// The function.
    pub function: String,
    /// Why.
    pub reason: String,
}
