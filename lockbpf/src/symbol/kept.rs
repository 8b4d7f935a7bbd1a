//! Answers that are kept, up to a bound.

use std::collections::HashMap;
use std::hash::Hash;

/// Answers kept; when there are more, all are asked for anew.
const MAX_KEPT: usize = 65_536;

/// Answers by what was asked.
#[derive(Debug)]
pub(super) struct Kept<K, V>(HashMap<K, V>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V> Kept<K, V> {
    /// The answer to a question, which is asked if it is not known.
    pub(super) fn get(&mut self, question: K, ask: impl FnOnce() -> V) -> &V {
        if self.0.len() >= MAX_KEPT && !self.0.contains_key(&question) {
            self.0.clear();
        }
        self.0.entry(question).or_insert_with(ask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_asked_once_until_there_are_too_many() {
        let mut kept = Kept::default();
        let mut asked = 0;
        for question in (0..MAX_KEPT).chain(0..MAX_KEPT) {
            assert_eq!(
                *kept.get(question, || {
                    asked += 1;
                    question
                }),
                question
            );
        }
        assert_eq!((asked, kept.0.len()), (MAX_KEPT, MAX_KEPT));
        kept.get(MAX_KEPT, || 0);
        assert_eq!(kept.0.len(), 1);
    }
}
