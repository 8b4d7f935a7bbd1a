//! Interpreters among the observed processes: where their locks are is found out while they run, since it differs from process
//! to process, and they may begin after the observation does.

use super::census::Census;
use crate::capture::gil;
use crate::capture::session::Session;
use crate::id::Process;
use std::collections::HashMap;
use std::ops::Range;

/// Looks before an interpreter is given up that does not begin: 10 s.
const LOOKS: u32 = 200;

/// Where the state of each process's interpreter is; `None` for a process without one.
#[derive(Default)]
pub(super) struct Interpreters {
    states: HashMap<Process, Option<State>>,
}

struct State {
    range: Range<u64>,
    /// Looks that are left to find its lock; 0 once it is found.
    looks: u32,
}

impl Interpreters {
    /// Looks into processes that were not there at the last look, and into those whose interpreter had not begun.
    pub(super) fn look(&mut self, session: &mut Session, census: &mut Census) {
        for (process, pid) in census.pids() {
            let state = self.states.entry(process).or_insert_with(|| {
                let range = census.symbols().variable_in(process, gil::STATE, gil::is_interpreter)?;
                Some(State { range, looks: LOOKS })
            });
            if let Some(state) = state
                && state.looks > 0
            {
                state.looks -= 1;
                if let Some(mutex) = gil::locate(pid, &state.range) {
                    if let Err(error) = session.interpreter_lock(pid, mutex) {
                        log::warn!("the interpreter lock of process {pid} is not observed: {error}");
                    }
                    state.looks = 0;
                }
            }
        }
    }

    /// What is loaded may have changed: a program can embed an interpreter later.
    pub(super) fn reconsider(&mut self) {
        self.states.retain(|_, state| state.is_some());
    }
}
