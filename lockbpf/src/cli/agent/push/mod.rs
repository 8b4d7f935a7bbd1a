//! Pushes metrics and profiles to servers that do not scrape. A thread of its own makes a batch of what was published now and then, and keeps it on disk until its
//! destination has taken it: so the thread that observes waits neither for the network nor for the disk, and a destination that is away for a
//! while misses nothing.

mod answer;
mod batch;
mod config;
mod lane;
mod queue;

use super::shared::Shared;
use crate::observe::own::wall_ns;
use anyhow::{Context, Result};
use batch::{Batch, Mark};
use caps::CapSet;
pub(super) use config::PushConfig;
use lane::Lane;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

/// How long the end waits for destinations that answer. What they have not taken by then is sent after the next start.
const LAST: Duration = Duration::from_secs(5);
/// How often it is looked meanwhile whether everything is sent.
const LOOK: Duration = Duration::from_millis(20);

/// Pushes until it is dropped, at which it makes a last batch.
pub(super) struct Pusher {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pusher {
    /// Pushes from now on what is seen from now on, and what still waits on the disk; `None` if there is nowhere to push.
    ///
    /// # Errors
    /// When what is to be pushed cannot be kept on the disk.
    pub(super) fn start(config: &PushConfig, shared: &Arc<Shared>) -> Result<Option<Self>> {
        let open = |(protocol, destination)| {
            Lane::open(protocol, destination, &config.queue_dir, config.queue_size, shared).map(Arc::new)
        };
        let lanes: Vec<_> = config.destinations().into_iter().map(open).collect::<Result<_>>()?;
        if lanes.is_empty() {
            return Ok(None);
        }
        let failed = "failed to start what pushes";
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context(failed)?;
        let (stop, stopped) = oneshot::channel();
        let (shared, every) = (shared.clone(), config.interval);
        let mark = Mark::new(&shared, wall_ns());
        let run = move || {
            // As whoever serves, it needs none of the rights by which the others observe.
            for set in [CapSet::Effective, CapSet::Permitted] {
                let _ = caps::clear(None, set);
            }
            runtime.block_on(push(&lanes, &shared, mark, every, stopped));
            // A name that is looked up is left alone.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("push".to_owned()).spawn(run).context(failed)?;
        Ok(Some(Self { stop: Some(stop), thread: Some(thread) }))
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        drop(self.stop.take());
        // It may have failed; there is nothing to be done about that any more.
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

async fn push(
    lanes: &[Arc<Lane>],
    shared: &Shared,
    mut mark: Mark,
    every: Duration,
    mut stopped: oneshot::Receiver<()>,
) {
    let senders: Vec<_> = lanes.iter().map(|lane| tokio::spawn(lane.clone().deliver())).collect();
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_last = tokio::select! {
            _ = ticks.tick() => false,
            _ = &mut stopped => true,
        };
        let (batch, next) = Batch::since(&mark, shared, wall_ns());
        mark = next;
        for lane in lanes {
            if let Some(batch) = batch.encode(lane.protocol()).transpose() {
                lane.add(batch);
            }
        }
        if is_last {
            break;
        }
    }
    let sent = async {
        // Those that sleep see what was added.
        sleep(LOOK).await;
        while lanes.iter().any(|lane| lane.is_sending()) {
            sleep(LOOK).await;
        }
    };
    let _ = timeout(LAST, sent).await;
    senders.iter().for_each(tokio::task::JoinHandle::abort);
}
