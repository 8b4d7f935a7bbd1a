//! From one format of recordings to another.

use super::accesses;
use super::source::{Ending, Format, Input};
use crate::event::Event;
use crate::lines;
use crate::order::{CAPACITY, Sorter};
use crate::trace::{Compression, Writer, Written};
use crate::units::Time;
use anyhow::Result;
use std::io::Write;

/// What became of a recording.
#[derive(Debug, Default)]
pub(super) struct Converted {
    /// Events read.
    pub events: u64,
    /// Lines written.
    pub lines: u64,
    /// Events that event lines have no word for: futex waits of which no lock is known.
    pub left_out: u64,
    /// Access records, which are no events.
    pub access_records: u64,
    /// Events that came too late for their place.
    pub late: u64,
    /// What is known of the recording.
    pub losses: Vec<String>,
    /// Whether it is incomplete.
    pub incomplete: bool,
}

/// Writes a recording as event lines.
///
/// # Errors
/// When the one cannot be read, or the other not written.
pub(super) fn to_lines(input: &Input, out: impl Write) -> Result<Converted> {
    // Names come last in a trace, but are wanted with the first line.
    let Ending { header, harvest, mut names, access_records, .. } = input.ending()?;
    let incomplete = harvest.quality.incomplete();
    let mut done = Converted { incomplete, access_records, ..Converted::default() };
    let mut writer = lines::Writer::new(out, header.ticks_per_ns.max(1));
    let mut sorter = Sorter::new(CAPACITY);
    let stacks = harvest.stacks;
    let mut events = input.source(header.ticks_per_ns)?;
    loop {
        let event = events.next().transpose()?;
        let ready = match &event {
            None => sorter.finish(),
            Some(event) => {
                done.events += 1;
                match event {
                    Event::Process(seen) => writer.process(seen),
                    // Those that end with another thread's exit have a step.
                    event if Sorter::takes(event) => sorter.push(event),
                    _ => done.left_out += 1,
                }
                sorter.pop_ready()
            }
        };
        for op in ready {
            writer.op(&op, &mut *names, &stacks)?;
            done.lines += 1;
        }
        if event.is_none() {
            break;
        }
    }
    done.late = sorter.late() + sorter.late_absences();
    done.losses = harvest.quality.notes;
    if harvest.estimates.is_some_and(|e| e.sampled()) {
        done.losses.push(
            "event lines have no place for estimates: they tell what was recorded, which is not all that happened."
                .to_owned(),
        );
    }
    writer.finish()?;
    Ok(done)
}

/// Writes a recording as a trace, with the access records that it holds and the lines of further ones.
///
/// # Errors
/// When the one cannot be read, or the other not written.
pub(super) fn to_trace(
    input: &Input,
    out: impl Write,
    compression: Compression,
    further: &[u8],
) -> Result<(Converted, Written)> {
    // Event lines show at their end whether their times have decimals.
    let Ending { mut header, harvest, mut names, modules, end, .. } = input.ending()?;
    let mut done = Converted { incomplete: harvest.quality.incomplete(), ..Converted::default() };
    if header.lockbpf.is_empty() {
        header.lockbpf = env!("CARGO_PKG_VERSION").to_owned();
    }
    let mut writer = Writer::new(out, &header, compression)?;
    let mut last = Time(0);
    for event in input.source(header.ticks_per_ns)? {
        let event = event?;
        done.events += 1;
        last = last.max(event.time());
        writer.event(&event)?;
    }
    for modules in &modules {
        writer.modules(modules)?;
    }
    if input.format() == Format::Trace {
        accesses::copy(input.access_lines()?, &mut writer)?;
    }
    accesses::copy(further, &mut writer)?;
    done.losses.clone_from(&harvest.quality.notes);
    let (_, written) = writer.finish(&harvest, &mut *names, end.unwrap_or(last))?;
    Ok((done, written))
}
