//! Advice from access records, with and without a trace.

use crate::examples::example;
use crate::harness::may_observe;
use crate::harness::observer::{Outcome, run, run_traced};
use crate::harness::workload::Workload;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn write(dir: &Path, name: &str, lines: &[Value]) -> String {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let path = dir.join(name);
    fs::write(&path, text).expect("failed to write records");
    path.to_str().expect("a path in UTF-8").to_owned()
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("failed to make a directory")
}

fn json_of(outcome: &Outcome) -> Value {
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let advice: Value = serde_json::from_str(&outcome.stdout).expect("the advice is JSON");
    assert_eq!(advice["schema"], "lockbpf.advice/1");
    advice
}

fn advise(arguments: &[&str]) -> Value {
    json_of(&run_traced(&[&["advise", "--format", "json"], arguments].concat()))
}

/// The names of an object's fields.
fn names(of: &Value) -> Vec<&str> {
    of.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// What to do about a lock that one function takes for all depends on who calls it: a recording tells.
#[test]
fn a_recording_tells_for_whom_a_section_locks() {
    let dir = dir();
    let section = |seq: u32, tid: &str| json!({"run": 0, "seq": seq, "tid": tid, "lock": "db_mutex", "site": "db_lock", "reads": ["rows"], "writes": ["rows"]});
    let records: Vec<_> = (0..8).map(|seq| section(seq, if seq % 2 == 0 { "T1" } else { "T2" })).collect();
    let records = write(dir.path(), "records.jsonl", &records);
    let evidence = |advice: &Value| advice["advice"][0]["evidence"].to_string();
    let recording = example("callers.jsonl");
    let told = evidence(&advise(&["--from", &records, "--trace", recording.to_str().expect("a path in UTF-8")]));
    assert!(told.contains("`db_lock` causes waiting, called by `vacuum` (db.c:40) for 95 % of it."), "{told}");
    assert!(!evidence(&advise(&["--from", &records])).contains("called by"));
}

#[test]
fn figure_7_and_the_contract() {
    let file = example("figure_7.jsonl");
    let file = file.to_str().expect("a path in UTF-8");
    let advice = advise(&["--from", file, "--w", "3=1.5"]);
    for field in ["sections", "usydg", "patterns", "suggestions"] {
        assert!(names(&advice).contains(&field), "{field}: {advice}");
    }
    assert!(advice.get("occ").is_none(), "without a trace there is none");
    for section in advice["sections"].as_array().expect("sections") {
        for field in ["site", "lock", "instances", "p_c", "w_c", "p_conflict"] {
            assert!(names(section).contains(&field), "{field}: {section}");
        }
        let by_hand = section["site"] == "3";
        assert_eq!(section["w_c"], if by_hand { json!(1.5) } else { Value::Null }, "{section}");
        assert_eq!(section["p_conflict"].is_number(), by_hand, "{section}");
    }
    for field in ["remove", "split", "unsafe_split", "readers_of", "shorten"] {
        assert!(names(&advice["suggestions"]).contains(&field), "{field}: {advice}");
    }
    let suggestions = &advice["suggestions"];
    assert_eq!(advice["usydg"]["removed_edges"], json!([["T1:1", "T2:2"], ["T1:1", "T3:4"]]));
    assert_eq!(suggestions["remove"], json!(["2"]));
    assert_eq!(suggestions["split"], json!({"1": ["L1"], "3": ["L1"], "5": ["L1"], "4": ["L2"], "6": ["L2"]}));
    assert_eq!(suggestions["readers_of"]["3"], json!(["1"]));
    let unsound = suggestions["unsafe_split"].as_array().expect("pairs");
    assert!(unsound.contains(&json!(["3", "4"])) && !unsound.contains(&json!(["1", "3"])), "{suggestions}");
    assert_eq!(run(&["advise", "--from", file]).stdout, run(&["advise", "--from", file]).stdout, "it is stable");
}

/// Two threads take turns in two sections of one lock, each with data of its own: 100 ns waiting, 100 ns inside.
fn recording() -> (Vec<Value>, Vec<Value>) {
    let (mut steps, mut records) = (Vec::new(), Vec::new());
    for turn in 0..200_u64 {
        let (tid, site, data) = [("A", "put", "queue"), ("B", "count", "stats")][turn as usize % 2];
        let mut step = |t: u64, op: &str| {
            steps.push((t, json!({"t": t, "tid": tid, "op": op, "lock": "L", "site": site})));
        };
        step((turn * 100).saturating_sub(100), "attempt");
        step(turn * 100, "acquire");
        step(turn * 100 + 100, "release");
        let (own, shared) = (format!("{tid}-own"), format!("{data}+0x8"));
        records.push(json!({
            "run": 0, "seq": turn, "tid": tid, "lock": "L", "site": site, "reads": [own], "writes": [shared],
            "accesses": "rrrrwr", "at": [own, own, own, null, shared, own],
        }));
    }
    steps.sort_by_key(|&(t, _)| t);
    (steps.into_iter().map(|(_, step)| step).collect(), records)
}

#[test]
fn a_trace_tells_waits_and_gains() {
    let dir = dir();
    let (steps, records) = recording();
    let (trace, records) = (write(dir.path(), "t.jsonl", &steps), write(dir.path(), "a.jsonl", &records));
    let advice = advise(&["--from", &records, "--trace", &trace]);
    let section = &advice["sections"][0];
    // Sections wait for one hold each, the first of them for none; between themselves they do not conflict.
    assert_eq!((&section["site"], &section["w_c"], &section["p_c"]), (&json!("count"), &json!(1.0), &json!(0.0)));
    assert_eq!(advice["sections"][1]["w_c"], json!(0.99));
    assert_eq!(advice["usydg"]["edges"], json!([["A:put", "B:count"], ["B:count", "A:put"]]));
    assert_eq!(advice["usydg"]["edges_from"], json!({"L": "trace"}));
    assert_eq!(advice["patterns"][0]["pattern"], "null-shared");
    assert_eq!(advice["suggestions"]["remove"], json!(["count", "put"]));
    let remove = &advice["advice"][0];
    assert_eq!((&remove["kind"], &remove["lock"]), (&json!("remove"), &json!("L")));
    // Half of the time was waited; what is left is one thread's own sections.
    let gain = remove["predicted"]["gain"].as_f64().expect("a gain");
    assert!((gain - 0.5).abs() < 0.02, "{remove}");
    let occ = &advice["occ"];
    let near = |value: &Value, to: f64| value.as_f64().is_some_and(|value| (value - to).abs() < 0.02);
    let thread = &occ["threads"][0];
    assert_eq!((&thread["tid"], &thread["site"]), (&json!("A"), &json!("put")));
    assert!(near(&thread["f_wait"], 0.5) && near(&thread["f_exec"], 0.5), "{occ}");
    assert!(near(&thread["speedup"], 2.0) && near(&thread["benefit"], 0.5), "{occ}");
    assert!(near(&occ["efficiency"], 0.5) && near(&occ["best_case_speedup"], 2.0), "{occ}");
    // An operation's cost shortens waits more than the threads' time.
    let cheaper = advise(&["--from", &records, "--trace", &trace, "--overhead", "10"]);
    assert!(cheaper["occ"]["efficiency"].as_f64() < occ["efficiency"].as_f64(), "{cheaper}");
    let table = run(&["advise", "--from", &records, "--trace", &trace]);
    for text in
        ["Remove `L`", "Seen: 200 executions by 2 threads in 1 run", "Predicted gain:", "Could be wrong:", "at best"]
    {
        assert!(table.stdout.contains(text), "{text}: {}", table.stdout);
    }
}

/// The advice on a running workload, which must have computed what it should.
fn advise_running(line: &str) -> Value {
    let mut workload = Workload::start(line);
    let pid = workload.pid().to_string();
    let advice = advise(&["--pid", &pid, "--timing", "500ms", "--samples", "60", "--budget", "20%"]);
    workload.end();
    advice
}

/// The advice of a kind, which must come with a gain.
fn of_kind<'a>(advice: &'a Value, kind: &str) -> &'a Value {
    let all = advice["advice"].as_array().expect("a list");
    let found = all.iter().find(|item| item["kind"] == kind);
    let found = found.unwrap_or_else(|| panic!("no advice to {kind}: {all:#?}"));
    assert!(found["predicted"]["gain"].as_f64().is_some_and(|gain| gain > 0.0), "{found:#}");
    found
}

#[test]
fn each_kind_of_advice_is_given_to_a_program_that_needs_it() {
    let Some(_turn) = may_observe() else { return };
    for kind in ["split", "reader-writer", "shorten", "remove", "rare-conflicts"] {
        let advice = advise_running(&format!("gains {kind} plain 4"));
        assert_eq!(of_kind(&advice, kind)["lock"], "gain_lock", "{kind}");
        assert!(advice["occ"]["best_case_speedup"].as_f64().is_some_and(|factor| factor >= 1.0), "{kind}");
    }
}

#[test]
fn a_lock_of_a_class_is_split_by_the_callers_of_its_methods() {
    let Some(_turn) = may_observe() else { return };
    let advice = advise_running("wrapped");
    let sites: Vec<&str> =
        advice["sections"].as_array().into_iter().flatten().filter_map(|s| s["site"].as_str()).collect();
    assert!(sites.iter().any(|site| site.starts_with("put ")), "{sites:?}");
    assert!(sites.iter().any(|site| site.starts_with("take ")), "{sites:?}");
    // The recording knows the method only: waits are known, what a split would gain is not.
    assert!(advice["sections"][0]["w_c"].is_number(), "{advice:#}");
    let items = advice["advice"].as_array().expect("a list");
    let split = items.iter().find(|item| item["kind"] == "split").expect("a split");
    assert!(split["unpredictable"].as_str().is_some_and(|why| why.contains("same method")), "{split:#}");
}

#[test]
fn what_is_no_record_is_refused() {
    let dir = dir();
    let good = json!({"run": 0, "seq": 1, "tid": 1, "lock": "L", "site": "s", "reads": [], "writes": []});
    let refuse = |line: &str, names: &[&str]| {
        let path = dir.path().join("bad.jsonl");
        fs::write(&path, format!("{good}\n{line}\n")).expect("failed to write records");
        run(&["advise", "--from", path.to_str().expect("a path in UTF-8")]).assert_error(names);
    };
    refuse(r#"{"run":0,"seq":2,"tid":1,"lock":"L","site":"s","reads":[]}"#, &["line 2", "`writes`"]);
    refuse(r#"{"run":0,"seq":2,"tid":1,"lock":"L","site":"s","reads":[1.5],"writes":[]}"#, &["line 2", "`reads[0]`"]);
    refuse("{", &["line 2"]);
    refuse(r#"{"run":0,"edge":["1","2"]}"#, &["line 2", "`edge`"]);
    let one = write(dir.path(), "one.jsonl", &[good]);
    run(&["advise", "--from", &one, "--w", "x=1"]).assert_error(&["`x`", "s"]);
    run(&["advise", "--from", &one, "--w", "s=-1"]).assert_error(&["-1"]);
    run(&["advise", "--from", &one, "--overhead", "5"]).assert_error(&["--trace"]);
    run(&["advise", "--from", "/nowhere"]).assert_error(&["/nowhere"]);
    let none = write(dir.path(), "none.jsonl", &[]);
    run(&["advise", "--from", &none]).assert_error(&["none.jsonl", "is empty"]);
    assert_eq!(run(&["advise", "--from", &one]).code, Some(0));
}

#[test]
fn records_travel_in_a_trace() {
    let dir = dir();
    let at = |name: &str| dir.path().join(name).to_str().expect("a path in UTF-8").to_owned();
    let told = |arguments: &[&str]| {
        let outcome = run(arguments);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        outcome
    };
    let lines = example("figure_7.jsonl").to_str().expect("a path in UTF-8").to_owned();
    let (trace, copy, back, events) = (at("a.bin"), at("b.trace"), at("back.jsonl"), at("events.jsonl"));
    assert!(told(&["access", "--from", &lines, "--to", &trace, "--strict"]).stderr.contains("access records"));
    assert_eq!(advise(&["--from", &trace]), advise(&["--from", &lines]));
    // Whatever becomes of the recording, they stay, or it is said that they do not.
    told(&["export", "--from", &trace, "--to", &copy, "--strict"]);
    told(&["access", "--from", &copy, "--to", &back, "--strict"]);
    let text = |path: &str| fs::read_to_string(path).expect("it was written");
    assert_eq!(text(&back), text(&lines));
    assert!(told(&["export", "--from", &trace, "--to", &events]).stderr.contains("access records are left out"));
    run(&["report", "--from", &trace]).assert_error(&["a.bin", "access records and nothing else"]);
    run(&["advise", "--from", &trace, "--overhead", "5"]).assert_error(&["--trace"]);
    run(&["access", "--from", &trace, "--to", &trace]).assert_error(&["replaced"]);
    run(&["access", "--from", &trace]).assert_error(&["--to"]);

    // What is torn off is told, and the rest is used.
    let whole = fs::read(&trace).expect("it was written");
    fs::write(&copy, &whole[..whole.len() - 20]).expect("failed to write a trace");
    let advice = advise(&["--from", &copy]);
    assert_eq!(advice["sections"], self::advise(&["--from", &lines])["sections"]);
    assert!(advice["cautions"].to_string().contains("breaks off"), "{}", advice["cautions"]);
    assert_eq!(run(&["access", "--from", &copy, "--to", &back, "--strict"]).code, Some(1));
}
