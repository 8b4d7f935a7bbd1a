//! Waits of one place, as if they were for one lock.

use super::*;
use crate::event::{Event, FutexResult, FutexWait, Wake, Weight};
use crate::graph::WaitsAtPlace;

/// Where threads wait.
const PLACE: u64 = 0x700;

fn word_of(tid: u32) -> Lock {
    lock(0x1000 + 0x40 * u64::from(tid))
}

/// A thread sleeps on a word of its own, until another wakes it, which does so at a place of its own.
fn slept(tid: u32, from: u64, to: u64, waker: u32) -> [Event; 2] {
    let wake = Wake {
        time: Time(to),
        since: None,
        watched: Nanos(0),
        word: word_of(tid),
        site: Some(site(u64::from(waker))),
        process: Process(0),
        tid: Tid(waker),
        woken: 1,
        stack: None,
    };
    let wait = FutexWait {
        end: Time(to + 1),
        wait: Nanos(to + 1 - from),
        word: word_of(tid),
        site: Some(site(PLACE)),
        tid: Tid(tid),
        expected: 0,
        owner: None,
        waker: Some(Tid(waker)),
        stack: None,
        result: FutexResult::Slept,
        weight: Weight::default(),
    };
    [Event::Wake(wake), Event::FutexWait(wait)]
}

fn at_place(events: impl IntoIterator<Item = Event>) -> WaitsAtPlace {
    let mut graph = WaitGraph::default();
    events.into_iter().for_each(|event| graph.event(&event));
    graph.finish(Time(0), &mut ()).places.remove(&lock(PLACE)).unwrap_or_default()
}

/// What a thread is charged with, ns.
fn charged_to(tid: u64, place: &WaitsAtPlace) -> u64 {
    let who = Who::Released { lock: lock(PLACE), site: site(tid), stack: None };
    place.waits.shares.holders.iter().find(|holder| holder.who == who).map_or(0, |holder| holder.wait.0)
}

/// Threads take turns with a lock, the first of them for 100 ms each time and the others for 10, in the order in which they ask, `rounds` times. One of
/// `unknown` waits has no site.
fn turns(threads: u32, rounds: u64, unknown: u64) -> Vec<Event> {
    let mut events = Vec::new();
    let mut asked = vec![0; threads as usize];
    let mut now = 0;
    for turn in 0..u64::from(threads) * rounds {
        let [holder, next] = [turn, turn + 1].map(|turn| (turn % u64::from(threads)) as u32);
        now += if holder == 0 { 100_000_000 } else { 10_000_000 };
        asked[holder as usize] = now;
        let [wake, mut wait] = slept(next + 1, asked[next as usize], now, holder + 1);
        if let Event::FutexWait(wait) = &mut wait
            && turn % unknown == 1
        {
            wait.site = None;
        }
        events.extend([wake, wait]);
    }
    events
}

#[test]
fn threads_that_take_turns_wait_for_each_that_had_it_meanwhile() {
    let place = at_place(turns(4, 20, 7));
    assert_eq!((place.recorded.count, place.words.len()), (80 - 1, 4), "the first place of a word is not known before");
    assert!(place.is_taken_in_turn() && place.share_in_turn() > 0.9, "{:?}", place.in_turn);
    // Each of three waits for the first once a round, and by its word alone only the next would.
    let (first, second) = (charged_to(1, &place), charged_to(2, &place));
    assert!((5_500_000_000..=6_100_000_000).contains(&first), "{first}");
    assert!((500_000_000..=700_000_000).contains(&second), "{second}");
    let all: Nanos = place.waits.shares.holders.iter().map(|holder| holder.wait).sum();
    assert_eq!(all + place.waits.shares.unattributed, place.waits.waits.time);
}

/// Threads of a pool: whoever is awake wakes another, or goes to sleep until it is woken.
fn pool(threads: u32, steps: u64, mut seed: u64) -> Vec<Event> {
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut awake: Vec<u32> = (1..=threads).collect();
    let mut asleep: Vec<(u32, u64)> = Vec::new();
    let mut events = Vec::new();
    for now in (1..=steps).map(|step| step * 5_000_000) {
        let at = random(awake.len());
        if !asleep.is_empty() && (awake.len() == 1 || random(2) == 0) {
            let (woken, since) = asleep.swap_remove(random(asleep.len()));
            events.extend(slept(woken, since, now, awake[at]));
            awake.push(woken);
        } else if awake.len() > 1 {
            asleep.push((awake.swap_remove(at), now));
        }
    }
    events
}

#[test]
fn threads_of_a_pool_take_no_turns() {
    for seed in 0..20 {
        let place = at_place(pool(6, 4_000, seed));
        assert!(place.recorded.count > 1_000 && !place.is_taken_in_turn(), "{seed}: {}", place.share_in_turn());
    }
}

/// A thread that waits for long where others come and go all the time does not cost as much as all of them.
#[test]
fn a_wait_is_divided_among_so_many_at_most() {
    let mut events = Vec::new();
    for turn in 0..5_000u64 {
        let [waker, woken] = [turn, turn + 1].map(|turn| (turn % 2) as u32 + 1);
        events.extend(slept(woken, turn * 100 + 1, turn * 100 + 100, waker));
    }
    events.extend(slept(9, 0, 600_000, 1));
    let place = at_place(events);
    assert_eq!((place.recorded.count, place.in_turn.count >= 4_990), (5_001, true));
    // It goes to whoever ended it, who gives back at one place, and the rest to both alike.
    let [first, second] = [1, 2].map(|tid| charged_to(tid, &place));
    assert!((599_000..601_000).contains(&(first - second)), "{first} and {second}");
}

#[test]
fn of_few_waits_nothing_is_said() {
    assert!(!at_place(turns(4, 5, 100)).is_taken_in_turn());
}

#[test]
fn words_that_are_known_to_be_locks_are_no_conditions() {
    for expected in [lockbpf_common::layout::CONTENDED_VALUE, lockbpf_common::parking::FOR_LOCK] {
        let mut events = turns(4, 20, 100);
        for event in &mut events {
            if let Event::FutexWait(wait) = event {
                wait.expected = expected;
            }
        }
        assert_eq!(at_place(events).recorded.count, 0);
    }
}
