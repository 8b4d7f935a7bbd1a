use super::*;
use crate::alert::HeldFor;
use crate::cli::top::frame::{Detail, HolderNow, HolderThread, LinkNow, Part, View, WaiterNow};
use crate::cli::top::keys::Action;
use crate::cli::top::model::tests::frame;
use crate::report::histograms::Bar;
use crate::units::Nanos;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const PLAIN: Style = Style { color: false, unicode: true };

/// The screen as text, line by line.
fn screen(model: &Model, style: Style, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, &style, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

fn waiter(tid: &str, waited_ns: u64) -> WaiterNow {
    let place = Some("append_to_log (demo.rs:45)".to_owned());
    WaiterNow { tid: tid.to_owned(), comm: "worker".to_owned(), waited_ns, at_least: false, place }
}

fn holder() -> HolderThread {
    HolderThread {
        tid: "11".to_owned(),
        comm: "flusher".to_owned(),
        doing: "asleep in fsync".to_owned(),
        off_ns: Some(2_000_000),
        held: Some(HeldFor::Exactly(Nanos(3_000_000))),
        taken_at: Some("flush_log (demo.rs:53)".to_owned()),
        is_in: Some("write_back (demo.rs:9)".to_owned()),
        waits_for: None,
    }
}

fn closely(detail: Detail) -> Model {
    let mut shown = frame(65);
    shown.details.insert("log".to_owned(), Detail { name: "log_lock".to_owned(), kind: "mutex".to_owned(), ..detail });
    let mut model = Model::default();
    model.take(shown);
    model.act(Action::Enter);
    model
}

#[test]
fn a_list_at_the_usual_size() {
    let mut model = Model::default();
    assert!(screen(&model, PLAIN, 80, 24)[1].contains("first look"));
    model.take(frame(65));
    let lines = screen(&model, PLAIN, 80, 24);
    let expected = [
        "lockbpf top: pid 7 (demo) for 1:05                                          LIVE",
        "`cache_lock` (mutex) holds demo back.",
        "Seen: every lock operation. Cost: 1 % of its CPU time.",
        "No warnings.",
        "[1 Locks] 2 Culprits  3 Threads  4 Processes   by the last second",
    ];
    assert_eq!(lines[..5], expected);
    assert!(lines[5].contains("Lock") && lines[5].contains("1 s") && lines[5].contains("10 s"), "{lines:#?}");
    assert!(
        lines[6].starts_with("> log_lock") && lines[6].contains("1.50") && lines[6].contains("1.50 s"),
        "{lines:#?}"
    );
    assert!(lines[7].starts_with("  cache_lock") && lines[7].ends_with("▂█"), "{lines:#?}");
    assert!(lines[23].contains("? help") && lines[23].contains("q quit"), "{lines:#?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80));
}

#[test]
fn a_large_screen_shows_the_chosen_lock_below() {
    let mut model = Model::default();
    let mut shown = frame(1);
    shown.warnings = vec!["DEADLOCK: 1, 2 at `a`, `b`".to_owned(), "data lost: 3 events (ring_full)".to_owned()];
    model.take(shown);
    let text = screen(&model, PLAIN, 200, 60).join("\n");
    for part in ["! DEADLOCK", "! data lost", "Kind", "Holder   not known (nobody has looked)", "thread 12 (worker)"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let small = screen(&model, PLAIN, 80, 24).join("\n");
    assert!(small.contains("! DEADLOCK: 1, 2 at `a`, `b` (and 1 more)"), "{small}");
}

#[test]
fn a_lock_closely() {
    let detail = Detail {
        holder: HolderNow::Thread(Box::new(holder())),
        waiters: (0..9).map(|n| waiter(&format!("2{n}"), 9_000 - n)).collect(),
        more_waiters: 40,
        chain: vec![LinkNow { lock: "inner_lock".to_owned(), holder: HolderNow::Thread(Box::new(holder())) }],
        waits: (5..35).map(|exponent| Bar { from_ns: 1 << exponent, count: 1 + exponent }).collect(),
        blamed: vec![Part { what: "flush_log (demo.rs:53)".to_owned(), share: 0.99, inferred: false }],
        waited_at: vec![Part { what: "append_to_log (demo.rs:45)".to_owned(), share: 1.0, inferred: true }],
        acquisitions: Some(5_835),
        contended: 1_317,
        ..Detail::default()
    };
    let lines = screen(&closely(detail), PLAIN, 80, 24);
    let text = lines.join("\n");
    for part in [
        "Holder   thread 11 (flusher): asleep in fsync for 2.00 ms, called from",
        "write_back (demo.rs:9); holds it for 3.00 ms, taken in flush_log",
        "Behind   it waits for inner_lock, held by thread 11 (flusher), asleep in fsync",
        "Waiting  49 now, longest first",
        "9.00 µs  thread 20 (worker) in append_to_log (demo.rs:45)",
        "≥ 32 ns",
        "99 % flush_log (demo.rs:53)",
        "100 % ~ append_to_log",
        "1,317 of 5,835 acquisitions contended",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn what_is_not_known_is_said() {
    let unsure = HolderThread { held: None, taken_at: None, off_ns: None, is_in: None, ..holder() };
    let detail = Detail { holder: HolderNow::Thread(Box::new(unsure)), ..Detail::default() };
    let text = screen(&closely(detail), PLAIN, 80, 24).join(" ");
    assert!(text.contains("since when is not known"), "{text}");
    for (held, told) in [
        (HeldFor::AtLeast(Nanos(5_000)), "for at least 5.00 µs"),
        (HeldFor::AtMost(Nanos(7_000)), "for 7.00 µs at most"),
    ] {
        let bounded = HolderThread { held: Some(held), taken_at: None, ..holder() };
        let detail = Detail { holder: HolderNow::Thread(Box::new(bounded)), ..Detail::default() };
        let text = screen(&closely(detail), PLAIN, 200, 24).join(" ");
        assert!(text.contains(&format!("holds it {told}")), "{text}");
    }
    assert!(text.contains("nobody at this moment") && text.contains("none that was measured"), "{text}");
}

#[test]
fn the_help_has_every_key() {
    let mut model = Model::default();
    model.take(frame(1));
    model.act(Action::Help);
    for (width, height) in [(80, 24), (200, 60)] {
        let text = screen(&model, PLAIN, width, height).join("\n");
        for key in crate::cli::top::keys::KEYS {
            assert!(text.contains(key.shown), "{}: {text}", key.shown);
        }
    }
}

#[test]
fn a_filter_is_seen_while_it_is_typed() {
    let mut model = Model::default();
    model.take(frame(1));
    model.act(Action::Filter);
    "zzz".chars().for_each(|c| model.type_in(c));
    let lines = screen(&model, PLAIN, 80, 24);
    assert!(lines[23].starts_with("filter: zzz_") && lines.iter().any(|line| line.contains("Nothing has that")));
}

#[test]
fn a_terminal_of_ascii_gets_ascii() {
    let detail = Detail {
        waiters: vec![waiter("1", 9_000)],
        waits: vec![Bar { from_ns: 1 << 10, count: 3 }],
        ..Detail::default()
    };
    let mut model = closely(detail);
    for action in [Action::Back, Action::Enter, Action::Help] {
        let lines = screen(&model, Style { unicode: false, ..PLAIN }, 200, 60);
        assert!(lines.iter().all(|line| line.is_ascii()), "{lines:#?}");
        model.act(action);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn it_can_be_drawn_at_any_size(
        width in 1u16..220,
        height in 1u16..70,
        page in 0u8..4,
        view in 0usize..4,
        names in prop::collection::vec("\\PC{0,60}", 0..6),
        threads in prop::collection::vec(prop::num::f64::ANY, 3),
        unicode: bool,
        color: bool,
    ) {
        let mut shown = frame(1);
        shown.verdict = names.clone();
        shown.warnings = names.clone();
        for (row, name) in shown.locks.iter_mut().zip(&names) {
            (row.name, row.about, row.spark) = (name.clone(), name.clone(), threads.clone());
            row.waiting = [threads[0], threads[1], threads[2]];
        }
        for (detail, name) in shown.details.values_mut().zip(&names) {
            detail.name = name.clone();
            detail.waiters = names.iter().map(|name| waiter(name, 1)).collect();
            detail.blamed = names.iter().map(|name| Part { what: name.clone(), share: threads[0], inferred: unicode }).collect();
            detail.waits = vec![Bar { from_ns: 0, count: u64::MAX }, Bar { from_ns: 1 << 63, count: 1 }];
        }
        let mut model = Model::default();
        model.take(shown);
        model.act(Action::View(View::ALL[view]));
        match page {
            1 => drop(model.act(Action::Enter)),
            2 => drop(model.act(Action::Help)),
            3 => drop(model.act(Action::Filter)),
            _ => {}
        }
        screen(&model, Style { color, unicode }, width, height);
    }
}
