//! Patterns of waiting that have names, each beside something that looks alike.

use super::*;
use crate::analysis::{Analyst, Closing, Options as Analysis};
use crate::observation::Observation;
use crate::op::{Action, Arrival, Op, Round};
use crate::report::schema::Evidence;
use crate::sums::SiteSums;

const LOCK: u64 = 0x1000;
const CONDITION: u64 = 0x1800;
const US: u64 = 1_000;

/// A thread that asks again so long after it has given the lock back, and holds it so long, ns.
type Thread = (u64, u64);

/// Who gets a lock that is given back.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    /// Who has waited longest, so long after it was given back.
    InTurn(u64),
    /// Who had it last, if it asks again within this time; else who has waited longest.
    LastAgain(u64),
}

/// Sections of one lock that end by a time, in the order of their ends.
fn sections(threads: &[Thread], next: Next, until: u64) -> Vec<Section> {
    let mut asks: Vec<u64> = (0..threads.len() as u64).collect();
    let (mut free, mut last, mut made) = (0, None::<usize>, Vec::new());
    while free < until {
        let first = (0..asks.len()).min_by_key(|&i| asks[i]).unwrap();
        let (thread, late) = match (next, last) {
            (Next::LastAgain(within), Some(last)) if asks[last] <= free + within => (last, 0),
            (Next::LastAgain(late) | Next::InTurn(late), _) => (first, late),
        };
        let acquire = if asks[thread] < free { free + late } else { asks[thread] };
        let (think, hold) = threads[thread];
        let release = acquire + hold;
        if release > until {
            break;
        }
        made.push(Section {
            end: Time(release),
            wait: Nanos(acquire - asks[thread]),
            hold: Nanos(hold),
            flags: if acquire > asks[thread] { flag::CONTENDED } else { flag::WAITED_FOR },
            ..section(LOCK, thread as u32 + 1, 0x300 + thread as u64, [0; 3])
        });
        asks[thread] = release + think;
        (free, last) = (release, Some(thread));
    }
    made
}

fn observed(events: impl IntoIterator<Item = Event>, until: u64) -> Observation {
    let mut analyst = Analyst::new(Analysis { totals: true, ..Analysis::default() });
    events.into_iter().for_each(|event| analyst.take(event));
    let closing = Closing { period: Some((Time(0), Time(until))), ..Closing::default() };
    let seen = observation();
    Observation { processes: seen.processes.clone(), ..analyst.finish(closing) }
}

fn reported(observation: &Observation) -> Report {
    build(observation, &mut FakeNames, &Options::default()).unwrap()
}

fn of_sections(threads: &[Thread], next: Next, until: u64) -> Report {
    reported(&observed(sections(threads, next, until).into_iter().map(Event::Section), until))
}

/// The names of the patterns, each of which has its sentence.
fn patterns(report: &Report) -> Vec<String> {
    let told = report.verdict.iter().filter(|sentence| sentence.contains("Usual cure: ")).count();
    assert_eq!(told, report.patterns.len(), "{:?}", report.verdict);
    report.patterns.iter().map(|pattern| pattern.title()).collect()
}

#[test]
fn who_is_overtaken_again_and_again_starves() {
    // The first asks again at once, but for each hundredth section.
    let mut all = Vec::new();
    for round in 0..10 {
        let begin = round * 101 * MS;
        let victim = Section {
            end: Time(begin + 100 * MS + MS / 2),
            wait: Nanos(100 * MS - 1),
            hold: Nanos(MS / 2),
            flags: flag::CONTENDED,
            ..section(LOCK, 2, 0x400, [0; 3])
        };
        let hogs = (0..100).map(|i| begin + i * MS);
        all.extend(hogs.map(|at| Section { end: Time(at + MS), hold: Nanos(MS), ..section(LOCK, 1, 0x300, [0; 3]) }));
        all.push(victim);
    }
    let until = 1_010 * MS;
    let report = reported(&observed(all.into_iter().map(Event::Section), until));
    assert_eq!(patterns(&report), ["starvation at `global_1000`"]);
    let pattern = &report.patterns[0];
    let Evidence::Starvation(e) = &pattern.evidence else { panic!("{pattern:?}") };
    // Whoever has the lock when the victim asks does not overtake it.
    assert_eq!((e.starving[0].waits, e.starving[0].overtaken), (10, 990));
    assert_eq!((e.favoured.len(), e.favoured[0].taken, e.favoured_wait_ns), (1, 990, ms(0)));
    assert_eq!((pattern.wait_ns, pattern.share), (report.totals.harm_ns, 1.0));
    let told =
        report.verdict.iter().find(|sentence| sentence.starts_with("Starvation at `global_1000`: thread 2 waited"));
    assert!(
        told.is_some_and(|t| t.contains("at least 99 times in each wait") && t.contains("docs/patterns.md")),
        "{told:?}"
    );
    // As JSON and back.
    let text = serde_json::to_string(&report).unwrap();
    assert!(text.contains("\"pattern\":\"starvation\""), "{text}");
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap().patterns, report.patterns);
}

#[test]
fn who_waits_as_long_as_the_others_does_not_starve() {
    let equal = of_sections(&[(US, MS), (US, MS), (US, MS)], Next::InTurn(10 * US), 1_000 * MS);
    assert!(equal.locks[0].contended > 900 && patterns(&equal).is_empty(), "{:?}", equal.patterns);
    // Each of them overtakes the others as often as it is overtaken.
    let mut taking_turns = Vec::new();
    for round in 0..20_u64 {
        let (begin, had) = (round * 50 * MS, round as u32 % 2 + 1);
        let hogs = (1..50).map(|i| begin + i * MS);
        taking_turns.extend(hogs.map(|end| Section {
            end: Time(end),
            hold: Nanos(MS),
            ..section(LOCK, had, 0x300, [0; 3])
        }));
        taking_turns.push(Section {
            end: Time(begin + 50 * MS),
            wait: Nanos(49 * MS - 1),
            hold: Nanos(MS),
            flags: flag::CONTENDED,
            ..section(LOCK, 3 - had, 0x300, [0; 3])
        });
    }
    let report = reported(&observed(taking_turns.into_iter().map(Event::Section), 1_000 * MS));
    assert!(report.locks[0].harm_ns > ms(900) && patterns(&report).is_empty(), "{:?}", report.patterns);
}

#[test]
fn who_seldom_asks_does_not_starve() {
    // It waits for 60 ms each time, for one section.
    let rare = of_sections(&[(5 * MS, 60 * MS), (150 * MS, 0)], Next::InTurn(0), 2_000 * MS);
    assert!(rare.locks[0].harm_ns > ms(200) && patterns(&rare).is_empty(), "{:?}", rare.patterns);
    // It is overtaken, but for a hundredth of the time.
    let mut all = sections(&[(10 * US, 100 * US)], Next::InTurn(0), 1_000 * MS);
    let victim = Section {
        end: Time(500 * MS),
        wait: Nanos(10 * MS),
        flags: flag::CONTENDED,
        ..section(LOCK, 2, 0x400, [0; 3])
    };
    all.push(Section { hold: Nanos(0), ..victim });
    let report = reported(&observed(all.into_iter().map(Event::Section), 1_000 * MS));
    assert!(report.locks[0].contended == 1 && patterns(&report).is_empty(), "{:?}", report.patterns);
}

#[test]
fn a_queue_that_is_handed_on_for_ever_is_a_convoy() {
    let threads = [(US, US); 6];
    let report = of_sections(&threads, Next::InTurn(20 * US), 100 * MS);
    assert_eq!(patterns(&report), ["convoy at `global_1000`"]);
    let Evidence::Convoy(e) = &report.patterns[0].evidence else { panic!("{:?}", report.patterns) };
    assert!(e.threads == 6 && e.queue > 4.5 && e.queue < 6.0, "{e:?}");
    assert!(e.queued_share > 0.99 && e.handed_share > 0.99 && e.free_share > 0.9, "{e:?}");
}

#[test]
fn a_long_section_or_a_queue_that_dissolves_is_no_convoy() {
    let long = of_sections(&[(US, MS); 6], Next::InTurn(20 * US), 1_000 * MS);
    assert!(long.locks[0].contended > 900 && patterns(&long).is_empty(), "{:?}", long.patterns);
    // Four threads come at once, and are back a while later, one behind another.
    let apart = of_sections(&[(2 * MS, US); 4], Next::InTurn(20 * US), 1_000 * MS);
    assert!(apart.locks[0].contended > 0 && patterns(&apart).is_empty(), "{:?}", apart.patterns);
    // Whoever runs takes it: the others wait, but nothing is handed over.
    let taken = of_sections(&[(US, 10 * US); 6], Next::LastAgain(2 * US), 100 * MS);
    assert!(!patterns(&taken).iter().any(|p| p.starts_with("convoy")), "{:?}", taken.patterns);
}

/// A thread each comes back from its wait for the condition, holds the mutex so long, and waits again or goes to work.
fn woken(broadcasts: u64, threads: u64, in_vain: impl Fn(u64) -> bool, look: u64) -> Observation {
    let mut events = Vec::new();
    for round in 0..broadcasts {
        for thread in 0..threads {
            let acquire = (round * 10 + 1) * MS + thread * 200 * US;
            let outcome = if in_vain(thread) { Outcome::CondReleased } else { Outcome::Released };
            let returned = Section {
                end: Time(acquire + look),
                hold: Nanos(look),
                outcome,
                ..section(LOCK, thread as u32 + 1, 0x500, [0; 3])
            };
            events.push(Event::Section(returned));
        }
    }
    let mut o = observed(events, broadcasts * 10 * MS);
    let condition = SiteSums {
        acquisitions: broadcasts * threads,
        ..SiteSums::new(lock(CONDITION), site(0x500), Via::CondWait, Time(1))
    };
    let futex = SiteSums {
        acquisitions: broadcasts * threads,
        wakes: broadcasts,
        ..SiteSums::new(lock(CONDITION + 0x28), Site { process: P, addr: 0 }, Via::Futex, Time(1))
    };
    o.sums.extend([condition, futex]);
    o
}

#[test]
fn many_that_are_woken_in_vain_are_a_thundering_herd() {
    let o = woken(100, 8, |thread| thread > 0, US);
    let report = reported(&o);
    assert_eq!(patterns(&report), ["thundering herd at `global_1800`"]);
    let Evidence::ThunderingHerd(e) = &report.patterns[0].evidence else { panic!("{:?}", report.patterns) };
    assert_eq!((e.wakes, e.woken, e.in_vain), (100, 800, 700));
    // The first one came before it was known that this is where a condition is waited for.
    assert!((799..=800).contains(&e.returns), "{e:?}");
    let told = report
        .verdict
        .iter()
        .find(|s| s.starts_with("Thundering herd at `global_1800`: it wakes 8.0 threads at a time, and 8"));
    assert!(told.is_some(), "{:?}", report.verdict);
}

#[test]
fn who_has_something_to_do_is_no_herd() {
    let found = |o: &Observation| patterns(&reported(o));
    assert!(found(&woken(100, 8, |_| false, US)).is_empty());
    // Each does its work under the mutex, and waits again.
    assert!(found(&woken(100, 8, |_| true, 100 * US)).is_empty());
    // One or two at a time are nothing to speak of, nor is what happens a few times.
    assert!(found(&woken(400, 2, |thread| thread > 0, US)).is_empty());
    assert!(found(&woken(4, 8, |thread| thread > 0, US)).is_empty());
    // Two conditions that are waited for at one place: it is not known which of them woke a thread.
    let mut o = woken(100, 8, |thread| thread > 0, US);
    let other =
        SiteSums { lock: lock(CONDITION + 0x100), ..o.sums.iter().find(|s| s.via == Via::CondWait).unwrap().clone() };
    o.sums.push(other);
    assert!(found(&o).is_empty());
}

/// Threads that meet after each round; `part` says how long each one's part of a round lasts.
fn rounds(threads: u64, rounds: u64, part: impl Fn(u64, u64) -> u64) -> Report {
    let (mut events, mut begin) = (Vec::new(), MS);
    for round in 0..rounds {
        let mut arrivals: Vec<(u64, u64)> = (0..threads).map(|thread| (begin + part(round, thread), thread)).collect();
        arrivals.sort_unstable();
        for &(at, thread) in &arrivals {
            let arrival = Arrival {
                barrier: lock(LOCK),
                participants: threads as u32,
                round: Round::Unknown,
                site: site(0x300),
                post: site(0x300),
            };
            events.push(Event::Step(Op {
                time: Time(at),
                tid: Tid(thread as u32 + 1),
                process: P,
                action: Action::Barrier(arrival),
            }));
        }
        begin = arrivals.last().unwrap().0;
    }
    reported(&observed(events, begin + 1))
}

#[test]
fn rounds_with_a_slow_part_each_are_lock_step() {
    let report = rounds(4, 100, |round, thread| if round % 4 == thread { 6 * MS } else { MS + thread });
    assert_eq!(patterns(&report), ["lock-step at `global_1000`"]);
    let Evidence::LockStep(e) = &report.patterns[0].evidence else { panic!("{:?}", report.patterns) };
    assert_eq!((e.threads, e.arrivals), (4, 400));
    assert!(e.waited_share > 0.6 && e.waited_share < 0.65 && e.least_share > 0.6, "{e:?}");
}

#[test]
fn even_parts_or_one_late_thread_are_no_lock_step() {
    let even = rounds(4, 100, |round, thread| 6 * MS + (round + thread) % 4 * 100 * US);
    assert!(even.locks[0].harm_ns > ms(50) && patterns(&even).is_empty(), "{:?}", even.patterns);
    let late = rounds(4, 100, |_, thread| if thread == 2 { 6 * MS } else { MS + thread });
    assert!(late.locks[0].harm_ns > ms(1_000) && patterns(&late).is_empty(), "{:?}", late.patterns);
    let few = rounds(4, 10, |round, thread| if round % 4 == thread { 6 * MS } else { MS + thread });
    assert!(patterns(&few).is_empty(), "{:?}", few.patterns);
}

#[test]
fn nothing_is_told_of_data_with_holes() {
    let until = 100 * MS;
    let mut o = observed(sections(&[(US, US); 6], Next::InTurn(20 * US), until).into_iter().map(Event::Section), until);
    assert_eq!(patterns(&reported(&o)).len(), 1);
    let lost = lockbpf_common::counter::Counter::RingFull.name();
    o.quality.counters.insert(lost, o.quality.events / 200);
    assert_eq!(patterns(&reported(&o)).len(), 1, "a few lost records do not matter");
    o.quality.counters.insert(lost, o.quality.events / 50);
    assert!(patterns(&reported(&o)).is_empty());
}

proptest! {
    /// A lock that is handed over in turn starves nobody, however unlike its threads are; and no evidence contradicts itself.
    #[test]
    fn in_turn_nobody_is_overtaken(
        threads in proptest::collection::vec((0..3_000_000_u64, 1_000..2_000_000_u64), 1..8),
        late in 0..50_000_u64,
        again in any::<bool>(),
    ) {
        let until = 300 * MS;
        let next = if again { Next::LastAgain(late) } else { Next::InTurn(late) };
        let o = observed(sections(&threads, next, until).into_iter().map(Event::Section), until);
        for shares in o.findings.locks.values() {
            let turns = &shares.turns;
            prop_assert!(turns.handed <= turns.taken && turns.queued <= turns.waited && turns.free <= turns.waited);
            let (taken, waits): (u64, u64) = turns.threads.values().fold((0, 0), |(t, w), turn| (t + turn.taken, w + turn.waits.time.0));
            prop_assert_eq!((taken, waits), (turns.taken, shares.waits.time.0));
            prop_assert!(again || turns.threads.values().all(|turn| turn.overtaken == 0), "{:?}", turns);
        }
        let report = reported(&o);
        let starves = patterns(&report).iter().any(|p| p.starts_with("starvation"));
        prop_assert!(again || !starves);
        prop_assert!(report.patterns.iter().all(|p| (0.0..=1.0).contains(&p.share) && p.wait_ns <= report.totals.harm_ns));
    }
}
