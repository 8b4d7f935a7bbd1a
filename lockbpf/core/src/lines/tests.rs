use super::*;
use crate::event::{Event, ProcessSeen};
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::names::{Frame, Names};
use crate::op::{Action, Arrival, Attempt, Failure, LockKind, OffReason, Op, Released};
use crate::units::{Nanos, Time};
use proptest::prelude::*;
use std::io::{BufReader, Read};

/// SyncProf, figure 4a: seven sections on two locks.
const FIGURE_4A: &str = include_str!("../../../../fuzz/corpus/event_lines/figure-4a.jsonl");

fn read(text: &str) -> Result<(Vec<Event>, Labels), LineError> {
    read_fine(text, 1)
}

fn read_fine(text: &str, ticks_per_ns: u64) -> Result<(Vec<Event>, Labels), LineError> {
    // A buffer that is far too small, so that lines come in pieces.
    let mut reader = Reader::new(BufReader::with_capacity(7, text.as_bytes()), ticks_per_ns);
    let events = reader.by_ref().collect::<Result<Vec<Event>, LineError>>()?;
    let in_place = Reader::new(text.as_bytes(), ticks_per_ns).collect::<Result<Vec<Event>, LineError>>()?;
    assert_eq!(in_place, events);
    Ok((events, reader.into_labels()))
}

fn ops(text: &str) -> Vec<Op> {
    let (events, _) = read(text).unwrap();
    events.into_iter().filter_map(|event| if let Event::Op(op) = event { Some(op) } else { None }).collect()
}

fn write_fine(events: &[Event], labels: &mut Labels, ticks_per_ns: u64) -> String {
    let stacks = labels.stacks();
    let mut writer = Writer::new(Vec::new(), ticks_per_ns);
    for event in events {
        match event {
            Event::Op(op) => writer.op(op, labels, &stacks).unwrap(),
            Event::Process(seen) => writer.process(seen),
            other => panic!("lines hold no {other:?}"),
        }
    }
    String::from_utf8(writer.finish().unwrap()).unwrap()
}

fn error(text: &str) -> String {
    read(text).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn a_worked_example_is_read() {
    let (events, mut labels) = read(FIGURE_4A).unwrap();
    assert_eq!(events.len(), 21);
    let Event::Op(first) = events[0] else { panic!("a step") };
    let Action::Attempt(attempt) = first.action else { panic!("an attempt") };
    assert_eq!(first.time, Time(4));
    assert_eq!(labels.thread_id(first.tid).as_deref(), Some("T1"));
    assert_eq!(labels.lock_id(attempt.lock).as_deref(), Some("L1"));
    assert_eq!(labels.site_id(attempt.site).as_deref(), Some("CS1"));
    assert_eq!((attempt.kind, attempt.shared, attempt.contended), (LockKind::Mutex, false, None));
    assert_eq!(write_fine(&events, &mut labels, 1), FIGURE_4A);
}

#[test]
fn every_field_is_read() {
    let text = concat!(
        r#"{"t":1,"tid":7,"pid":40,"comm":"main","op":"attempt","lock":"A","kind":"rwlock","mode":"shared","site":"s","#,
        r#""owner":"T9","contended":true,"name":"a_lock","symbol":"f (a.c:3)","stack":["g","h (b.c:4)"],"more":[{}]}"#,
        "\n\n",
        r#"{"op":"acquire","t":2,"tid":"7","lock":"A","waker":9}"#,
        "\r\n  \n",
        r#"{"t":3,"tid":7,"op":"release","lock":"A","how":"cond_wait"}"#,
        "\n",
        r#"{"t":3,"tid":8,"op":"barrier","lock":"B","n":2,"site":"r"}"#,
        "\n",
        r#"{"t":4,"tid":9,"op":"barrier","lock":"B","n":2,"site":"r","post":"q","kind":null}"#,
        "\n",
        r#"{"t":5,"tid":7,"op":"off","reason":"blocked","stack":["g","h (b.c:4)"]}"#,
        "\n",
        r#"{"t":6,"tid":7,"op":"on","comm":"worker"}"#
    );
    let (events, mut labels) = read(text).unwrap();
    let [Event::Process(seen), Event::Op(attempt), Event::Op(acquire), Event::Op(release), rest @ ..] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((seen.pid, seen.process, seen.comm.as_str()), (40, Process(1), "main"));
    let (lock, site) = (Lock { process: Process(0), addr: 1 }, Site { process: Process(0), addr: 1 });
    let Action::Attempt(a) = attempt.action else { panic!("{attempt:?}") };
    let expected = Attempt {
        lock,
        site,
        shared: true,
        kind: LockKind::Rwlock,
        owner: a.owner,
        stack: Some(StackId(0)),
        contended: Some(true),
    };
    assert_eq!((a, attempt.tid, attempt.process), (expected, Tid(7), Process(1)));
    assert_eq!(labels.thread_id(a.owner.unwrap()).as_deref(), Some("T9"));
    assert_eq!((acquire.tid, acquire.process), (Tid(7), Process(1)), "5 and \"5\" are one thread, its pid known");
    assert_eq!(acquire.action, Action::Acquire { lock, waker: Some(Tid(9)) });
    assert_eq!(release.action, Action::Release { lock, how: Released::CondWait });
    let Event::Op(Op { action: Action::Barrier(first), process: Process(0), .. }) = rest[0] else { panic!("{rest:?}") };
    let Event::Op(Op { action: Action::Barrier(second), .. }) = rest[1] else { panic!("{rest:?}") };
    assert_eq!(labels.site_id(first.post).as_deref(), Some("r:after"));
    assert_eq!(labels.site_id(second.post).as_deref(), Some("q"));
    assert_eq!((first.participants, first.barrier, first.site), (2, second.barrier, second.site));
    let Event::Op(Op { action: off, .. }) = rest[2] else { panic!("{rest:?}") };
    assert_eq!(off, Action::Off { reason: OffReason::Blocked, stack: Some(StackId(0)) });
    assert_eq!(labels.comm(Tid(7)), Some("worker"));
    assert_eq!(labels.global(lock).as_deref(), Some("a_lock"));
    let frame = labels.frames(Process(0), 1).remove(0);
    assert_eq!((frame.function.as_deref(), frame.location), (Some("f"), Some(("a.c".to_owned(), 3))));
    let stack = labels.stacks()[&StackId(0)].clone();
    let functions: Vec<String> = stack.iter().map(|&addr| labels.frames(Process(0), addr)[0].symbol()).collect();
    assert_eq!(functions, ["g", "h (b.c:4)"]);
}

#[test]
fn every_operation_is_read() {
    let line = |op: &str| format!(r#"{{"t":1,"tid":1,"op":"{op}","lock":"L","site":"s"}}"#);
    let lock = Lock { process: Process(0), addr: 1 };
    for (op, action) in [
        ("release", Action::Release { lock, how: Released::Unlock }),
        ("try_fail", Action::Fail { lock, how: Failure::TryFailed }),
        ("timeout", Action::Fail { lock, how: Failure::TimedOut }),
        ("error", Action::Fail { lock, how: Failure::Error }),
        ("cond_wait", Action::CondWait { condition: lock, site: Site { process: Process(0), addr: 1 } }),
        ("cond_wake", Action::CondWake { condition: lock }),
        ("exit", Action::Exit { ends: false }),
    ] {
        assert_eq!(ops(&line(op))[0].action, action, "{op}");
    }
    let ending = r#"{"t":1,"tid":1,"op":"exit","ends_process":true}"#;
    assert_eq!(ops(ending)[0].action, Action::Exit { ends: true });
    let join = r#"{"t":9,"tid":1,"op":"join","thread":2,"wait":7}"#;
    assert_eq!(ops(join)[0].action, Action::Join { thread: Tid(2), wait: Nanos(7) });
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let good = r#"{"t":5,"tid":1,"op":"exit"}"#;
    for (line, says) in [
        (r#"{"t":5,"tid":1,"op":"exit""#, "EOF while parsing an object (column 26)"),
        (r#"[5,1,"exit"]"#, "not a JSON object"),
        ("17", "not a JSON object"),
        ("exit", "not a JSON object"),
        (r#"{"t":5,"tid":1,"op":"exit"} {}"#, "trailing characters (column 29)"),
        (r#"{"tid":1,"op":"exit"}"#, "missing field `t`"),
        (r#"{"t":null,"tid":1,"op":"exit"}"#, "missing field `t`"),
        (r#"{"t":5,"op":"exit"}"#, "missing field `tid`"),
        (r#"{"t":5,"tid":1}"#, "missing field `op`"),
        (r#"{"t":5,"tid":1,"op":"attempt","site":"s"}"#, "missing field `lock`"),
        (r#"{"t":5,"tid":1,"op":"attempt","lock":"L"}"#, "missing field `site`"),
        (r#"{"t":5,"tid":1,"op":"barrier","lock":"B","site":"s"}"#, "missing field `n`"),
        (r#"{"t":5,"tid":1,"op":"barrier","lock":"B","n":2}"#, "missing field `site`"),
        (r#"{"t":5,"tid":1,"op":"off"}"#, "missing field `reason`"),
        (
            r#"{"t":5,"tid":1,"op":"barrier","lock":"B","n":0,"site":"s"}"#,
            "`n` is 0: a barrier has at least one participant",
        ),
        (r#"{"t":-5,"tid":1,"op":"exit"}"#, "`t` is negative"),
        (r#"{"t":-0.5,"tid":1,"op":"exit"}"#, "`t` is negative"),
        (r#"{"t":5.0001,"tid":1,"op":"exit"}"#, "`t` is finer than a thousandth of a nanosecond"),
        (r#"{"t":1e30,"tid":1,"op":"exit"}"#, "`t` is too large"),
        (r#"{"t":5,"t":6,"tid":1,"op":"exit"}"#, "duplicate field `t` (column 10)"),
    ] {
        assert_eq!(error(&format!("{good}\n\n{line}\n{good}")), format!("line 3: {says}"), "{line}");
    }
    for (line, says) in [
        (r#"{"t":5,"tid":1,"op":"grab","lock":"L"}"#, "unknown op \"grab\""),
        (r#"{"t":5,"tid":1,"op":"off","reason":"tired"}"#, "unknown variant `tired`"),
        (r#"{"t":5,"tid":1,"op":"attempt","lock":"L","site":"s","mode":"mine"}"#, "unknown variant `mine`"),
        (r#"{"t":"5","tid":1,"op":"exit"}"#, "expected a time in ns as a number"),
        (r#"{"t":5,"tid":1.5,"op":"exit"}"#, "expected a thread as a whole number or a string"),
        (r#"{"t":5,"tid":-1,"op":"exit"}"#, "expected a thread as a whole number or a string"),
        (r#"{"t":5,"tid":1,"op":"release","lock":[7]}"#, "expected a string"),
        (r#"{"t":5,"tid":1,"op":"barrier","lock":"B","n":-1,"site":"s"}"#, "expected u32"),
        (r#"{"t":5,"tid":1,"op":"barrier","lock":"B","n":4294967296,"site":"s"}"#, "expected u32"),
        (r#"{"t":5,"tid":1,"pid":"x","op":"exit"}"#, "`pid` is not a process id"),
        (r#"{"t":5,"tid":1,"pid":-1,"op":"exit"}"#, "invalid type"),
    ] {
        let error = error(line);
        assert!(error.starts_with("line 1: ") && error.contains(says), "{line}: {error}");
    }
    let invalid = Reader::new(&b"{\"t\":5,\"tid\":\"\xff\",\"op\":\"exit\"}"[..], 1).next();
    assert!(matches!(invalid, Some(Err(LineError::Invalid { line: 1, .. }))));
}

/// Its writer was killed: what there is of it says nothing. An end that is there is meant.
#[test]
fn a_last_line_that_breaks_off_is_left_out() {
    let good = "{\"t\":5,\"tid\":1,\"op\":\"exit\",\"comm\":\"\u{e4}\"}\n";
    let torn = |bytes: &[u8]| {
        let mut reader = Reader::new(bytes, 1);
        let read: Result<Vec<Event>, LineError> = reader.by_ref().collect();
        read.map(|events| (events.len(), reader.is_torn()))
    };
    for length in 1..good.len() - 2 {
        let bytes = [good.as_bytes(), &good.as_bytes()[..length]].concat();
        assert_eq!(torn(&bytes).unwrap(), (1, true), "{length}");
        assert!(torn(&[&bytes[..], b"\n"].concat()).is_err(), "{length}");
        assert!(torn(&good.as_bytes()[..length]).is_err(), "{length}");
    }
    assert_eq!(torn(good.repeat(2).trim_end().as_bytes()).unwrap(), (2, false));
    assert!(torn(format!("{good}nonsense").as_bytes()).is_err());
}

#[test]
fn fields_of_other_programs_are_ignored_whatever_lockbpf_calls_by_their_names() {
    let plain = r#"{"t":5,"tid":1,"op":"attempt","lock":"L","site":"s"}"#;
    let more = r#","name":7,"symbol":[],"stack":"0x5","owner":{},"contended":"no","how":2,"reason":[],"waker":1.5}"#;
    assert_eq!(ops(&plain.replace('}', more)), ops(plain));
    let release = r#"{"t":5,"tid":1,"op":"release","lock":"L","how":"quickly"}"#;
    assert!(matches!(ops(release)[0].action, Action::Release { how: Released::Unlock, .. }));
    assert_eq!(ops(r#"{"t":5,"tid":1,"pid":"7","op":"exit"}"#)[0].process, Process(1));
}

#[test]
fn nothing_is_read_after_an_error() {
    let mut reader = Reader::new(&b"{}\n{\"t\":5,\"tid\":1,\"op\":\"exit\"}"[..], 1);
    assert!(matches!(reader.next(), Some(Err(_))));
    assert!(reader.next().is_none());
}

#[test]
fn a_failing_input_is_an_error_of_its_line() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("gone"))
        }
    }
    let input = (&b"{\"t\":5,\"tid\":1,\"op\":\"exit\"}\n{\"t\":"[..]).chain(Failing);
    let mut reader = Reader::new(BufReader::new(input), 1);
    assert!(matches!(reader.next(), Some(Ok(_))));
    assert!(matches!(reader.next(), Some(Err(LineError::Read { line: 2, .. }))));
}

#[test]
fn an_endless_line_is_not_kept() {
    let endless = std::io::repeat(b' ').take(1 << 40);
    let error = Reader::new(BufReader::new(endless), 1).next();
    assert!(matches!(error, Some(Err(LineError::Invalid { line: 1, problem: Problem::TooLong }))));
    let long = format!(r#"{{"t":5,"tid":1,"op":"exit","x":"{}"}}"#, "x".repeat(MAX_LINE));
    assert_eq!(error_of_whole(&long), "line 1: longer than 1048576 bytes");
}

fn error_of_whole(text: &str) -> String {
    Reader::new(text.as_bytes(), 1).next().unwrap().unwrap_err().to_string()
}

#[test]
fn decimals_are_asked_for_and_kept() {
    let text = concat!(
        r#"{"t":1,"tid":1,"op":"exit"}"#,
        "\n",
        r#"{"t":2.5,"tid":1,"op":"exit"}"#,
        "\n",
        r#"{"t":2.501,"tid":1,"op":"exit"}"#,
        "\n"
    );
    assert!(matches!(read(text), Err(LineError::Decimal { line: 2 })));
    let (events, mut labels) = read_fine(text, 1_000).unwrap();
    let times: Vec<u64> = events.iter().map(|event| event.time().0).collect();
    assert_eq!(times, [1_000, 2_500, 2_501]);
    assert_eq!(write_fine(&events, &mut labels, 1_000), text);
    let whole = r#"{"t":2e1,"tid":1,"op":"exit"}"#;
    assert_eq!(ops(whole)[0].time, Time(20));
}

#[test]
fn names_that_a_terminal_would_obey_are_written_as_escapes() {
    let (events, mut labels) = read("{\"t\":5,\"tid\":\"\\n\\u001bé\",\"op\":\"exit\"}\n").unwrap();
    let written: serde_json::Value = serde_json::from_str(&write_fine(&events, &mut labels, 1)).unwrap();
    assert_eq!(written["tid"], "\\u{a}\\u{1b}é");
}

#[test]
fn threads_are_written_as_they_were() {
    let exit = |tid: &str| format!("{{\"t\":5,\"tid\":{tid},\"op\":\"exit\"}}\n");
    for tid in ["0", "5", "2147483647", "2147483648", "140245678901234", "\"T1\"", "\"5\"", "\"05\"", "\"T ü\""] {
        let (events, mut labels) = read(&exit(tid)).unwrap();
        let written = write_fine(&events, &mut labels, 1);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&written).unwrap(),
            serde_json::from_str::<serde_json::Value>(&exit(tid)).unwrap()
        );
    }
    let large = ops(&(exit("140245678901234") + &exit("\"140245678901234\"") + &exit("\"0140245678901234\"")));
    assert!(large[0].tid == large[1].tid && large[1].tid != large[2].tid);
}

#[test]
fn a_kind_without_rules_keeps_its_name() {
    let text = "{\"t\":5,\"tid\":1,\"op\":\"attempt\",\"lock\":\"L\",\"kind\":\"seqlock\",\"site\":\"s\"}\n";
    let (events, mut labels) = read(text).unwrap();
    let Event::Op(Op { action: Action::Attempt(a), .. }) = events[0] else { panic!("{events:?}") };
    assert_eq!((a.kind, labels.kind(a.lock).as_deref()), (LockKind::Other, Some("seqlock")));
    assert_eq!(write_fine(&events, &mut labels, 1), text);
}

/// Names as live capture has them.
struct Symbols;

impl Names for Symbols {
    fn frames(&mut self, _: Process, return_addr: u64) -> Vec<Frame> {
        let function = |name: &str| Some(name.to_owned());
        match return_addr {
            0x10 => vec![
                Frame { function: function("lock_guard"), inlined: true, ..Frame::default() },
                Frame { function: function("put"), location: Some(("/src/kv.c".to_owned(), 9)), ..Frame::default() },
            ],
            addr => vec![Frame { function: function("main"), addr, ..Frame::default() }],
        }
    }
    fn global(&mut self, lock: Lock) -> Option<String> {
        (lock.addr == 0x7).then(|| "cache_lock".to_owned())
    }
    fn call_stack(&mut self, _: Process, raw: &[u64], site: Option<u64>) -> Vec<u64> {
        raw.iter().copied().skip_while(|&addr| site.is_some_and(|site| addr != site)).collect()
    }
}

#[test]
fn live_steps_are_written_with_addresses_and_names() {
    let process = Process(3);
    let mut writer = Writer::new(Vec::new(), 1);
    let seen = ProcessSeen { time: Time(0), process, pid: 42, start: Time(0), comm: String::new() };
    writer.process(&seen);
    writer.process(&ProcessSeen { process: Process(4), ..seen });
    let stacks: Stacks = [(StackId(8), vec![0x99, 0x10, 0x20])].into();
    let mut op = |time, process: Process, action| {
        let tid = Tid(40 + process.0);
        writer.op(&Op { time: Time(time), tid, process, action }, &mut Symbols, &stacks).unwrap();
    };
    let attempt = |process| {
        Action::Attempt(Attempt {
            lock: Lock { process, addr: 0x7 },
            site: Site { process, addr: 0x10 },
            shared: false,
            kind: LockKind::Mutex,
            owner: Some(Tid(99)),
            stack: Some(StackId(8)),
            contended: Some(true),
        })
    };
    op(1, process, attempt(process));
    op(2, process, Action::Acquire { lock: Lock { process, addr: 0x7 }, waker: None });
    op(3, Process(4), attempt(Process(4)));
    op(4, Process(5), Action::CondWake { condition: Lock { process: Process(5), addr: 0x8 } });
    let written = String::from_utf8(writer.finish().unwrap()).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    let stack = r#""stack":["lock_guard","put (kv.c:9)","main"]"#;
    assert_eq!(
        lines,
        [
            [
                r#"{"t":1,"tid":43,"pid":42,"op":"attempt","lock":"42:0x7","name":"cache_lock","site":"42:0x10","#,
                r#""symbol":"put (kv.c:9)","owner":99,"contended":true,"#,
                stack,
                "}"
            ]
            .concat(),
            r#"{"t":2,"tid":43,"pid":42,"op":"acquire","lock":"42:0x7"}"#.to_owned(),
            [
                r#"{"t":3,"tid":44,"pid":42,"op":"attempt","lock":"42#2:0x7","name":"cache_lock","site":"42#2:0x10","#,
                r#""symbol":"put (kv.c:9)","owner":99,"contended":true,"#,
                stack,
                "}"
            ]
            .concat(),
            r#"{"t":4,"tid":45,"op":"cond_wake","lock":"process-5:0x8"}"#.to_owned(),
        ]
    );
    let (events, mut labels) = read(&written).unwrap();
    assert_eq!(write_fine(&events, &mut labels, 1), written);
}

#[test]
fn a_function_on_a_stack_is_called_what_its_line_calls_it() {
    let site = |t: u64, site: &str, symbol: &str, stack: &str| {
        format!(
            "{{\"t\":{t},\"tid\":1,\"op\":\"attempt\",\"lock\":\"l\",\"site\":\"{site}\",\"symbol\":\"{symbol}\"{stack}}}\n"
        )
    };
    let text = site(0, "put", "store::put", "") + &site(1, "7", "get", ",\"stack\":[\"put\",\"7\"]");
    let (events, mut labels) = read(&text).unwrap();
    assert_eq!(write_fine(&events, &mut labels, 1), text);
}

/// Any line that is valid, as a JSON object; its time is filled in later.
fn any_line() -> impl Strategy<Value = serde_json::Map<String, serde_json::Value>> {
    use serde_json::{Map, Value, json};
    let tid = || {
        prop_oneof![
            (0u64..4).prop_map(|n| json!(n)),
            any::<u64>().prop_map(|n| json!(n)),
            ".{0,3}".prop_map(|s| json!(s))
        ]
    };
    let name = || ".{0,3}".prop_map(|s| json!(s));
    let op = prop::sample::select(vec![
        "attempt",
        "acquire",
        "release",
        "try_fail",
        "timeout",
        "error",
        "barrier",
        "cond_wait",
        "cond_wake",
        "off",
        "on",
        "exit",
    ]);
    let required =
        (tid(), op, name(), name(), 1u32..9, prop::sample::select(vec!["runnable", "blocked", "sleeping", "futex"]));
    let optional = (
        prop::option::of(tid()),
        prop::option::of(prop::sample::select(vec!["mutex", "rwlock", "spin", "semaphore", "barrier", "futex", "rcu"])),
        prop::option::of(any::<bool>()),
        prop::option::of(0u32..3),
        prop::option::of(name()),
        prop::option::of(prop::collection::vec(name(), 0..3)),
        prop::option::of(prop::sample::select(vec!["unlock", "cond_wait", "exit", "unseen"])),
        prop::option::of(name()),
    );
    (required, optional).prop_map(
        |((tid, op, lock, site, n, reason), (other, kind, flag, pid, comm, stack, how, name))| {
            let mut line = Map::new();
            line.insert("tid".to_owned(), tid);
            let mut put = |field: &str, value: Option<Value>| {
                if let Some(value) = value {
                    line.insert(field.to_owned(), value);
                }
            };
            put("op", Some(json!(op)));
            put("lock", Some(lock));
            put("site", Some(site));
            put("n", Some(json!(n)));
            put("reason", Some(json!(reason)));
            put("waker", other.clone());
            put("owner", other);
            put("kind", kind.map(|kind| json!(kind)));
            put("mode", flag.map(|shared| json!(if shared { "shared" } else { "exclusive" })));
            put("contended", flag.map(|flag| json!(flag)));
            put("pid", pid.map(|pid| json!(pid)));
            put("comm", comm.clone());
            put("post", comm);
            put("stack", stack.map(|stack| json!(stack)));
            put("how", how.map(|how| json!(how)));
            put("name", name.clone());
            put("symbol", name);
            line
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(lines in prop::collection::vec((any_line(), 0u64..3_000), 0..20), fine: bool) {
        let ticks_per_ns = if fine { 1_000 } else { 1 };
        let mut time = 0;
        let mut text = String::new();
        for (mut line, after) in lines {
            time += after;
            let t = super::time::text(time, ticks_per_ns);
            line.insert("t".to_owned(), serde_json::from_str(&t).unwrap());
            text += &serde_json::to_string(&line).unwrap();
            text.push('\n');
        }
        let (events, mut labels) = read_fine(&text, ticks_per_ns).unwrap();
        let written = write_fine(&events, &mut labels, ticks_per_ns);
        let (again, mut labels) = read_fine(&written, ticks_per_ns).unwrap();
        prop_assert_eq!(write_fine(&again, &mut labels, ticks_per_ns), &written[..]);
        prop_assert_eq!(again.len(), events.len());
        for (a, b) in again.iter().zip(&events) {
            prop_assert_eq!(a.time(), b.time());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), fine: bool) {
        for event in Reader::new(&bytes[..], if fine { 1_000 } else { 1 }) {
            let _ = event;
        }
    }

    #[test]
    fn damaged_lines_are_read_or_refused(at in 0..FIGURE_4A.len(), byte: u8, cut in 0..FIGURE_4A.len()) {
        let mut bytes = FIGURE_4A.as_bytes().to_vec();
        bytes[at] = byte;
        bytes.truncate(cut.max(1));
        let lines = bytes.split(|&b| b == b'\n').count();
        let (mut events, mut errors) = (0, 0);
        for event in Reader::new(&bytes[..], 1) {
            match event {
                Ok(_) => events += 1,
                Err(_) => errors += 1,
            }
        }
        prop_assert!(errors <= 1 && events <= lines);
    }
}

#[test]
fn arrivals_name_what_follows_only_where_it_is_not_the_usual() {
    let line =
        |post: &str| format!("{{\"t\":5,\"tid\":1,\"op\":\"barrier\",\"lock\":\"B\",\"n\":3,\"site\":\"s\"{post}}}\n");
    let text = line("") + &line(",\"post\":\"p\"");
    let (events, mut labels) = read(&text).unwrap();
    assert_eq!(write_fine(&events, &mut labels, 1), text);
    let (spelled_out, _) = read(&(line(",\"post\":\"s:after\"") + &line(",\"post\":\"p\""))).unwrap();
    assert_eq!(spelled_out, events);
    let Event::Op(Op { action: Action::Barrier(Arrival { participants: 3, .. }), .. }) = events[0] else {
        panic!("{events:?}")
    };
}
