//! Which events are counted in sections, by what was asked for and what this machine has.

use crate::capture::events::{Pmu, can_count, pmu};
use crate::measures::event::Event;
use anyhow::{Result, bail};

/// Counted beside cycles with calls of the C library, as far as the machine has them, if no others are named.
const OF_FUNCTIONS: [&str; 4] = ["cycles:k", "instructions", "instructions:k", "cache-misses"];

/// The events that go with calls of the C library.
pub(crate) fn of_functions() -> Vec<Event> {
    let events = OF_FUNCTIONS.iter().filter_map(|name| Event::parse(name).ok());
    events.filter(can_count).collect()
}

/// The events to count, the clock first. What has to be said of it goes to `notes`.
///
/// # Errors
/// When one of those that were named takes a PMU, and there is none.
pub(crate) fn choose(asked: &[Event], notes: &mut Vec<String>) -> Result<Vec<Event>> {
    let why = match pmu() {
        Pmu::There => return Ok(Event::with_clock(asked, true)),
        Pmu::Missing => "this machine has no hardware counters (no PMU)".to_owned(),
        Pmu::Unknown(error) => format!("the hardware counters cannot be used: {error}"),
    };
    if let Some(event) = asked.iter().find(|event| event.needs_pmu()) {
        bail!(
            "{why}: {} cannot be counted. Without one there are page-faults, minor-faults, major-faults, context-switches, \
             cpu-migrations and task-clock",
            event.name
        );
    }
    let mut note = format!("{why}; task-clock, in ns, stands in for cycles.");
    note.replace_range(..1, &note[..1].to_uppercase());
    notes.push(note);
    Ok(Event::with_clock(asked, false))
}
