//! An index that is rebuilt while its parking_lot::Mutex is held.
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

#[derive(Default)]
struct Index {
    terms: Mutex<BTreeMap<u64, u64>>,
    hits: Mutex<u64>,
}

impl Index {
    fn search(&self, term: u64) -> Option<u64> {
        self.terms.lock().get(&(term % 1000)).copied()
    }

    fn count(&self) {
        *self.hits.lock() += 1;
    }

    #[inline(never)]
    fn rebuild(&self, cured: bool) {
        if cured {
            let fresh = (0..50000).map(|term| (term, term)).collect();
            let old = std::mem::replace(&mut *self.terms.lock(), fresh);
            drop(old);
            return;
        }
        let mut terms = self.terms.lock(); // culprit
        *terms = (0..50000).map(|term| (term, term)).collect();
        drop(terms); // culprit
    }
}

fn main() {
    let cured = std::env::args().nth(1).as_deref() == Some("cured");
    let index = Arc::new(Index::default());
    let done: Arc<Vec<AtomicU64>> = Arc::new((0..64).map(|_| AtomicU64::new(0)).collect());
    for worker in 0..3 {
        let (index, done) = (Arc::clone(&index), Arc::clone(&done));
        thread::spawn(move || {
            for key in 0.. {
                let mut x: u64 = key;
                for _ in 0..8000 {
                    x = std::hint::black_box(x.wrapping_mul(6364136223846793005) + 1);
                }
                index.count();
                std::hint::black_box(index.search(x));
                done[worker * 16].fetch_add(1, Relaxed);
            }
        });
    }
    let rebuilding = Arc::clone(&index);
    thread::spawn(move || {
        loop {
            rebuilding.rebuild(cured);
            thread::sleep(Duration::from_micros(300));
        }
    });
    println!("ready lock={:p}+{}", &index.terms, std::mem::size_of_val(&index.terms));
    for line in std::io::stdin().lines() {
        if line.unwrap().starts_with('n') {
            println!("{}", done.iter().map(|done| done.load(Relaxed)).sum::<u64>());
        }
    }
}
