//! Whether the intervals hold the truth as often as they say.

mod coverage;
mod exact;
mod sim;
mod workloads;
