use super::*;
use crate::cli::top::frame::{HolderNow, WaiterNow};
use proptest::prelude::*;

pub fn row(id: &str, waiting: [f64; 3]) -> Row {
    Row {
        id: id.to_owned(),
        name: format!("{id}_lock"),
        about: "mutex".to_owned(),
        pid: Some(7),
        lock: Some(id.to_owned()),
        waiting,
        wait_ns: 1_500_000_000,
        waiting_now: Some(2),
        spark: vec![0.0, 0.5, 2.0],
        ..Row::default()
    }
}

/// A frame of a program with two locks, so many seconds after the start.
pub fn frame(seconds: u64) -> Frame {
    let waiters =
        vec![WaiterNow { tid: "12".to_owned(), comm: "worker".to_owned(), waited_ns: 3_000, ..WaiterNow::default() }];
    let detail = Detail {
        name: "cache_lock".to_owned(),
        kind: "mutex".to_owned(),
        holder: HolderNow::Unknown("nobody has looked"),
        waiters,
        ..Detail::default()
    };
    Frame {
        at_ns: seconds * 1_000_000_000,
        spans_ns: [1_000_000_000, 10_000_000_000],
        target: "pid 7 (demo)".to_owned(),
        verdict: vec!["`cache_lock` (mutex) holds demo back.".to_owned()],
        coverage: "every lock operation".to_owned(),
        cost: "1 % of its CPU time".to_owned(),
        locks: vec![row("cache", [0.5, 2.0, 1.0]), row("log", [1.5, 0.1, 3.0])],
        culprits: vec![row("flush", [1.0, 1.0, 1.0])],
        threads: vec![Row { lock: None, ..row("idle", [0.0; 3]) }],
        processes: vec![row("7", [2.0; 3])],
        details: [("cache".to_owned(), detail.clone()), ("log".to_owned(), detail)].into(),
        ..Frame::default()
    }
}

fn model() -> Model {
    let mut model = Model::default();
    (1..=3).for_each(|seconds| model.take(frame(seconds)));
    model
}

fn act(model: &mut Model, actions: &[Action]) {
    for &action in actions {
        assert_eq!(model.act(action), Effect::None);
    }
}

fn shown(model: &Model) -> Vec<&str> {
    model.rows().into_iter().map(|row| row.id.as_str()).collect()
}

#[test]
fn rows_are_sorted_by_the_span_that_is_wanted_and_the_choice_follows_its_line() {
    let mut model = model();
    assert_eq!((shown(&model), model.lock().as_deref()), (vec!["log", "cache"], Some("log")));
    act(&mut model, &[Action::Next]);
    assert_eq!(model.lock().as_deref(), Some("cache"));
    act(&mut model, &[Action::Sort]);
    assert_eq!((shown(&model), model.position()), (vec!["cache", "log"], 0));
    act(&mut model, &[Action::Next, Action::Next, Action::PageDown]);
    assert_eq!(model.lock().as_deref(), Some("log"), "there is none beyond");
    act(&mut model, &[Action::First]);
    assert_eq!(model.lock().as_deref(), Some("cache"));
    act(&mut model, &[Action::Last, Action::Previous, Action::Sort, Action::Sort]);
    assert_eq!((model.sort, model.lock().as_deref()), (0, Some("cache")));
}

#[test]
fn closer_and_back() {
    let mut model = model();
    act(&mut model, &[Action::Enter]);
    assert_eq!(model.page, Page::Lock("log".to_owned()));
    act(&mut model, &[Action::Next]);
    assert_eq!(model.page, Page::Lock("cache".to_owned()), "the next lock, as closely");
    assert_eq!(model.detail().unwrap().0.name, "cache_lock");
    act(&mut model, &[Action::Help]);
    assert!(matches!(&model.page, Page::Help(_)));
    act(&mut model, &[Action::Sort]);
    assert_eq!(
        (&model.page, model.sort),
        (&Page::Lock("cache".to_owned()), 0),
        "any key leaves the help, and does no more"
    );
    act(&mut model, &[Action::Back]);
    assert_eq!(model.page, Page::List);
}

#[test]
fn views() {
    let mut model = model();
    act(&mut model, &[Action::View(View::Culprits), Action::NextView]);
    assert_eq!((model.view, shown(&model)), (View::Threads, vec!["idle"]));
    act(&mut model, &[Action::Enter]);
    assert!(model.page == Page::List && model.message.is_some(), "it waits for nothing");
    act(&mut model, &[Action::NextView, Action::Enter]);
    assert_eq!((model.view, model.filter.as_str(), shown(&model).len()), (View::Locks, "pid:7", 2));
    act(&mut model, &[Action::View(View::Processes), Action::NextView]);
    assert_eq!(model.view, View::Locks);
}

#[test]
fn a_filter_is_typed_kept_and_taken_away() {
    let mut model = model();
    act(&mut model, &[Action::Filter]);
    "cachx".chars().for_each(|c| model.type_in(c));
    assert!(model.is_typing() && shown(&model).is_empty());
    model.erase();
    model.end_typing(true);
    assert_eq!((shown(&model), model.is_typing()), (vec!["cache"], false));
    act(&mut model, &[Action::Filter]);
    model.type_in('z');
    model.end_typing(false);
    assert_eq!(model.filter, "cach", "the one before");
    act(&mut model, &[Action::Back]);
    assert_eq!(shown(&model).len(), 2);
    model.filter = "pid:8".to_owned();
    assert!(shown(&model).is_empty());
}

#[test]
fn the_screen_stops_and_steps_through_time() {
    let at = |model: &Model| model.frame().unwrap().at_ns / 1_000_000_000;
    let mut model = model();
    assert_eq!((at(&model), model.behind_ns()), (3, None));
    act(&mut model, &[Action::Pause]);
    model.take(frame(4));
    assert_eq!((at(&model), model.behind_ns()), (3, Some(1_000_000_000)));
    act(&mut model, &[Action::Earlier, Action::Earlier]);
    assert_eq!(at(&model), 1);
    act(&mut model, &[Action::Earlier]);
    assert!(at(&model) == 1 && model.message.is_some());
    act(&mut model, &[Action::Later, Action::Pause]);
    assert_eq!((at(&model), model.behind_ns()), (4, None));
    act(&mut model, &[Action::Earlier]);
    assert_eq!(at(&model), 3, "a step back stops it");
    // What is shown may be older than all that is kept.
    model.take(frame(604));
    assert_eq!((model.frames.len(), at(&model)), (2, 3));
    act(&mut model, &[Action::Later]);
    assert_eq!(at(&model), 4);
}

#[test]
fn what_is_shown_is_exported() {
    let mut model = model();
    act(&mut model, &[Action::Filter]);
    model.type_in('g');
    model.end_typing(true);
    let Effect::Export(json) = model.act(Action::Export) else { panic!() };
    let export: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&export["schema"], &export["view"], &export["filter"]),
        (&"lockbpf.top/1".into(), &"locks".into(), &"g".into())
    );
    assert_eq!(export["rows"].as_array().map(Vec::len), Some(1));
    assert_eq!(export["frame"]["at_ns"], 3_000_000_000u64);
    assert_eq!(Model::default().act(Action::Export), Effect::None, "there is nothing yet");
}

proptest! {
    #[test]
    fn no_order_of_keys_does_harm(keys in prop::collection::vec(0usize..20, 0..60)) {
        let actions = [
            Action::Next, Action::Previous, Action::PageDown, Action::PageUp, Action::First, Action::Last, Action::Enter, Action::Back,
            Action::View(View::Locks), Action::View(View::Threads), Action::NextView, Action::Sort, Action::Filter, Action::Pause,
            Action::Earlier, Action::Later, Action::Export, Action::Help, Action::Suspend, Action::Quit,
        ];
        let mut model = Model::default();
        for (i, key) in keys.into_iter().enumerate() {
            model.act(actions[key]);
            prop_assert!(model.rows().is_empty() || model.position() < model.rows().len());
            if i % 5 == 4 {
                model.take(frame(i as u64 * 40));
            }
        }
    }
}
