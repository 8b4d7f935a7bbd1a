//! What the thread that observes shows to those that serve and push. None waits for another one longer than a pointer takes to be put in place.

use super::super::http::is_secret;
use crate::metrics::{Book, Dialect, Own, Pushed, Stacks};
use crate::observe::own;
use crate::render::{FORMATS, Renderer};
use crate::report::profile::Profile;
use crate::units::Nanos;
use anyhow::Result;
use bytes::Bytes;
use nix::sys::resource::UsageWho;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// A snapshot that is so many intervals old is no news.
const STALE: u32 = 10;
/// Nor is one that is this old, however short intervals are.
const LEAST_STALE: Duration = Duration::from_secs(120);
/// What profiles say they are of.
const TARGET: &str = "lockbpf agent";

/// What the last snapshot said.
#[derive(Default)]
pub(super) struct Published {
    book: Book,
    stacks: Stacks,
    /// When that was, ns since 1970 (UTC); 0 for never.
    pub(super) snapshot_ns: u64,
    profiles: [OnceLock<Bytes>; 2],
}

/// One of the two profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Stacks of those who waited.
    Block,
    /// Stacks of those to blame.
    Mutex,
}

impl Side {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Block, Self::Mutex];

    /// What Go's runtime calls it, and whoever reads its profiles.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Mutex => "mutex",
        }
    }
}

/// One side of a profile in pprof's format, gzipped.
pub(super) fn pprof(side: Side, profile: &Profile) -> Vec<u8> {
    let name = format!("pprof-{}", side.name());
    let format = FORMATS.iter().find(|format| format.name == name);
    let mut bytes = Vec::new();
    if let Some(Renderer::Profile(write) | Renderer::Timed(write)) = format.map(|format| format.renderer) {
        // Memory takes everything.
        let _ = write(profile, &mut bytes);
    }
    bytes
}

impl Published {
    /// Will show this.
    pub(super) fn new(book: Book, stacks: Stacks, snapshot_ns: u64) -> Self {
        Self { book, stacks, snapshot_ns, profiles: Default::default() }
    }

    /// All waiting by stack.
    pub(super) fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// A profile, made when it is first asked for.
    fn profile(&self, side: Side, started_ns: u64) -> Bytes {
        let make = || {
            let lasted = self.snapshot_ns.saturating_sub(started_ns);
            Bytes::from(pprof(side, &self.stacks.profile(TARGET, Some(started_ns), lasted)))
        };
        self.profiles[side as usize].get_or_init(make).clone()
    }
}

/// What all threads know.
pub(super) struct Shared {
    published: Mutex<Arc<Published>>,
    token: Mutex<Option<String>>,
    stale: Mutex<Duration>,
    fault: Mutex<Option<String>>,
    requests: Mutex<BTreeMap<u16, u64>>,
    pushed: Mutex<BTreeMap<&'static str, Pushed>>,
    started_ns: u64,
    /// CPU time that was told last.
    cpu_ns: AtomicU64,
}

impl Shared {
    /// Nothing to show yet.
    pub(super) fn new(token: Option<String>, interval: Duration) -> Self {
        Self {
            published: Mutex::default(),
            token: Mutex::new(token),
            stale: Mutex::new(stale(interval)),
            fault: Mutex::new(Some("the observation has not begun".to_owned())),
            requests: Mutex::default(),
            pushed: Mutex::default(),
            started_ns: own::wall_ns(),
            cpu_ns: AtomicU64::new(0),
        }
    }

    /// Another token, and another interval between snapshots.
    pub(super) fn set(&self, token: Option<String>, interval: Duration) {
        *lock(&self.token) = token;
        *lock(&self.stale) = stale(interval);
    }

    /// Shows this from now on.
    pub(super) fn publish(&self, published: Published) {
        *lock(&self.published) = Arc::new(published);
    }

    /// Whether an observation goes on, or why not.
    pub(super) fn observing(&self, fault: Option<String>) {
        *lock(&self.fault) = fault;
    }

    /// What is shown.
    pub(super) fn published(&self) -> Arc<Published> {
        lock(&self.published).clone()
    }

    /// Whether a request with this `Authorization` header may read.
    pub(super) fn admits(&self, authorization: Option<&[u8]>) -> bool {
        let token = lock(&self.token);
        let Some(token) = token.as_deref() else { return true };
        let given = authorization.and_then(|given| given.strip_prefix(b"Bearer ")).unwrap_or_default();
        is_secret(given, token.as_bytes())
    }

    /// Counts an answer.
    pub(super) fn answered(&self, status: u16) {
        *lock(&self.requests).entry(status).or_default() += 1;
    }

    /// Counts what becomes of batches for a destination.
    pub(super) fn pushed(&self, destination: &'static str, change: impl FnOnce(&mut Pushed)) {
        let mut pushed = lock(&self.pushed);
        change(pushed.entry(destination).or_insert_with(|| Pushed { destination, ..Pushed::default() }));
    }

    /// All metrics.
    pub(super) fn metrics(&self, dialect: Dialect) -> Bytes {
        let published = self.published();
        Bytes::from(published.book.expose(&self.own(&published), dialect))
    }

    /// All metrics as they are at this moment, ns since 1970, told by this one, for a server of OpenTelemetry's.
    pub(super) fn otlp_request(&self, teller: &[(&str, &str)], at_ns: u64) -> Vec<u8> {
        let published = self.published();
        published.book.otlp_request(&self.own(&published), teller, at_ns)
    }

    fn own(&self, published: &Published) -> Own {
        let cpu = |who| own::cpu(who).unwrap_or_default();
        let helpers: Nanos = own::helpers().map(|(_, used)| used).sum();
        let used = cpu(UsageWho::RUSAGE_SELF) + cpu(UsageWho::RUSAGE_CHILDREN) + helpers;
        // A helper that ends just now is counted twice, or not at all; a counter never falls.
        let used = used.max(Nanos(self.cpu_ns.fetch_max(used.0, Ordering::Relaxed)));
        Own {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cpu: used,
            resident_bytes: own::resident_bytes(),
            started_ns: self.started_ns,
            snapshot_ns: published.snapshot_ns,
            fault: lock(&self.fault).clone(),
            requests: lock(&self.requests).iter().map(|(status, &n)| (status.to_string(), n)).collect(),
            pushed: lock(&self.pushed).values().cloned().collect(),
        }
    }

    /// A profile, gzipped.
    pub(super) fn profile(&self, side: Side) -> Bytes {
        self.published().profile(side, self.started_ns)
    }

    /// Nothing if all is well.
    ///
    /// # Errors
    /// What is not.
    pub(super) fn health(&self) -> Result<(), String> {
        if let Some(fault) = &*lock(&self.fault) {
            return Err(format!("nothing is observed: {fault}"));
        }
        let last = self.published().snapshot_ns.max(self.started_ns);
        let age = Duration::from_nanos(own::wall_ns().saturating_sub(last));
        if age > *lock(&self.stale) {
            return Err(format!("the last snapshot is {} s old", age.as_secs()));
        }
        Ok(())
    }
}

fn stale(interval: Duration) -> Duration {
    (interval * STALE).max(LEAST_STALE)
}

/// The value, whatever became of others who held it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_opens() {
        let shared = Shared::new(Some("0123456789abcdef".to_owned()), Duration::from_secs(10));
        assert!(shared.admits(Some(b"Bearer 0123456789abcdef")));
        for wrong in
            [None, Some(&b""[..]), Some(b"Bearer "), Some(b"Bearer 0123456789abcdeF"), Some(b"0123456789abcdef")]
        {
            assert!(!shared.admits(wrong), "{wrong:?}");
        }
        shared.set(None, Duration::from_secs(10));
        assert!(shared.admits(None));
    }

    #[test]
    fn health_is_that_of_the_observation() {
        let shared = Shared::new(None, Duration::from_secs(10));
        assert!(shared.health().unwrap_err().starts_with("nothing is observed"));
        shared.observing(None);
        assert_eq!(shared.health(), Ok(()));
        let text = String::from_utf8(shared.metrics(Dialect::Plain).to_vec()).unwrap();
        assert!(text.contains("\nlockbpf_up 1\n"), "{text}");
        assert_eq!(&shared.profile(Side::Block)[..2], b"\x1f\x8b");
    }
}
