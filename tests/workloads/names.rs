//! names: Rust's own mutexes, two of them contended, so that they are seen at all. Prints the names that they should get as
//! `truth.h` describes.
use std::io::{Read, Write};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

pub struct Shard {
    pub hits: u64,
    pub lock: Mutex<Vec<u8>>,
}
pub struct Cache {
    pub name: [u8; 24],
    pub shards: [Shard; 3],
}
const SHARD: Shard = Shard { hits: 0, lock: Mutex::new(Vec::new()) };
pub static CACHE: Cache = Cache { name: [0; 24], shards: [SHARD, SHARD, SHARD] };

fn local() -> &'static Mutex<Vec<u8>> {
    static LOCAL: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    &LOCAL
}

/// Two threads, of which one waits for the other.
fn contend(lock: &Mutex<Vec<u8>>) {
    for _ in 0..5 {
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut held = lock.lock().unwrap();
                both.wait();
                std::thread::sleep(Duration::from_millis(5));
                held.push(1);
            });
            both.wait();
            lock.lock().unwrap().push(2);
        });
    }
}

fn main() {
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_exact(&mut [0]).unwrap();
    contend(&CACHE.shards[1].lock);
    contend(local());
    let lock = |name: &str| {
        format!(
            "{{\"symbol\":\"{name}\",\"addr\":\"\",\"acquisitions\":10,\"contended\":5,\"try_failures\":0,\"timeouts\":0,\
             \"errors\":0,\"call_ns\":0,\"hold_ns\":0,\"span_ns\":0,\"wait_min_ns\":0}}"
        )
    };
    println!(
        "{{\"workload\":\"names\",\"pid\":{},\"threads\":[],\"facts\":{{}},\"locks\":[{},{}]}}",
        std::process::id(),
        lock("names::CACHE.shards[1].lock"),
        lock("names::local::LOCAL")
    );
}
