//! The first check of a model: what it predicts for the recording that it was made of.

use super::error::ModelError;
use super::predict::widened;
use super::schema::{Check, Input};
use crate::report::text::{counted, rate};

/// Predicts a recording from the model that was made of it, before anything in it is changed; `None` if it is of no recording.
///
/// # Errors
/// When the model means nothing or has no solution.
pub fn check(input: &Input) -> Result<Option<Check>, ModelError> {
    let Some(recorded) = input.recorded else { return Ok(None) };
    let points = widened(&Input { threads: vec![recorded.threads], ..input.clone() })?;
    Ok(points.first().map(|point| Check {
        recorded,
        predicted_per_ns: point.throughput_per_ns,
        predicted_interval_per_ns: point.throughput_interval_per_ns,
    }))
}

/// In a sentence.
pub(super) fn sentence(check: &Check) -> String {
    let Check { recorded, predicted_per_ns, predicted_interval_per_ns: [low, high] } = *check;
    let threads = counted(u64::from(recorded.threads), "thread");
    let observer = if recorded.without_observer { "unobserved" } else { "what observing cost included" };
    let known = match (recorded.estimated_per_ns, recorded.estimated_interval_per_ns) {
        (Some(estimated), Some([low, high])) => {
            format!("{} ({} – {}) estimated outside of windows", rate(estimated), rate(low), rate(high))
        }
        _ => "unobserved throughput not measured, since all of it was observed".to_owned(),
    };
    format!(
        "Check: {threads} as recorded: {} ({} – {}) lock operations a second predicted, {observer}; {known}; {} in the observed time.",
        rate(predicted_per_ns),
        rate(low),
        rate(high),
        rate(recorded.observed_per_ns)
    )
}
