//! Other locks in place of those that a model has.

use super::calibration::{Calibration, Figure};
use super::error::ModelError;
use super::schema::{Algorithm, Input, Overhead};
use std::fmt;
use std::str::FromStr;

/// What a lock is to be replaced by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum With {
    /// A queue delegation lock whose threads do not wait for what they have delegated.
    Qd,
    /// A queue delegation lock whose threads wait for what they have delegated.
    QdWait,
    /// A pthread mutex.
    Mutex,
    /// Mellor-Crummey and Scott's queue lock.
    Mcs,
    /// A ticket lock.
    Ticket,
    /// A spin lock, which whoever sees first that it is free takes.
    Spin,
    /// So many locks of equal use.
    Sharded(u32),
    /// A reader–writer lock; the share of sections that only read, if it is not known from the recording.
    Rwlock(Option<f64>),
}

impl With {
    /// Every sort of lock that needs nothing but a calibration and what a recording tells.
    pub const ALL: [Self; 7] =
        [Self::Mutex, Self::Rwlock(None), Self::Spin, Self::Ticket, Self::Mcs, Self::QdWait, Self::Qd];

    /// Whether the share of the sections that only read has to be known for it, and is not known of one of these locks.
    #[must_use]
    pub fn lacks_reads(self, input: &Input, locks: &[usize]) -> bool {
        let unknown = |&i: &usize| input.locks.get(i).is_some_and(|lock| lock.read_share.is_none());
        self == Self::Rwlock(None) && locks.iter().any(unknown)
    }
}

impl fmt::Display for With {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Qd => f.write_str("qd"),
            Self::QdWait => f.write_str("qd-wait"),
            Self::Mutex => f.write_str("mutex"),
            Self::Mcs => f.write_str("mcs"),
            Self::Ticket => f.write_str("ticket"),
            Self::Spin => f.write_str("spin"),
            Self::Sharded(k) => write!(f, "sharded:{k}"),
            Self::Rwlock(None) => f.write_str("rwlock"),
            Self::Rwlock(Some(share)) => write!(f, "rwlock:{}%", share * 100.0),
        }
    }
}

impl FromStr for With {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("qd", None) => Ok(Self::Qd),
            ("qd-wait", None) => Ok(Self::QdWait),
            ("mutex", None) => Ok(Self::Mutex),
            ("mcs", None) => Ok(Self::Mcs),
            ("ticket", None) => Ok(Self::Ticket),
            ("spin", None) => Ok(Self::Spin),
            ("rwlock", None) => Ok(Self::Rwlock(None)),
            ("rwlock", Some(share)) => percent(share).map(|share| Self::Rwlock(Some(share))),
            ("sharded", Some(k)) => match k.parse() {
                Ok(k) if k >= 1 => Ok(Self::Sharded(k)),
                _ => Err(format!("`{k}` is no number of locks")),
            },
            _ => {
                Err("not one of qd, qd-wait, mutex, mcs, ticket, spin, sharded:K, rwlock, rwlock:SHARE% (of sections that only read)"
                    .to_owned())
            }
        }
    }
}

/// `80%` or `0.8` as a share of 1.
///
/// # Errors
/// When it is none.
pub fn percent(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(number) => number.trim().parse::<f64>().map(|n| n / 100.0),
        None => text.parse(),
    };
    share
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("`{text}` is no share from 0 % to 100 %"))
}

/// Replaces these locks of a model.
///
/// # Errors
/// When a figure is missing that the other lock needs.
pub fn replace(
    input: &mut Input,
    locks: &[usize],
    with: With,
    machine: Option<&Calibration>,
) -> Result<(), ModelError> {
    for bound in &mut input.bounds {
        replace_one(bound, locks, with, machine)?;
    }
    replace_one(input, locks, with, machine)?;
    if let (With::Mutex | With::Rwlock(_), Some(machine)) = (with, machine) {
        sleep(input, locks, machine);
    }
    Ok(())
}

/// Makes locks of the C library be slept for as long as was measured. The slower bound of the model has the upper quartile of that, the faster one the
/// lower quartile.
fn sleep(input: &mut Input, locks: &[usize], machine: &Calibration) {
    let set = |input: &mut Input, at: fn(&Figure) -> f64| {
        for &i in locks {
            if let Some(lock) = input.locks.get_mut(i) {
                lock.sleep = Some(machine.sleep(at));
            }
        }
    };
    if input.bounds.is_empty() {
        input.bounds = vec![input.clone(), input.clone()];
    }
    set(input, |figure| figure.median_ns);
    let ends: [fn(&Figure) -> f64; 2] = [|figure| figure.high_ns, |figure| figure.low_ns];
    input.bounds.iter_mut().zip(ends).for_each(|(bound, at)| set(bound, at));
}

fn replace_one(
    input: &mut Input,
    locks: &[usize],
    with: With,
    machine: Option<&Calibration>,
) -> Result<(), ModelError> {
    let uncalibrated = |field: &str| {
        ModelError::invalid(field, "it has not been measured on this machine: run `lockbpf calibrate` first")
    };
    if with == With::Qd && input.detached_overhead_ns.is_none() {
        let machine = machine.ok_or_else(|| uncalibrated("detached_overhead_ns"))?;
        input.detached_overhead_ns = Some(machine.qd_detached.median_ns);
    }
    if matches!(with, With::Qd | With::QdWait)
        && (input.lock_overhead_ns.is_none() || input.delegation_overhead_ns.is_empty())
    {
        let machine = machine.ok_or_else(|| uncalibrated("lock_overhead_ns"))?;
        input.lock_overhead_ns = Some(machine.qd_lock_overhead.median_ns);
        input.delegation_overhead_ns = machine.qd_delegation.iter().map(|figure| figure.median_ns).collect();
    }
    for &i in locks {
        let Some(lock) = input.locks.get_mut(i) else { continue };
        let table = |of: fn(&Calibration) -> &Vec<_>| machine.map(of).map(|table| Calibration::overhead(table));
        let needed = |table: Option<Overhead>| table.ok_or_else(|| uncalibrated(&format!("locks[{i}].overhead_ns")));
        let algorithm = match with {
            With::Qd => Algorithm::Qd,
            With::QdWait => Algorithm::QdWait,
            With::Mutex => {
                if let Some(overhead) = table(|m| &m.mutex) {
                    lock.overhead_ns = overhead;
                }
                Algorithm::Mutex
            }
            With::Mcs => {
                lock.overhead_ns = needed(table(|m| &m.mcs))?;
                Algorithm::Mutex
            }
            With::Ticket => {
                lock.overhead_ns = needed(table(|m| &m.ticket))?;
                Algorithm::Mutex
            }
            With::Spin => {
                lock.overhead_ns = needed(table(|m| &m.spin))?;
                Algorithm::Mutex
            }
            With::Sharded(k) => {
                lock.shards = Some(k);
                continue;
            }
            With::Rwlock(share) => {
                lock.read_share = share.or(lock.read_share);
                if let Overhead::ByWaiters(table) = &lock.overhead_ns {
                    // Only the uncontended overhead is known of it.
                    lock.overhead_ns = Overhead::Constant(table.first().copied().unwrap_or(0.0));
                }
                Algorithm::Rwlock
            }
        };
        if !matches!(with, With::Mutex | With::Rwlock(_)) {
            lock.sleep = None;
        }
        lock.spins = matches!(with, With::Mcs | With::Ticket | With::Spin);
        lock.in_turn = matches!(with, With::Mcs | With::Ticket);
        lock.algorithm = Some(algorithm);
    }
    Ok(())
}
