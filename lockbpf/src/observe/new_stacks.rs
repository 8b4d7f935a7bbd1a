//! Stacks that are read at the end of an observation.

use crate::id::StackId;
use crate::observation::Harvest;
use std::collections::HashMap;

/// Stacks that are read at the end, numbered beyond those of the harvest.
pub(crate) struct NewStacks {
    numbers: HashMap<Vec<u64>, StackId>,
    free: Option<u32>,
}

impl NewStacks {
    /// None yet.
    pub(crate) fn beyond(harvest: &Harvest) -> Self {
        let free = harvest.stacks.keys().map(|id| id.0).max().map_or(Some(0), |last| last.checked_add(1));
        Self { numbers: HashMap::new(), free }
    }

    /// The number of a stack; `None` if it is empty, or there are no numbers any more.
    pub(crate) fn number(&mut self, stack: Vec<u64>) -> Option<StackId> {
        if stack.is_empty() {
            return None;
        }
        if let Some(&known) = self.numbers.get(&stack) {
            return Some(known);
        }
        let number = StackId(self.free?);
        self.free = number.0.checked_add(1);
        self.numbers.insert(stack, number);
        Some(number)
    }

    /// Puts them to the others.
    pub(crate) fn put_into(self, harvest: &mut Harvest) {
        harvest.stacks.extend(self.numbers.into_iter().map(|(stack, number)| (number, stack)));
    }
}
