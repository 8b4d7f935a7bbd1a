//! Recordings in the formats of viewers, read back by tools that know nothing of lockbpf, and compared with the report.

use crate::examples::example;
use crate::harness::may_observe;
use crate::harness::observer::{Observer, lockbpf, run};
use crate::harness::process::Running;
use crate::harness::python;
use crate::harness::workload::Workload;
use lockbpf::render::FORMATS;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

/// Recordings that need no observation: SyncProf's examples, and a captured one of which parts are missing.
pub(crate) fn recordings() -> Vec<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let examples = ["figure_2.jsonl", "figure_4a.jsonl", "figure_4b.jsonl"].map(example);
    let corpus = ["trace/captured-gaps.bin", "trace/every-field.bin"].map(|name| corpus.join(name));
    examples.into_iter().chain(corpus).collect()
}

/// A recording of a real program, of which there are goldens.
pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/goldens/recordings").join(name)
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

pub(crate) fn report(from: &Path) -> Value {
    let outcome = run(&["report", "--from", text(from), "--format", "json"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    serde_json::from_str(&outcome.stdout).expect("the report is JSON")
}

pub(crate) fn export(from: &Path, to: &Path) {
    let outcome = run(&["export", "--from", text(from), "--to", text(to)]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("left out"), "what a format leaves out is told: {}", outcome.stderr);
}

pub(crate) fn ns(value: &Value) -> u64 {
    value.as_u64().expect("whole ns")
}

/// All waiting that a report tells.
pub(crate) fn all(report: &Value) -> u64 {
    ns(&report["totals"]["harm_ns"]).max(ns(&report["totals"]["recorded_wait_ns"]))
}

/// Waiting by the name of the lock that was waited for.
pub(crate) fn waited(report: &Value) -> BTreeMap<String, u64> {
    let mut locks = BTreeMap::new();
    for lock in report["locks"].as_array().expect("locks") {
        *locks.entry(label(lock)).or_default() += wait(lock);
    }
    locks.retain(|_, wait| *wait > 0);
    locks
}

/// Waiting by the name of the lock that was held; what nobody is charged with, by that of the lock that was waited for.
pub(crate) fn caused(report: &Value) -> BTreeMap<String, u64> {
    let mut locks = BTreeMap::new();
    for lock in report["locks"].as_array().expect("locks") {
        for holder in lock["holders"].as_array().expect("holders") {
            let held = holder["lock_name"].as_str().map_or_else(|| label(lock), str::to_owned);
            *locks.entry(held).or_default() += ns(&holder["wait_ns"]);
        }
        let unknown = wait(lock) - ns(&lock["recorded_wait_ns"]) + ns(&lock["unattributed_ns"]);
        *locks.entry(label(lock)).or_default() += unknown;
    }
    locks.retain(|_, wait| *wait > 0);
    locks
}

/// Waiting that was recorded one by one.
pub(crate) fn recorded(report: &Value) -> BTreeMap<String, u64> {
    let mut locks = BTreeMap::new();
    for lock in report["locks"].as_array().expect("locks") {
        *locks.entry(label(lock)).or_default() += ns(&lock["recorded_wait_ns"]);
    }
    locks.retain(|_, wait| *wait > 0);
    locks
}

pub(crate) fn label(lock: &Value) -> String {
    lock["label"].as_str().expect("a name").to_owned()
}

/// All waiting for a lock.
pub(crate) fn wait(lock: &Value) -> u64 {
    ns(&lock["harm_ns"]).max(ns(&lock["recorded_wait_ns"]))
}

/// The last frame of folded stacks and its sum.
fn leaves(folded: &str) -> BTreeMap<String, u64> {
    let mut leaves = BTreeMap::new();
    for line in folded.lines() {
        let (stack, value) = line.rsplit_once(' ').expect("a value");
        let leaf = stack.rsplit(';').next().expect("a frame");
        *leaves.entry(bare(leaf)).or_default() += value.parse::<u64>().expect("ns");
    }
    leaves
}

pub(crate) fn bare(lock: &str) -> String {
    lock.strip_prefix('[').and_then(|lock| lock.strip_suffix(']')).expect("a lock in brackets").to_owned()
}

#[test]
fn folded_stacks_add_up_to_the_report() {
    let dir = tempfile::tempdir().expect("a directory");
    for recording in recordings().iter().filter(|path| !path.ends_with("figure_2.jsonl")) {
        let report = report(recording);
        for (name, expected) in [("a.folded", waited(&report)), ("a.culprits.folded", caused(&report))] {
            let to = dir.path().join(name);
            export(recording, &to);
            let folded = std::fs::read_to_string(&to).expect("folded stacks");
            assert_eq!(leaves(&folded), expected, "{} in {name}", recording.display());
            assert_eq!(expected.values().sum::<u64>(), all(&report));
        }
    }
}

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON")
}

fn index(value: &Value) -> usize {
    usize::try_from(value.as_u64().expect("a number")).expect("an index")
}

#[test]
fn speedscopes_profiles_add_up_to_the_report() {
    let dir = tempfile::tempdir().expect("a directory");
    for recording in recordings().iter().filter(|path| !path.ends_with("figure_2.jsonl")) {
        let report = report(recording);
        let to = dir.path().join("a.speedscope.json");
        export(recording, &to);
        let file = json(&to);
        for (at, expected) in [waited(&report), caused(&report)].into_iter().enumerate() {
            let profile = &file["profiles"][at];
            let stacks = profile["samples"].as_array().expect("samples").iter();
            let mut read = BTreeMap::new();
            for (stack, weight) in stacks.zip(profile["weights"].as_array().expect("weights")) {
                let leaf = stack.as_array().expect("a stack").last().expect("a frame");
                let name = file["shared"]["frames"][index(leaf)]["name"].as_str().expect("a name");
                *read.entry(bare(name)).or_default() += ns(weight);
            }
            assert_eq!(ns(&profile["endValue"]), all(&report));
            assert_eq!(read, expected, "{} of {}", profile["name"], recording.display());
        }
    }
}

#[test]
fn firefox_markers_add_up_to_the_report() {
    let dir = tempfile::tempdir().expect("a directory");
    for recording in recordings() {
        let to = dir.path().join("a.firefox.json");
        export(&recording, &to);
        let mut read = BTreeMap::new();
        for thread in json(&to)["threads"].as_array().expect("threads") {
            let markers = &thread["markers"];
            let text = |at: &Value| thread["stringArray"][index(at)].as_str().expect("a text");
            for row in 0..index(&markers["length"]) {
                let ms = |column: &str| markers[column][row].as_f64().expect("ms");
                if text(&markers["name"][row]) == "Lock wait" {
                    let wait = ((ms("endTime") - ms("startTime")) * 1e6).round() as u64;
                    *read.entry(text(&markers["data"][row]["lock"]).to_owned()).or_default() += wait;
                }
            }
        }
        assert_eq!(read, recorded(&report(&recording)), "{}", recording.display());
    }
}

/// The text of a URL in which some bytes are told by their numbers.
fn unescaped(url: &str) -> String {
    let mut parts = url.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (byte, rest) = part.split_at(2);
        text + &char::from(u8::from_str_radix(byte, 16).expect("a byte")).to_string() + rest
    })
}

/// What a browser of profiler.firefox.com gets for a URL: head and body.
fn fetched(url: &str) -> (String, String) {
    let (address, path) = url.strip_prefix("http://").and_then(|url| url.split_once('/')).expect("a URL");
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let origin = "Origin: https://profiler.firefox.com";
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {address}\r\n{origin}\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_ascii_lowercase(), body.to_owned())
}

#[test]
fn a_profile_is_served_to_the_firefox_profiler() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, from) = (dir.path().join("a.firefox.json"), example("figure_4a.jsonl"));
    export(&from, &file);
    let expected = std::fs::read_to_string(&file).expect("a profile");
    let (from, again) = (text(&from).to_owned(), dir.path().join("again.firefox.json"));
    let exported = ["export", "--from", &from, "--to", text(&again), "--serve", "0"];
    for arguments in [&["report", "--from", &from, "--format", "firefox", "--serve"][..], &exported] {
        let mut running = Running::start(lockbpf().args(arguments));
        let Some(url) = running.out.next() else { panic!("it ended: {}", running.err.rest()) };
        let profile = unescaped(url.strip_prefix("https://profiler.firefox.com/from-url/").expect("the viewer"));
        let (head, body) = fetched(&profile);
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(head.contains("\naccess-control-allow-origin: https://profiler.firefox.com"), "{head}");
        assert_eq!(body, expected);
        let (place, name) = profile.rsplit_once('/').expect("a name");
        let (guessed, _) = fetched(&format!("{}g/{name}", &place[..place.len() - 1]));
        assert!(guessed.starts_with("http/1.1 404") && !guessed.contains("access-control"), "{guessed}");
        running.signal(Signal::SIGINT);
        assert_eq!((running.out.rest(), running.wait().code()), (format!("{url}\n"), Some(0)));
    }
    assert_eq!(std::fs::read_to_string(&again).expect("a profile"), expected);
    run(&["report", "--from", &from, "--serve"]).assert_error(&["--serve", "firefox"]);
    run(&["report", "--from", &from, "--format", "svg", "--serve"]).assert_error(&["--serve", "firefox"]);
    run(&["export", "--from", &from, "--to", "-", "--as", "firefox", "--serve"]).assert_error(&["--serve", "--to"]);
}

/// Reads a trace by Perfetto's own definitions: prints time in waits by lock, as slices tell it; and how many waits have an owner's arrow in the
/// lock contention plugin of its viewer, by the rules of that. Checks that slices nest, and that the state of a lock is who holds it.
const READ_PERFETTO: &str = r#"
import json, sys
from perfetto.protos.perfetto.trace import perfetto_trace_pb2
trace = perfetto_trace_pb2.Trace()
trace.ParseFromString(open(sys.argv[1], 'rb').read())
tracks, open_, waits, counters, last = {}, {}, {}, {}, {}
names, keys, values = {}, {}, {}
threads, contentions, holds, states = {}, [], {}, {}
for packet in trace.packet:
    assert packet.trusted_packet_sequence_id == 1
    for table, news in ((names, packet.interned_data.event_names), (keys, packet.interned_data.debug_annotation_names)):
        table.update((new.iid, new.name) for new in news)
    values.update((new.iid, new.str.decode()) for new in packet.interned_data.debug_annotation_string_values)
    if packet.HasField('track_descriptor'):
        track = packet.track_descriptor
        tracks[track.uuid] = track
        if track.HasField('thread'):
            threads[track.thread.pid, track.thread.tid] = track.thread.thread_name
    if not packet.HasField('track_event'):
        continue
    event = packet.track_event
    track = tracks[event.track_uuid]
    assert packet.timestamp >= last.get(event.track_uuid, 0)
    last[event.track_uuid] = packet.timestamp
    if event.type == event.TYPE_SLICE_BEGIN:
        open_.setdefault(event.track_uuid, []).append((packet.timestamp, event))
    elif event.type == event.TYPE_SLICE_END:
        start, begun = open_[event.track_uuid].pop()
        said = {keys[a.name_iid]: a.string_value or values[a.string_value_iid] for a in begun.debug_annotations}
        name = names[begun.name_iid]
        of = track
        while not of.HasField('thread'):
            of = tracks[of.parent_uuid]
        if name.startswith(('monitor contention with owner ', 'waits for ')):
            waits[said['lock']] = waits.get(said['lock'], 0) + packet.timestamp - start
            contentions.append((track, start, packet.timestamp, name))
        elif name.endswith('_lock_held'):
            assert name == said['lock'] + '_lock_held'
            holds.setdefault(said['lock'], []).append((start, packet.timestamp, of.thread.thread_name))
        else:
            assert name.endswith('_lock_acquire'), name
    elif event.type == event.TYPE_STATE:
        assert track.HasField('state') and not track.HasField('thread')
        states.setdefault(event.track_uuid, []).append((packet.timestamp, names[event.name_iid] if event.name_iid else None))
    else:
        assert event.type == event.TYPE_COUNTER and track.HasField('counter')
        assert tracks[track.parent_uuid].HasField('state')
        counters[event.track_uuid] = event.counter_value
assert not any(open_.values()) and not any(counters.values())

# Who holds which lock from when to when: as its state tells it, and as the tracks of threads do.
by_state, by_thread = {}, {}
for uuid, changes in states.items():
    assert changes[-1][1] is None, 'a lock is free in the end'
    assert len({at for at, _ in changes}) == len(changes), 'one state at a time'
    for (start, name), (end, _) in zip(changes, changes[1:]):
        if name:
            by_state.setdefault(tracks[uuid].name.rsplit(' (', 1)[0], []).append((start, end, name))
for lock, held in by_state.items():
    edges = sorted({edge for start, end, _ in holds[lock] for edge in (start, end) if end > start})
    for start, end in zip(edges, edges[1:]):
        holders = sorted(name for since, until, name in holds[lock] if since <= start and until >= end and until > since)
        told = [name for since, until, name in held if since <= start and until >= end]
        by_thread[lock] = by_thread.get(lock, 0) + (end - start) * bool(holders)
        if len(told) < 2 and len(holders) <= 4:
            assert sorted(' + '.join(told).split(' + ')) == (holders or ['']), (lock, start, told, holders)
sums = {lock: sum(end - start for start, end, _ in held) for lock, held in by_state.items()}

# What the plugin asks for: on a thread's own track, with a length, of an owner of the same process who is known by number.
arrows, elsewhere, owned = 0, 0, 0
for track, start, end, name in contentions:
    if not name.startswith('monitor contention with owner '):
        continue
    owned += 1
    owner, tid = name.split('with owner ')[1].split(' (')[0], int(name.split(' (')[1].split(')')[0])
    assert track.HasField('thread') and end > start
    known = threads.get((track.thread.pid, tid))
    elsewhere += known is None and any(number == tid for _, number in threads)
    assert not known or known.replace(') at ', ') ').replace(')(', ')').replace(' (', ' ') == owner, (known, owner)
    arrows += bool(known)
print(json.dumps({'waits': waits, 'by_state': sums, 'by_thread': by_thread, 'owned': owned, 'arrows': arrows, 'elsewhere': elsewhere}))
"#;

#[test]
fn perfettos_own_definitions_read_the_waits_of_the_report() {
    let Some(python) = python::with(&["perfetto==0.59.1", "protobuf==7.36.2"]) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (mut states, mut elsewhere) = (0, 0);
    for recording in recordings().into_iter().chain(["nested.bin", "rwlock.bin", "processes.bin"].map(golden)) {
        let to = dir.path().join("a.perfetto-trace");
        export(&recording, &to);
        let read: Value = serde_json::from_str(&python::run(&python, READ_PERFETTO, &[&to])).expect("JSON");
        let waits: BTreeMap<String, u64> = serde_json::from_value(read["waits"].clone()).expect("ns by lock");
        let report = report(&recording);
        if report["quality"]["observed"]["estimated"] == true {
            // A wait in a window begins before its sleep, and ends after it. The report tells what the kernel has counted.
            let told = recorded(&report);
            assert_eq!(waits.len(), told.len(), "{waits:?} {told:?}");
            for (lock, told) in told {
                let share = told as f64 / waits[&lock] as f64;
                assert!((0.99..=1.0).contains(&share), "{share} of the recorded waiting for {lock} is told");
            }
        } else {
            assert_eq!(waits, recorded(&report), "{}", recording.display());
        }
        assert_eq!(read["by_state"], read["by_thread"], "{}", recording.display());
        let told = ["arrows", "elsewhere", "owned"].map(|what| ns(&read[what]));
        assert_eq!(
            told[0] + told[1],
            told[2],
            "each wait for a thread of its process has an arrow: {}",
            recording.display()
        );
        elsewhere += told[1];
        states += read["by_state"].as_object().map_or(0, serde_json::Map::len);
    }
    assert!(
        states > 3 && elsewhere > 0,
        "locks that are held by somebody, also in another process: {states} {elsewhere}"
    );
}

/// Reads profiles by OpenTelemetry's own definitions: prints for each profile what it is of, and its values by lock; and of waits with a time
/// that, how long they were, their lock and its kind.
const READ_OTLP: &str = r#"
import json, sys
from opentelemetry.proto.profiles.v1development import profiles_pb2
data = profiles_pb2.ProfilesData()
data.ParseFromString(open(sys.argv[1], 'rb').read())
d = data.dictionary
for table in (d.mapping_table, d.location_table, d.function_table, d.link_table, d.attribute_table, d.stack_table):
    assert table[0] == type(table[0])()
assert d.string_table[0] == '' and len(set(d.string_table)) == len(d.string_table)
told, moments = {}, {}
for profile in data.resource_profiles[0].scope_profiles[0].profiles:
    kind = '/'.join(d.string_table[i] for i in (profile.period_type.type_strindex, profile.sample_type.type_strindex, profile.sample_type.unit_strindex))
    values, times = told.setdefault(kind, {}), moments.setdefault(kind, [])
    assert len({bool(sample.timestamps_unix_nano) for sample in profile.samples}) <= 1, 'samples of one profile are of one shape'
    for sample in profile.samples:
        leaf = d.location_table[d.stack_table[sample.stack_index].location_indices[0]]
        name = d.string_table[d.function_table[leaf.lines[0].function_index].name_strindex]
        attributes = {d.string_table[d.attribute_table[i].key_strindex]: d.attribute_table[i].value.string_value for i in sample.attribute_indices}
        assert name == '[' + attributes['lock'] + ']', (name, attributes)
        values[attributes['lock']] = values.get(attributes['lock'], 0) + sum(sample.values)
        assert len(sample.values) == 1 and len(sample.timestamps_unix_nano) <= 1
        for at in sample.timestamps_unix_nano:
            assert profile.time_unix_nano <= at <= profile.time_unix_nano + profile.duration_nano
            times.append([at - profile.time_unix_nano, sample.values[0], attributes['lock'], attributes.get('kind', '')])
print(json.dumps([told, moments]))
"#;

#[test]
fn opentelemetrys_own_definitions_read_the_sums_of_the_report() {
    let Some(python) = python::with(&["opentelemetry-proto==1.45.2"]) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    for recording in recordings().iter().filter(|path| !path.ends_with("figure_2.jsonl")) {
        let report = report(recording);
        let to = dir.path().join("a.otlp");
        export(recording, &to);
        let [read, _]: [Value; 2] = serde_json::from_str(&python::run(&python, READ_OTLP, &[&to])).expect("JSON");
        for (kind, expected) in
            [("block/delay/nanoseconds", waited(&report)), ("mutex/delay/nanoseconds", caused(&report))]
        {
            let read: BTreeMap<String, u64> = serde_json::from_value(read[kind].clone()).expect("ns by lock");
            assert_eq!(read, expected, "{kind} of {}", recording.display());
        }
        assert!(read["block/contentions/count"].is_object() && read["mutex/contentions/count"].is_object());
    }
}

/// A wait: since the recording began, how long, for which lock, of which kind.
pub(crate) type Wait = (u64, u64, String, String);

/// Waits for locks as event lines tell them: from a call to the moment at which the lock is had or given up, on the clock of the recording.
fn waits_of_lines(lines: &str) -> BTreeSet<(u64, u64)> {
    let mut asked = BTreeMap::new();
    let mut waits = BTreeSet::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let (who, at) = ((line["tid"].to_string(), line["lock"].to_string()), &line["t"]);
        match line["op"].as_str() {
            Some("attempt") => drop(asked.insert(who, ns(at))),
            Some("acquire" | "timeout") => drop(asked.remove(&who).map(|since| waits.insert((since, ns(at) - since)))),
            _ => {}
        }
    }
    waits
}

/// Waits as the Firefox Profiler's markers tell them.
pub(crate) fn waits_of_markers(profile: &Value) -> Vec<Wait> {
    let mut waits = Vec::new();
    for thread in profile["threads"].as_array().expect("threads") {
        let markers = &thread["markers"];
        let text = |at: &Value| thread["stringArray"][index(at)].as_str().expect("a text").to_owned();
        for row in 0..index(&markers["length"]) {
            if text(&markers["name"][row]) == "Lock wait" {
                let at = |column: &str| (markers[column][row].as_f64().expect("ms") * 1e6).round() as u64;
                let (start, end) = (at("startTime"), at("endTime"));
                let data = &markers["data"][row];
                waits.push((start, end - start, text(&data["lock"]), text(&data["kind"])));
            }
        }
    }
    waits.sort_unstable();
    waits
}

#[test]
fn opentelemetrys_own_definitions_read_when_each_wait_was() {
    let Some(python) = python::with(&["opentelemetry-proto==1.45.2"]) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let [otlp, firefox, lines] = ["a.otlp", "a.firefox.json", "a.jsonl"].map(|name| dir.path().join(name));
    for name in ["nested.bin", "rwlock.bin", "culprit-before.bin"] {
        let recording = golden(name);
        export(&recording, &otlp);
        export(&recording, &firefox);
        assert_eq!(run(&["export", "--from", text(&recording), "--to", text(&lines)]).code, Some(0));
        let [_, moments]: [Value; 2] = serde_json::from_str(&python::run(&python, READ_OTLP, &[&otlp])).expect("JSON");
        let read = |kind: &str| -> Vec<Wait> {
            let mut read: Vec<_> = serde_json::from_value(moments[kind].clone()).expect("waits");
            read.sort_unstable();
            read
        };
        let block = read("block/delay/nanoseconds");
        assert!(block.len() > 3, "{name}: {block:?}");
        assert_eq!(block, waits_of_markers(&json(&firefox)), "{name}");
        // Lines have the clock of the recording: the first wait tells how far that is ahead. Of barriers they tell arrivals.
        let told = waits_of_lines(&std::fs::read_to_string(&lines).expect("event lines"));
        let mut for_locks = block.iter().filter(|wait| wait.3 != "barrier").peekable();
        let first = for_locks.peek().expect("a wait for a lock");
        let ahead = told.iter().find(|wait| wait.1 == first.1).map(|wait| wait.0 - first.0).expect("the wait");
        assert!(for_locks.all(|wait| told.contains(&(wait.0 + ahead, wait.1))), "{name}: {block:?} {told:?}");
        // Whoever is to blame is so during a wait, for that or a part of it.
        let mutex = read("mutex/delay/nanoseconds");
        let during = |part: &Wait| block.iter().any(|wait| wait.0 == part.0 && wait.1 >= part.1);
        assert!(!mutex.is_empty() && mutex.iter().all(during), "{name}: {mutex:?}");
    }
}

/// Whether a file shows that somebody waited for `cache_lock`, as far as can be seen without its viewer.
fn shows_waiting(format: &str, file: &Path) -> bool {
    let bytes = || std::fs::read(file).expect("a file");
    let has = |what: &str| bytes().windows(what.len()).any(|part| part == what.as_bytes());
    match format {
        "folded" | "folded-culprits" => leaves(&String::from_utf8(bytes()).expect("text")).contains_key("cache_lock"),
        "pprof-block" | "pprof-mutex" => bytes().starts_with(&[0x1f, 0x8b]) && bytes().len() > 100,
        "speedscope" => json(file)["profiles"].as_array().is_some_and(|both| both.len() == 2) && has("[cache_lock]"),
        "svg" => has("<svg") && has("data-ns=") && has("[cache_lock]"),
        "otlp" => has("[cache_lock]") && has("contentions"),
        "perfetto" => has("cache_lock_lock_acquire") && has("monitor contention with owner "),
        "firefox" => json(file)["threads"].as_array().is_some_and(|threads| !threads.is_empty()) && has("Lock wait"),
        "html" => has("<!DOCTYPE html>") && has("\"cache_lock\""),
        "bin" => waited(&report(file)).contains_key("cache_lock"),
        "jsonl" => has("\"op\":\"attempt\"") && has("\"name\":\"cache_lock\""),
        "parquet" => {
            let table = |name: &str| std::fs::read_dir(file.join(name)).expect("a table").flatten().count() == 1;
            ["runs", "locks", "sites", "waits", "holds", "edges", "stacks"].into_iter().all(table)
        }
        other => panic!("nothing is known of {other}"),
    }
}

#[test]
fn what_is_observed_becomes_a_viewers_file_at_once() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let own = ["bin", "jsonl", "parquet"];
    for format in FORMATS.iter().map(|format| format.name).chain(own) {
        let to = dir.path().join(format);
        let mut workload = Workload::start("culprit 5");
        let pid = workload.pid().to_string();
        let observer = Observer::start(&["export", "--pid", &pid, "--to", text(&to), "--as", format]);
        workload.go();
        workload.finish();
        let outcome = observer.outcome();
        assert_eq!(outcome.code, Some(0), "{format}: {}", outcome.stderr);
        assert!(shows_waiting(format, &to), "{format}: {}", outcome.stderr);
    }
}

#[test]
fn several_recordings_are_added_up_where_time_does_not_matter() {
    let files = ["figure_4a.jsonl", "figure_4b.jsonl"].map(example);
    let [a, b] = [&files[0], &files[1]].map(|file| text(file));
    let mut expected = waited(&report(&files[0]));
    for (lock, wait) in waited(&report(&files[1])) {
        *expected.entry(lock).or_default() += 2 * wait;
    }
    let outcome = run(&["report", "--from", a, b, b, "--format", "folded"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(leaves(&outcome.stdout), expected);
    let outcome = run(&["export", "--from", a, b, "--from", b, "--to", "-", "--as", "folded"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(leaves(&outcome.stdout), expected);

    let dir = tempfile::tempdir().expect("a directory");
    let to = dir.path().join("both");
    for format in ["html", "bin", "jsonl", "parquet"] {
        let refused = run(&["export", "--from", a, b, "--to", text(&to), "--as", format]);
        refused.assert_error(&[format, "one recording, not 2", "one by one"]);
        assert!(!to.exists(), "{format}");
    }
    run(&["export", "--from", a, b, "--to", b]).assert_error(&["would be replaced"]);
}
