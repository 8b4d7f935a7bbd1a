//! What was estimated, and from how much: first how much of each process was observed, then figures, as many as there are.

use super::super::Malformed;
use super::super::varint::{Cursor, put};
use super::rows::{lock, put_lock, put_site, site, via};
use super::shape::code_in;
use crate::estimate::{Coverage, Estimates, Figures, Interval, Subject};
use crate::id::Process;
use crate::units::Nanos;

/// Bytes of a payload from which on another one begins.
const PART: usize = 256 << 10;
/// Figures of one recording at most: of as many rows, locks and sites as the kernel side can keep.
const MAX_FIGURES: usize = 3 << 15;

/// The payloads of the frames that tell estimates; the first begins anew.
pub(in super::super) fn payloads(estimates: &Estimates) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    out.extend([u8::from(estimates.complete), u8::from(estimates.budget.is_some())]);
    put_float(&mut out, estimates.budget.unwrap_or_default());
    put_interval(&mut out, &estimates.hold_bias_ns);
    put(&mut out, estimates.beyond);
    put(&mut out, estimates.figures.len() as u64);
    put(&mut out, estimates.processes.len() as u64);
    for c in &estimates.processes {
        put(&mut out, u64::from(c.process.0));
        for time in [c.time, c.observed, c.cpu, c.cost, c.own_cpu, c.observed_own_cpu] {
            put(&mut out, time.0);
        }
        put(&mut out, c.windows);
        out.push(u8::from(c.whole));
        put_float(&mut out, c.factor);
        put_float(&mut out, c.hold_factor);
    }
    let mut payloads = Vec::new();
    for (subject, figures) in &estimates.figures {
        if out.len() >= PART {
            payloads.push(std::mem::take(&mut out));
        }
        put_subject(&mut out, subject);
        let Figures { acquisitions, hold_mean_ns, hold_p99_ns, contended_share, wait_ns } = figures;
        for i in [acquisitions, hold_mean_ns, hold_p99_ns, contended_share, wait_ns] {
            put_interval(&mut out, i);
        }
    }
    payloads.push(out);
    payloads
}

/// Estimates as they are read.
#[derive(Debug, Default)]
pub(in super::super) struct Told {
    estimates: Option<Estimates>,
    /// Figures that were announced.
    announced: u64,
}

impl Told {
    /// Takes the payload of a frame.
    pub(in super::super) fn read(&mut self, payload: &[u8], fresh: bool) -> Result<(), Malformed> {
        let mut from = Cursor(payload);
        if fresh {
            *self = Self::default();
            let (estimates, announced) = coverage(&mut from)?;
            *self = Self { estimates: Some(estimates), announced };
        }
        let estimates = self.estimates.as_mut().ok_or(Malformed::Undefined)?;
        while !from.is_empty() {
            if estimates.figures.len() >= MAX_FIGURES {
                return Err(Malformed::TooMany);
            }
            estimates.figures.push((subject(&mut from)?, figures(&mut from)?));
        }
        Ok(())
    }

    /// A frame with estimates could not be read: what comes up to the next fresh one cannot be used.
    pub(in super::super) fn broken(&mut self) {
        if let Some(estimates) = &mut self.estimates {
            estimates.complete = false;
        }
    }

    /// What was told; without its figures where some are missing.
    pub(in super::super) fn estimates(self) -> Option<Estimates> {
        let mut estimates = self.estimates?;
        estimates.complete &= estimates.figures.len() as u64 == self.announced;
        if !estimates.complete {
            estimates.figures.clear();
        }
        estimates.figures.sort_unstable_by_key(|&(subject, _)| subject);
        Some(estimates)
    }
}

fn coverage(from: &mut Cursor) -> Result<(Estimates, u64), Malformed> {
    let complete = code_in(&[false, true], from)?;
    let bounded = code_in(&[false, true], from)?;
    let budget = float(from)?;
    let hold_bias_ns = interval(from)?;
    let mut estimates = Estimates { budget: bounded.then_some(budget), hold_bias_ns, complete, ..Estimates::default() };
    estimates.beyond = from.number()?;
    let announced = from.number()?;
    for _ in 0..from.count()? {
        let process = Process(from.number32()?);
        let mut times = [Nanos(0); 6];
        for time in &mut times {
            *time = Nanos(from.number()?);
        }
        let [time, observed, cpu, cost, own_cpu, observed_own_cpu] = times;
        let windows = from.number()?;
        let whole = code_in(&[false, true], from)?;
        let (factor, hold_factor) = (float(from)?, float(from)?);
        estimates.processes.push(Coverage {
            process,
            time,
            observed,
            cpu,
            cost,
            own_cpu,
            observed_own_cpu,
            windows,
            whole,
            factor,
            hold_factor,
        });
    }
    Ok((estimates, announced))
}

fn put_subject(out: &mut Vec<u8>, subject: &Subject) {
    match *subject {
        Subject::Row(lock, site, via) => {
            out.push(0);
            put_lock(out, lock);
            put_site(out, site);
            out.push(via as u8);
        }
        Subject::Lock(lock) => {
            out.push(1);
            put_lock(out, lock);
        }
        Subject::Site(site) => {
            out.push(2);
            put_site(out, site);
        }
    }
}

fn subject(from: &mut Cursor) -> Result<Subject, Malformed> {
    Ok(match from.byte()? {
        0 => Subject::Row(lock(from)?, site(from)?, via(from)?),
        1 => Subject::Lock(lock(from)?),
        2 => Subject::Site(site(from)?),
        _ => return Err(Malformed::Unknown("subject of an estimate")),
    })
}

fn figures(from: &mut Cursor) -> Result<Figures, Malformed> {
    Ok(Figures {
        acquisitions: interval(from)?,
        hold_mean_ns: interval(from)?,
        hold_p99_ns: interval(from)?,
        contended_share: interval(from)?,
        wait_ns: interval(from)?,
    })
}

fn put_interval(out: &mut Vec<u8>, i: &Interval) {
    [i.value, i.low, i.high].into_iter().for_each(|number| put_float(out, number));
}

fn interval(from: &mut Cursor) -> Result<Interval, Malformed> {
    Ok(Interval { value: float(from)?, low: float(from)?, high: float(from)? })
}

fn put_float(out: &mut Vec<u8>, number: f64) {
    out.extend(number.to_le_bytes());
}

/// A number that is one, and none below 0.
fn float(from: &mut Cursor) -> Result<f64, Malformed> {
    let (bytes, rest) = from.0.split_first_chunk::<8>().ok_or(Malformed::Truncated)?;
    from.0 = rest;
    let number = f64::from_le_bytes(*bytes);
    if number.is_finite() && number >= 0.0 { Ok(number) } else { Err(Malformed::TooLarge) }
}
