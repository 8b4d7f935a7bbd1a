//! The synchronization dependence graph: each nanosecond of waiting charged to the critical section that caused it.
#![forbid(unsafe_code)]

pub mod findings;
