//! The way of a record from its bytes to the graph allocates nothing once it has got going: as many records a second as a
//! busy program makes must cost lockbpf next to nothing. A binary of its own, since the allocator counts for all of it.

use lockbpf_common::kind::{Outcome, Via, flag};
use lockbpf_common::off_cpu::{OffCpuFields, OffCpuRecord, Reason};
use lockbpf_common::record::{SectionFields, SectionRecord};
use lockbpf_core::analysis::{Analyst, Options};
use lockbpf_core::decode::decode;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Threads that share a lock, one after the other.
const THREADS: u32 = 4;
/// Locks, each with threads of its own.
const LOCKS: u32 = 50;
/// What a section holds its lock for, ns.
const HOLD_NS: u64 = 100_000;

/// The records of one round: on each lock one section, for which all other threads of the lock wait, and each second
/// holder was away from its CPU meanwhile.
fn round(n: u64, take: &mut impl FnMut(&[u8])) {
    for lock in 0..LOCKS {
        let end_ns = 1_000_000_000 + n * HOLD_NS + u64::from(lock);
        let tid = 100 + lock * THREADS + (n % u64::from(THREADS)) as u32;
        if n.is_multiple_of(2) {
            let off = OffCpuFields {
                end_ns: end_ns - 1_000,
                off_ns: HOLD_NS / 2,
                runnable_ns: 500,
                process: 1,
                tid,
                stack: 7,
                reason: Reason::Sleeping as u8,
            };
            take(&bytes(&OffCpuRecord::pack(&off).0));
        }
        let section = SectionFields {
            end_ns,
            // It has waited while each of the others had its turn.
            wait_ns: HOLD_NS * u64::from(THREADS - 1),
            hold_ns: HOLD_NS - 1_000,
            lock: 0x7000 + u64::from(lock) * 64,
            site: 0x1000 + u64::from(lock % 3) * 16,
            process: 1,
            tid,
            owner: 0,
            waker: 0,
            stack: 3,
            flags: flag::CONTENDED | flag::SLEPT | flag::WAITED_FOR,
            via: Via::Lock as u8,
            outcome: Outcome::Released as u8,
            mutex_kind: 0,
        };
        take(&bytes(&SectionRecord::pack(&section).0));
    }
}

fn bytes<const N: usize>(words: &[u64; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn no_allocation_per_event() {
    // A short way through the sorter, so that the graph is reached from the start.
    let mut analyst = Analyst::new(Options { totals: false, hold_back: 10_000, ..Options::default() });
    let mut rounds = 0;
    let mut measure = |count: u64| {
        let mut records = Vec::new();
        for n in rounds..rounds + count {
            round(n, &mut |record| records.push(record.to_vec()));
        }
        rounds += count;
        let (region, began) = (Region::new(ALLOCATOR), Instant::now());
        for record in &records {
            let (event, _) = decode(record.as_slice()).expect("a record that cannot be decoded");
            analyst.take(event);
        }
        let change = region.change();
        (records.len(), change.allocations + change.reallocations, began.elapsed())
    };
    measure(4_000);
    let (records, allocations, time) = measure(4_000);
    let each = time.as_nanos() as f64 / records as f64;
    println!("{records} records, {allocations} allocations, {each:.0} ns each");
    assert!(allocations * 1_000 < records, "{allocations} allocations for {records} records");
}
