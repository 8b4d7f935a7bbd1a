//! Whether the intervals hold the truth as often as they say.

mod coverage;
mod exact;
pub(super) mod sim;
mod workloads;
