//! What a page looks like, in a real browser: what a search finds, what the swimlanes draw, whether all of it can be read, also on paper.

use crate::examples::example;
use crate::harness::browser::{Browser, NARROW, PAPER, View, WIDE};
use crate::harness::observer::run;
use crate::harness::python;
use crate::html::{export, list, text, word};
use crate::outputs::golden;
use serde_json::Value;
use std::path::{Path, PathBuf};

const SEARCH: &str = include_str!("search.js");
const LANES: &str = include_str!("lanes.js");
const CONTRAST: &str = include_str!("contrast.js");
const READ_PDF: &str = include_str!("paper.py");
/// Waits until a page has drawn what it draws at first.
const DRAWN: &str = "new Promise((done) => requestAnimationFrame(() => done(1)))";
const DARK: View = View { scheme: "dark", ..WIDE };

/// A page of a recording of a real program.
fn page(dir: &Path, name: &str) -> PathBuf {
    let page = dir.join(format!("{name}.html"));
    export(&golden(&format!("{name}.bin")), &page);
    page
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// As pages write a share.
fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p <= 0.0 => "0 %".to_owned(),
        p if p < 0.05 => "<0.1 %".to_owned(),
        p if p < 9.95 => format!("{p:.1} %"),
        p if (99.5..100.0).contains(&p) => ">99 %".to_owned(),
        p => format!("{p:.0} %"),
    }
}

/// The calls of a flame graph in which a text is found, and the waiting in them: a call within one that was found counts once.
fn found(stacks: &Value, text: &str) -> (Vec<u64>, u64) {
    let column = |name: &str| list(stacks, name).iter().map(number).collect::<Vec<_>>();
    let (names, depths, waits) = (column("name"), column("depth"), column("wait_ns"));
    let (mut calls, mut sum, mut inside) = (Vec::new(), 0, None);
    for (at, ((name, depth), wait)) in names.iter().zip(depths).zip(waits).enumerate() {
        inside = inside.filter(|outer| depth > *outer);
        let name = word(&stacks["names"][usize::try_from(*name).expect("an index")]);
        if name.to_lowercase().contains(&text.to_lowercase()) {
            calls.push(at as u64);
            if inside.is_none() {
                (sum, inside) = (sum + wait, Some(depth));
            }
        }
    }
    (calls, sum)
}

#[test]
fn a_browser_finds_the_waiting_of_what_is_searched() {
    let Some(browser) = Browser::find() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let mut within = 0;
    for name in ["nested", "rwlock", "python"] {
        let seen = browser.look(&page(dir.path(), name), WIDE, SEARCH);
        assert!(list(&seen, "searched").len() > 10, "{seen}");
        for one in list(&seen, "searched") {
            let stacks = &seen["page"][word(&one["side"])];
            let (calls, sum) = found(stacks, word(&one["text"]));
            let all = number(&stacks["all_ns"]);
            let told = format!(" Found in {} of the waiting (", percent(sum as f64 / all as f64));
            assert!(word(&one["told"]).contains(&told), "{told} {one}");
            assert!(sum >= 1_000 || word(&one["told"]).contains(&format!("({sum} ns)")), "{sum}: {one}");
            let drawn: Vec<u64> = list(one, "drawn").iter().map(number).filter(|call| calls.contains(call)).collect();
            assert_eq!(list(one, "marked").iter().map(number).collect::<Vec<_>>(), drawn, "{one}");
            within += usize::from(calls.len() > 1 && sum < all);
        }
    }
    assert!(within > 3, "searches that find several calls, and not all: {within}");
}

#[test]
fn a_browser_draws_the_swimlanes_that_are_asked_for() {
    let Some(browser) = Browser::find() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let figure = dir.path().join("figure.html");
    export(&example("figure_4a.jsonl"), &figure);
    for (file, view) in [(page(dir.path(), "nested"), WIDE), (page(dir.path(), "queues"), DARK), (figure, NARROW)] {
        let seen = browser.look(&file, view, LANES);
        assert!(list(&seen, "wrong").is_empty(), "{}: {seen}", file.display());
        for (what, least) in [("columns", 10_000), ("covered", 1_000), ("path", 10), ("frames", 5), ("arrows", 5)] {
            assert!(number(&seen["seen"][what]) >= least, "{what} of {}: {seen}", file.display());
        }
    }
}

/// Pages with all that there is: matrices, doubts, advice, deadlocks, and a comparison.
fn pages(dir: &Path) -> Vec<PathBuf> {
    let mut pages: Vec<_> = ["rwlock", "accesses", "deadlock"].map(|name| page(dir, name)).into();
    let [a, b] = ["culprit-before.bin", "culprit-after.bin"].map(golden);
    let outcome = run(&["diff", text(&a), text(&b), "--format", "html"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    pages.push(dir.join("diff.html"));
    std::fs::write(dir.join("diff.html"), &outcome.stdout).expect("failed to write a page");
    pages
}

#[test]
fn a_browser_shows_texts_that_can_be_read() {
    let Some(browser) = Browser::find() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let mut cells = 0;
    for page in pages(dir.path()) {
        for view in [WIDE, DARK, NARROW, PAPER] {
            let seen = browser.look(&page, view, CONTRAST);
            let (file, none) = (page.display(), Vec::<Value>::new());
            assert!(number(&seen["texts"]) > 100, "{file}: {seen}");
            assert_eq!(list(&seen, "low"), &none, "{file} {} {}", view.scheme, view.media);
            if view.media == "print" {
                assert_eq!(list(&seen, "hidden"), &none, "{file}");
                assert_eq!(number(&seen["lightOnDark"]), 0, "{file}");
            }
            cells += number(&seen["cells"]);
        }
    }
    assert!(cells > 40, "cells of matrices: {cells}");
}

#[test]
fn a_browser_prints_the_whole_page_dark_on_white() {
    let Some(browser) = Browser::find() else { return };
    let Some(python) = python::with(&["pypdfium2==5.15.2"]) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let paper = dir.path().join("paper.pdf");
    for name in ["nested", "python"] {
        let page = page(dir.path(), name);
        // What is printed is on a dark screen, folded up, until then.
        browser.draw(&page, DARK, DRAWN, Some(&paper));
        let read: Value = serde_json::from_str(&python::run(&python, READ_PDF, &[&paper])).expect("JSON");
        let dark = list(&read, "dark");
        assert!(dark.len() > 1 && dark.iter().all(|share| share.as_f64() < Some(0.1)), "{dark:?}");
        let solid = |text: &str| text.split_whitespace().collect::<String>();
        let shown = solid(word(&read["text"]));
        let report = crate::outputs::report(&golden(&format!("{name}.bin")));
        let labels = list(&report, "locks").iter().map(|lock| word(&lock["label"]));
        for text in labels.chain([
            "Which thread waited for which",
            "Waiter",
            "The same as a list",
            "→",
            "asks no network for anything",
        ]) {
            assert!(shown.contains(&solid(text)), "{text} is not on paper: {}", read["text"]);
        }
        for control in ["Show all", "Zoom out", "Next wait", "more locks"] {
            assert!(!shown.contains(&solid(control)), "{control} is on paper");
        }
    }
}
