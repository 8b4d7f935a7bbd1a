//! Tables of many recordings, asked by DuckDB what docs/fleet.md asks, and compared with what lockbpf says of each; and the same by ClickHouse and by
//! Spark.

use crate::harness::cgroup::Cgroup;
use crate::harness::may_observe;
use crate::harness::observer::{Observer, run};
use crate::harness::privilege::installed;
use crate::harness::python;
use crate::harness::workload::Workload;
use lockbpf::lines::Reader;
use lockbpf::observation::Harvest;
use lockbpf::trace::{Compression, Header, Writer};
use lockbpf::units::Time;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const DUCKDB: &str = "duckdb==2.0.1";
const HOSTS: u64 = 50;
/// The host on which holds are longer.
const SLOW: u64 = 7;
/// 24 November 2026, and a day in ns.
const FIRST_DAY: u64 = 1_795_478_400_000_000_000;
const DAY: u64 = 86_400_000_000_000;

/// Event lines of a writer that two readers wait for, thirty times, of a thread that takes another lock, and of two programs that share one.
fn lines(hold_ns: u64) -> String {
    let mut lines = String::new();
    for round in 0..30 {
        let mut line = |at: u64, tid: u32, op: &str, lock: &str, rest: &str| {
            let t = round * 10_000_000 + at;
            lines += &format!("{{\"t\":{t},\"tid\":{tid},\"op\":\"{op}\",\"lock\":\"{lock}\"{rest}}}\n");
        };
        let reader = ",\"site\":\"read (cache.c:2)\",\"stack\":[\"read (cache.c:2)\",\"main (cache.c:9)\"]";
        line(0, 1, "attempt", "cache_lock", ",\"site\":\"write (cache.c:1)\",\"comm\":\"writer\"");
        line(0, 1, "acquire", "cache_lock", "");
        line(10, 2, "attempt", "cache_lock", reader);
        line(20, 3, "attempt", "cache_lock", reader);
        line(hold_ns, 1, "release", "cache_lock", "");
        line(hold_ns, 2, "acquire", "cache_lock", "");
        line(hold_ns + 100, 2, "release", "cache_lock", "");
        line(hold_ns + 100, 3, "acquire", "cache_lock", "");
        line(hold_ns + 200, 3, "release", "cache_lock", "");
        line(hold_ns + 300, 1, "attempt", "log_lock", ",\"site\":\"log (log.c:5)\"");
        line(hold_ns + 300, 1, "acquire", "log_lock", "");
        line(hold_ns + 310, 2, "attempt", "log_lock", ",\"site\":\"log (log.c:5)\"");
        line(hold_ns + 900, 1, "release", "log_lock", "");
        line(hold_ns + 900, 2, "acquire", "log_lock", "");
        line(hold_ns + 950, 2, "release", "log_lock", "");
        let web = ",\"site\":\"push (web.c:3)\",\"pid\":40,\"comm\":\"web\"";
        line(hold_ns + 1_000, 4, "attempt", "queue_lock", web);
        line(hold_ns + 1_000, 4, "acquire", "queue_lock", "");
        let billing = ",\"site\":\"pop (billing.c:7)\",\"pid\":50,\"comm\":\"billing\"";
        line(hold_ns + 1_010, 5, "attempt", "queue_lock", billing);
        line(2 * hold_ns, 4, "release", "queue_lock", "");
        line(2 * hold_ns, 5, "acquire", "queue_lock", "");
        line(2 * hold_ns + 40, 5, "release", "queue_lock", "");
    }
    lines
}

/// A trace of such a program on a host.
fn record(host: u64, day: u64, hold_ns: u64, to: &Path) {
    let header = Header {
        lockbpf: "0.1.0".to_owned(),
        host: format!("db{host}"),
        target: "cache".to_owned(),
        wall_ns: Some(FIRST_DAY + day * DAY + host * 60_000_000_000),
        ticks_per_ns: 1,
        ..Header::default()
    };
    let lines = lines(hold_ns);
    let mut reader = Reader::new(lines.as_bytes(), 1);
    let file = std::fs::File::create(to).expect("a file");
    let mut writer = Writer::new(file, &header, Compression::None).expect("a trace");
    let mut end = Time(0);
    for event in &mut reader {
        let event = event.expect("an event");
        end = end.max(event.time());
        writer.event(&event).expect("failed to write an event");
    }
    let mut labels = reader.into_labels();
    let harvest = Harvest { stacks: labels.stacks(), ..Harvest::default() };
    writer.finish(&harvest, &mut labels, end).expect("failed to end a trace");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn export(from: &Path, fleet: &Path, version: &str) {
    let options = ["--as", "parquet", "--partition", "--program-version", version];
    let outcome = run(&[&["export", "--from", text(from), "--to", text(fleet)], &options[..]].concat());
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{}", outcome.stderr);
}

fn json(arguments: &[&str]) -> Value {
    let outcome = run(&[arguments, &["--format", "json"]].concat());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    serde_json::from_str(&outcome.stdout).expect("JSON")
}

/// Runs the queries of a document, the first of which makes views; prints names and rows of each further one.
const ASK_DUCKDB: &str = r#"
import duckdb, json, os, re, sys
os.chdir(sys.argv[1])
blocks = re.findall(r'```sql\n(.*?)```', open(sys.argv[2]).read(), re.S)
database = duckdb.connect()
database.execute(blocks[0])
answers = []
for block in blocks[1:]:
    asked = database.execute(block)
    answers.append({'names': [column[0] for column in asked.description], 'rows': asked.fetchall()})
print(json.dumps(answers, default=str))
"#;

/// The same by ClickHouse.
const ASK_CHDB: &str = r#"
import json, os, re, sys
from chdb.session import Session
os.chdir(sys.argv[1])
blocks = re.findall(r'```sql\n(.*?)```', open(sys.argv[2]).read(), re.S)
session = Session()
session.query('SET output_format_json_quote_64bit_integers = 0')
for view in filter(str.strip, blocks[0].split(';')):
    session.query(view)
answers = []
for block in blocks[1:]:
    names, *rows = map(json.loads, str(session.query(block.strip().rstrip(';'), 'JSONCompactEachRowWithNames')).splitlines())
    answers.append({'names': names, 'rows': rows})
print(json.dumps(answers))
"#;

/// The same by Spark: one session, since its start is what takes time, with as little of everything as it gets on with.
const ASK_SPARK: &str = r#"
import json, os, re, sys
from pyspark.sql import SparkSession
os.chdir(sys.argv[1])
blocks = re.findall(r'```sql\n(.*?)```', open(sys.argv[2]).read(), re.S)
settings = {
    'spark.driver.memory': '512m',
    'spark.driver.host': '127.0.0.1',
    'spark.driver.bindAddress': '127.0.0.1',
    'spark.ui.enabled': 'false',
    'spark.log.level': 'ERROR',
    'spark.sql.shuffle.partitions': '1',
    'spark.sql.session.timeZone': 'UTC',
    # So few rows are not worth compiling queries for.
    'spark.sql.codegen.wholeStage': 'false',
    'spark.sql.codegen.factoryMode': 'NO_CODEGEN',
    'spark.sql.adaptive.enabled': 'false',
    'spark.driver.extraJavaOptions': '-XX:TieredStopAtLevel=1',
    'spark.sql.catalogImplementation': 'in-memory',
}
builder = SparkSession.builder.master('local[1]')
for key, value in settings.items():
    builder = builder.config(key, value)
session = builder.getOrCreate()
for view in filter(str.strip, blocks[0].split(';')):
    session.sql(view)
answers = []
for block in blocks[1:]:
    asked = session.sql(block.strip().rstrip(';'))
    answers.append({'names': asked.columns, 'rows': [list(row) for row in asked.collect()]})
session.stop()
print(json.dumps(answers, default=str))
"#;

/// What an engine answers to a question.
#[derive(Deserialize)]
struct Answer {
    names: Vec<String>,
    rows: Vec<Vec<Value>>,
}

impl Answer {
    /// Rows as objects.
    fn objects(&self) -> Vec<Value> {
        let object = |row: &Vec<Value>| self.names.iter().cloned().zip(row.iter().cloned()).collect();
        self.rows.iter().map(object).collect()
    }

    /// Rows in words that no engine has ways of its own for, without one column: in no order, since rows may be equal in what they are ordered by.
    fn plain(&self, without: Option<usize>) -> Vec<Vec<String>> {
        let row = |row: &Vec<Value>| {
            let cells = row.iter().enumerate().filter(|&(at, _)| Some(at) != without);
            cells.map(|(_, cell)| plain(cell)).collect()
        };
        let mut rows: Vec<_> = self.rows.iter().map(row).collect();
        rows.sort_unstable();
        rows
    }
}

fn plain(cell: &Value) -> String {
    match cell {
        Value::Bool(flag) => plain(&u64::from(*flag).into()),
        Value::Number(number) => format!("{:.9e}", number.as_f64().expect("a number")),
        // A time: of the zone, and of parts of seconds that are none, engines say more or less.
        Value::String(text) if text.starts_with("2026-") => text.chars().take("2026-11-25 00:07:00".len()).collect(),
        other => other.to_string(),
    }
}

/// Answers to the questions of a document, about the folder `fleet` in a folder.
fn ask(folder: &Path, package: &str, script: &str, document: &str) -> Option<Vec<Answer>> {
    let python = python::with(&[package])?;
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(document);
    let answers: Vec<Answer> = serde_json::from_str(&python::run(&python, script, &[folder, &document])).expect("JSON");
    assert_eq!(answers.len(), 11);
    Some(answers)
}

fn ask_duckdb(folder: &Path) -> Option<Vec<Answer>> {
    ask(folder, DUCKDB, ASK_DUCKDB, "fleet.md")
}

/// Recordings of all hosts, of two days and versions, as tables in the folder `fleet` of a folder.
fn fleet(folder: &Path) -> Vec<PathBuf> {
    let (fleet, mut files) = (folder.join("fleet"), Vec::new());
    for host in 0..HOSTS {
        let before = 50_000 + 1_000 * host;
        let slow = if host == SLOW { 20 } else { 1 };
        for (day, version, hold_ns) in [(0, "1.0", before), (1, "1.1", 2 * before)] {
            let file: PathBuf = folder.join(format!("{host}-{day}.bin"));
            record(host, day, slow * hold_ns, &file);
            export(&file, &fleet, version);
            files.push(file);
        }
    }
    // Once more: nothing is counted twice.
    export(&files[0], &fleet, "1.0");
    files
}

fn whole(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no whole number: {value}"))
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn sum(rows: &[Value], field: &str) -> u64 {
    rows.iter().map(|row| whole(&row[field])).sum()
}

/// Sums of a field of the locks of reports, by name.
fn by_lock(reports: &[Value], field: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for lock in reports.iter().flat_map(|report| report["locks"].as_array().expect("locks")) {
        *sums.entry(word(&lock["name"]).to_owned()).or_default() += whole(&lock[field]);
    }
    sums
}

#[test]
fn python_duckdb_answers_as_the_reports_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = fleet(dir.path());
    let Some(answers) = ask_duckdb(dir.path()) else { return };
    let answers: Vec<Vec<Value>> = answers.iter().map(Answer::objects).collect();
    let reports: Vec<Value> = files.iter().map(|file| json(&["report", "--from", text(file)])).collect();
    let later: Vec<Value> = reports.iter().skip(1).step_by(2).cloned().collect();

    let last_day: BTreeMap<String, u64> =
        answers[0].iter().map(|row| (word(&row["lock"]).to_owned(), whole(&row["wait_ns"]))).collect();
    assert_eq!(last_day, by_lock(&later, "harm_ns"));
    assert!(answers[0].iter().all(|row| row["version"] == "1.1" && row["hosts"] == HOSTS), "{:?}", answers[0]);

    assert_tells_changes(&answers[1], &files, &reports);
    assert_tells_hosts(&answers[2], &reports);

    let everything = by_lock(&reports, "recorded_wait_ns");
    assert_eq!(sum(&answers[3], "wait_ns"), everything.values().sum::<u64>());
    let blamed = |holder: &str| -> u64 {
        answers[3].iter().filter(|row| row["holder_site"] == holder).map(|row| whole(&row["wait_ns"])).sum()
    };
    for site in &answers[4] {
        assert_eq!(whole(&site["caused_wait_ns"]), blamed(word(&site["site"])), "{site}");
    }
    // Each waits for the writer, the second reader also for the first.
    assert_eq!((answers[5].len(), sum(&answers[5], "waits")), (3, 4 * 30 * 2 * HOSTS));
    for row in &answers[5] {
        let of_hosts: Vec<&Value> =
            reports.iter().map(|report| &named(report, &row["lock"])["contended_wait_ns"]).collect();
        let longest = of_hosts.iter().map(|waits| whole(&waits["max"])).max();
        assert_eq!(Some(whole(&row["max_ns"])), longest, "{row}");
        assert_eq!(whole(&row["waits"]), by_lock(&reports, "contended")[word(&row["lock"])], "{row}");
        // The median of all is among those of the hosts, which reports tell to a few parts in a hundred.
        let (least, most) =
            (of_hosts.iter().map(|w| whole(&w["p50"])).min(), of_hosts.iter().map(|w| whole(&w["p50"])).max());
        let (p50, least, most) = (whole(&row["p50_ns"]) as f64, least.unwrap_or(0) as f64, most.unwrap_or(0) as f64);
        assert!((0.9 * least..=1.1 * most).contains(&p50), "{row}: {least} to {most}");
    }

    let longest = reports.iter().flat_map(|report| report["locks"].as_array().expect("locks"));
    let longest = longest.map(|lock| whole(&lock["contended_wait_ns"]["max"])).max();
    let first = &answers[6][0];
    assert_eq!((Some(whole(&first["wait_ns"])), word(&first["host"])), (longest, &*format!("db{SLOW}")));
    assert_eq!(first["frames"], serde_json::json!(["read", "main"]));
    assert_eq!(sum(&answers[7], "wait_ns"), everything.values().sum::<u64>());
    assert!(word(&answers[7][0]["minute"]).starts_with("2026-11-25 00:07:00"), "{}", answers[7][0]);

    let held: u64 = reports
        .iter()
        .flat_map(|report| report["locks"].as_array().expect("locks"))
        .map(|lock| whole(&lock["hold_ns"]["sum"]))
        .sum();
    assert_eq!(sum(&answers[8], "hold_ns"), held);
    assert_eq!((answers[9].len() as u64, sum(&answers[9], "runs"), sum(&answers[9], "lost")), (HOSTS, 2 * HOSTS, 0));
    assert!(answers[9].iter().all(|row| row["incomplete"] == false && row["least_observed"] == 1.0));

    let [across] = answers[10].as_slice() else { panic!("{:?}", answers[10]) };
    assert_eq!((word(&across["waiter_process"]), word(&across["holder_process"])), ("billing", "web"));
    assert_eq!((&across["lock"], whole(&across["hosts"])), (&"queue_lock".into(), HOSTS));
    assert_eq!(whole(&across["wait_ns"]), everything["queue_lock"]);
}

/// The entry of a lock in a report.
fn named<'a>(report: &'a Value, lock: &Value) -> &'a Value {
    let locks = report["locks"].as_array().expect("locks");
    locks.iter().find(|entry| entry["name"] == *lock).unwrap_or_else(|| panic!("no {lock}"))
}

/// What got worse is what `diff` says of each host, these weighed by how long they were observed.
fn assert_tells_changes(rows: &[Value], files: &[PathBuf], reports: &[Value]) {
    let (mut waits, mut durations) = (BTreeMap::<String, [f64; 2]>::new(), [0.0; 2]);
    for (files, reports) in files.chunks(2).zip(reports.chunks(2)) {
        let diff = json(&["diff", text(&files[0]), text(&files[1])]);
        for (at, field) in ["a", "b"].into_iter().enumerate() {
            let duration = whole(&reports[at]["quality"]["duration_ns"]) as f64;
            durations[at] += duration;
            for lock in diff["locks"].as_array().expect("locks") {
                let rate = lock["wait_ns_per_s"][field].as_f64().expect("a number");
                waits.entry(word(&lock["name"]).to_owned()).or_default()[at] += rate * duration;
            }
        }
    }
    assert_eq!(rows.len(), waits.len());
    for row in rows {
        let waits = waits[word(&row["lock"])];
        for (at, column) in ["before", "after"].into_iter().enumerate() {
            let (sql, own) = (row[column].as_f64().expect("a number"), waits[at] / durations[at]);
            assert!((sql / own - 1.0).abs() < 1e-9, "{column}: {row}, by diff {own}");
        }
    }
}

/// The hosts that differ are those whose reports do.
fn assert_tells_hosts(rows: &[Value], reports: &[Value]) {
    let mut of_locks = BTreeMap::<String, Vec<(String, f64)>>::new();
    for (host, reports) in reports.chunks(2).enumerate() {
        let duration: u64 = reports.iter().map(|report| whole(&report["quality"]["duration_ns"])).sum();
        for (lock, wait_ns) in by_lock(reports, "harm_ns") {
            of_locks.entry(lock).or_default().push((format!("db{host}"), wait_ns as f64 / duration as f64));
        }
    }
    let mut expected = BTreeMap::new();
    for (lock, mut hosts) in of_locks {
        hosts.sort_by(|a, b| a.1.total_cmp(&b.1));
        let usual = (hosts[hosts.len() / 2 - 1].1 + hosts[hosts.len() / 2].1) / 2.0;
        let differ = hosts.into_iter().map(|(host, waiting)| (host, waiting / usual)).filter(|(_, times)| *times > 1.5);
        expected.extend(differ.map(|(host, times)| ((host, lock.clone()), times)));
    }
    let key = |row: &Value| (word(&row["host"]).to_owned(), word(&row["lock"]).to_owned());
    let told: BTreeMap<_, f64> = rows.iter().map(|row| (key(row), row["times"].as_f64().expect("a number"))).collect();
    assert!(told.keys().eq(expected.keys()), "{told:?}, by reports {expected:?}");
    assert!(
        told.iter().all(|(key, times)| (times / expected[key] - 1.0).abs() < 1e-9),
        "{told:?}, by reports {expected:?}"
    );
    assert_eq!(word(&rows[0]["host"]), format!("db{SLOW}"));
}

#[test]
fn python_duckdb_tells_changes_as_diff_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let fleet = dir.path().join("fleet");
    let files = [("1.0", 0, 60_000), ("1.1", 1, 90_000)].map(|(version, day, hold_ns)| {
        let file = dir.path().join(format!("{version}.bin"));
        record(1, day, hold_ns, &file);
        export(&file, &fleet, version);
        file
    });
    let Some(answers) = ask_duckdb(dir.path()) else { return };
    let rows = answers[1].objects();
    let diff = json(&["diff", text(&files[0]), text(&files[1])]);
    let locks = diff["locks"].as_array().expect("locks");
    assert_eq!(rows.len(), locks.len());
    for (row, lock) in rows.iter().zip(locks) {
        assert_eq!(row["lock"], lock["name"]);
        for (column, field) in [("before", "a"), ("after", "b"), ("ratio", "ratio")] {
            let (sql, own) =
                (row[column].as_f64().expect("a number"), lock["wait_ns_per_s"][field].as_f64().expect("a number"));
            assert!((sql / own - 1.0).abs() < 1e-9, "{row} {lock}");
        }
    }
}

#[test]
fn python_chdb_answers_as_duckdb_does() {
    assert_answers_as_duckdb("chdb-core==26.9.0", ASK_CHDB, "fleet-clickhouse.md");
}

#[test]
fn python_spark_answers_as_duckdb_does() {
    if installed("java").is_some() {
        assert_answers_as_duckdb("pyspark==4.3.0", ASK_SPARK, "fleet-spark.md");
    }
}

/// Another engine's answers to the questions in its own words are DuckDB's.
fn assert_answers_as_duckdb(package: &str, script: &str, document: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    fleet(dir.path());
    // A real program, too: it has locks that were never taken in what is observed.
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/goldens/recordings/rwlock.bin");
    export(&real, &dir.path().join("fleet"), "1.1");
    let Some(duckdb) = ask_duckdb(dir.path()) else { return };
    let Some(other) = ask(dir.path(), package, script, document) else { return };
    for (at, (duckdb, other)) in duckdb.iter().zip(&other).enumerate() {
        // An engine may show any of the waits that are equally long.
        let without = (at == 6).then_some(1);
        assert!(!duckdb.rows.is_empty());
        assert_eq!(duckdb.plain(without), other.plain(without), "question {}", at + 1);
    }
}

/// Asks one question about the folder `fleet` in a folder.
const ASK_ONE: &str = r#"
import duckdb, json, os, sys
os.chdir(sys.argv[1])
asked = duckdb.connect().execute(sys.argv[2])
print(json.dumps({'names': [column[0] for column in asked.description], 'rows': asked.fetchall()}, default=str))
"#;

fn ask_one(folder: &Path, question: &str) -> Option<Vec<Value>> {
    let python = python::with(&[DUCKDB])?;
    let answer = python::run(&python, ASK_ONE, &[folder, Path::new(question)]);
    Some(serde_json::from_str::<Answer>(&answer).expect("JSON").objects())
}

/// Two programs share a lock, one in a container of a pod, the other one in a service whose name would give a terminal orders.
#[test]
fn python_duckdb_tells_containers_and_units_of_what_was_observed() {
    let Some(_turn) = may_observe() else { return };
    let pid = std::process::id();
    let (id, pod) = (format!("{pid:012x}{}", "7".repeat(52)), format!("{pid:08x}-0000-1111-2222-333344445555"));
    let Some(slice) = Cgroup::make(&format!("kubepods-pod{}.slice", pod.replace('-', "_"))) else { return };
    let container = slice.below(&format!("cri-containerd-{id}.scope"));
    let Some(outer) = Cgroup::make(&format!("lockbpf-test-{pid}-fleet")) else { return };
    let service = outer.below("a\u{1b}[31m'b\u{202e}.service");
    let mut workload = Workload::start("pshared 30");
    let parent = workload.pid();
    let children =
        std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).expect("the child is told");
    let child: u32 = children.trim().parse().expect("one child");
    container.take_in(parent);
    service.take_in(child);
    let dir = tempfile::tempdir().expect("a directory");
    let tables = dir.path().join("fleet");
    let to = ["--as", "parquet", "--to", text(&tables)];
    let observer =
        Observer::start(&[&["export", "--pid", &parent.to_string(), "--pid", &child.to_string()], &to[..]].concat());
    workload.go();
    let truth = workload.finish();
    let outcome = observer.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);

    let unit = "a\\u{1b}[31m'b\\u{202e}.service";
    let question = "SELECT waiter_process, holder_process, container_id, pod, unit, holder_container_id, holder_pod, holder_unit, \
                           sum(wait_ns)::BIGINT AS wait_ns, count(*) AS waits, count(DISTINCT lock_id) AS locks, \
                           bool_and(holder_tid = waker_tid) AS woken_by_holder \
                    FROM 'fleet/waits/*.parquet' WHERE waiter_process = 'consumer' AND holder_process = 'pshared' AND wait_ns >= 900000 \
                    GROUP BY ALL";
    let Some(rows) = ask_one(dir.path(), question) else { return };
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    let labels = |row: &Value, names: [&str; 3]| names.map(|name| row[name].as_str().map(str::to_owned));
    let (own, holders) = (["container_id", "pod", "unit"], ["holder_container_id", "holder_pod", "holder_unit"]);
    assert_eq!(labels(row, own), [None, None, Some(unit.to_owned())], "{row}");
    assert_eq!(labels(row, holders), [Some(id.clone()), Some(pod.clone()), None], "{row}");
    assert!(whole(&row["waits"]) >= 30 && whole(&row["wait_ns"]) >= truth.fact("waited_ns") * 9 / 10, "{row}");

    // The same by places, with the lock that they share.
    let question = "SELECT e.waiter_process, e.holder_process, e.holder_thread, l.process, l.container_id, l.pod, l.unit, sum(e.wait_ns)::BIGINT AS wait_ns \
                    FROM 'fleet/edges/*.parquet' e JOIN 'fleet/locks/*.parquet' l USING (run_id, lock_id) \
                    WHERE e.waiter_process <> e.holder_process AND l.kind = 'mutex' GROUP BY ALL ORDER BY wait_ns DESC LIMIT 1";
    let rows = ask_one(dir.path(), question).expect("it was asked before");
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    let who = ["waiter_process", "holder_process", "holder_thread"].map(|name| word(&row[name]));
    assert_eq!(who, ["consumer", "pshared", "pshared"], "{row}");
    assert!(whole(&row["wait_ns"]) >= truth.fact("waited_ns") * 9 / 10, "{row}");
    // The report lists a shared lock under the process that came to it first.
    let its = if word(&row["process"]) == "pshared" {
        [Some(id), Some(pod), None]
    } else {
        [None, None, Some(unit.to_owned())]
    };
    assert_eq!(labels(row, own), its, "{row}");

    // They have nothing in common.
    let rows =
        ask_one(dir.path(), "SELECT container_id, pod, unit FROM 'fleet/runs/*.parquet'").expect("it was asked before");
    assert_eq!(rows.iter().map(|row| labels(row, own)).collect::<Vec<_>>(), [[None, None, None]]);
}
