//! Why there is no prediction.

/// Why an input has no prediction; each names the field of the input that is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A field is missing, has the wrong shape, or a value that means nothing.
    #[error("`{field}`: {problem}")]
    Invalid {
        /// The field, as in the input: `locks[2].hold_ns`.
        field: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// An iteration does not settle.
    #[error("`{field}`: no solution after {rounds} rounds; the last one changed by a part of {change}")]
    NoConvergence {
        /// The field that the iteration is for.
        field: String,
        /// Rounds tried.
        rounds: u32,
        /// Relative change in the last round, as text.
        change: String,
    },
}

impl ModelError {
    /// A field is wrong in this way.
    pub(super) fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }
}

/// A number that is a time or a share: finite and not negative.
pub(super) fn checked(value: f64, field: impl Fn() -> String) -> Result<f64, ModelError> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(ModelError::invalid(field(), format!("{value} is not a finite number of 0 or more")))
    }
}
