//! What events say of critical sections: which events there are ([`event`]), what was counted of them ([`counted`]), and what
//! that means: LiMiT's statistics of locks and HaLock's regions ([`quantities`]), ratios of events and why a section is long
//! ([`why`]). Definitions are in `docs/report.md`.
#![forbid(unsafe_code)]

pub mod counted;
pub mod event;
pub mod library;
pub mod quantities;
pub mod why;
