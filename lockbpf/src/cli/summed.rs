//! The sums of a recording, with the names of its locks: what a model can be made of without its events.

use super::script::{not_measured, shadow};
use super::source::{Ending, Input};
use crate::event::{Event, ProcessSeen};
use crate::id::{Lock, Process};
use crate::model::schema;
use crate::model::summed::{self, Sums};
use crate::observation::{Harvest, Observation};
use crate::report::labels;
use crate::report::text::percent;
use crate::sums::SiteSums;
use crate::trace::Header;
use crate::units::Time;
use anyhow::{Result, bail};
use lockbpf_common::counter::Counter;
use std::collections::HashMap;

/// The share of the visits that must be in the sums for a model.
const MODEL_NEEDS: f64 = 0.95;

/// The model of a recording by its sums of transitions, of the locks that are `wanted`.
///
/// # Errors
/// When it cannot be read, has no such sums or too few, or gives no model.
pub(super) fn model(input: &Input, wanted: impl Fn(&str) -> bool) -> Result<schema::Input> {
    let (processes, ending) = input.read(
        |_| HashMap::<Process, ProcessSeen>::new(),
        |processes, event| {
            if let Event::Process(seen) = event {
                processes.insert(seen.process, seen);
            }
            Ok(())
        },
    )?;
    let Ending { header, harvest, mut names, end, pace, .. } = ending;
    let missing = usable(&header, &harvest)?;
    let observation = Observation {
        processes,
        sums: harvest.sums.iter().map(SiteSums::from).collect(),
        stacks: harvest.stacks.clone(),
        ticks_per_ns: header.ticks_per_ns,
        ..Observation::default()
    };
    let labels = labels(&observation, &mut *names);
    let name = |lock: Lock| labels.locks.get(&lock).cloned().unwrap_or_else(|| format!("lock {:#x}", lock.addr));
    // Acquisitions in windows are not those of all the time.
    let whole = harvest.estimates.iter().flat_map(|estimates| &estimates.processes).all(|process| process.whole);
    let shadow = shadow(&header, &harvest);
    let period = (Time(header.start), end.unwrap_or_default());
    let sums = Sums {
        transitions: &harvest.transitions,
        sums: &harvest.sums,
        period,
        pace: if whole { &pace } else { &[] },
        windows: !whole,
        estimates: harvest.estimates.as_ref(),
        shadow: shadow.as_ref(),
    };
    let mut model = summed::model(&sums, name, wanted)?;
    if missing > 0.0 {
        model.violations.push(format!(
            "{} of the ways from lock to lock are missing: there were more different ones than there is room for.",
            percent(missing)
        ));
    }
    if harvest.quality.incomplete() {
        model.violations.push("The recording is incomplete: `lockbpf report` tells what is missing.".to_owned());
    }
    model.violations.extend(shadow.is_none().then(|| not_measured(&header)));
    Ok(model)
}

/// The share of the visits that are missing, if a model can be made of the others.
fn usable(header: &Header, harvest: &Harvest) -> Result<f64> {
    let Some(capture) = &header.capture else {
        bail!("it was made of event lines, which hold no sums of transitions: leave --by sums out");
    };
    if capture.futex_only {
        bail!("it was recorded with --futex-only, which sees no section: record without that");
    }
    if !capture.transitions {
        bail!("it holds no sums of transitions from lock to lock: record with `lockbpf export --to FILE.bin`");
    }
    if harvest.transitions.is_empty() {
        bail!(
            "no section was seen from its beginning to its end: nothing was locked, or only locks that the program takes inline (Go, Rust, \
             Java, …), of which the sections cannot be seen"
        );
    }
    let visits = harvest.transitions.iter().map(|transition| transition.count as f64).sum::<f64>();
    let lost = harvest.quality.counters.get(Counter::TransitionsFull.name()).copied().unwrap_or(0);
    let missing = lost as f64 / (lost as f64 + visits).max(1.0);
    if missing > 1.0 - MODEL_NEEDS {
        bail!(
            "{} of the ways from lock to lock are missing, since there were more different ones than there is room for: record every \
             section (`lockbpf export --all-events`), or fewer threads (--tid, --comm)",
            percent(missing)
        );
    }
    Ok(missing)
}
