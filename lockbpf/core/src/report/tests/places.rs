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

/// Functions by addresses, innermost first, each with its line; of locking or the C library if the name begins with `libc:`, interpreted if
/// it is `<module>`.
#[derive(Default)]
struct Code(HashMap<u64, Vec<(&'static str, u32)>>);

impl Names for Code {
    fn frames(&mut self, _: Process, addr: u64) -> Vec<Frame> {
        let functions = self.0.get(&addr).cloned().unwrap_or_default();
        let last = functions.len().saturating_sub(1);
        let frame = |(at, (name, line)): (usize, (&str, u32))| Frame {
            function: Some(name.to_owned()),
            location: Some(("a.cc".to_owned(), line)),
            inlined: at < last,
            module: (!name.starts_with("<module>")).then(|| ("a.out".to_owned(), addr)),
            addr,
        };
        functions.into_iter().enumerate().map(frame).collect()
    }

    fn role(&mut self, _: Process, addr: u64) -> Role {
        let is_libc =
            self.0.get(&addr).is_some_and(|functions| functions.iter().any(|(name, _)| name.starts_with("libc:")));
        if is_libc { Role::Libc } else { Role::Program }
    }

    fn call_stack(&mut self, process: Process, raw: &[u64], site: Option<u64>) -> Vec<u64> {
        call_stack(raw, site, |addr| self.role(process, addr))
    }

    fn global(&mut self, _: Lock) -> Option<String> {
        Some("lock".to_owned())
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

    /// An interpreter's functions are in no file of code.
    #[test]
    fn a_function_that_is_interpreted_is_not_left_by_a_jump() {
        let r = given_back_at(0x800, &[(3_000, &[0x100, 0x210, 0x800, 0x600])], &[]);
        assert_eq!(culprit(&r).0, "<module> (a.cc:34)");
        assert_conserved(&r);
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
