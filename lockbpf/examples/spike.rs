#![allow(missing_docs)]
use lockbpf::capture::{attach::ProbeSite, probe_table::FUNCTIONS, session::*};
use std::time::Duration;
fn main() {
    env_logger::init();
    let pid: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    let entry = std::env::args().nth(2).as_deref() == Some("entry");
    let off = [
        (0x8c370u64, 14),
        (0x8d220, 0),
        (0x8d210, 5),
        (0x8d1f0, 3),
        (0x8dd50, 5),
        (0x883f0, 0),
        (0x886a0, 0),
        (0x88990, 0),
    ];
    let sites: Vec<_> = FUNCTIONS
        .iter()
        .zip(off)
        .map(|(f, (a, o))| ProbeSite {
            path: "/lib/x86_64-linux-gnu/libc.so.6".into(),
            display: "libc".into(),
            function: f,
            file_offset: a + if entry { 0 } else { o },
        })
        .collect();
    let o = Options {
        scope: Scope::Pids(vec![pid]),
        comm: None,
        tids: vec![],
        all_events: std::env::var("ALL").is_ok(),
        min_wait: Duration::ZERO,
        kernel_log: true,
        task_offsets: (10624 / 8, 12480 / 8),
        tracefs: std::path::Path::new("/sys/kernel/tracing/events").exists(),
    };
    let t = std::time::Instant::now();
    let mut s = match Session::start(&o, &sites) {
        Ok(s) => s,
        Err(e) => {
            let mut e: &dyn std::error::Error = &e;
            loop {
                eprintln!("{e}");
                match e.source() {
                    Some(x) => e = x,
                    None => break,
                }
            }
            std::process::exit(1)
        }
    };
    eprintln!("started in {:?}, probes {} tier {:?}", t.elapsed(), s.probe_count(), s.futex_tier());
    eprintln!("{:?}", s.mechanism());
    if std::env::var("IDLE").is_err() {
        s.activate().unwrap();
    }
    let mut n = 0;
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(100));
        s.drain(|(e, _)| {
            n += 1;
            if n < 20 {
                println!("{e:?}")
            }
        });
    }
    let end = s.deactivate().unwrap();
    s.drain(|_| n += 1);
    let h = s.harvest(end).unwrap();
    println!("events {n}");
    for x in &h.sums {
        println!(
            "{:?} {:?} {:?} acq {} cont {} wait {} hold {} fails {} to {} err {} wakes {}/{}",
            x.lock,
            x.site,
            x.via,
            x.sums.acquisitions,
            x.sums.contended,
            x.sums.wait_ns,
            x.sums.hold_ns / x.sums.acquisitions.max(1),
            x.sums.try_failures,
            x.sums.timeouts,
            x.sums.errors,
            x.sums.wakes,
            x.sums.wakes_of_none
        );
    }
    for x in &h.threads {
        println!("{x:?}");
    }
    println!("{:?} {:?} stacks {}", h.quality, h.open_waits, h.stacks.len());
    let t = std::time::Instant::now();
    drop(s);
    eprintln!("detached in {:?}", t.elapsed());
}
