//! Optimistic execution of critical sections, as PinCS estimates it: how often executions would conflict, and what a thread
//! would gain that does not wait but executes again after each conflict. [`super::conflicts`] has p_c.

use super::error::{ModelError, checked};

/// Conflict probabilities from here on count as certain.
const CERTAIN: f64 = 1.0 - 1e-12;

/// p: the probability of a conflict with `w_c` other executions at the same time.
///
/// # Errors
/// When `p_c` is no probability, or `w_c` no number of 0 or more.
pub fn conflict(p_c: f64, w_c: f64) -> Result<f64, ModelError> {
    let p_c = share(p_c, "p_c")?;
    let w_c = checked(w_c, || "w_c".to_owned())?;
    // With p_c = 1 and w_c = 0 nothing runs at the same time.
    Ok(if w_c == 0.0 { 0.0 } else { 1.0 - (1.0 - p_c).powf(w_c) })
}

/// What optimistic execution makes of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speedup {
    /// So many times as fast.
    Times(f64),
    /// Each execution would conflict, and so never end: no speed-up, 0.
    ConflictsAlways,
}

impl Speedup {
    /// As a number.
    #[must_use]
    pub fn factor(self) -> f64 {
        match self {
            Self::Times(times) => times,
            Self::ConflictsAlways => 0.0,
        }
    }
}

/// The shares of a thread's time that a section takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Waiting for it.
    pub wait: f64,
    /// Inside of it.
    pub exec: f64,
}

/// speed-up(c, t) for shares of a thread's time and the section's conflict probability.
///
/// # Errors
/// When one of them is no share, or nothing is left of the thread's time.
pub fn speedup(shares: Shares, p: f64) -> Result<Speedup, ModelError> {
    let Some(retries) = retries(shares, p)? else { return Ok(Speedup::ConflictsAlways) };
    let left = 1.0 - shares.wait + retries;
    if left <= 0.0 {
        return Err(ModelError::invalid("f_wait", "the thread does nothing but wait: there is no speed-up to tell"));
    }
    Ok(Speedup::Times(1.0 / left))
}

/// benefit(c, t): the share of the thread's time that would be saved; 0 where optimistic execution would only cost.
///
/// # Errors
/// When one of the numbers is no share.
pub fn benefit(shares: Shares, p: f64) -> Result<f64, ModelError> {
    Ok(retries(shares, p)?.map_or(0.0, |retries| (shares.wait - retries).max(0.0)))
}

/// f_exec · p / (1 − p); `None` where p is 1.
fn retries(shares: Shares, p: f64) -> Result<Option<f64>, ModelError> {
    share(shares.wait, "f_wait")?;
    let exec = share(shares.exec, "f_exec")?;
    let p = share(p, "p_conflict")?;
    Ok((p < CERTAIN).then(|| exec * p / (1.0 - p)))
}

fn share(value: f64, field: &str) -> Result<f64, ModelError> {
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(ModelError::invalid(field, format!("{value} is not between 0 and 1")))
    }
}

/// What a thread would save in all its sections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saved {
    /// E: the thread's time, ns.
    pub time: f64,
    /// Σ benefit over its sections.
    pub benefit: f64,
}

/// occ_eff: the share of all threads' time that would be saved.
///
/// # Errors
/// When a time or a benefit is negative or no number, or there is no time at all.
pub fn efficiency(threads: &[Saved]) -> Result<f64, ModelError> {
    let (mut saved, mut all) = (0.0, 0.0);
    for (i, thread) in threads.iter().enumerate() {
        let time = checked(thread.time, || format!("threads[{i}].time"))?;
        saved += checked(thread.benefit, || format!("threads[{i}].benefit"))? * time;
        all += time;
    }
    if all > 0.0 { Ok(saved / all) } else { Err(ModelError::invalid("threads", "they took no time")) }
}

/// How many times as fast the program would be in the best case.
///
/// # Errors
/// When the efficiency is not in 0 … 1, or is 1.
pub fn best_case(efficiency: f64) -> Result<f64, ModelError> {
    let efficiency = share(efficiency, "occ_eff")?;
    if efficiency >= CERTAIN {
        return Err(ModelError::invalid("occ_eff", "all time would be saved: there is no factor for that"));
    }
    Ok(1.0 / (1.0 - efficiency))
}

/// What observing a section has cost a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overhead {
    /// A: acquisitions.
    pub acquisitions: f64,
    /// w: other executions during a wait, on average.
    pub w_c: f64,
    /// O: what a recorded operation costs, ns.
    pub operation_ns: f64,
}

impl Overhead {
    /// A · (w + 2) · O, ns: to be taken from the time waited for the section, and from the thread's time for each of its
    /// sections.
    #[must_use]
    pub fn ns(&self) -> f64 {
        self.acquisitions * (self.w_c + 2.0) * self.operation_ns
    }
}

/// Wait′ = Wait − A(w + 2)O and E′ = E − Σ A(w + 2)O: a measured time without what observing cost.
///
/// # Errors
/// When more would be taken away than there is: the operation's cost is then not that of this recording.
pub fn corrected(measured_ns: f64, overheads: &[Overhead]) -> Result<f64, ModelError> {
    let cost: f64 = overheads.iter().map(Overhead::ns).sum();
    let cost = checked(cost, || "overhead".to_owned())?;
    if cost > measured_ns {
        let problem = format!("observing is to have cost {cost} ns of {measured_ns} ns: calibrate on this machine");
        return Err(ModelError::invalid("overhead", problem));
    }
    Ok(measured_ns - cost)
}
