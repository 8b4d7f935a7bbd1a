use super::*;
use crate::event::{FutexResult, Outcome, Via, flag};
use crate::id::{Process, Site, Tid};
use crate::units::{Nanos, Time};
use proptest::prelude::*;
use std::collections::BTreeMap;

const LOCK: Lock = Lock { process: Process(1), addr: 0x1000 };

fn site(addr: u64) -> Site {
    Site { process: Process(1), addr }
}

/// A contended section of thread `tid` at a site of its own number; times are attempt, acquire, release.
fn section(tid: u32, at: u64, [attempt, acquire, release]: [u64; 3]) -> Section {
    Section {
        end: Time(release),
        wait: Nanos(acquire - attempt),
        hold: Nanos(release - acquire),
        lock: LOCK,
        site: site(at),
        tid: Tid(tid),
        owner: None,
        waker: None,
        stack: None,
        flags: if acquire > attempt { flag::CONTENDED } else { flag::WAITED_FOR },
        via: Via::Lock,
        outcome: Outcome::Released,
        mutex_kind: 0,
    }
}

fn timed_out(tid: u32, at: u64, attempt: u64, end: u64) -> Section {
    Section { outcome: Outcome::TimedOut, ..section(tid, at, [attempt, end, end]) }
}

fn shares_of(sections: &[Section]) -> Shares {
    let mut blame = Blame::default();
    sections.iter().for_each(|s| blame.section(s));
    blame.shares(LOCK).unwrap_or_default()
}

/// Blame by (waiting site, holder), with `None` for the unattributed part.
fn matrix(shares: &Shares) -> BTreeMap<(Site, Option<Who>), Nanos> {
    let mut cells = BTreeMap::new();
    for (row, waiter) in shares.waiters.iter().enumerate() {
        let site = waiter.site.unwrap();
        for (column, holder) in shares.holders.iter().enumerate() {
            cells.insert((site, Some(holder.who)), shares.blamed(row, column));
        }
        cells.insert((site, None), waiter.unattributed);
    }
    cells.retain(|_, wait| *wait > Nanos(0));
    cells
}

fn cause(shares: &Shares, who: Who) -> u64 {
    shares.holders.iter().find(|h| h.who == who).map_or(0, |h| h.wait.0)
}

fn assert_conserved(shares: &Shares) {
    let blamed: Nanos = shares.holders.iter().map(|h| h.wait).sum();
    assert_eq!(blamed + shares.unattributed, shares.waits.time);
    assert_eq!(shares.pairs.total().time + shares.unpaired, blamed);
    for (row, waiter) in shares.waiters.iter().enumerate() {
        let blamed: Nanos = (0..shares.holders.len()).map(|column| shares.blamed(row, column)).sum();
        assert_eq!(blamed + waiter.unattributed, waiter.waits.time);
    }
}

#[test]
fn worked_example_of_the_paper() {
    let l1 = shares_of(&[section(1, 1, [4, 4, 14]), section(3, 3, [10, 14, 18]), section(6, 1, [10, 18, 19])]);
    assert_eq!((cause(&l1, Who::Site(site(1))), cause(&l1, Who::Site(site(3)))), (8, 4));
    let l2 = shares_of(&[
        section(2, 2, [6, 6, 12]),
        section(5, 4, [10, 12, 14]),
        section(7, 6, [10, 14, 16]),
        section(4, 5, [10, 16, 30]),
    ]);
    let causes = [2, 4, 5, 6].map(|s| cause(&l2, Who::Site(site(s))));
    assert_eq!(causes, [6, 4, 0, 2]);
    for shares in [l1, l2] {
        assert_conserved(&shares);
        assert_eq!(shares.unattributed, Nanos(0));
    }
}

#[test]
fn a_hand_off_gap_is_the_releasers() {
    let shares = shares_of(&[section(1, 1, [10, 10, 100]), section(2, 2, [50, 130, 140])]);
    assert_eq!(shares.holders[0].wait, Nanos(80));
    assert_eq!(shares.holders[0].handoff, Nanos(30));
    assert_eq!(shares.pairs.top(), [((Tid(2), Tid(1)), Tally { count: 1, time: Nanos(80) })]);
}

#[test]
fn an_unseen_holder_is_named_by_the_owner_word() {
    let mut waiter = section(2, 2, [50, 130, 140]);
    assert_eq!(shares_of(&[waiter]).unattributed, Nanos(80));
    waiter.waker = Some(Tid(8));
    assert_eq!(cause(&shares_of(&[waiter]), Who::Thread(Tid(8))), 80);
    waiter.owner = Some(Tid(9));
    let shares = shares_of(&[waiter]);
    assert_eq!(cause(&shares, Who::Thread(Tid(9))), 80);
    assert_conserved(&shares);
}

#[test]
fn overtaken_while_free() {
    let shares = shares_of(&[section(1, 1, [10, 10, 20]), section(3, 3, [60, 60, 90]), section(2, 2, [50, 100, 110])]);
    assert_eq!(shares.unattributed, Nanos(10));
    assert_eq!(cause(&shares, Who::Site(site(3))), 40);
    assert_eq!(cause(&shares, Who::Site(site(1))), 0);
}

#[test]
fn the_owner_word_bridges_late_and_early_time_stamps() {
    let mut waiter = section(2, 2, [50, 100, 110]);
    waiter.owner = Some(Tid(3));
    let early = [section(1, 1, [10, 10, 20]), section(3, 3, [40, 60, 90]), waiter];
    let shares = shares_of(&early);
    assert_eq!(cause(&shares, Who::Site(site(3))), 50);
    waiter.owner = Some(Tid(1));
    let shares = shares_of(&[section(1, 1, [10, 10, 49]), waiter]);
    assert_eq!(cause(&shares, Who::Site(site(1))), 50);
    assert_eq!(shares.holders[0].victims, 1);
}

#[test]
fn a_time_out_is_charged_when_its_holder_is_recorded() {
    let attempts = [timed_out(2, 2, 50, 80), timed_out(2, 2, 90, 100)];
    let mut blame = Blame::default();
    attempts.iter().for_each(|s| blame.section(s));
    let open = blame.shares(LOCK).unwrap();
    assert_eq!((open.timed_out.count, open.unattributed), (2, Nanos(40)));
    blame.section(&section(1, 1, [10, 10, 500]));
    let shares = blame.shares(LOCK).unwrap();
    assert_eq!(cause(&shares, Who::Site(site(1))), 40);
    assert_conserved(&shares);
}

#[test]
fn a_time_out_that_no_record_outlasts_blames_nobody_after_the_last_release() {
    let shares = shares_of(&[section(1, 1, [10, 10, 60]), timed_out(2, 2, 50, 1_000)]);
    assert_eq!(cause(&shares, Who::Site(site(1))), 10);
    assert_eq!(shares.unattributed, Nanos(940));
    assert_conserved(&shares);
}

#[test]
fn what_was_forgotten_is_counted() {
    let last = TENURES_PER_LOCK.1 as u64 + 100;
    let mut sections: Vec<_> = (1..=last).map(|i| section(1, 1, [i * 10, i * 10, i * 10 + 9])).collect();
    sections.push(section(2, 2, [5, last * 10 + 10, last * 10 + 20]));
    let shares = shares_of(&sections);
    assert_eq!(shares.forgotten, Nanos(1_005));
    assert_eq!(shares.unattributed, shares.forgotten);
    assert_conserved(&shares);
}

#[test]
fn sites_and_threads_beyond_the_limit_share_a_row() {
    let mut sections = Vec::new();
    for i in 0..1_000 {
        sections.push(section(1, i, [i * 100, i * 100, i * 100 + 50]));
        sections.push(section(2, i, [i * 100 + 10, i * 100 + 60, i * 100 + 70]));
        let mut orphan = section(3, i, [i * 100 + 80, i * 100 + 90, i * 100 + 95]);
        orphan.owner = Some(Tid(10_000 + i as u32));
        sections.push(orphan);
    }
    let shares = shares_of(&sections);
    assert_conserved(&shares);
    assert_eq!((shares.waiters.len(), shares.holders.len()), (129, 193));
    assert_eq!(shares.waits.count, 2_000);
}

#[test]
fn futex_words_of_mutexes_are_told_from_others() {
    let wait = |expected, owner, result| FutexWait {
        end: Time(1_000),
        wait: Nanos(100),
        word: LOCK,
        site: Some(site(7)),
        tid: Tid(2),
        expected,
        owner: Some(Tid(owner)),
        waker: Some(Tid(3)),
        stack: None,
        result,
    };
    let mut blame = Blame::default();
    blame.futex_wait(&wait(2, 3, FutexResult::Slept));
    blame.futex_wait(&wait(2, 3, FutexResult::Again));
    let word = blame.word(LOCK).unwrap();
    assert!(word.looks_like_mutex());
    assert_eq!((word.slept, word.again, word.waits), (1, 1, Tally { count: 1, time: Nanos(100) }));
    for (expected, owner) in [(0, 3), (2, 0x5555_0000), (2, 2)] {
        let mut blame = Blame::default();
        blame.futex_wait(&wait(expected, owner, FutexResult::Slept));
        assert!(!blame.word(LOCK).unwrap().looks_like_mutex(), "{expected} {owner}");
    }
}

#[test]
fn a_queue_of_a_thousand_waiters() {
    const THREADS: u64 = 1_000;
    let sections: Vec<_> = (0..100_000u64)
        .map(|i| {
            section((i % THREADS) as u32, i % 4, [10 * (i + 1).saturating_sub(THREADS - 1), 10 * (i + 1), 10 * (i + 2)])
        })
        .collect();
    let shares = shares_of(&sections);
    assert_conserved(&shares);
    // Once the queue is full, each waits while every other thread has its turn, at each site as often.
    assert_eq!(shares.waits.count, 100_000);
    assert!(shares.unattributed <= Nanos(10 * THREADS));
    let causes = [0, 1, 2, 3].map(|s| cause(&shares, Who::Site(site(s))) as f64 / shares.waits.time.0 as f64);
    assert!(causes.iter().all(|share| (share - 0.25).abs() < 0.01), "{causes:?}");
}

/// A random well-formed schedule of one mutex, in order of release.
fn schedule() -> impl Strategy<Value = Vec<Section>> {
    let step = (0u32..6, 0u64..4, 1u64..60, 0u64..15, 0u64..80, any::<u32>(), prop::bool::weighted(0.15));
    prop::collection::vec(step, 1..60).prop_map(|steps| {
        let mut now = 1_000;
        let mut free_at = BTreeMap::new();
        let mut sections = Vec::new();
        let mut last: Option<(Tid, u64)> = None;
        for (tid, at, hold, gap, back, choice, gives_up) in steps {
            // Each thread asks at some time since its own last section, some of it while others hold the lock.
            let attempt = now.max(back + 1_000) - back;
            let attempt = attempt.max(free_at.get(&tid).copied().unwrap_or(1_000));
            let acquire = attempt.max(now) + if attempt < now { gap } else { 0 };
            let owner = last.filter(|&(_, release)| attempt < release && choice % 3 > 0).map(|(tid, _)| tid);
            if gives_up {
                let end = attempt + gap + 1;
                sections.push(Section { owner, ..timed_out(tid, at, attempt, end) });
                free_at.insert(tid, end);
                continue;
            }
            let release = acquire + hold;
            sections.push(Section { owner, ..section(tid, at, [attempt, acquire, release]) });
            free_at.insert(tid, release);
            last = Some((Tid(tid), release));
            now = release;
        }
        sections.sort_by_key(|s| s.end);
        sections
    })
}

/// Blame as the definition says, tenure by tenure.
fn reference(sections: &[Section]) -> BTreeMap<(Site, Option<Who>), Nanos> {
    let mut cells = BTreeMap::new();
    let mut tenures: Vec<_> = sections.iter().filter(|s| s.acquired()).collect();
    tenures.sort_by_key(|s| s.acquire());
    for w in sections.iter().filter(|s| s.has(flag::CONTENDED)) {
        let (from, mut to) = (w.attempt(), w.acquire());
        let mut charge = |who, wait: Nanos| *cells.entry((w.site, who)).or_insert(Nanos(0)) += wait;
        let mut at = from;
        let holder = tenures.iter().rfind(|t| t.acquire() <= from && t.end > from);
        if holder.is_none() {
            let next = tenures.iter().find(|t| t.acquire() > from && t.acquire() < to);
            let previous = tenures.iter().rfind(|t| t.acquire() <= from);
            at = next.map_or(to, |t| t.acquire());
            let known = next.into_iter().chain(previous).find(|t| Some(t.tid) == w.owner);
            let who = known.map(|t| Who::Site(t.site)).or(w.owner.map(Who::Thread));
            charge(who, at.since(from));
        }
        if !w.acquired() && !tenures.iter().any(|t| t.end >= to) {
            let last = tenures.last().map_or(Time(0), |t| t.end).clamp(at, to);
            charge(None, to.since(last));
            to = last;
        }
        for (i, t) in tenures.iter().enumerate() {
            let next = tenures.get(i + 1).map_or(Time(u64::MAX), |t| t.acquire());
            charge(Some(Who::Site(t.site)), next.min(to).since(t.acquire().max(at)));
        }
    }
    cells.retain(|_, wait| *wait > Nanos(0));
    cells
}

proptest! {
    #[test]
    fn agrees_with_the_definition(sections in schedule(), lost in prop::collection::vec(prop::bool::weighted(0.1), 60)) {
        let shares = shares_of(&sections);
        assert_conserved(&shares);
        prop_assert_eq!(matrix(&shares), reference(&sections));
        let kept: Vec<_> = sections.into_iter().zip(lost).filter(|&(_, lost)| !lost).map(|(s, _)| s).collect();
        let shares = shares_of(&kept);
        assert_conserved(&shares);
        prop_assert_eq!(matrix(&shares), reference(&kept));
    }

    #[test]
    fn disorder_and_nonsense_are_conserved(sections in schedule(), order in any::<prop::sample::Index>(), wide in any::<u64>()) {
        let mut sections = sections;
        let at = order.index(sections.len());
        sections[at].wait = Nanos(wide);
        sections.rotate_left(at);
        assert_conserved(&shares_of(&sections));
    }

    #[test]
    fn a_late_record_takes_its_place(sections in schedule(), step in 1usize..6) {
        // Time-outs wait for a record that may be the late one: compare sections only.
        let mut late: Vec<_> = sections.into_iter().filter(Section::acquired).collect();
        let waiter = section(99, 99, [1_000, 1_000_000, 1_000_001]);
        let ordered: Vec<_> = late.iter().copied().chain([waiter]).collect();
        late.chunks_mut(step).for_each(<[_]>::reverse);
        late.push(waiter);
        let of_last = |shares: &Shares| matrix(shares).into_iter().filter(|((s, _), _)| *s == site(99)).collect::<Vec<_>>();
        prop_assert_eq!(of_last(&shares_of(&late)), of_last(&shares_of(&ordered)));
    }
}
