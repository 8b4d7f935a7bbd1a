//! Sessions that are written out while their tokio::sync::Mutex is held, across an `.await`.
use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::yield_now;
use tokio::time::sleep;

#[derive(Default)]
struct Sessions {
    open: Mutex<BTreeMap<u64, u64>>,
    hits: Mutex<u64>,
}

impl Sessions {
    async fn touch(&self, key: u64) {
        *self.open.lock().await.entry(key % 1000).or_default() += 1;
    }

    async fn count(&self) {
        *self.hits.lock().await += 1;
    }

    #[inline(never)]
    async fn persist(&self, cured: bool) {
        if cured {
            let copy = self.open.lock().await.clone();
            sleep(Duration::from_millis(2)).await;
            drop(copy);
            return;
        }
        let open = self.open.lock().await; // culprit
        sleep(Duration::from_millis(2)).await;
        drop(open); // culprit
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let cured = std::env::args().nth(1).as_deref() == Some("cured");
    let sessions = Arc::new(Sessions::default());
    let done: Arc<Vec<AtomicU64>> = Arc::new((0..128).map(|_| AtomicU64::new(0)).collect());
    for worker in 0..8 {
        let (sessions, done) = (Arc::clone(&sessions), Arc::clone(&done));
        tokio::spawn(async move {
            for key in 0.. {
                let mut x: u64 = key;
                for _ in 0..8000 {
                    x = std::hint::black_box(x.wrapping_mul(6364136223846793005) + 1);
                }
                sessions.count().await;
                sessions.touch(x).await;
                done[worker * 16].fetch_add(1, Relaxed);
                yield_now().await;
            }
        });
    }
    let persisting = Arc::clone(&sessions);
    tokio::spawn(async move {
        loop {
            persisting.persist(cured).await;
            sleep(Duration::from_micros(300)).await;
        }
    });
    println!("ready lock={:p}+{}", &sessions.open, std::mem::size_of_val(&sessions.open));
    let lines = tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lock().lines() {
            if line.unwrap().starts_with('n') {
                println!("{}", done.iter().map(|done| done.load(Relaxed)).sum::<u64>());
            }
        }
    });
    lines.await.unwrap();
}
