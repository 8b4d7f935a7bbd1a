//! Where threads wait on words that are no lock's own. Not each record of a wait tells: then it is where another one on that word was made.

use crate::event::{FutexResult, FutexWait};
use crate::id::{Lock, Site};
use lockbpf_common::layout::CONTENDED_VALUE;
use lockbpf_common::parking::is_for_lock;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Words of which the place is remembered.
const MAX_KNOWN: usize = 32_768;

/// By word: where a thread waited on it last.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<FxHashMap<Lock, Site>>);

impl Places {
    /// The wait with its place, and that as a lock, if it may be for one that is made of conditions: another thread ended it.
    pub(super) fn place(&mut self, w: &FutexWait) -> Option<(FutexWait, Lock)> {
        if w.expected == CONTENDED_VALUE || is_for_lock(w.expected) {
            return None;
        }
        let known = self.0.get(&w.word).copied();
        if let Some(site) = w.site.filter(|&site| known != Some(site))
            && (known.is_some() || self.0.len() < MAX_KNOWN)
        {
            Arc::make_mut(&mut self.0).insert(w.word, site);
        }
        let site = w.site.or(known).filter(|_| w.result == FutexResult::Slept && w.waker.is_some())?;
        Some((FutexWait { site: Some(site), ..*w }, site.as_lock()))
    }
}
