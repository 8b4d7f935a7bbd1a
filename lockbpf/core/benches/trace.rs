//! How fast traces are written and read, and how many bytes an event takes.
#![allow(missing_docs, reason = "criterion's macros make functions without any")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lockbpf_core::event::{Event, Outcome, Section, Via, flag};
use lockbpf_core::id::{Lock, Process, Site, StackId, Tid};
use lockbpf_core::names::{Frame, Names};
use lockbpf_core::observation::Harvest;
use lockbpf_core::trace::{Compression, Header, Reader, Writer};
use lockbpf_core::units::{Nanos, Time};
use std::hint::black_box;

/// Events in a trace.
const EVENTS: u64 = 1_000_000;

/// A number that looks random: the same for the same `n`.
fn scatter(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    (n ^ (n >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d) >> 33
}

/// As a busy server makes them: 16 threads, 64 locks, 24 places, waits of microseconds and now and then of more; one in
/// four waited, and knows for whom and who woke it.
fn events() -> Vec<Event> {
    let process = Process(1);
    let mut end = 1_000_000_000_000;
    let section = |n: u64| {
        end += scatter(n) % 20_000;
        let waited = scatter(n + 1).is_multiple_of(4);
        let thread = |k: u64| Tid(4_000 + (scatter(n + k) % 16) as u32);
        let place = scatter(n + 2) % 24;
        Event::Section(Section {
            end: Time(end),
            wait: Nanos(if waited { 1 << (scatter(n + 3) % 22) } else { 0 }),
            hold: Nanos(scatter(n + 4) % 30_000),
            lock: Lock { process, addr: 0x7f00_0000_0000 + scatter(n + 5) % 64 * 40 },
            site: Site { process, addr: 0x5555_0000_1000 + place * 77 },
            tid: thread(6),
            process,
            owner: waited.then(|| thread(7)),
            waker: waited.then(|| thread(8)),
            stack: Some(StackId(place as u32)),
            flags: if waited { flag::CONTENDED } else { flag::WAITED_FOR },
            via: Via::Lock,
            outcome: Outcome::Released,
            mutex_kind: 0,
        })
    };
    (0..EVENTS).map(section).collect()
}

struct Nameless;

impl Names for Nameless {
    fn frames(&mut self, _: Process, addr: u64) -> Vec<Frame> {
        vec![Frame { addr, ..Frame::default() }]
    }

    fn global(&mut self, _: Lock) -> Option<String> {
        None
    }

    fn call_stack(&mut self, _: Process, raw: &[u64], _: Option<u64>) -> Vec<u64> {
        raw.to_vec()
    }
}

fn write(events: &[Event], compression: Compression) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &Header::default(), compression).expect("memory takes everything");
    for event in events {
        writer.event(event).expect("memory takes everything");
    }
    writer.finish(&Harvest::default(), &mut Nameless, Time(0)).expect("memory takes everything").0
}

fn benches(c: &mut Criterion) {
    let events = events();
    let mut group = c.benchmark_group("trace");
    group.throughput(Throughput::Elements(EVENTS)).sample_size(10);
    for (name, compression) in [("plain", Compression::None), ("zstd", Compression::Zstd)] {
        let trace = write(&events, compression);
        println!("{name}: {:.2} bytes an event", trace.len() as f64 / EVENTS as f64);
        group.bench_function(format!("write {name}"), |b| b.iter(|| write(black_box(&events), compression).len()));
        group.bench_function(format!("read {name}"), |b| {
            b.iter(|| Reader::new(black_box(&trace[..])).map(|reader| reader.filter(Result::is_ok).count()));
        });
    }
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
