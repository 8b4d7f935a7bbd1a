//! Several recordings in one timeline.

use crate::harness::observer::run;
use crate::harness::python;
use crate::outputs::{Wait, export, golden, json, recorded, report, text, waits_of_markers};
use std::collections::BTreeMap;

/// Reads a trace by Perfetto's own definitions: prints time in waits by the name of the process. Checks that tracks of locks tell their runs.
const READ_RUNS: &str = r#"
import json, sys
from perfetto.protos.perfetto.trace import perfetto_trace_pb2
trace = perfetto_trace_pb2.Trace()
trace.ParseFromString(open(sys.argv[1], 'rb').read())
tracks, names, open_, processes, waits = {}, {}, {}, {}, {}
for packet in trace.packet:
    names.update((new.iid, new.name) for new in packet.interned_data.event_names)
    if packet.HasField('track_descriptor'):
        track = packet.track_descriptor
        tracks[track.uuid] = track
        if track.HasField('process'):
            assert track.process.pid not in processes, 'a process of two runs'
            processes[track.process.pid] = track.process.process_name
        elif not track.HasField('thread') and not track.parent_uuid:
            assert track.name.startswith(('run 1: ', 'run 2: ')), track.name
    if not packet.HasField('track_event'):
        continue
    event = packet.track_event
    if event.type == event.TYPE_SLICE_BEGIN:
        open_.setdefault(event.track_uuid, []).append((packet.timestamp, names[event.name_iid]))
    elif event.type == event.TYPE_SLICE_END:
        start, name = open_[event.track_uuid].pop()
        track = tracks[event.track_uuid]
        while not track.HasField('thread'):
            track = tracks[track.parent_uuid]
        if name.startswith(('monitor contention with owner ', 'waits for ')):
            process = processes[track.thread.pid]
            waits[process] = waits.get(process, 0) + packet.timestamp - start
print(json.dumps(waits))
"#;

#[test]
fn timelines_show_several_recordings_beside_each_other() {
    let Some(python) = python::with(&["perfetto==0.59.1", "protobuf==7.36.2"]) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let files = ["nested.bin", "rwlock.bin"].map(golden);
    let both = |name: &str| {
        let to = dir.path().join(name);
        let outcome = run(&["export", "--from", text(&files[0]), text(&files[1]), "--to", text(&to)]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("2 runs beside each other"), "{}", outcome.stderr);
        to
    };
    // Each wait as in the profile of its run alone, since the beginning of that.
    let mut alone: Vec<Wait> = Vec::new();
    for file in &files {
        let to = dir.path().join("one.firefox.json");
        export(file, &to);
        alone.extend(waits_of_markers(&json(&to)));
    }
    alone.sort_unstable();
    assert_eq!(waits_of_markers(&json(&both("both.firefox.json"))), alone);
    let read = python::run(&python, READ_RUNS, &[&both("both.perfetto-trace")]);
    let read: BTreeMap<String, u64> = serde_json::from_str(&read).expect("ns by process");
    for (number, file) in (1..).zip(&files) {
        let of_run = read.iter().filter(|(process, _)| process.starts_with(&format!("run {number}: ")));
        let waited: u64 = of_run.map(|(_, wait)| wait).sum();
        assert_eq!(waited, recorded(&report(file)).values().sum::<u64>(), "{number}: {read:?}");
    }
    let many = vec![text(&files[0]); 201];
    let refused = run(&[&["report", "--format", "perfetto", "--from"], many.as_slice()].concat());
    refused.assert_error(&["perfetto", "up to 200", "201"]);
}
