//! pprof's profiles, read by Go's own tool, and compared with the report.

use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::workload::Workload;
use crate::outputs::{all, bare, caused, export, golden, label, ns, recordings, report, wait, waited};
use object::Object;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// What `go tool pprof -top` says: the total, and what is spent in each node itself, in ns.
pub(crate) fn top(profile: &Path) -> (u64, BTreeMap<String, u64>) {
    let options = ["tool", "pprof", "-top", "-unit=ns", "-nodecount=100000", "-nodefraction=0", "-sample_index=delay"];
    let output = Command::new("go").args(options).arg(profile).output().expect("go runs");
    let stdout = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let of = |value: &str| value.strip_suffix("ns").unwrap_or(value).parse().expect("ns");
    let mut lines = stdout.lines().skip_while(|line| !line.starts_with("Showing nodes"));
    let total = lines.next().and_then(|line| line.strip_suffix(" total")?.rsplit(' ').next()).expect("a total");
    let mut flat = BTreeMap::new();
    for line in lines.skip(1) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        if of(columns[0]) > 0 {
            flat.insert(bare(&columns[5..].join(" ")), of(columns[0]));
        }
    }
    (of(total), flat)
}

#[test]
fn go_tool_pprof_tells_the_sums_of_the_report() {
    let dir = tempfile::tempdir().expect("a directory");
    for recording in recordings().iter().filter(|path| !path.ends_with("figure_2.jsonl")) {
        let report = report(recording);
        for (name, expected) in [("block.pb.gz", waited(&report)), ("mutex.pb.gz", caused(&report))] {
            let to = dir.path().join(name);
            export(recording, &to);
            assert_eq!(top(&to), (all(&report), expected), "{} in {name}", recording.display());
        }
    }
}

/// What `go tool pprof -raw` says of a profile: its samples, as count, ns and labels, and its mappings, as they stand there.
fn raw(profile: &Path) -> (Vec<RawSample>, Vec<String>) {
    let output = Command::new("go").args(["tool", "pprof", "-raw"]).arg(profile).output().expect("go runs");
    let stdout = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut samples: Vec<RawSample> = Vec::new();
    for line in section(&stdout, "Samples:").skip(1).take_while(|line| *line != "Locations") {
        match line.trim().split_once(": ").and_then(|(values, _)| values.split_once(' ')) {
            Some((count, ns)) if !line.contains('[') => {
                let number = |text: &str| text.trim().parse().expect("a number");
                samples.push((number(count), number(ns), BTreeMap::new()));
            }
            _ => {
                let labels = line.trim().split("] ").filter_map(|label| label.trim_end_matches(']').split_once(":["));
                let (.., known) = samples.last_mut().expect("labels follow a sample");
                known.extend(labels.map(|(key, value)| (key.to_owned(), value.to_owned())));
            }
        }
    }
    (samples, section(&stdout, "Mappings").map(str::to_owned).collect())
}

/// The lines behind one of a text.
fn section<'a>(text: &'a str, line: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().skip_while(move |other| *other != line).skip(1)
}

/// How many waits, how many ns, and labels.
type RawSample = (u64, u64, BTreeMap<String, String>);

#[test]
fn go_tool_pprof_reads_counts_labels_and_build_ids() {
    let dir = tempfile::tempdir().expect("a directory");
    let [block, mutex] = ["block.pb.gz", "mutex.pb.gz"].map(|name| dir.path().join(name));
    let recording = golden("rwlock.bin");
    let report = report(&recording);
    for to in [&block, &mutex] {
        export(&recording, to);
    }
    let locks = report["locks"].as_array().expect("locks");
    let (samples, _) = raw(&block);
    let sums = |samples: &[RawSample], key: &str| -> BTreeMap<String, (u64, u64)> {
        let mut sums = BTreeMap::<_, (u64, u64)>::new();
        for (count, ns, labels) in samples {
            let sum = sums.entry(labels.get(key).cloned().unwrap_or_default()).or_default();
            *sum = (sum.0 + count, sum.1 + ns);
        }
        sums
    };
    // Of whoever waited: how often for each lock, of which kind it is, and the names of the threads.
    let waits = |lock: &Value| {
        let counts = lock["waiters"].as_array().expect("waiters").iter().map(|waiter| ns(&waiter["count"]));
        (counts.sum::<u64>(), wait(lock))
    };
    let expected: BTreeMap<_, _> =
        locks.iter().filter(|lock| wait(lock) > 0).map(|lock| (label(lock), waits(lock))).collect();
    assert_eq!(sums(&samples, "lock"), expected);
    for (.., labels) in &samples {
        let of = |lock: &&Value| label(lock) == labels["lock"] && lock["kind"] == *labels["kind"];
        assert!(locks.iter().any(|lock| of(&lock)), "{labels:?}");
    }
    let mut by_thread = BTreeMap::<String, u64>::new();
    for thread in report["threads"].as_array().expect("threads").iter().filter(|thread| ns(&thread["wait_ns"]) > 0) {
        *by_thread.entry(thread["comm"].as_str().expect("a name").to_owned()).or_default() += ns(&thread["wait_ns"]);
    }
    let named = sums(&samples, "thread");
    assert!(!named.contains_key(""), "each wait was recorded, with its thread: {named:?}");
    for (name, ns) in by_thread {
        // Threads wait for each other at barriers, too, of which the table of threads does not tell.
        assert!(named[&name].1 >= ns, "{name}: {named:?}");
    }
    // Of those to blame: what they were doing, as far as one thing is known of a stack.
    let (samples, _) = raw(&mutex);
    for lock in locks.iter().filter(|lock| wait(lock) > 0) {
        let of =
            |labels: &BTreeMap<String, String>| *labels.get("waited_for").unwrap_or(&labels["lock"]) == label(lock);
        let own: Vec<_> = samples.iter().filter(|(.., labels)| of(labels)).cloned().collect();
        for (cause, (_, told)) in sums(&own, "cause").iter().filter(|(cause, _)| !cause.is_empty()) {
            assert!(*told <= ns(&lock["causes"][cause]), "{cause} of {}", label(lock));
        }
    }
    assert!(samples.iter().any(|(.., labels)| labels.contains_key("cause")), "{samples:?}");
    // What was in memory, with build ids.
    export(&golden("python.bin"), &block);
    let (_, mappings) = raw(&block);
    let known = [
        "1: 0x400000/0xac90b8/0x0 python3.11 571d98e01096d5c1c32420d229a6731a0a50d2a0 [FN][FL][LN][IN]",
        "2: 0x7feea36fe000/0x7feea38dff50/0x0 libc.so.6 93ac61ec5a8eb1396f9fbd350e3169a558528a40 [FN][FL][LN][IN]",
    ];
    assert_eq!(mappings[..2], known.map(str::to_owned));
}

/// Mappings and build ids of a program that runs, beside what its `/proc/PID/maps` and its files say.
#[test]
fn go_tool_pprof_reads_where_files_were_in_memory() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let to = dir.path().join("block.pb.gz");
    let mut workload = Workload::start("culprit 5");
    let pid = workload.pid().to_string();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("its memory");
    let observer = Observer::start(&["export", "--pid", &pid, "--to", to.to_str().expect("a path in UTF-8")]);
    workload.go();
    workload.finish();
    let outcome = observer.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let (_, mappings) = raw(&to);
    let mut seen = 0;
    for file in maps.lines().filter(|line| line.contains(" r-xp ")).filter_map(|line| line.split_whitespace().nth(5)) {
        let name = Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(mapping) = mappings.iter().find(|mapping| mapping.contains(&format!(" {name} "))) else { continue };
        let bytes = std::fs::read(file).expect("a file that is mapped");
        let id = object::File::parse(bytes.as_slice()).expect("an ELF file").build_id().expect("notes").map(hex);
        assert!(mapping.contains(&format!(" {name} {} ", id.unwrap_or_default())), "{mapping}");
        let hexadecimal = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("an address");
        let range = mapping.split_whitespace().nth(1).expect("a range");
        let told: Vec<u64> = range.split('/').map(hexadecimal).collect();
        let code = maps.lines().find(|line| line.contains(" r-xp ") && line.ends_with(file)).expect("its code");
        let code: Vec<u64> = code.split_whitespace().next().expect("a range").split('-').map(hexadecimal).collect();
        assert!(told[0] <= code[0] && told[1] >= code[1], "{mapping}: {code:x?}");
        seen += 1;
    }
    assert!(seen >= 2, "the program and the C library: {mappings:#?}");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
