//! Places that are told instead of the first function at an address.

use super::story::{Doing, holder, waits};
use super::*;
use crate::graph::findings::{Cause, Holder, Who};
use crate::id::StackId;
use crate::names::{Frame, Names};
use crate::stack::{Role, call_stack};
use crate::units::Nanos;
use std::collections::HashMap;

const LOCK: Lock = Lock { process: P, addr: 0x1000 };

/// Functions by addresses, innermost first, each with its line; of the C library if the name begins with `libc:`, part of locking if with
/// `locking:`, interpreted if it is `<module>`, generated if there is no line. Without a name the line is where it begins.
#[derive(Default)]
struct Code(HashMap<u64, Vec<(&'static str, u32)>>);

impl Names for Code {
    fn frames(&mut self, _: Process, addr: u64) -> Vec<Frame> {
        let functions = self.0.get(&addr).cloned().unwrap_or_default();
        let last = functions.len().saturating_sub(1);
        let frame = |(at, (name, line)): (usize, (&str, u32))| {
            if name.is_empty() {
                return Frame { module: Some(("a.out".to_owned(), line.into())), addr, ..Frame::default() };
            }
            Frame {
                function: Some(name.to_owned()),
                location: (line > 0).then(|| ("a.cc".to_owned(), line)),
                inlined: at < last,
                module: (line > 0 && !name.starts_with("<module>")).then(|| ("a.out".to_owned(), addr)),
                addr,
            }
        };
        functions.into_iter().enumerate().map(frame).collect()
    }

    fn role(&mut self, _: Process, addr: u64) -> Role {
        let any = |start: &str| {
            self.0.get(&addr).is_some_and(|functions| functions.iter().any(|(name, _)| name.starts_with(start)))
        };
        if any("libc:") {
            Role::Libc
        } else if any("locking:") {
            Role::Locking
        } else {
            Role::Program
        }
    }

    fn call_stack(&mut self, process: Process, raw: &[u64], site: Option<u64>) -> Vec<u64> {
        call_stack(raw, site, |addr| self.role(process, addr))
    }

    fn global(&mut self, lock: Lock) -> Option<String> {
        (lock == LOCK).then(|| "lock".to_owned())
    }
}

/// A report on one lock with these holders, waited for at 0x400.
fn told(o: &mut Run, code: &[(u64, &[(&'static str, u32)])], holders: Vec<Holder>) -> Report {
    waits(o, LOCK, 0x400, holders);
    let mut code = Code(code.iter().map(|(addr, functions)| (*addr, functions.to_vec())).collect());
    build(o, &mut code, &Options::default()).unwrap()
}

fn start() -> Run {
    let mut o = observation();
    o.findings.scheduling_known = true;
    o
}

fn culprit(r: &Report) -> (&str, Option<u32>) {
    (&r.culprits[0].place.symbol, r.culprits[0].place.line)
}

const ASLEEP: Doing<'static> = &[(Cause::Sleeping, 4_000, None)];

mod templates {
    use super::*;

    const WITH_A: &str = "with<reindex()::<lambda(int)> >";
    const WITH_B: &str = "with<look_up()::<lambda(int)> >";

    fn inlined(a: &'static str, b: &'static str) -> Report {
        let mut o = start();
        let row = holder(&mut o, LOCK, 0x300, false, ASLEEP);
        told(
            &mut o,
            &[
                (0x300, &[("std::unique_lock<std::mutex>::unique_lock", 9), (a, 11), ("reindex", 37)]),
                (0x400, &[(b, 11), ("look_up", 20)]),
            ],
            vec![row],
        )
    }

    #[test]
    fn of_a_template_for_functions_the_caller_is_told() {
        let r = inlined(WITH_A, WITH_B);
        assert_eq!(culprit(&r), ("reindex (a.cc:37)", Some(37)));
        assert_eq!(r.locks[0].waiters[0].place.symbol, "look_up (a.cc:20)");
        assert!(r.verdict[0].contains("`reindex` holding `lock` at a.cc:37"), "{:?}", r.verdict);
        assert_conserved(&r);
    }

    #[test]
    fn other_functions_stay() {
        // One instantiation; templates of types; different templates.
        assert_eq!(culprit(&inlined(WITH_A, WITH_A)).0, "with<reindex()::<lambda(int)> > (a.cc:11)");
        assert_eq!(culprit(&inlined("insert<int>", "insert<long>")).0, "insert<int> (a.cc:11)");
        assert_eq!(
            culprit(&inlined(WITH_A, "each<look_up()::<lambda(int)> >")).0,
            "with<reindex()::<lambda(int)> > (a.cc:11)"
        );
    }

    #[test]
    fn a_caller_that_is_not_inlined_is_found_on_the_stack() {
        let mut o = start();
        let mut row = holder(&mut o, LOCK, 0x300, false, ASLEEP);
        row.stacks.add(StackId(7), row.wait);
        o.stacks.insert(StackId(7), vec![0x100, 0x300, 0x500, 0x600]);
        let code: &[(u64, &[(&'static str, u32)])] = &[
            (0x100, &[("libc:futex", 1)]),
            (0x300, &[(WITH_A, 11)]),
            (0x400, &[(WITH_B, 11)]),
            (0x500, &[("with_all<reindex()::<lambda(int)> >", 15), ("reindex", 37)]),
            (0x600, &[("main", 50)]),
        ];
        let r = told(&mut o, code, vec![row]);
        assert_eq!(culprit(&r).0, "with_all<reindex()::<lambda(int)> > (a.cc:15)");
        // Without a stack it is all that is known.
        assert_eq!(r.locks[0].waiters[0].place.symbol, "with<look_up()::<lambda(int)> > (a.cc:11)");
        assert_eq!(r.culprits[0].place.site, r.locks[0].holders[0].place.site);
    }

    #[test]
    fn of_several_callers_none_is_told() {
        let mut o = start();
        let mut row = holder(&mut o, LOCK, 0x300, false, ASLEEP);
        row.stacks.add(StackId(7), row.wait);
        o.stacks.insert(StackId(7), vec![0x300, 0x500]);
        let mut other = holder(&mut o, LOCK, 0x300, true, &[(Cause::Running, 1_000, None)]);
        other.who = Who::Section { lock: Lock { addr: 0x1008, ..LOCK }, site: site(0x300) };
        other.stacks.add(StackId(8), other.wait);
        o.stacks.insert(StackId(8), vec![0x300, 0x600]);
        let code: &[(u64, &[(&'static str, u32)])] =
            &[(0x300, &[(WITH_A, 11)]), (0x400, &[(WITH_B, 11)]), (0x500, &[("f", 37)]), (0x600, &[("g", 50)])];
        let r = told(&mut o, code, vec![row, other]);
        assert_eq!(culprit(&r).0, "with<reindex()::<lambda(int)> > (a.cc:11)");
    }
}

/// Two threads give it back in two functions, by one function of a library's.
#[test]
fn sections_are_told_by_the_caller_of_the_function_that_gives_back() {
    let mut o = start();
    let rows = [(7, 0x500), (8, 0x600)].map(|(stack, caller)| {
        o.stacks.insert(StackId(stack), vec![0x300, caller]);
        let mut row = holder(&mut o, LOCK, 0x300, false, ASLEEP);
        row.who = Who::Released { lock: LOCK, site: site(0x300), stack: Some(StackId(stack)) };
        row
    });
    let code: &[(u64, &[(&'static str, u32)])] =
        &[(0x300, &[("locking:wake", 1)]), (0x500, &[("flush", 37)]), (0x600, &[("load", 50)])];
    let r = told(&mut o, code, rows.into());
    let mut sections: Vec<_> =
        r.sites.iter().filter(|s| s.apwt_ns > ms(0)).map(|s| (s.symbol.as_str(), s.apwt_ns)).collect();
    sections.sort_unstable();
    assert_eq!(sections, [("flush (a.cc:37)", ms(4_000)), ("load (a.cc:50)", ms(4_000))]);
    assert_conserved(&r);
}

/// A lock of the library's own is given back in the function that asks for the program's.
#[test]
fn a_section_is_told_with_the_lock_that_is_asked_for_there() {
    let mut o = start();
    let mut library = holder(&mut o, LOCK, 0x300, false, ASLEEP);
    library.who = Who::Released { lock: LOCK, site: site(0x300), stack: Some(StackId(7)) };
    o.stacks.insert(StackId(7), vec![0x300, 0x500]);
    let own = Lock { addr: 0x1100, ..LOCK };
    sums(&mut o, own, site(0x500), Via::Lock).acquisitions = 9;
    let code: &[(u64, &[(&'static str, u32)])] = &[(0x300, &[("locking:wake", 1)]), (0x500, &[("flush", 37)])];
    let r = told(&mut o, code, vec![library]);
    let section = r.sites.iter().find(|s| s.symbol == "flush (a.cc:37)").unwrap();
    let id = |lock: Lock| format!("1234:{:#x}", lock.addr);
    assert_eq!((section.lock.as_str(), section.locks, section.apwt_ns), (id(own).as_str(), 2, ms(4_000)));
}

mod without_a_name {
    use super::*;

    /// Given back for 2 s of waiting at 0x300 and for 1 s at 0x310, in a function that begins at 0x2f0, and for 500 ms at 0x380.
    fn given_back(sections: &[u64]) -> Report {
        let mut o = start();
        let places = [(0x300, 2_000), (0x310, 1_000), (0x380, 500)];
        let holders = places.map(|(place, time)| {
            let mut row = holder(&mut o, LOCK, place, false, &[(Cause::Running, time, None)]);
            row.who = Who::Released { lock: LOCK, site: site(place), stack: None };
            row
        });
        for &at in sections {
            sums(&mut o, LOCK, site(at), Via::Lock).acquisitions = 1;
        }
        let begins: [(u64, &[_]); 4] =
            [(0x2f8, &[("", 0x2f0)]), (0x300, &[("", 0x2f0)]), (0x310, &[("", 0x2f0)]), (0x380, &[("", 0x370)])];
        told(&mut o, &begins, holders.to_vec())
    }

    #[test]
    fn all_calls_in_it_are_one_holder() {
        let r = given_back(&[]);
        assert_eq!(blamed(&r), [("a.out+0x2f0", ms(3_000)), ("a.out+0x370", ms(500))]);
        assert!(r.sites.iter().filter(|s| s.apwt_ns > ms(0)).all(|s| s.released), "{:#?}", r.sites);
        let text = text(&r);
        let row =
            text.lines().find(|line| line.starts_with("a.out+0x2f0, given back")).unwrap_or_else(|| panic!("{text}"));
        // Nobody counted sections there, and none of them is known to have waited.
        let figures: Vec<&str> = row.split_whitespace().skip_while(|&word| word != "–").take(4).collect();
        assert_eq!(figures, ["–", "–", "–", "3.00"], "{row}");
        assert_conserved(&r);
    }

    #[test]
    fn what_it_gives_back_it_had_asked_for() {
        let r = given_back(&[0x2f8]);
        assert_eq!(blamed(&r), [("a.out+0x2f0", ms(3_000)), ("a.out+0x370", ms(500))]);
        assert_eq!(r.locks[0].holders[0].place.site.as_deref(), Some("1234:0x2f8"));
        let asked = r.sites.iter().find(|s| s.site == "1234:0x2f8").unwrap();
        assert!(!asked.released && asked.instances == 1 && text(&r).contains("\na.out+0x2f0  "), "{asked:?}");
        assert_conserved(&r);
    }

    fn blamed(r: &Report) -> Vec<(&str, Ns)> {
        r.locks[0].holders.iter().map(|h| (h.place.symbol.as_str(), h.wait_ns)).collect()
    }
}

mod left_by_a_jump {
    use super::*;

    /// Given back at 0x300; the thread was off the CPU with these stacks, so many ms each.
    fn given_back(absences: &[(u64, &[u64])], sections: &[u64]) -> Report {
        given_back_at(0x300, absences, sections)
    }

    fn given_back_at(place: u64, absences: &[(u64, &[u64])], sections: &[u64]) -> Report {
        let mut o = start();
        let doing: Vec<_> = absences.iter().map(|&(time, _)| (Cause::Sleeping, time, None)).collect();
        let mut row = holder(&mut o, LOCK, place, false, &doing);
        row.who = Who::Released { lock: LOCK, site: site(place), stack: None };
        for (id, &(time, stack)) in (90..).zip(absences) {
            row.off_stacks.add((Cause::Sleeping, StackId(id)), Nanos(time * MS));
            o.stacks.insert(StackId(id), stack.to_vec());
        }
        for &at in sections {
            sums(&mut o, LOCK, site(at), Via::Lock).acquisitions = 1;
        }
        told(
            &mut o,
            &[
                (0x100, &[("libc:nanosleep", 1)]),
                (0x210, &[("sleep_us", 63), ("flush", 20)]),
                (0x220, &[("flush", 22)]),
                (0x280, &[("other", 33)]),
                (0x300, &[("loader", 43)]),
                (0x310, &[("loader", 44)]),
                (0x400, &[("worker", 5)]),
                (0x700, &[("flush", 16)]),
                (0x800, &[("<module>", 34)]),
                (0x810, &[("Shop.sell", 0)]),
            ],
            vec![row],
        )
    }

    const IN_FLUSH: &[u64] = &[0x100, 0x210, 0x300, 0x600];

    #[test]
    fn the_function_called_there_is_told() {
        let r = given_back(&[(3_000, IN_FLUSH), (500, &[0x100, 0x220, 0x300]), (1_000, &[0x100, 0x310])], &[]);
        assert_eq!(culprit(&r).0, "flush (a.cc:20)");
        assert!(r.verdict[0].contains("`flush` holding `lock` at a.cc:20"), "{:?}", r.verdict);
        assert_conserved(&r);
    }

    /// They are in no file of code.
    #[test]
    fn functions_that_are_interpreted_or_generated_are_not_left_by_a_jump() {
        for (place, told) in [(0x800, "<module> (a.cc:34)"), (0x810, "Shop.sell")] {
            let r = given_back_at(place, &[(3_000, &[0x100, 0x210, place, 0x600])], &[]);
            assert_eq!(culprit(&r).0, told);
            assert_conserved(&r);
        }
    }

    #[test]
    fn where_its_section_is_known_it_is_that() {
        let r = given_back(&[(3_000, IN_FLUSH)], &[0x700]);
        assert_eq!(culprit(&r).0, "flush (a.cc:16)");
        assert_conserved(&r);
    }

    #[test]
    fn what_does_not_tell_changes_nothing() {
        let loader = |absences| assert_eq!(culprit(&given_back(absences, &[])).0, "loader (a.cc:43)");
        // Asleep elsewhere, mostly elsewhere, in several functions, in the C library.
        loader(&[(3_000, &[0x100, 0x310])]);
        loader(&[(1_000, IN_FLUSH), (2_000, &[0x100, 0x310])]);
        loader(&[(3_000, IN_FLUSH), (1_000, &[0x100, 0x280, 0x300])]);
        loader(&[(3_000, &[0x100, 0x300])]);
        loader(&[(3_000, &[0x300])]);
    }
}

mod callers {
    use super::*;

    const CODE: &[(u64, &[(&str, u32)])] = &[
        (0x200, &[("libc:unlock", 1)]),
        (0x300, &[("db_lock", 10)]),
        (0x310, &[("db_lock", 12)]),
        (0x400, &[("get_row", 20)]),
        (0x410, &[("reindex", 21)]),
        (0x500, &[("store::ScopedLock::ScopedLock(Store&)", 30)]),
        (0x510, &[("vacuum", 40), ("cleaner", 60)]),
        (0x520, &[("vacuum", 44), ("cleaner", 60)]),
        (0x530, &[("put_row", 50)]),
        (0x600, &[("worker", 70)]),
        (0x700, &[("libc:start_thread", 1)]),
    ];

    /// `db_lock` has caused 4 s of waiting, of that so many ms with each of these stacks.
    fn locked_for(stacks: &[(u64, &[u64])]) -> Report {
        let mut o = start();
        let row = with_stacks(&mut o, stacks);
        told(&mut o, CODE, vec![row])
    }

    fn with_stacks(o: &mut Run, stacks: &[(u64, &[u64])]) -> Holder {
        let mut row = holder(o, LOCK, 0x300, false, ASLEEP);
        for (id, &(time, stack)) in (7..).zip(stacks) {
            row.stacks.add(StackId(id), Nanos(time * MS));
            o.stacks.insert(StackId(id), stack.to_vec());
        }
        row
    }

    fn most(r: &Report) -> Vec<(&str, f64)> {
        let callers = r.culprits[0].callers.iter().flat_map(|c| &c.most);
        callers.map(|c| (c.place.function.as_deref().unwrap_or_default(), c.share)).collect()
    }

    #[test]
    fn the_caller_that_dominates_is_told() {
        let r = locked_for(&[(3_800, &[0x300, 0x510, 0x700]), (200, &[0x300, 0x400, 0x600, 0x700])]);
        let expected = "100 % of all waiting is caused by `db_lock` holding `lock` at a.cc:10, called by `vacuum` (a.cc:40) for 95 % of it; \
             100 % of that while asleep.";
        assert_eq!(r.verdict[0], expected);
        let callers = r.culprits[0].callers.as_ref().unwrap();
        assert_eq!((callers.functions, callers.known_ns, most(&r).len()), (2, r.culprits[0].wait_ns, 2));
        assert_eq!(
            (&r.locks[0].holders[0].callers, &r.sites[0].callers),
            (&Some(callers.clone()), &Some(callers.clone()))
        );
        let text = table::render(&r, &table::Layout::default());
        assert_eq!(text.matches("← vacuum 95 %").count(), 2, "{text}");
        assert_conserved(&r);
    }

    #[test]
    fn where_none_dominates_the_first_are_told() {
        let [a, b, c]: [&[u64]; 3] = [&[0x300, 0x510], &[0x300, 0x400, 0x600], &[0x300, 0x530, 0x600]];
        let r = locked_for(&[(1_800, a), (1_600, b), (600, c)]);
        let part = "called by 3 functions, most by `vacuum` (a.cc:40) for 45 % of it and by `get_row` (a.cc:20) for 40 %; 100 %";
        assert!(r.verdict[0].contains(part), "{:?}", r.verdict);
        assert_conserved(&r);
    }

    #[test]
    fn waiting_without_a_stack_is_nobodys() {
        let [a, b]: [&[u64]; 2] = [&[0x300, 0x510], &[0x300, 0x400]];
        let r = locked_for(&[(1_600, a), (40, b)]);
        assert_eq!(most(&r), [("vacuum", 0.4), ("get_row", 0.01)]);
        let part = "called by 2 functions, most by `vacuum` (a.cc:40) for 40 % of it (not known for 59 %); 100 %";
        assert!(r.verdict[0].contains(part), "{:?}", r.verdict);
        // So little is not worth a word.
        let r = locked_for(&[(200, a), (40, b)]);
        assert!(most(&r).len() == 2 && !r.verdict[0].contains("called by"), "{:?}", r.verdict);
        assert_conserved(&r);
    }

    #[test]
    fn more_than_all_is_a_share_of_it() {
        let r = locked_for(&[(6_000, &[0x300, 0x510]), (2_000, &[0x300, 0x400])]);
        assert_eq!(most(&r), [("vacuum", 0.75), ("get_row", 0.25)]);
        assert_conserved(&r);
    }

    #[test]
    fn what_all_go_through_or_only_locks_is_passed_over() {
        let [a, b]: [&[u64]; 2] = [&[0x300, 0x500, 0x510], &[0x300, 0x500, 0x400]];
        assert_eq!(most(&locked_for(&[(3_000, a), (1_000, b)])), [("vacuum", 0.75), ("get_row", 0.25)]);
        let [a, b]: [&[u64]; 2] = [&[0x300, 0x600, 0x510], &[0x300, 0x600, 0x400]];
        assert_eq!(most(&locked_for(&[(3_000, a), (1_000, b)])), [("vacuum", 0.75), ("get_row", 0.25)]);
        let [a, b]: [&[u64]; 2] = [&[0x300, 0x500, 0x510], &[0x300, 0x400]];
        assert_eq!(most(&locked_for(&[(3_000, a), (1_000, b)])), [("vacuum", 0.75), ("get_row", 0.25)]);
    }

    /// Where a lock was given back, the frame of the function that did so stands for that which had asked for it, if it is the same.
    #[test]
    fn stacks_of_releases_tell_callers_too() {
        let [a, b, c]: [&[u64]; 3] = [&[0x200, 0x310, 0x520], &[0x200, 0x520], &[0x300, 0x400]];
        let r = locked_for(&[(2_000, a), (1_000, b), (1_000, c)]);
        assert_eq!(most(&r), [("vacuum", 0.75), ("get_row", 0.25)]);
        let stack: Vec<_> = r.locks[0].holders[0].stack.iter().map(|f| f.function.as_deref().unwrap()).collect();
        assert_eq!(stack, ["db_lock", "vacuum", "cleaner"]);
    }

    #[test]
    fn the_only_caller_is_told_of_what_only_locks() {
        let [a, b]: [&[u64]; 2] = [&[0x300, 0x510, 0x600], &[0x300, 0x520, 0x600]];
        let r = locked_for(&[(3_000, a), (1_000, b)]);
        assert_eq!(most(&r), [("vacuum", 1.0)]);
        assert!(r.verdict[0].contains("called by `vacuum` (a.cc:40) for 100 % of it"), "{:?}", r.verdict);
        // The place of any other section says enough.
        let code = CODE.iter().map(|&(at, f)| if at == 0x300 { (at, &[("reserve", 10)][..]) } else { (at, f) });
        let mut o = start();
        let row = with_stacks(&mut o, &[(4_000, a)]);
        let r = told(&mut o, &code.collect::<Vec<_>>(), vec![row]);
        assert_eq!(r.culprits[0].callers, None);
        assert!(!r.verdict[0].contains("called by"), "{:?}", r.verdict);
        // Who only waits there is a caller, too.
        let mut o = start();
        let row = with_stacks(&mut o, &[(3_000, a)]);
        waits(&mut o, LOCK, 0x300, vec![row]);
        let row = sums(&mut o, LOCK, site(0x300), Via::Lock);
        row.stack = Some(StackId(99));
        o.stacks.insert(StackId(99), vec![0x300, 0x400]);
        let r =
            build(&o, &mut Code(CODE.iter().map(|(at, f)| (*at, f.to_vec())).collect()), &Options::default()).unwrap();
        assert_eq!(most(&r), [("vacuum", 0.75)]);
        assert!(
            r.verdict[0].contains("called by `vacuum` (a.cc:40) for 75 % of it (not known for 25 %)"),
            "{:?}",
            r.verdict
        );
    }

    /// By `db_lock` they would be told apart by numbers only.
    #[test]
    fn locks_are_named_by_the_caller_of_what_only_locks() {
        let name = |site_of: u64, stack: &[u64]| {
            let other = Lock { addr: 0x9000, ..LOCK };
            let mut o = start();
            sums(&mut o, other, site(site_of), Via::Lock).stack = Some(StackId(99));
            o.stacks.insert(StackId(99), stack.to_vec());
            let mut code = Code(CODE.iter().map(|(at, f)| (*at, f.to_vec())).collect());
            let r = build(&o, &mut code, &Options::default()).unwrap();
            r.locks[0].name.clone()
        };
        assert_eq!(name(0x300, &[0x200, 0x300, 0x510, 0x600]), "lock in vacuum (a.cc:40)");
        assert_eq!(name(0x300, &[0x200, 0x300, 0x500, 0x400]), "lock in get_row (a.cc:20)");
        // Nobody else is known; a function that does more says enough.
        assert_eq!(name(0x300, &[0x200, 0x300, 0x500]), "lock in db_lock (a.cc:10)");
        assert_eq!(name(0x300, &[]), "lock in db_lock (a.cc:10)");
        assert_eq!(name(0x400, &[0x200, 0x400, 0x600]), "lock in get_row (a.cc:20)");
    }
}
