mod alike;
mod contract;
mod counters;
mod doubt;
mod estimates;
mod examples;
mod functions;
mod in_turn;
mod patterns;
mod permits;
mod places;
mod slept;
mod story;
mod throttled;

use super::fixture::*;
use super::schema::{Ns, SCHEMA, ThreadId};
use super::table::{Layout, render, summary};
use super::*;
use crate::event::{Event, Outcome, ProcessSeen, Section, ThreadTotals, Via, flag};
use crate::id::{Lock, Process, Site, Tid};
use crate::quality::FailedProbe;
use crate::units::{Nanos, Time};
use lockbpf_common::kind::mutex_kind;
use lockbpf_common::sums::OTHER_LOCKS;
use proptest::prelude::*;

fn report(o: &Run) -> Report {
    build(&found(o), &mut FakeNames, &Options::default()).unwrap()
}

fn ms(ms: u64) -> Ns {
    Ns::new(ms * MS)
}

fn text(r: &Report) -> String {
    render(r, &Layout::default())
}

/// The words of the first paragraph.
fn verdict(o: &Run) -> String {
    let text = text(&report(o));
    text.split("\n\n").next().unwrap_or_default().replace('\n', " ")
}

fn assert_conserved(r: &Report) {
    for lock in &r.locks {
        let blamed: Ns = lock.holders.iter().map(|h| h.wait_ns).sum();
        assert_eq!(blamed + lock.unattributed_ns, lock.recorded_wait_ns, "{}", lock.name);
        assert_eq!(lock.waiters.iter().map(|w| w.wait_ns).sum::<Ns>(), lock.recorded_wait_ns);
        for w in &lock.waiters {
            assert_eq!(w.blamed.iter().map(|b| b.wait_ns).sum::<Ns>() + w.unattributed_ns, w.wait_ns);
        }
    }
    let aplt: Ns = r.locks.iter().map(|l| l.aplt_ns).sum();
    assert_eq!(
        aplt,
        r.locks.iter().flat_map(|l| &l.holders).map(|h| h.wait_ns).sum::<Ns>(),
        "nesting only passes it on"
    );
    let apwt: Ns = r.sites.iter().map(|s| s.apwt_ns).sum();
    let by_site = |h: &&schema::HolderEntry| h.place.site.is_some();
    let holders = r.locks.iter().flat_map(|l| &l.holders);
    assert_eq!(apwt, holders.filter(by_site).map(|h| h.wait_ns).sum::<Ns>());
    assert_eq!(r.totals.wait_ns, r.locks.iter().map(|l| l.wait_ns.sum).sum::<Ns>());
    assert_eq!(r.totals.harm_ns, r.locks.iter().map(|l| l.harm_ns).sum::<Ns>());
}

#[test]
fn a_lock_that_is_hardly_waited_for_is_a_row_in_the_table() {
    let mut report = report(&server());
    let is_told = |report: &Report| text(report).contains("lock in fn6 (work.c:6): who waited");
    assert!(is_told(&report), "an attempt timed out");
    report.locks[1].timeouts = 0;
    assert!(!is_told(&report) && text(&report).contains("\nlock in fn6 (work.c:6)  "));
    report.locks[1].waiting_now.count = 1;
    assert!(is_told(&report));
}

#[test]
fn a_contended_server() {
    let expected = "\
69 % of all waiting is caused by `fn3` holding `global_1000` at work.c:3; what it did meanwhile is not known.
`global_1000` (mutex) holds server back: 2 threads waited 7.20 s for it in 10.0 s.

Lock                       Kind   Acquired  Contended     %     Wait     Wait     Wait     Wait     Hold     Hold
                                                               total     mean      p99      max     mean      max
──────────────────────────────────────────────────────────────────────────────────────────────────────────────────
global_1000                mutex       300        200  67 %   7.20 s  36.0 ms  42.0 ms  42.0 ms  22.7 ms  40.0 ms
lock in fn6 (work.c:6)     mutex         2          1  50 %  3.00 ms  3.00 ms  3.00 ms  3.00 ms  2.00 ms  3.00 ms
lock in fn6 (work.c:6) #2  mutex         1          0   0 %     0 ns     0 ns     0 ns     0 ns  1.00 ms  1.00 ms

Critical sections by the waiting that they caused (APWT; CPWT: on the critical paths)
Critical section  Lock                                Sections   Waited     Held     APWT    CPWT
──────────────────────────────────────────────────────────────────────────────────────────────────
fn3 (work.c:3)    global_1000                              100     0 ns   4.00 s   5.00 s  5.00 s
fn4 (work.c:4)    global_1000                              200   7.20 s   2.80 s   2.20 s  2.20 s
fn6 (work.c:6)    lock in fn6 (work.c:6) and 1 other         3  3.00 ms  5.00 ms  4.00 ms       –

Critical path: 8.98 s, back from the last event (thread 13 (worker13)), 2 hops from thread to thread; 0.6 % of it spent
waiting: `global_1000` 0.6 % (52.0 ms). The end of the program was not seen: back from 2 of 6 threads' last events it is
the same lock that is waited for longest.

global_1000: who waited, and who held it meanwhile
Waited at        Waits  Waited  Share  Held meanwhile by  Share
────────────────────────────────────────────────────────────────
fn4 (work.c:4)     200  7.20 s  100 %  fn3 (work.c:3)      69 %
  ← fn20 ← fn52                        fn4 (work.c:4)      31 %
Threads: 12 (worker12) waited 3.00 s for 11 (worker11); 13 (worker13) waited 2.20 s for 12 (worker12); 13 (worker13)
waited 2.00 s for 11 (worker11).

lock in fn6 (work.c:6): who waited, and who held it meanwhile
Waited at        Waits   Waited  Share  Held meanwhile by                       Share
──────────────────────────────────────────────────────────────────────────────────────
fn6 (work.c:6)       2  4.00 ms  100 %  fn6 (work.c:6), 25 % of it in hand-off  100 %
  ← fn22 ← fn54
Threads: 15 waited 3.00 ms for 14; 16 waited 1.00 ms for 14.
1 attempt timed out after 1.00 ms of waiting in all.

Thread  Name      Waited     %  Held a lock  Acquired
──────────────────────────────────────────────────────
13      worker13  4.20 s  42 %       4.00 s       100
12      worker12  3.00 s  30 %       4.00 s       100

Condition variables (idle time, unless locks are made of them)
Condition                    Waits  Timed out  Waiting now  Idle total  Idle mean  Idle max
────────────────────────────────────────────────────────────────────────────────────────────
condition in fn5 (work.c:5)      3          0            0      9.00 s     3.00 s    4.00 s

Other futex words (purpose unknown: idle waiting and contention look alike)
Futex word               Slept  Again  Timed out  Waiting now  Waited  Longest  Woken by
─────────────────────────────────────────────────────────────────────────────────────────
futex in fn7 (work.c:7)      1      0          0            0  700 ms   700 ms        13

Quality: 303 events; nothing lost; every probe in place; observed 100 % of 10.0 s.
Blame for 7.20 s of waiting: 100 % exact, 0 % inferred, 0 % unknown.
";
    let report = report(&server());
    assert_eq!(text(&report), expected);
    assert_conserved(&report);
}

#[test]
fn a_summary_is_the_first_sentence_and_the_locks() {
    let expected = "\
69 % of all waiting is caused by `fn3` holding `global_1000` at work.c:3; what it did meanwhile is not known.
Lock         Kind   Acquired  Contended     %    Wait     Wait     Wait     Wait     Hold     Hold     Hold
                                                total     mean      p99      max     mean      p99      max
────────────────────────────────────────────────────────────────────────────────────────────────────────────
global_1000  mutex       300        200  67 %  7.20 s  36.0 ms  42.0 ms  42.0 ms  22.7 ms  40.0 ms  40.0 ms
and 2 more locks with 4.00 ms of waiting
";
    let options = Options { top: Some(1), ..Options::default() };
    let report = build(&found(&server()), &mut FakeNames, &options).unwrap();
    assert_eq!(summary(&report, 120), expected);
}

#[test]
fn fits_every_terminal() {
    let mut o = server();
    o.quality.notes.push("A remark that is long enough to need more than one line on a narrow terminal.".repeat(3));
    let report = report(&o);
    for width in [80, 100, 110, 120, 132, 160, 250] {
        let text = render(&report, &Layout { width, ..Layout::default() });
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(width.into()), "{width}: {longest:?}\n{text}");
    }
}

#[test]
fn json_has_the_agreed_names_and_survives_a_round_trip() {
    let report = report(&server());
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], SCHEMA);
    let agreed: [(&str, &[&str]); 6] = [
        (
            "/locks/0",
            &["lock", "name", "kind", "acquisitions", "contended", "try_failures", "wait_ns", "hold_ns", "aplt_ns"],
        ),
        ("/locks/0/wait_ns", &["sum", "mean", "max", "p50", "p99"]),
        ("/locks/0/hold_ns", &["sum", "mean", "max", "p50", "p99"]),
        ("/sites/0", &["site", "lock", "symbol", "instances", "wait_ns", "hold_ns", "apwt_ns", "rank"]),
        ("/threads/0", &["tid", "comm", "wait_ns", "held_union_ns", "held_sum_ns", "acquisitions"]),
        ("/quality", &["events", "lost", "late", "impossible", "open_at_end"]),
    ];
    for (path, names) in agreed {
        let object = json.pointer(path).unwrap();
        names.iter().for_each(|name| assert!(object.get(name).is_some(), "{path} {name}"));
    }
}

#[test]
fn counts_come_from_the_sums_and_waits_are_over_all_acquisitions() {
    let report = report(&server());
    let lock = &report.locks[0];
    assert_eq!((lock.acquisitions, lock.contended), (Some(300), 200));
    assert_eq!((lock.wait_ns.sum, lock.wait_ns.mean), (ms(7_200), ms(24)));
    assert_eq!(lock.contended_wait_ns.mean, 36 * MS);
    assert_eq!(lock.lock, "1234:0x1000");
    assert_eq!(report.totals.acquisitions, 303);
    let second = &report.locks[1];
    assert_eq!((second.timeouts, second.timed_out_wait_ns, second.harm_ns), (1, ms(1), ms(4)));
    assert_eq!(report.sites.iter().map(|s| s.rank).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((report.sites[2].locks, report.sites[2].lock.as_str()), (2, "1234:0x9000"));
    assert_eq!((report.sites[0].symbol.as_str(), report.sites[0].apwt_ns), ("fn3 (work.c:3)", ms(5_000)));
    assert_eq!(report.threads[0].comm, "worker13");
}

#[test]
fn waits_of_calls_that_began_before_are_part_of_the_harm() {
    let mut o = server();
    o.events.push(Event::FutexWait(futex_wait(0x1000, 13, 2, 0, 500)));
    let (report, before) = (report(&o), report(&server()));
    let [lock, same] = [&report, &before].map(|report| &report.locks[0]);
    assert_eq!((lock.attempt_unseen_wait_ns, same.attempt_unseen_wait_ns), (ms(500), ms(0)));
    assert_eq!((lock.harm_ns, lock.wait_ns), (same.harm_ns + ms(500), same.wait_ns));
    assert_eq!((lock.harm_ns, report.totals.harm_ns), (lock.recorded_wait_ns, before.totals.harm_ns + ms(500)));
    let waited = |report: &Report| report.threads.iter().find(|t| t.comm == "worker13").expect("it is there").wait_ns;
    assert_eq!(waited(&report), waited(&before) + ms(500));
    assert!(text(&report).contains("500 ms of that is the sleep of calls that began before"), "{}", text(&report));
}

#[test]
fn idle_waiting_is_not_contention() {
    let report = report(&server());
    assert_eq!(report.conditions.len(), 1);
    let condition = &report.conditions[0];
    assert_eq!((condition.waits, condition.idle_ns.sum, condition.wakes), (3, ms(9_000), 3));
    assert_eq!(report.futexes.len(), 1, "the word inside the condition variable is not a futex of its own");
    assert_eq!(report.futexes[0].purpose, "unknown");
}

#[test]
fn names_do_not_depend_on_what_is_shown() {
    let o = server();
    let all = report(&o);
    let top = build(&found(&o), &mut FakeNames, &Options { top: Some(2), ..Options::default() }).unwrap();
    assert_eq!(all.locks[..2], top.locks[..]);
    assert_eq!((top.totals.locks_omitted, top.totals.harm_ns), (1, all.totals.harm_ns));
    assert!(text(&top).contains("and 1 more lock with 0 ns of waiting"));
    let mut unnamed = observation();
    feed(&mut unnamed, &section(0x9000, 11, 0xdead, [1, 1, 2]), true);
    assert_eq!(report(&unnamed).locks[0].name, "lock in lib.so+0xad");
}

#[test]
fn several_processes_are_told_apart() {
    let mut o = server();
    let other = Process(2);
    o.processes
        .insert(other, ProcessSeen { time: Time(5), process: other, pid: 1234, start: Time(2), comm: "server".into() });
    let there = |s: Section| Section {
        lock: Lock { process: other, ..s.lock },
        site: Site { process: other, ..s.site },
        process: other,
        ..s
    };
    feed(&mut o, &there(section(0x1000, 21, 0x300, [1, 1, 2])), true);
    let names: Vec<_> = report(&o).locks.into_iter().map(|l| (l.lock, l.label)).collect();
    assert_eq!(names[0], ("1234:0x1000".to_owned(), "server/1234:global_1000".to_owned()));
    assert!(names.contains(&("1234#2:0x1000".to_owned(), "server/1234#2:global_1000".to_owned())), "{names:?}");
}

#[test]
fn a_hang_is_seen_without_any_completed_section() {
    let mut o = observation();
    o.open_waits = vec![open_wait(0x1000, 11, 0, 77), open_wait(0x1000, 12, 4_000, 77)];
    o.open_waits[0].before_start = true;
    assert_eq!(
        verdict(&o),
        "`global_1000` (mutex) holds server back: 2 threads waited 16.0 s for it in 10.0 s. 2 threads wait for it now, \
         longest at least 10.0 s; held by tid 77."
    );
    let report = report(&o);
    assert_eq!((report.locks[0].harm_ns, report.locks[0].acquisitions), (ms(16_000), None));
    assert_eq!(report.quality.open_at_end, 2);
    assert!(text(&report).contains("  2 in fn5 (work.c:5)"), "{}", text(&report));
}

#[test]
fn open_waits_count_in_the_ranking() {
    let mut o = server();
    o.open_waits.push(open_wait(0x9040, 14, 1_000, 12));
    let report = report(&o);
    assert_eq!(report.locks[0].name, "lock in fn6 (work.c:6) #2");
    assert_eq!((report.locks[0].waiting_now.count, report.locks[0].waiting_now.longest_ns), (1, ms(9_000)));
    let mut idle = open_wait(0x9100, 14, 0, 1);
    idle.via = Via::CondWait;
    o.open_waits = vec![idle];
    let report = self::report(&o);
    assert_eq!((report.totals.waiting_now, report.conditions[0].waiting_now), (0, 1));
}

#[test]
fn nothing_seen_is_a_sentence_with_a_reason() {
    let mut o = observation();
    assert!(verdict(&o).starts_with("No lock operation was seen in 10.0 s: the target is idle"), "{}", verdict(&o));
    assert!(!text(&report(&o)).contains("Acquired"));
    o.futex_only = true;
    assert!(verdict(&o).contains("no thread slept on a futex"));
    o.quality.failed_probes.push(FailedProbe {
        probe: "pthread_mutex_lock".into(),
        file: Some("/lib/libc.so.6".into()),
        reason: "no such symbol".into(),
    });
    assert!(verdict(&o).contains("1 probe failed, pthread_mutex_lock first: no such symbol"));
    assert!(text(&report(&o)).contains("  probe pthread_mutex_lock in /lib/libc.so.6 failed: no such symbol"));
}

/// Who sleeps from before the beginning to beyond the end makes no call that is seen.
#[test]
fn who_sleeps_all_the_time_is_known_to() {
    let mut o = observation();
    let mut wait = open_wait(0x1000, 12, 0, 0);
    (wait.via, wait.expected, wait.owner, wait.before_start) = (Via::Futex, Some(2), None, true);
    o.open_waits.push(wait);
    for futex_only in [false, true] {
        o.futex_only = futex_only;
        let told = verdict(&o);
        assert!(told.contains("Cannot tell whether a lock holds the target back: threads slept 10.0 s"), "{told}");
        assert!(!told.contains("no thread slept") && !told.contains("idle, has"), "{told}");
    }
}

#[test]
fn no_contention_is_said_plainly() {
    let mut o = observation();
    (0..1_500).for_each(|i| feed(&mut o, &section(0x1000, 11, 0x300, [i, i, i + 1]), false));
    assert_eq!(verdict(&o), "No thread waited for a lock: 1,500 acquisitions of 1 lock in 10.0 s, none contended.");
}

#[test]
fn little_waiting_holds_nothing_back() {
    let mut o = observation();
    feed(&mut o, &section(0x1000, 11, 0x300, [10, 10, 20]), true);
    feed(&mut o, &section(0x1000, 12, 0x400, [15, 20, 21]), true);
    assert_eq!(
        verdict(&o),
        "No lock holds server back: the most waited-for one, `global_1000` (mutex), cost 5.00 ms of waiting in 10.0 s \
         (0.1 % of one thread's time). 100 % of this little waiting is caused by `fn3` holding `global_1000` at work.c:3; what it \
         did meanwhile is not known."
    );
}

#[test]
fn partial_data_is_worded_as_such() {
    let mut o = observation();
    for i in 0..20 {
        let t = i * 400;
        feed(&mut o, &section(0x1000, 11, 0x300, [t, t, t + 200]), i < 12);
        feed(&mut o, &section(0x1000, 12, 0x400, [t + 100, t + 200, t + 300]), i < 12);
    }
    o.quality.counters.insert("ring_full", 16);
    assert_eq!(
        verdict(&o),
        "60 % of all waiting is caused by `fn3` holding `global_1000` at work.c:3; what it did meanwhile is not known. `global_1000` \
         (mutex) holds server back: 1 thread waited at least 2.00 s for it in 10.0 s. The data is incomplete: see the \
         quality line."
    );
    let report = report(&o);
    let text = text(&report);
    assert!(text.contains("is known for 60 % of the waiting: the records of the rest are missing."), "{text}");
    assert!(text.contains("lost: ring_full 16"), "{text}");
    assert!(report.quality.incomplete);
    assert_conserved(&report);
}

/// A thread of which nothing is known but that it was there.
fn exited(o: &mut Run, tid: u32) {
    o.events.push(Event::ThreadExit(ThreadTotals {
        time: Time(0),
        tid: Tid(tid),
        process: P,
        comm: String::new(),
        acquisitions: 0,
        wait: Nanos(0),
        kernel_wait: Nanos(0),
        held_sum: Nanos(0),
        held_union: Nanos(0),
        ends_process: false,
    }));
}

#[test]
fn an_unseen_holder_is_put_in_words() {
    let mut o = observation();
    let waiter = section(0x1000, 12, 0x400, [1_000, 3_000, 3_001]);
    feed(&mut o, &waiter, true);
    assert!(
        verdict(&o).contains(
            "The culprit is not known yet: who caused 100 % of all waiting was not seen. `global_1000` is waited for in"
        ),
        "{}",
        verdict(&o)
    );
    assert!(text(&report(&o)).contains("nobody known"));
    let mut o = observation();
    feed(&mut o, &Section { owner: Some(Tid(77)), ..waiter }, true);
    assert!(
        verdict(&o).contains(
            "The culprit is not known yet: who caused 100 % of all waiting was not seen. `global_1000` is waited for in"
        ),
        "{}",
        verdict(&o)
    );
    assert_eq!(report(&o).locks[0].word_names, Some(77));
    let mut shared = observation();
    feed(&mut shared, &Section { owner: Some(Tid(77)), mutex_kind: mutex_kind::SHARED as u8, ..waiter }, true);
    let would_tell =
        "What would tell: an observation of the other processes that share the lock, too (its word names thread 77). ";
    assert!(verdict(&shared).contains(would_tell), "{}", verdict(&shared));
    let told = text(&report(&shared)).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("Its word names 77 as its holder, which is no thread of the observed processes."), "{told}");
    exited(&mut o, 77);
    assert!(
        verdict(&o).contains("caused by thread 77 holding `global_1000` at a place that was not seen (inferred)"),
        "{}",
        verdict(&o)
    );
    assert!(report(&o).locks[0].holders[0].inferred);
}

#[test]
fn the_futex_tier_infers_locks_and_their_owners() {
    let mut o = observation();
    o.futex_only = true;
    exited(&mut o, 11);
    for _ in 0..3 {
        o.events.push(Event::FutexWait(futex_wait(0x1000, 12, 2, 11, 1_000)));
        o.events.push(Event::FutexWait(futex_wait(0xb000, 12, 0, 0, 5_000)));
    }
    let report = report(&o);
    assert_conserved_futex(&report);
    assert_eq!((report.locks.len(), report.futexes.len()), (1, 1));
    let lock = &report.locks[0];
    assert!(lock.inferred && lock.hold_ns.is_none() && lock.acquisitions.is_none());
    assert_eq!(
        (lock.contended, lock.wait_ns.sum, lock.holders[0].tid.clone()),
        (3, ms(3_000), Some(ThreadId::Number(11)))
    );
    assert_eq!(
        verdict(&o),
        "100 % of all waiting is caused by thread 11 holding `global_1000` at a place that was not seen (inferred); what it did meanwhile is \
         not known. `global_1000` (mutex, inferred) holds server back: 1 thread waited 3.00 s for it in 10.0 s."
    );
    let mut hung = observation();
    let mut wait = open_wait(0x1000, 12, 0, 11);
    (wait.via, wait.expected) = (Via::Futex, Some(2));
    hung.open_waits.push(wait);
    exited(&mut hung, 11);
    assert_eq!(self::report(&hung).locks.len(), 1);
    hung.open_waits[0].expected = Some(0);
    let report = self::report(&hung);
    assert_eq!((report.locks.len(), report.futexes.len()), (0, 1));
    let told = verdict(&hung);
    let expected = "Cannot tell whether a lock holds the target back: threads slept 10.0 s in 10.0 s in `global_1000` (10.0 s), on futex";
    assert!(told.contains(expected), "{told}");
}

fn assert_conserved_futex(r: &Report) {
    for lock in &r.locks {
        let blamed: Ns = lock.holders.iter().map(|h| h.wait_ns).sum();
        assert_eq!((blamed + lock.unattributed_ns, lock.aplt_ns), (lock.recorded_wait_ns, blamed));
    }
}

#[test]
fn a_lock_without_sums_is_not_forgotten() {
    let mut o = observation();
    o.events.push(Event::Section(section(0x1000, 11, 0x300, [10, 10, 600])));
    o.events.push(Event::Section(section(0x1000, 12, 0x400, [100, 600, 601])));
    let report = report(&o);
    let lock = &report.locks[0];
    assert_eq!((lock.acquisitions, lock.contended, lock.wait_ns.sum), (None, 1, ms(500)));
    assert_conserved(&report);
    assert!(text(&report).contains("–"));
}

#[test]
fn locks_that_were_summed_together_count_once() {
    let mut o = observation();
    feed(&mut o, &section(0x1000, 11, 0x400, [10, 10, 20]), true);
    // One of the others: its sums are theirs.
    o.events.push(Event::Section(section(0x5000, 11, 0x300, [30, 30, 60])));
    o.events.push(Event::Section(section(0x5000, 12, 0x300, [40, 60, 70])));
    let others = sums(&mut o, lock(OTHER_LOCKS | 0x300), site(0x300), Via::Lock);
    (others.acquisitions, others.contended) = (50, 1);
    others.wait.add(Nanos(20 * MS));
    (0..50).for_each(|_| others.hold.add(Nanos(MS)));
    sums(&mut o, lock(OTHER_LOCKS), site(0), Via::Lock).acquisitions = 7;
    let report = report(&o);
    let totals = &report.totals;
    assert_eq!((totals.acquisitions, totals.contended, totals.wait_ns, totals.harm_ns), (58, 1, ms(20), ms(20)));
    let told = |wanted: &str| report.locks.iter().find(|lock| lock.lock.ends_with(wanted)).unwrap();
    let (others, rest, one) = (told(":others:0x300"), told(":others"), told(":0x5000"));
    assert!(others.others && others.name.starts_with("other locks in ") && rest.name == "other locks", "{others:?}");
    assert_eq!((others.acquisitions, others.wait_ns.sum, rest.acquisitions), (Some(50), ms(20), Some(7)));
    assert!(one.in_others && one.acquisitions.is_none() && !one.holders.is_empty(), "{one:?}");
    assert_eq!(report.sites.iter().map(|site| site.instances).sum::<u64>(), 51, "{:?}", report.sites);
    assert!(
        report.verdict[0].contains(&one.name) || !report.verdict[0].contains("other locks"),
        "{:?}",
        report.verdict
    );
    let note = report.quality.notes.iter().find(|note| note.contains("summed together")).unwrap();
    assert!(note.contains("57 operations on further ones are summed together"), "{note}");
    assert!(text(&report).contains("several"), "{}", text(&report));
}

proptest! {
    #[test]
    fn table_json_and_sums_agree(
        steps in prop::collection::vec((0u64..3, 0u64..4, 1u64..40, 0u64..60, any::<bool>(), 0u8..8), 1..80),
    ) {
        let mut o = observation();
        let mut now = [100; 3];
        let mut waited = 0;
        for (which, at, hold, back, recorded, fate) in steps {
            let at_lock = &mut now[which as usize];
            let (attempt, acquire) = (*at_lock - back.min(*at_lock), *at_lock);
            let mut s = section(0x1000 + which * 0x800, 11 + at as u32, 0x300 + at * 0x100, [attempt, acquire, acquire + hold]);
            if fate == 0 {
                s.outcome = Outcome::TimedOut;
                (s.end, s.hold) = (s.acquire(), Nanos(0));
            } else {
                *at_lock += hold;
                waited += if s.has(flag::CONTENDED) { s.wait.0 } else { 0 };
            }
            feed(&mut o, &s, recorded);
        }
        let report = report(&o);
        assert_conserved(&report);
        prop_assert_eq!(report.totals.wait_ns, waited);
        let harms: Vec<_> = report.locks.iter().map(|l| l.harm_ns).collect();
        prop_assert!(harms.is_sorted_by(|a, b| a >= b));
        let text = render(&report, &Layout { width: 160, details: 10, ..Layout::default() });
        for lock in &report.locks {
            let row = text.lines().find(|line| line.starts_with(&format!("{} ", lock.name))).unwrap();
            prop_assert!(row.contains(&lock.wait_ns.sum.to_string()), "{}", row);
            prop_assert!(row.contains(&text::count(lock.acquisitions.unwrap())), "{}", row);
        }
    }
}
