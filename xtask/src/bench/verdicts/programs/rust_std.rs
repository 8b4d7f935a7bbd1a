//! A store whose log is synced while its std::sync::Mutex is held.
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

struct Store {
    rows: Mutex<HashMap<u64, u64>>,
    stats: Mutex<u64>,
    log: File,
    cured: bool,
}

impl Store {
    fn put(&self, key: u64) {
        let mut rows = self.rows.lock().unwrap();
        *rows.entry(key % 1000).or_default() += 1;
    }

    fn count(&self) {
        *self.stats.lock().unwrap() += 1;
    }

    fn sync(&self) {
        for _ in 0..8 {
            (&self.log).write_all(&[1; 4096]).unwrap();
            self.log.sync_data().unwrap();
        }
    }

    #[inline(never)]
    fn compact(&self) {
        let mut rows = self.rows.lock().unwrap(); // culprit
        if !self.cured {
            self.sync();
        }
        rows.clear();
        drop(rows); // culprit
        if self.cured {
            self.sync();
        }
    }
}

fn main() {
    let cured = std::env::args().nth(1).as_deref() == Some("cured");
    let path = std::env::temp_dir().join(format!("verdict-{}", std::process::id()));
    let log = File::create(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let store = Arc::new(Store { rows: Mutex::default(), stats: Mutex::default(), log, cured });
    let done: Arc<Vec<AtomicU64>> = Arc::new((0..64).map(|_| AtomicU64::new(0)).collect());
    for worker in 0..3 {
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        thread::spawn(move || {
            for key in 0.. {
                let mut x: u64 = key;
                for _ in 0..8000 {
                    x = std::hint::black_box(x.wrapping_mul(6364136223846793005) + 1);
                }
                store.count();
                store.put(x);
                done[worker * 16].fetch_add(1, Relaxed);
            }
        });
    }
    let compacting = Arc::clone(&store);
    thread::spawn(move || {
        loop {
            compacting.compact();
            thread::sleep(Duration::from_micros(200));
        }
    });
    println!("ready lock={:p}+{}", &store.rows, std::mem::size_of_val(&store.rows));
    for line in std::io::stdin().lines() {
        if line.unwrap().starts_with('n') {
            println!("{}", done.iter().map(|done| done.load(Relaxed)).sum::<u64>());
        }
    }
}
