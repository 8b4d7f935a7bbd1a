//! What the host and the init inside a virtual machine agree on.

pub mod event;
pub mod expectation;
pub mod place;
pub mod plan;
