//! For whom a function locks that does so for several callers.

use super::place::Place;
use super::value::Ns;
use serde::{Deserialize, Serialize};

/// A caller of this part of a section's waiting is the only one to name.
const DOMINATES: f64 = 0.5;

/// The callers of a critical section that has several, by the waiting that they caused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallersEntry {
    /// Functions that were seen to call, also those that caused no waiting.
    pub functions: u64,
    /// The part of the section's waiting of which the caller is known: it has a stack.
    pub known_ns: Ns,
    /// Those that caused most, the most harmful first.
    pub most: Vec<CallerEntry>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallerEntry {
    /// Where it calls; of several places in one function, the one that caused most.
    #[serde(flatten)]
    pub place: Place,
    /// Waiting that it caused.
    pub wait_ns: Ns,
    /// Part of all the section's waiting, whether its caller is known or not.
    pub share: f64,
}

impl CallersEntry {
    /// The caller that has caused half of the section's waiting or more, if one has.
    #[must_use]
    pub fn dominating(&self) -> Option<&CallerEntry> {
        self.most.first().filter(|caller| caller.share >= DOMINATES)
    }
}

impl CallerEntry {
    /// What it is called in texts.
    #[must_use]
    pub fn name(&self) -> &str {
        self.place.function.as_deref().unwrap_or(&self.place.symbol)
    }
}
