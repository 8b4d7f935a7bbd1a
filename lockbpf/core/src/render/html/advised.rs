//! What a page shows of advice: what to do, on which evidence, and what could make it wrong.

use crate::advice::{Advice, Item, sampled};
use serde::Serialize;

/// Advice, cut to what a page shows.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Advised<'a> {
    /// What it rests upon, in a sentence.
    sampled: String,
    /// As `lockbpf advise` tells it, in its order.
    items: &'a [Item],
    /// Further ones.
    left_out: usize,
    /// What could make all of it wrong.
    cautions: &'a [String],
}

impl<'a> Advised<'a> {
    /// At most so many pieces of advice.
    pub(super) fn of(advice: &'a Advice, most: usize) -> Self {
        let items = &advice.advice[..advice.advice.len().min(most)];
        Self {
            sampled: sampled(advice),
            items,
            left_out: advice.advice.len() - items.len(),
            cautions: &advice.cautions,
        }
    }
}
