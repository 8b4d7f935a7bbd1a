//! `lockbpf top`: a live view of locks on the terminal. Snapshots of the observation become frames ([`digest`]), which a pure model shows
//! by views; a thread of its own draws them and reads keys.

mod board;
mod digest;
mod frame;
mod keys;
mod model;
mod now;
mod run;
mod screen;
mod sink;
mod view;
mod warnings;

pub(super) use run::{TopArgs, run};
