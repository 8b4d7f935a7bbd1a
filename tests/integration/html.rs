//! The report as a page, looked at in a real browser: it complains of nothing, asks for nothing, and what is pressed shows what the report
//! says.

use crate::examples::example;
use crate::harness::browser::{Browser, NARROW, WIDE};
use crate::harness::observer::run;
use crate::outputs::{caused, waited};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

pub(crate) fn export(from: &Path, to: &Path) {
    let outcome = run(&["export", "--from", text(from), "--to", text(to)]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{}", outcome.stderr);
}

fn report(from: &Path) -> Value {
    let outcome = run(&["report", "--from", text(from), "--format", "json"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    serde_json::from_str(&outcome.stdout).expect("the report is JSON")
}

/// Recordings of all kinds: event lines, a captured one of which parts are missing, and one with everything in it.
fn recordings() -> Vec<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/trace");
    let examples = ["figure_4a.jsonl", "figure_4b.jsonl"].map(example);
    examples.into_iter().chain(["captured-gaps.bin", "every-field.bin"].map(|name| corpus.join(name))).collect()
}

/// Presses everything that can be pressed, and returns what the page then shows.
const PRESS: &str = r#"(async () => {
  const all = (what) => [...document.querySelectorAll(what)];
  const shown = (what) => document.querySelector(what)?.textContent ?? '';
  const frame = () => new Promise((done) => requestAnimationFrame(() => done()));
  const data = JSON.parse(document.getElementById('data').textContent);
  await frame();
  const locks = all('.locks tbody button').map((button, at) => {
    button.click();
    const rows = all('.matrix tbody tr');
    const cells = rows.map((row) => [...row.querySelectorAll('td.cell button')].filter((cell) => !cell.disabled).map((cell) => {
      cell.click();
      return [cell.textContent, shown('#cell p')];
    }));
    return {
      label: shown('#chosen .name'), figures: shown('#lock dl'), selected: all('tr[aria-selected="true"]').map((row) => Number(row.dataset.lock)),
      rows: rows.map((row) => [row.querySelector('th').textContent, row.querySelector('.sum').textContent]), cells,
    };
  });
  const key = (element, name) => element.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true, cancelable: true }));
  const canvas = document.getElementById('lanes');
  const waits = [];
  for (let i = 0; canvas && i < Math.min(data.lanes.waits.wait_ns.length, 20); i++) {
    key(canvas, 'n');
    waits.push(shown('#wait p'));
    key(canvas, 'Enter');
  }
  if (canvas) ['+', '-', 'ArrowRight', 'ArrowLeft', 'Home', 'p', 'Escape'].forEach((name) => key(canvas, name));
  const calls = all('[data-call]').length;
  const flame = shown('#flame-told');
  const call = document.querySelector('[data-call]');
  if (call) call.dispatchEvent(new MouseEvent('click', { bubbles: true }));
  const zoomed = shown('#flame-told');
  const sliders = all('.slider input').map((input, at) => [...data.what_if.changes[at].answers.keys()].map((size) => {
    input.value = size;
    input.dispatchEvent(new Event('input'));
    return shown(`#answer-${at}`);
  }));
  return {
    verdict: all('.verdict p').map((p) => p.textContent), locks, waits, calls, flame, zoomed, sliders, page: data,
    quality: shown('#quality'), wider: document.documentElement.scrollWidth - window.innerWidth,
    foreign: all('img, iframe, object, link, script').length, injected: typeof window.injected,
    unnamed: all('button, input, select, [role="img"], [role="button"], canvas').filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label'))).map((e) => e.outerHTML.slice(0, 200)),
  };
})()"#;

pub(crate) fn list<'a>(value: &'a Value, of: &str) -> &'a Vec<Value> {
    value[of].as_array().unwrap_or_else(|| panic!("{of} is no list: {value}"))
}

pub(crate) fn word(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// As pages and reports write a sentence: without the backquotes around names.
fn plain(sentence: &Value) -> String {
    word(sentence).replace('`', "")
}

fn agrees(seen: &Value, report: &Value) {
    let verdict: Vec<&str> = list(seen, "verdict").iter().map(word).collect();
    assert_eq!(verdict, list(report, "verdict").iter().map(plain).collect::<Vec<_>>());
    for field in ["totals", "verdict", "culprits"] {
        assert_eq!(seen["page"]["report"][field], report[field], "{field}");
    }
    assert_eq!(list(seen, "locks").len(), list(report, "locks").len());
    for (at, (shown, lock)) in list(seen, "locks").iter().zip(list(report, "locks")).enumerate() {
        assert_eq!((&shown["label"], list(shown, "selected").as_slice()), (&lock["label"], &[Value::from(at)][..]));
        for figure in seen["page"]["words"]["locks"][at].as_array().expect("figures").iter().filter(|f| f[0] != "Kind")
        {
            assert!(word(&shown["figures"]).contains(&format!("{}{}", word(&figure[0]), word(&figure[1]))), "{figure}");
        }
        let waiters = list(lock, "waiters");
        assert_eq!(list(shown, "rows").len(), waiters.len().min(8), "{lock}");
        for ((row, cells), waiter) in list(shown, "rows").iter().zip(list(shown, "cells")).zip(waiters) {
            assert!(word(&row[0]).starts_with(&clean(word(&waiter["symbol"]))), "{row}");
            for cell in cells.as_array().expect("cells") {
                let [time, told] = [0, 1].map(|i| word(&cell[i]));
                assert!(told.starts_with(&clean(word(&waiter["symbol"]))) && told.contains(time), "{told}");
            }
        }
    }
}

/// Characters that change how others are shown are replaced.
fn clean(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) { '\u{fffd}' } else { c })
        .collect()
}

#[test]
fn a_browser_shows_what_the_report_says() {
    let Some(browser) = Browser::find() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("report.html");
    for recording in recordings() {
        export(&recording, &page);
        let report = report(&recording);
        for view in [WIDE, NARROW] {
            let seen = browser.look(&page, view, PRESS);
            agrees(&seen, &report);
            assert!(seen["wider"].as_i64() <= Some(0), "it has to be scrolled sideways: {}", seen["wider"]);
            assert_eq!((seen["foreign"].as_u64(), list(&seen, "unnamed").len()), (Some(2), 0), "{}", seen["unnamed"]);
        }
    }
}

#[test]
fn a_browser_shows_waits_stacks_and_gains() {
    let Some(browser) = Browser::find() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("report.html");
    let recording = example("figure_4a.jsonl");
    export(&recording, &page);
    let (seen, report) = (browser.look(&page, WIDE, PRESS), report(&recording));
    let lanes = &seen["page"]["lanes"];
    let waits = list(&lanes["waits"], "wait_ns");
    assert!(!waits.is_empty() && list(&seen, "waits").len() == waits.len().min(20));
    for (at, told) in list(&seen, "waits").iter().enumerate() {
        let lock = lanes["waits"]["lock"][at].as_u64().and_then(|lock| usize::try_from(lock).ok()).expect("a lock");
        let (lock, wait) = (word(&lanes["locks"][lock]), &waits[at]);
        assert!(word(told).contains(&format!("waited {wait} ns for {lock} in ")), "{told}");
    }
    let sum: u64 = waits.iter().map(|wait| wait.as_u64().expect("ns")).sum();
    assert_eq!(sum, report["totals"]["recorded_wait_ns"].as_u64().expect("ns"));
    assert_eq!(seen["page"]["culprits"]["all_ns"], report["totals"]["harm_ns"]);
    assert!(seen["calls"].as_u64() > Some(0) && word(&seen["flame"]).starts_with("All waiting: "), "{}", seen["flame"]);
    assert!(word(&seen["zoomed"]).starts_with("Zoomed to "), "{}", seen["zoomed"]);
    let changes = list(&seen["page"]["what_if"], "changes");
    assert!(!changes.is_empty() && changes.len() == list(&seen, "sliders").len());
    for (change, told) in changes.iter().zip(list(&seen, "sliders")) {
        for (answer, told) in list(change, "answers").iter().zip(told.as_array().expect("texts")) {
            let wait = answer["wait_ns"].as_f64().expect("ns").round();
            assert!(wait >= 1_000.0 || word(told).contains(&format!("waiting in all then {wait} ns")), "{told}");
            assert!(answer["gain"].as_f64() < Some(0.0005) || word(told).contains("of the run time saved"), "{told}");
        }
    }
}

/// What a page shows of advice.
const ADVICE: &str = r#"(async () => ({
  items: [...document.querySelectorAll('.advice > li')].map((li) => [...li.querySelectorAll(':scope > p')].map((p) => p.textContent)),
  doubts: [...document.querySelectorAll('.advice > li > details')].map((notes) => [...notes.querySelectorAll('li')].map((li) => li.textContent)),
  all: [...document.querySelectorAll('#advice > details li')].map((li) => li.textContent),
  wider: document.documentElement.scrollWidth - window.innerWidth,
}))()"#;

#[test]
fn a_browser_shows_what_advise_says() {
    let Some(browser) = Browser::find() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("advice.html");
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/goldens/recordings/accesses.bin");
    export(&recording, &page);
    let outcome = run(&["advise", "--from", text(&recording), "--format", "json"]);
    let advice: Value = serde_json::from_str(&outcome.stdout).expect("the advice is JSON");
    let texts = |value: &Value| value.as_array().expect("texts").iter().map(plain).collect::<Vec<_>>();
    for view in [WIDE, NARROW] {
        let seen = browser.look(&page, view, ADVICE);
        let items = list(&advice, "advice");
        assert!(!items.is_empty() && items.len() == list(&seen, "items").len(), "{seen}");
        for ((item, shown), doubts) in items.iter().zip(list(&seen, "items")).zip(list(&seen, "doubts")) {
            assert_eq!(word(&shown[0]), plain(&item["advice"]));
            assert_eq!(word(&shown[1]), format!("Seen: {}", texts(&item["evidence"]).join(" ")));
            let gain = item["predicted"]["change"].as_str().map(|change| change.replace('`', ""));
            let gain = gain.or_else(|| item["unpredictable"].as_str().map(|why| why.replace('`', "")));
            assert!(gain.is_none_or(|gain| word(&shown[2]).contains(&gain)), "{shown}");
            assert!(texts(doubts).starts_with(&texts(&item["cautions"])), "{doubts}");
        }
        assert_eq!(texts(&seen["all"]), texts(&advice["cautions"]));
        assert!(seen["wider"].as_i64() <= Some(0), "it has to be scrolled sideways: {}", seen["wider"]);
    }
}

#[test]
fn a_browser_takes_names_for_text() {
    let Some(browser) = Browser::find() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (recording, page) = (dir.path().join("names.jsonl"), dir.path().join("names.html"));
    let evil = r#"</script><script>injected=1</script><img src=x onerror=injected=1>\u202e<!--"#;
    let mut lines = String::new();
    for (t, tid, rest) in [
        (0, 1, r#""op":"attempt","site":"EVIL"#),
        (0, 1, r#""op":"acquire"#),
        (10, 2, r#""op":"attempt","stack":["EVIL","main"],"site":"EVIL"#),
        (40, 1, r#""op":"release"#),
        (40, 2, r#""op":"acquire"#),
        (60, 2, r#""op":"release"#),
    ] {
        let line = format!(r#"{{"t":{t},"tid":"t{tid}EVIL","lock":"EVIL",{rest}"}}"#);
        lines += &line.replace("EVIL", evil);
        lines.push('\n');
    }
    std::fs::write(&recording, lines).expect("failed to write a recording");
    export(&recording, &page);
    let seen = browser.look(&page, WIDE, PRESS);
    assert_eq!((seen["injected"].as_str(), seen["foreign"].as_u64()), (Some("undefined"), Some(2)));
    agrees_with_clean_names(&seen, &report(&recording));
}

fn agrees_with_clean_names(seen: &Value, report: &Value) {
    let label = word(&report["locks"][0]["label"]);
    assert!(label.contains("</script>"), "{label}");
    assert_eq!(word(&seen["locks"][0]["label"]), clean(label));
}

/// What a flame graph shows: by side, the waiting in each lock at the end of a stack; and whether anything sticks out of the picture.
const FLAMES: &str = r#"(async () => {
  const side = (id) => [...document.querySelectorAll(`#${id} > g`)].filter((cell) => cell.querySelector('.lock'))
    .map((cell) => [cell.querySelector('title').textContent, Number(cell.dataset.ns)]);
  const right = Math.max(...[...document.querySelectorAll('text, rect')].map((shape) => shape.getBBox().x + shape.getBBox().width));
  return { culprits: side('culprits'), waiters: side('waiters'), right, width: document.documentElement.viewBox.baseVal.width,
    scripts: document.querySelectorAll('script').length };
})()"#;

#[test]
fn a_browser_shows_flame_graphs_that_add_up_to_the_report() {
    let Some(browser) = Browser::find() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let picture = dir.path().join("flames.svg");
    for recording in recordings() {
        export(&recording, &picture);
        let seen = browser.look(&picture, WIDE, FLAMES);
        let report = report(&recording);
        for (side, expected) in [("waiters", waited(&report)), ("culprits", caused(&report))] {
            let mut shown: BTreeMap<String, u64> = BTreeMap::new();
            for cell in list(&seen, side) {
                let (lock, _) = word(&cell[0]).rsplit_once("]: ").expect("a lock");
                *shown.entry(clean(&lock[1..])).or_default() += cell[1].as_u64().expect("ns");
            }
            let expected: BTreeMap<String, u64> = expected.iter().map(|(lock, ns)| (clean(lock), *ns)).collect();
            assert_eq!(shown, expected, "{side} of {}", recording.display());
        }
        assert!(seen["right"].as_f64() <= seen["width"].as_f64(), "{seen}");
        assert_eq!(seen["scripts"], 0);
    }
}

#[test]
fn one_recording_a_page() {
    let file = example("figure_4a.jsonl");
    run(&["report", "--from", text(&file), text(&file), "--format", "html"]).assert_error(&["html", "one recording"]);
}

/// What a page says of callers: beside the culprits, and beside each pair of a waiter and a holder.
const CALLERS: &str = r#"(async () => {
  const culprits = [...document.querySelectorAll('.culprits .callers')].map((p) => p.textContent);
  document.querySelector('.matrix td.cell button:not([disabled])').click();
  return { culprits, holders: [...document.querySelectorAll('#cell .callers')].map((p) => p.textContent) };
})()"#;

/// One function locks for all: as the report's first sentence, the page tells for whom.
#[test]
fn a_browser_shows_for_whom_a_section_locks() {
    let Some(browser) = Browser::find() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("callers.html");
    export(&example("callers.jsonl"), &page);
    let seen = browser.look(&page, WIDE, CALLERS);
    assert_eq!(seen["culprits"], serde_json::json!(["Called by vacuum (db.c:40) for 95 % of it."]));
    let holders = "Called by vacuum (db.c:40) 95 %, get_row (db.c:60) 4.8 %, and by 1 more function";
    assert_eq!(seen["holders"], serde_json::json!([holders]));
}

/// What a page that compares two recordings shows.
const COMPARED: &str = r#"(async () => ({
  verdicts: [...document.querySelectorAll('.verdict p')].map((p) => p.textContent),
  findings: [...document.querySelectorAll('#changes li')].map((li) => li.textContent),
  locks: [...document.querySelectorAll('#locks tbody th .name')].map((name) => name.textContent),
  gate: document.querySelector('#main > p')?.textContent ?? '',
  wider: document.documentElement.scrollWidth - window.innerWidth,
}))()"#;

#[test]
fn a_browser_shows_two_recordings_side_by_side() {
    let Some(browser) = Browser::find() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("diff.html");
    let files = ["figure_4a.jsonl", "figure_4b.jsonl"].map(example);
    let [a, b] = files.each_ref().map(|file| text(file));
    let condition = ["--fail-if", "wait > +1000%"];
    let outcome = run(&[&["diff", a, b, "--format", "html"], &condition[..]].concat());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    std::fs::write(&page, &outcome.stdout).expect("failed to write a page");
    let json = run(&[&["diff", a, b, "--format", "json"], &condition[..]].concat());
    let diff: Value = serde_json::from_str(&json.stdout).expect("the comparison is JSON");
    for view in [WIDE, NARROW] {
        let seen = browser.look(&page, view, COMPARED);
        let verdicts =
            files.iter().flat_map(|file| list(&report(file), "verdict").iter().map(plain).collect::<Vec<_>>());
        assert_eq!(list(&seen, "verdicts").iter().map(word).collect::<Vec<_>>(), verdicts.collect::<Vec<_>>());
        let findings: Vec<String> = list(&diff, "findings").iter().map(|finding| plain(&finding["text"])).collect();
        assert_eq!(list(&seen, "findings").iter().map(word).collect::<Vec<_>>(), findings);
        let locks: Vec<&Value> = list(&diff, "locks").iter().map(|lock| &lock["name"]).collect();
        assert_eq!(list(&seen, "locks").iter().collect::<Vec<_>>(), locks);
        assert!(word(&seen["gate"]).contains("wait > +1000"), "{}", seen["gate"]);
        assert!(seen["wider"].as_i64() <= Some(0), "it has to be scrolled sideways: {}", seen["wider"]);
    }
}
