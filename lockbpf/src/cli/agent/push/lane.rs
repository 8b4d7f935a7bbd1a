//! The way to one destination: what waits for it is sent, the oldest first, and once more until it is taken.

use super::super::super::http::Url;
use super::super::shared::{Shared, lock};
use super::answer::Verdict;
use super::config::{Destination, Protocol};
use super::queue::Queue;
use crate::metrics::Pushed;
use anyhow::Result;
use bytes::Bytes;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// How long after a first failure it is tried again; after each further one twice as long.
const SOON: Duration = Duration::from_secs(1);
/// How long it is waited at most, unless the other side asks for more.
const LATE: Duration = Duration::from_secs(30);
/// How long the other side may ask for.
const LATEST: Duration = Duration::from_secs(60 * 60);
const AGENT: &str = concat!("lockbpf/", env!("CARGO_PKG_VERSION"));

/// The way to a destination.
pub(super) struct Lane {
    protocol: Protocol,
    destination: Destination,
    url: Url,
    queue: Mutex<Queue>,
    shared: Arc<Shared>,
    /// There is something in the queue.
    filled: Notify,
    /// What was said last of what has gone wrong; `None` if nothing has.
    trouble: Mutex<Option<String>>,
    /// Whether a request is under way, or the next one follows at once.
    is_sending: AtomicBool,
}

impl Lane {
    /// With what waits in the destination's directory of these.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub(super) fn open(
        protocol: Protocol,
        destination: &Destination,
        queues: &Path,
        size: u64,
        shared: &Arc<Shared>,
    ) -> Result<Self> {
        let (queue, dropped) = Queue::open(&queues.join(protocol.name()), size)?;
        let lane = Self {
            protocol,
            url: destination.url(protocol),
            destination: destination.clone(),
            queue: Mutex::new(queue),
            shared: shared.clone(),
            filled: Notify::new(),
            trouble: Mutex::new(None),
            is_sending: AtomicBool::new(false),
        };
        lane.count(|pushed| pushed.overflowed += dropped);
        if lane.destination.exposes_token() {
            say!("lockbpf: the token for {} can be read on its way: there is no TLS", lane.url);
        }
        Ok(lane)
    }

    /// How it is sent.
    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Adds a batch, or says why there is none.
    pub(super) fn add(&self, batch: std::io::Result<Vec<u8>>) {
        match batch.and_then(|batch| lock(&self.queue).push(&batch)) {
            Ok(dropped) => {
                self.count(|pushed| pushed.overflowed += dropped);
                self.filled.notify_one();
            }
            Err(error) => {
                self.count(|pushed| pushed.unkept += 1);
                self.say(format!("a batch for {} is lost, since it could not be kept: {error}", self.url));
            }
        }
    }

    /// Whether something is just being sent.
    pub(super) fn is_sending(&self) -> bool {
        self.is_sending.load(Ordering::Relaxed)
    }

    /// Sends what there is, for ever.
    pub(super) async fn deliver(self: Arc<Self>) {
        let mut failures = 0;
        loop {
            let first = lock(&self.queue).first();
            let Some((number, batch)) = first else {
                self.is_sending.store(false, Ordering::Relaxed);
                self.filled.notified().await;
                continue;
            };
            self.is_sending.store(true, Ordering::Relaxed);
            let pause = match batch {
                Ok(batch) => self.settle(number, self.send(batch).await),
                Err(error) => {
                    lock(&self.queue).remove(number);
                    self.count(|pushed| pushed.unkept += 1);
                    self.say(format!("a batch for {} is lost, since it could not be read: {error}", self.url));
                    None
                }
            };
            failures = if pause.is_some() { failures + 1 } else { 0 };
            if let Some(asked) = pause {
                self.is_sending.store(false, Ordering::Relaxed);
                sleep(asked.min(LATEST).max(backoff(failures))).await;
            }
        }
    }

    async fn send(&self, batch: Vec<u8>) -> Verdict {
        let sent = match self.headers() {
            Ok(headers) => self.url.post(headers, Bytes::from(batch)).await.map_err(|error| error.to_string()),
            Err(error) => Err(format!("{error:#}")),
        };
        match sent {
            Ok(reply) => Verdict::of(&reply, self.protocol.is_otlp()),
            Err(why) => Verdict::Again { after: None, why },
        }
    }

    /// Does with a batch as it was decided. Returns for how long the destination wants to be left alone, if it has failed.
    fn settle(&self, number: u64, verdict: Verdict) -> Option<Duration> {
        match verdict {
            Verdict::Taken { rejected, why } => {
                lock(&self.queue).remove(number);
                self.count(|pushed| {
                    pushed.taken += 1;
                    pushed.rejected += rejected;
                });
                if rejected > 0 {
                    // How many changes each time, and would be said each time.
                    self.say(format!(
                        "{} did not accept parts of batches (lockbpf_push_rejected_total): {why}",
                        self.url
                    ));
                } else if lock(&self.trouble).take().is_some() {
                    say!("lockbpf: {} takes batches again", self.url);
                }
                None
            }
            Verdict::Refused { why } => {
                lock(&self.queue).remove(number);
                self.count(|pushed| pushed.refused += 1);
                self.say(format!("{} refused a batch, which is lost: {why}", self.url));
                None
            }
            Verdict::Again { after, why } => {
                lock(&self.queue).keep();
                self.count(|pushed| pushed.failures += 1);
                self.say(format!("{} takes no batches; they wait on the disk: {why}", self.url));
                Some(after.unwrap_or_default())
            }
        }
    }

    fn headers(&self) -> Result<HeaderMap> {
        let mut headers = self.destination.headers()?;
        let mut default = |name, value| _ = headers.entry(name).or_insert(HeaderValue::from_static(value));
        default(USER_AGENT, AGENT);
        if self.protocol.is_otlp() {
            default(CONTENT_TYPE, "application/x-protobuf");
            default(CONTENT_ENCODING, "gzip");
        } else {
            default(CONTENT_TYPE, "application/json");
        }
        Ok(headers)
    }

    /// Says what has gone wrong, unless that was said last.
    fn say(&self, what: String) {
        let mut trouble = lock(&self.trouble);
        if trouble.as_ref() != Some(&what) {
            say!("lockbpf: {what}");
            *trouble = Some(what);
        }
    }

    fn count(&self, change: impl FnOnce(&mut Pushed)) {
        let (queued, queued_bytes) = lock(&self.queue).len();
        self.shared.pushed(self.protocol.name(), |pushed| {
            change(pushed);
            (pushed.queued, pushed.queued_bytes) = (queued, queued_bytes);
        });
    }
}

/// How long after so many failures in a row it is tried again: not at the same moment as others that have failed at the same.
fn backoff(failures: u32) -> Duration {
    let doubled = SOON * 2u32.saturating_pow(failures.saturating_sub(1).min(16));
    doubled.min(LATE).mul_f64(0.75 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_waited_longer_and_longer() {
        for (failures, seconds) in [(1, 1.0), (2, 2.0), (5, 16.0), (6, 30.0), (u32::MAX, 30.0)] {
            for _ in 0..20 {
                let waited = backoff(failures).as_secs_f64();
                assert!(waited >= 0.75 * seconds && waited <= 1.25 * seconds, "{failures}: {waited}");
            }
        }
    }
}
