//! Java monitors by the classes of their objects, taken from the processes' memory while they live: the garbage collector moves objects,
//! and monitors are used again.

use crate::capture::hotspot::{self, HotSpot};
use crate::id::{Lock, Process};
use crate::symbol::Symbols;
use std::collections::{HashMap, HashSet};

/// Monitors that are named; others go by where they are waited for.
const MAX_MONITORS: usize = 65_536;

/// Names monitors, once each.
#[derive(Default)]
pub(super) struct Monitors {
    machines: HashMap<Process, Option<HotSpot>>,
    known: HashSet<Lock>,
}

impl Monitors {
    /// A monitor has been waited for in a process: names it, if that is new.
    pub(super) fn meet(&mut self, lock: Lock, pid: u32, symbols: &mut Symbols) {
        if self.known.len() >= MAX_MONITORS || !self.known.insert(lock) {
            return;
        }
        let machine = self.machines.entry(lock.process).or_insert_with(|| {
            let table = symbols.variable_in(lock.process, hotspot::TABLE, |file| file == hotspot::LIBRARY)?;
            HotSpot::read(pid, table.start)
        });
        if let Some(class) = machine.as_ref().and_then(|machine| machine.class_of(pid, lock.addr)) {
            symbols.call(lock, format!("java monitor of {class}"));
        }
    }
}
