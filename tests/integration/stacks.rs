//! Stacks for which the kernel side's tables have no room: each goes another way, and is lost only if there is none.

use crate::harness::capture::{Captured, PROCESS, capture_as};
use crate::harness::may_observe;
use lockbpf::event::Event;
use lockbpf::unwind::{Decision, Method};
use lockbpf_common::config::{MAX_STACKS, MORE_STACKS, WALKED_STACKS};
use lockbpf_common::stack_copy::FIRST_COPY;
use std::collections::BTreeSet;

/// Two functions that hold a lock, one that waits for it: several different stacks.
const CALLERS: &str = "callers 5";

/// The numbers of all stacks of sections.
fn numbers(captured: &Captured) -> BTreeSet<u32> {
    let stack = |event: &Event| if let Event::Section(section) = event { section.stack } else { None };
    captured.events.iter().filter_map(stack).map(|id| id.0).collect()
}

#[test]
fn a_stack_whose_place_another_one_has_goes_into_the_second_table() {
    let Some(_turn) = may_observe() else { return };
    let captured = capture_as(CALLERS, |options| options.walked_stacks = [1, MORE_STACKS], |_| {});
    assert!(!captured.harvest.quality.incomplete(), "{:?}", captured.harvest.quality);
    let numbers = numbers(&captured);
    // One stack has the only place in the first table; it may be another event's.
    assert!(numbers.iter().filter(|id| (MAX_STACKS..WALKED_STACKS).contains(id)).count() > 1, "{numbers:?}");
    let kept = |id: &u32| captured.harvest.stacks.iter().find(|(known, _)| known.0 == *id).map(|(_, stack)| stack);
    let stacks: Vec<_> = numbers.iter().filter_map(kept).collect();
    assert_eq!(stacks.len(), numbers.len(), "each number is a stack: {numbers:?}");
    let different: BTreeSet<_> = stacks.iter().collect();
    assert_eq!(different.len(), stacks.len(), "and each another one");
}

#[test]
fn a_stack_is_lost_only_if_both_tables_are_full_and_none_is_copied() {
    let Some(_turn) = may_observe() else { return };
    let captured = capture_as(CALLERS, |options| options.walked_stacks = [1, 1], |_| {});
    assert!(captured.counted("stack_lost") > 0, "{:?}", captured.harvest.quality);
}

#[test]
fn stacks_are_copied_where_both_tables_are_full() {
    let Some(_turn) = may_observe() else { return };
    // A process that keeps frame pointers, and one of which that is not known yet.
    for decision in [Some(Decision::Frames), None] {
        let captured = capture_as(
            CALLERS,
            |options| {
                options.walked_stacks = [1, 1];
                options.unwind = Method::Auto;
            },
            |session| {
                if let Some(decision) = decision {
                    session.decide(PROCESS, decision).expect("failed to decide");
                }
            },
        );
        assert_eq!(captured.counted("stack_lost"), 0, "{:?}", captured.harvest.quality);
        assert!(captured.counted("stack_copies") > 0, "{:?}", captured.harvest.quality);
        let numbers = numbers(&captured);
        assert!(numbers.iter().any(|&id| id >= FIRST_COPY), "{decision:?}: {numbers:?}");
    }
}
