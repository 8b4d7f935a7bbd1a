//! The Firefox Profiler's processed profiles: markers for waits and holds, samples of waiting, and a counter of the threads that wait. Version 55 of the
//! format, which the viewer brings to its own when it loads it. `firefox-devtools/profiler:docs-developer/processed-profile-format.md`.

use super::{Format, Renderer, name};
use crate::report::schema::{Ns, StackFrame};
use crate::report::timeline::{Hold, Thread, Timeline, Wait};
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, Write};

/// The format.
pub(super) const FIREFOX: Format = Format {
    name: "firefox",
    suffixes: &[".firefox.json", ".profile.json"],
    about: "Firefox Profiler: markers of waits and holds by thread",
    leaves_out: "the Firefox Profiler draws no arrows from who waits to who is to blame: markers name the latter; parts of a ns are left out",
    renderer: Renderer::Timeline(write),
};

const VERSION: u32 = 55;
const WAIT: &str = "Lock wait";
const HOLD: &str = "Lock hold";
/// A marker with a beginning and an end.
const INTERVAL: u8 = 1;

#[derive(Serialize)]
struct Profile<'a> {
    meta: Value,
    libs: [u8; 0],
    threads: Vec<OneThread<'a>>,
    counters: Vec<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OneThread<'a> {
    name: String,
    process_name: &'a str,
    process_type: &'static str,
    pid: String,
    tid: String,
    is_main_thread: bool,
    show_markers_in_timeline: bool,
    register_time: f64,
    unregister_time: Option<f64>,
    process_startup_time: f64,
    process_shutdown_time: Option<f64>,
    paused_ranges: [u8; 0],
    markers: Markers,
    samples: Samples,
    stack_table: Value,
    frame_table: Value,
    func_table: Value,
    native_symbols: Value,
    resource_table: Value,
    string_array: Vec<String>,
}

/// Columns of equal length.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Markers {
    length: usize,
    category: Vec<u8>,
    name: Vec<usize>,
    phase: Vec<u8>,
    start_time: Vec<f64>,
    end_time: Vec<f64>,
    data: Vec<Data>,
}

/// Fields of a marker; texts by their numbers.
#[derive(Serialize)]
struct Data {
    r#type: &'static str,
    /// What the viewer takes the stack from.
    cause: Cause,
    lock: usize,
    kind: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    doing: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blamed: Option<usize>,
}

#[derive(Serialize)]
struct Cause {
    stack: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Samples {
    length: usize,
    weight_type: &'static str,
    weight: Vec<f64>,
    stack: Vec<usize>,
    time: Vec<f64>,
}

type Strings = IndexSet<String, FxBuildHasher>;

fn write(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    let mut of_thread: Vec<(Vec<&Wait>, Vec<&Hold>)> = vec![Default::default(); timeline.threads.len()];
    timeline.waits.iter().for_each(|wait| of_thread[wait.thread].0.push(wait));
    timeline.holds.iter().for_each(|hold| of_thread[hold.thread].1.push(hold));
    let threads = of_thread.iter().zip(&timeline.threads);
    let profile = Profile {
        meta: meta(timeline),
        libs: [],
        threads: threads.map(|((waits, holds), thread)| Builder::new(timeline).thread(thread, waits, holds)).collect(),
        counters: counters(timeline),
    };
    serde_json::to_writer(&mut *out, &profile)?;
    writeln!(out)
}

fn meta(timeline: &Timeline) -> Value {
    let field =
        |key: &str, label: &str| json!({"key": key, "label": label, "format": "unique-string", "searchable": true});
    let schema = |name: &str, fields: Vec<Value>| {
        json!({
            "name": name,
            "display": ["marker-chart", "marker-table", "timeline-overview"],
            "chartLabel": "{marker.data.lock}",
            "tooltipLabel": format!("{name}: {{marker.data.lock}}"),
            "tableLabel": "{marker.data.lock}",
            "fields": fields,
        })
    };
    let both = || vec![field("lock", "Lock"), field("kind", "Kind")];
    let mut wait = both();
    wait.extend([
        field("holder", "Mostly because of"),
        field("place", "Which held it in"),
        field("doing", "What that was doing"),
        field("blamed", "Everybody to blame"),
    ]);
    let started = timeline.started_ns.unwrap_or(0);
    json!({
        "version": 24,
        "preprocessedProfileVersion": VERSION,
        "product": format!("lockbpf: {}", timeline.target),
        "startTime": started as f64 / 1e6,
        "interval": 1.0,
        "processType": 0,
        "debug": false,
        "symbolicated": true,
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
        "extensions": {"length": 0, "id": [], "name": [], "baseURL": []},
        "categories": [{"name": "Lock", "color": "orange", "subcategories": ["Other"]}],
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
        "markerSchema": [schema(WAIT, wait), schema(HOLD, both())],
    })
}

/// Milliseconds since the observation began.
fn since_start(timeline: &Timeline, time: Ns) -> f64 {
    ms(time - timeline.start_ns)
}

fn ms(time: Ns) -> f64 {
    time.as_f64() / 1e6
}

/// For each process, how many of its threads wait, as changes of that.
fn counters(timeline: &Timeline) -> Vec<Value> {
    let mut changes: FxHashMap<String, (usize, Vec<(Ns, i8)>)> = FxHashMap::default();
    for wait in &timeline.waits {
        let pid = pid(&timeline.threads[wait.thread]);
        let of_pid = |thread: &Thread| self::pid(thread) == pid;
        let first = || timeline.threads.iter().position(of_pid).unwrap_or(wait.thread);
        let (_, changes) = changes.entry(pid.clone()).or_insert_with(|| (first(), Vec::new()));
        changes.extend([(wait.start_ns, 1), (wait.start_ns + wait.wait_ns, -1)]);
    }
    let mut counters: Vec<_> = changes.into_iter().collect();
    counters.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let row = |source, label| json!({"type": "value", "source": source, "format": {"unit": "number"}, "label": label});
    let counter = |(pid, (thread, mut changes)): (String, (usize, Vec<(Ns, i8)>))| {
        changes.sort_unstable();
        // A second point at the same time makes the line a step.
        let points = || changes.iter().flat_map(|&(time, change)| [(time, 0), (time, change)]);
        json!({
            "name": "threads waiting",
            "category": "Lock",
            "description": "Threads that wait for a lock",
            "pid": pid,
            "mainThreadIndex": thread,
            // Viewers from version 62 of the format on look at it: without, changes are drawn, not their sum.
            "display": {
                "graphType": "line-accumulated",
                "unit": "",
                "color": "orange",
                "markerSchemaLocation": null,
                "sortWeight": 50,
                "label": "threads waiting",
                "tooltipRows": [row("accumulated", "threads that wait at this time")],
            },
            "samples": {
                "length": 2 * changes.len(),
                "time": points().map(|(time, _)| since_start(timeline, time)).collect::<Vec<_>>(),
                "count": points().map(|(_, change)| change).collect::<Vec<_>>(),
                "number": points().map(|(_, change)| change.unsigned_abs()).collect::<Vec<_>>(),
            },
        })
    };
    counters.into_iter().map(counter).collect()
}

fn pid(thread: &Thread) -> String {
    thread.pid.unwrap_or(0).to_string()
}

/// The tables of a thread, whose rows are numbered in the order in which they were first asked for.
struct Builder<'a> {
    timeline: &'a Timeline,
    strings: Strings,
    /// Name and file.
    functions: IndexSet<(usize, Option<usize>), FxBuildHasher>,
    /// Function, line, and whether it was inlined into its caller.
    frames: IndexSet<(usize, Option<u32>), FxBuildHasher>,
    /// Caller's stack and frame.
    stacks: IndexSet<(Option<usize>, usize), FxBuildHasher>,
}

impl<'a> Builder<'a> {
    fn new(timeline: &'a Timeline) -> Self {
        Self {
            timeline,
            strings: Strings::default(),
            functions: IndexSet::default(),
            frames: IndexSet::default(),
            stacks: IndexSet::default(),
        }
    }

    fn thread(mut self, thread: &'a Thread, waits: &[&Wait], holds: &[&Hold]) -> OneThread<'a> {
        let mut markers = Markers::default();
        let mut samples = Samples {
            length: waits.len(),
            weight_type: "tracing-ms",
            weight: Vec::new(),
            stack: Vec::new(),
            time: Vec::new(),
        };
        for wait in waits {
            let data = self.wait(wait);
            let start = since_start(self.timeline, wait.start_ns);
            let lock = StackFrame { function: Some(format!("[{}]", self.lock(wait.lock))), ..StackFrame::default() };
            samples.stack.push(self.frame(Some(data.cause.stack), &lock));
            samples.weight.push(ms(wait.wait_ns));
            samples.time.push(start);
            self.marker(&mut markers, (wait.start_ns, wait.start_ns + wait.wait_ns), data);
        }
        for hold in holds {
            let data = self.data(HOLD, hold.lock, hold.stack);
            self.marker(&mut markers, (hold.start_ns, hold.end_ns), data);
        }
        let Self { strings, functions, frames, stacks, .. } = self;
        let of = |value: Value, rows: usize| vec![value; rows];
        OneThread {
            name: if thread.name.is_empty() { thread.tid.to_string() } else { thread.name.clone() },
            process_name: &thread.process,
            process_type: "default",
            pid: pid(thread),
            tid: thread.number.to_string(),
            is_main_thread: thread.pid == Some(thread.number),
            show_markers_in_timeline: true,
            register_time: 0.0,
            unregister_time: None,
            process_startup_time: 0.0,
            process_shutdown_time: None,
            paused_ranges: [],
            markers,
            samples,
            stack_table: json!({
                "length": stacks.len(),
                "prefix": stacks.iter().map(|row| row.0).collect::<Vec<_>>(),
                "frame": stacks.iter().map(|row| row.1).collect::<Vec<_>>(),
            }),
            frame_table: json!({
                "length": frames.len(),
                "address": of((-1).into(), frames.len()),
                "inlineDepth": of(0.into(), frames.len()),
                "category": of(0.into(), frames.len()),
                "subcategory": of(0.into(), frames.len()),
                "func": frames.iter().map(|row| row.0).collect::<Vec<_>>(),
                "nativeSymbol": of(Value::Null, frames.len()),
                "innerWindowID": of(0.into(), frames.len()),
                "line": frames.iter().map(|row| row.1).collect::<Vec<_>>(),
                "column": of(Value::Null, frames.len()),
            }),
            func_table: json!({
                "length": functions.len(),
                "name": functions.iter().map(|row| row.0).collect::<Vec<_>>(),
                "isJS": of(false.into(), functions.len()),
                "relevantForJS": of(false.into(), functions.len()),
                "resource": of((-1).into(), functions.len()),
                "fileName": functions.iter().map(|row| row.1).collect::<Vec<_>>(),
                "lineNumber": of(Value::Null, functions.len()),
                "columnNumber": of(Value::Null, functions.len()),
            }),
            native_symbols: json!({"length": 0, "address": [], "functionSize": [], "libIndex": [], "name": []}),
            resource_table: json!({"length": 0, "lib": [], "name": [], "host": [], "type": []}),
            string_array: strings.into_iter().collect(),
        }
    }

    fn marker(&mut self, markers: &mut Markers, (start, end): (Ns, Ns), data: Data) {
        markers.length += 1;
        markers.category.push(0);
        markers.name.push(self.string(data.r#type));
        markers.phase.push(INTERVAL);
        markers.start_time.push(since_start(self.timeline, start));
        markers.end_time.push(since_start(self.timeline, end));
        markers.data.push(data);
    }

    fn wait(&mut self, wait: &Wait) -> Data {
        let data = self.data(WAIT, wait.lock, wait.stack);
        let Some(most) = self.timeline.mostly(wait) else { return data };
        let blamed: Vec<String> = wait.culprits.iter().map(|culprit| self.timeline.blamed(culprit)).collect();
        Data {
            holder: Some(self.string(&self.timeline.called(most.thread))),
            place: Some(self.string(&self.timeline.places[most.place].symbol)),
            doing: most.cause.map(|cause| self.string(cause)),
            blamed: Some(self.string(&blamed.join("; "))),
            ..data
        }
    }

    fn data(&mut self, r#type: &'static str, lock: usize, stack: usize) -> Data {
        let timeline = self.timeline;
        let stack =
            timeline.stacks[stack].frames.iter().rev().fold(None, |caller, frame| Some(self.frame(caller, frame)));
        Data {
            r#type,
            // Stacks are never empty.
            cause: Cause { stack: stack.unwrap_or(0) },
            lock: self.string(&timeline.locks[lock].name),
            kind: self.string(&timeline.locks[lock].kind),
            holder: None,
            place: None,
            doing: None,
            blamed: None,
        }
    }

    fn lock(&self, lock: usize) -> &'a str {
        &self.timeline.locks[lock].name
    }

    /// The stack of a frame on that of its caller.
    fn frame(&mut self, caller: Option<usize>, frame: &StackFrame) -> usize {
        let name = self.string(&name(frame));
        let file = frame.file.as_ref().map(|file| self.string(file));
        let function = self.functions.insert_full((name, file)).0;
        let frame = self.frames.insert_full((function, frame.line)).0;
        self.stacks.insert_full((caller, frame)).0
    }

    fn string(&mut self, text: &str) -> usize {
        match self.strings.get_index_of(text) {
            Some(index) => index,
            None => self.strings.insert_full(text.to_owned()).0,
        }
    }
}
