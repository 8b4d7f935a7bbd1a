//! What the service pushes arrives once, whoever is away meanwhile; decoders that are not ours read it, and it tells what is served.

use crate::harness::agent::{Agent, TOKEN, configuration, text};
use crate::harness::collector::{Collector, Posted, nobody};
use crate::harness::may_observe;
use crate::harness::observer::run;
use crate::harness::process::eventually;
use crate::harness::python;
use crate::harness::workload::Workload;
use crate::pprof::top;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Reads requests of OpenTelemetry's collectors, and prints them: metrics by the names that Prometheus makes of them
/// (`open-telemetry/opentelemetry-specification:specification/compatibility/prometheus_and_openmetrics.md`), profiles by their times.
const READ: &str = r#"
import gzip, json, sys
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest

def labels(point, more=()):
    pairs = [(pair.key, pair.value.string_value) for pair in point.attributes] + list(more)
    return '{' + ','.join(f'{key}="{value}"' for key, value in pairs) + '}' if pairs else ''

def bound(value):
    text = repr(value)
    return text[:-2] if text.endswith('.0') else text

def metrics(body):
    samples, times, places = {}, set(), []
    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        about = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
        assert about['service.name'] == 'lockbpf' and about['host.name'] and about['service.instance.id'], about
        places.append({key: about[key] for key in about if key in ('container.id', 'k8s.pod.uid')})
        (scope,) = resource.scope_metrics
        assert scope.scope.name == 'lockbpf' and scope.scope.version
        names = [metric.name for metric in scope.metrics]
        assert len(set(names)) == len(names), names
        for metric in scope.metrics:
            assert metric.description
            kind = metric.WhichOneof('data')
            data = getattr(metric, kind)
            name = metric.name.replace('.', '_') + {'s': '_seconds', 'By': '_bytes', '': ''}.get(metric.unit, '')
            if kind == 'gauge' and metric.unit == '1':
                name += '_ratio'
            if kind == 'sum':
                assert data.is_monotonic and data.aggregation_temporality == 2
                name += '_total'
            for point in data.data_points:
                assert 0 < point.start_time_unix_nano <= point.time_unix_nano
                times.add(point.time_unix_nano)
                if kind == 'histogram':
                    assert data.aggregation_temporality == 2
                    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
                    below = 0
                    for end, count in zip([*map(bound, point.explicit_bounds), '+Inf'], point.bucket_counts):
                        below += count
                        samples[name + '_bucket' + labels(point, [('le', end)])] = below
                    assert below == point.count
                    samples[name + '_sum' + labels(point)] = point.sum
                    samples[name + '_count' + labels(point)] = point.count
                else:
                    key = name + labels(point)
                    assert key not in samples, key
                    samples[key] = point.as_int if point.HasField('as_int') else point.as_double
    (time,) = times
    return {'time': time, 'samples': samples, 'places': places}

def profiles(body):
    request = ExportProfilesServiceRequest.FromString(body)
    d, told = request.dictionary, {}
    (resource,) = request.resource_profiles
    about = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert about['service.name'] == 'lockbpf' and about['host.name'], about
    (scope,) = resource.scope_profiles
    spans = {(profile.time_unix_nano, profile.time_unix_nano + profile.duration_nano) for profile in scope.profiles}
    ((start, end),) = spans
    for profile in scope.profiles:
        kind = d.string_table[profile.period_type.type_strindex] + '/' + d.string_table[profile.sample_type.type_strindex]
        sums = told.setdefault(kind, {})
        for sample in profile.samples:
            attributes = {d.string_table[d.attribute_table[i].key_strindex]: d.attribute_table[i].value.string_value for i in sample.attribute_indices}
            sums[attributes['lock']] = sums.get(attributes['lock'], 0) + sum(sample.values)
    return {'start': start, 'end': end, 'told': told}

print(json.dumps([(profiles if file.endswith('profiles') else metrics)(gzip.decompress(open(file, 'rb').read())) for file in sys.argv[1:]]))
"#;

/// The messages that Pyroscope and Parca take, as they define them (`grafana/pyroscope:api/push/v1/push.proto`,
/// `parca-dev/parca:proto/parca/profilestore/v1alpha1/profilestore.proto`): has protobuf's own reader of JSON read what was pushed.
const READ_RAW: &str = r#"
import sys
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
F = descriptor_pb2.FieldDescriptorProto
def file(package, **messages):
    file = descriptor_pb2.FileDescriptorProto(name=package, package=package, syntax='proto3')
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            many, kind = kind.startswith('*'), kind.lstrip('*')
            of = message.field.add(name=field, number=number, label=F.LABEL_REPEATED if many else F.LABEL_OPTIONAL)
            of.type = {'string': F.TYPE_STRING, 'bytes': F.TYPE_BYTES, 'bool': F.TYPE_BOOL}.get(kind, F.TYPE_MESSAGE)
            if of.type == F.TYPE_MESSAGE:
                of.type_name = f'.{package}.{kind}'
    pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f'{package}.{name}'))
pool = descriptor_pool.DescriptorPool()
label = {'name': 'string', 'value': 'string'}
push = file('push', LabelPair=label, RawSample={'raw_profile': 'bytes', 'ID': 'string'},
    RawProfileSeries={'labels': '*LabelPair', 'samples': '*RawSample'}, PushRequest={'series': '*RawProfileSeries'})
parca = file('parca', Label=label, LabelSet={'labels': '*Label'}, RawSample={'raw_profile': 'bytes'},
    RawProfileSeries={'labels': 'LabelSet', 'samples': '*RawSample'},
    WriteRawRequest={'tenant': 'string', 'series': '*RawProfileSeries', 'normalized': 'bool'})
for name in sys.argv[1:]:
    message = (push('PushRequest') if name.endswith('pyroscope') else parca('WriteRawRequest'))()
    json_format.Parse(open(name).read(), message)
    for series in message.series:
        labels = series.labels.labels if name.endswith('parca') else series.labels
        labels = {label.name: label.value for label in labels}
        assert labels['__name__'] in ('block', 'mutex') and labels['service_name'] == 'lockbpf' and labels['instance'], labels
        assert name.endswith('parca') and labels['node'] or labels['__delta__'] == 'false'
        assert all(sample.raw_profile[:2] == b'\x1f\x8b' for sample in series.samples)
"#;

const PACKAGE: &str = "opentelemetry-proto==1.45.2";

/// Paths by what they are called in the configuration.
const PATHS: [(&str, &str); 4] = [
    ("otlp_metrics", "/v1/metrics"),
    ("otlp_profiles", "/v1development/profiles"),
    ("pyroscope", "/push.v1.PusherService/Push"),
    ("parca", "/api/profiles/writeraw"),
];

/// Observes a process and pushes each second to these destinations of a collector.
fn pushing(pid: u32, queue: &Path, to: &[(&str, String)]) -> String {
    let to: String = to.iter().map(|(name, to)| format!("{name} = {{{to}}}\n")).collect();
    format!("{}[push]\ninterval = \"1s\"\nqueue_dir = \"{}\"\n{to}", configuration(pid, ""), text(queue))
}

fn of(agent: &Agent, metric: &str, destination: &str) -> f64 {
    agent.metrics().sum(metric, &[&format!("destination=\"{destination}\"")])
}

/// Requests as files, by what they are.
fn written(dir: &Path, name: &str, posted: &[Posted]) -> Vec<std::path::PathBuf> {
    let write = |(number, posted): (usize, &Posted)| {
        let file = dir.join(format!("{number}.{name}"));
        fs::write(&file, &posted.body).expect("a file");
        file
    };
    posted.iter().enumerate().map(write).collect()
}

fn read(python: &Path, script: &str, files: &[std::path::PathBuf]) -> String {
    let files: Vec<&Path> = files.iter().map(|file| file.as_path()).collect();
    python::run(python, script, &files)
}

/// Waiting by lock on one side of what Pyroscope or Parca was sent.
fn told_by(dir: &Path, posted: &[Posted], side: &str) -> BTreeMap<String, u64> {
    let mut told = BTreeMap::new();
    for posted in posted {
        let request: Value = serde_json::from_slice(&posted.body).expect("JSON");
        for series in request["series"].as_array().expect("series") {
            if !series["labels"].to_string().contains(&format!("\"{side}\"")) {
                continue;
            }
            let profile = series["samples"][0]["rawProfile"].as_str().expect("a profile");
            let file = dir.join("raw");
            fs::write(&file, STANDARD.decode(profile).expect("base64")).expect("a file");
            top(&file).1.into_iter().for_each(|(lock, wait)| *told.entry(lock).or_default() += wait);
        }
    }
    told
}

#[test]
fn each_batch_arrives_once_though_the_collector_and_the_agent_are_away() {
    let Some(_turn) = may_observe() else { return };
    let Some(python) = python::with(&[PACKAGE]) else { return };
    let mut workload = Workload::start_lingering("culprit 20");
    let dir = tempfile::tempdir().expect("a directory");
    let (queue, address) = (dir.path().join("queue"), nobody());
    let to = PATHS.map(|(name, _)| (name, format!("url = \"http://{address}\"")));
    let config = pushing(workload.pid(), &queue, &to);
    let agent = Agent::configured(&config);
    workload.go();
    let truth = workload.truth();
    let cache = truth.lock("cache_lock");
    let told = |agent: &Agent| agent.metrics().sum("lockbpf_lock_wait_seconds_count", &["cache_lock"]);
    eventually("all waits are told", || told(&agent) >= cache.contended as f64);
    eventually("batches wait", || PATHS.iter().all(|(name, _)| of(&agent, "lockbpf_push_queued", name) >= 1.0));
    eventually("it was tried", || PATHS.iter().all(|(name, _)| of(&agent, "lockbpf_push_failures_total", name) >= 1.0));
    assert_eq!(agent.metrics().sum("lockbpf_push_batches_total", &[]), 0.0);
    // Sums since the start, which the batches have to add up to.
    let served = agent.path("block");
    fs::write(&served, agent.body("/debug/pprof/block", "")).expect("a profile");
    let (_, expected) = top(&served);
    agent.end();
    let waiting = |name: &str| -> BTreeSet<Vec<u8>> {
        let files = fs::read_dir(queue.join(name)).expect("a queue").map(|entry| entry.expect("a file").path());
        files.filter(|file| file.extension().is_some()).map(|file| fs::read(file).expect("a batch")).collect()
    };
    let waited = PATHS.map(|(name, _)| waiting(name));
    assert!(waited.iter().all(|batches| !batches.is_empty()));
    // Both come back.
    let agent = Agent::configured(&config);
    let collector = Collector::start(address);
    eventually("all is taken", || {
        let metrics = agent.metrics();
        let is_empty = metrics.sum("lockbpf_push_queued", &[]) == 0.0;
        is_empty && PATHS.iter().all(|(name, _)| of(&agent, "lockbpf_push_batches_total", name) >= 1.0)
    });
    let said = agent.metrics();
    assert_eq!(said.sum("lockbpf_push_dropped_total", &[]), 0.0, "{said:?}");
    agent.end();
    let taken = collector.taken();
    for ((name, path), waited) in PATHS.iter().zip(&waited) {
        let bodies: Vec<&Vec<u8>> = taken.iter().filter(|posted| posted.path == *path).map(|p| &p.body).collect();
        let different: BTreeSet<&Vec<u8>> = bodies.iter().copied().collect();
        assert_eq!(different.len(), bodies.len(), "{name}: twice");
        assert!(waited.iter().all(|batch| different.contains(batch)), "{name}: lost");
        assert!(waiting(name).is_empty(), "{name}: it was all taken");
    }
    let of_path =
        |at: usize| -> Vec<Posted> { taken.iter().filter(|posted| posted.path == PATHS[at].1).cloned().collect() };
    // In order, without a gap, and as much as was served.
    let profiles: Vec<Value> =
        serde_json::from_str(&read(&python, READ, &written(dir.path(), "profiles", &of_path(1)))).expect("JSON");
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let mut contentions = 0;
    for (at, profile) in profiles.iter().enumerate() {
        let before = at.checked_sub(1).map_or(Some(0), |before| profiles[before]["end"].as_u64());
        assert!(
            profile["start"].as_u64() >= before && profile["end"].as_u64() > profile["start"].as_u64(),
            "{profile}"
        );
        for (lock, wait) in profile["told"]["block/delay"].as_object().expect("locks") {
            *sums.entry(lock.clone()).or_default() += wait.as_u64().expect("ns");
        }
        contentions += profile["told"]["block/contentions"]["cache_lock"].as_u64().unwrap_or(0);
    }
    assert_eq!(sums.get("cache_lock"), expected.get("cache_lock"), "{sums:?}");
    assert_eq!(contentions, cache.contended);
    for at in [2, 3] {
        let posted = of_path(at);
        read(&python, READ_RAW, &written(dir.path(), PATHS[at].0, &posted));
        assert_eq!(
            told_by(dir.path(), &posted, "block").get("cache_lock"),
            expected.get("cache_lock"),
            "{}",
            PATHS[at].0
        );
        assert!(told_by(dir.path(), &posted, "mutex").contains_key("cache_lock"));
    }
    let metrics: Vec<Value> =
        serde_json::from_str(&read(&python, READ, &written(dir.path(), "metrics", &of_path(0)))).expect("JSON");
    let times: Vec<u64> = metrics.iter().map(|batch| batch["time"].as_u64().expect("ns")).collect();
    assert!(times.is_sorted_by(|before, after| before < after), "{times:?}");
    workload.end();
}

#[test]
fn what_is_pushed_is_what_is_served() {
    let Some(_turn) = may_observe() else { return };
    let Some(python) = python::with(&[PACKAGE]) else { return };
    let mut workload = Workload::start_lingering("culprit 10");
    let dir = tempfile::tempdir().expect("a directory");
    let collector = Collector::start(nobody());
    let url = format!("url = \"http://{}/otlp/v1/metrics?tenant=a\"", collector.address);
    let more = "headers = {\"X-Scope-OrgID\" = \"b\"}";
    let agent = Agent::configured(&pushing(
        workload.pid(),
        &dir.path().join("queue"),
        &[("otlp_metrics", format!("{url}, {more}"))],
    ));
    workload.go();
    let acquisitions = workload.truth().lock("cache_lock").acquisitions as f64;
    let told = || agent.metrics().sum("lockbpf_lock_acquisitions_total", &["cache_lock"]);
    eventually("all is told", || told() == acquisitions);
    // Made when all was told.
    let before = collector.taken().len();
    eventually("it is pushed", || collector.taken().len() >= before + 2);
    let served = agent.metrics();
    let taken = collector.taken();
    let last = taken.last().expect("a batch");
    assert_eq!(last.path, "/otlp/v1/metrics?tenant=a");
    for (name, value) in
        [("x-scope-orgid", "b"), ("content-type", "application/x-protobuf"), ("content-encoding", "gzip")]
    {
        assert_eq!(last.header(name), Some(value), "{:?}", last.head);
    }
    let files = written(dir.path(), "metrics", std::slice::from_ref(last));
    let batches: Vec<Value> = serde_json::from_str(&read(&python, READ, &files)).expect("JSON");
    let pushed = batches[0]["samples"].as_object().expect("samples");
    let names = |keys: &mut dyn Iterator<Item = &String>| -> BTreeSet<String> {
        keys.map(|key| key.split('{').next().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&mut pushed.keys()), {
        let mut served = names(&mut served.0.keys());
        // Nobody had been answered when the first was made, but it may be there by now.
        served.extend(
            pushed.contains_key("lockbpf_http_requests_total").then(|| "lockbpf_http_requests_total".to_owned()),
        );
        served
    });
    let settled = ["lockbpf_lock_", "lockbpf_wait_caused_", "lockbpf_deadlocks", "lockbpf_lost"];
    let mut compared = 0;
    for (key, value) in served.0.iter().filter(|(key, _)| settled.iter().any(|name| key.starts_with(name))) {
        // Bounds are written in another way there.
        if !key.contains("le=\"") {
            assert_eq!(pushed.get(key).and_then(Value::as_f64), Some(*value), "{key}");
            compared += 1;
        }
    }
    assert!(compared > 15, "{compared}: {served:?}");
    let buckets = |lock: &str| {
        let key = |key: &&String| key.starts_with("lockbpf_lock_wait_seconds_bucket") && key.contains(lock);
        pushed.iter().filter(|(name, _)| key(name)).map(|(_, count)| count.as_f64().expect("a count")).sum::<f64>()
    };
    assert_eq!(buckets("cache_lock"), served.sum("lockbpf_lock_wait_seconds_bucket", &["cache_lock"]));
    workload.end();
    agent.end();
}

#[test]
fn a_collector_that_hangs_or_refuses_holds_up_nobody() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_lingering("hold 20 2 5000");
    let dir = tempfile::tempdir().expect("a directory");
    let token = dir.path().join("token");
    fs::write(&token, format!("{TOKEN}\n")).expect("a token");
    // One that takes connections and says nothing, all the time.
    let hanging = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let hung = hanging.local_addr().expect("an address");
    let is_renewed = Arc::new(AtomicBool::new(false));
    let renewed = is_renewed.clone();
    let wanted = Arc::new(Mutex::new(BTreeSet::new()));
    let carried = wanted.clone();
    let collector = Collector::answering(nobody(), move |posted| {
        let token = posted.header("authorization").expect("a token").to_owned();
        carried.lock().expect("no panic").insert(token.clone());
        match posted.path.as_str() {
            "/refused" => (400, ""),
            _ if !renewed.load(Ordering::Relaxed) || token != "Bearer another" => (401, ""),
            _ => (200, ""),
        }
    });
    let url =
        |path: &str| format!("url = \"http://{}{path}\", token_file = \"{}\"", collector.address, token.display());
    let to = [
        ("otlp_metrics", format!("url = \"http://{hung}\"")),
        ("otlp_profiles", url("/refused")),
        ("pyroscope", url("/later")),
    ];
    let mut agent = Agent::configured(&pushing(workload.pid(), &dir.path().join("queue"), &to));
    workload.go();
    let truth = workload.truth();
    let cache = truth.lock("cache_lock");
    let told = |name: &str| agent.metrics().sum(name, &["cache_lock"]);
    eventually("all is told", || told("lockbpf_lock_acquisitions_total") == cache.acquisitions as f64);
    assert_eq!(told("lockbpf_lock_contentions_total"), cache.contended as f64);
    assert_eq!(agent.metrics().sum("lockbpf_lost_total", &[]), 0.0);
    eventually("batches wait for who hangs", || of(&agent, "lockbpf_push_queued", "otlp_metrics") >= 2.0);
    eventually("what is refused is counted", || {
        agent.metrics().sum("lockbpf_push_dropped_total", &["otlp_profiles", "reason=\"refused\""]) >= 1.0
    });
    eventually("what needs another token waits", || of(&agent, "lockbpf_push_failures_total", "pyroscope") >= 1.0);
    assert_eq!(of(&agent, "lockbpf_push_batches_total", "pyroscope"), 0.0);
    assert!(of(&agent, "lockbpf_push_queue_bytes", "pyroscope") > 100.0);
    fs::write(&token, "another").expect("a token");
    is_renewed.store(true, Ordering::Relaxed);
    eventually("it is taken", || of(&agent, "lockbpf_push_queued", "pyroscope") == 0.0);
    assert!(of(&agent, "lockbpf_push_batches_total", "pyroscope") >= 1.0);
    let carried = wanted.lock().expect("no panic").clone();
    assert_eq!(carried, BTreeSet::from([format!("Bearer {TOKEN}"), "Bearer another".to_owned()]));
    for said in [
        "/refused refused a batch, which is lost: 400",
        "/later takes no batches; they wait on the disk: 401",
        "/later takes batches again",
    ] {
        // Each on a line of its own, in whatever order.
        assert!(agent.running.err.find_any(said), "{said}");
    }
    workload.end();
    agent.end();
}

#[test]
fn a_destination_that_cannot_be_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("agent.toml");
    let check = |push: &str| {
        fs::write(&config, format!("[push]\n{push}\n")).expect("a configuration");
        run(&["agent", "--check", "--config", text(&config)])
    };
    check("parca = {url = \"https://a:1\"}").assert_error(&["line 2", "no TLS"]);
    check("queue_size = \"1K\"").assert_error(&["line 2", "less than 1M"]);
    check("otlp_profiles = {url = \"http://a\", token_file = \"/no/such/token\"}").assert_error(&["/no/such/token"]);
    let good = check("otlp_metrics = {url = \"http://collector\"}\ninterval = \"30s\"");
    assert_eq!(good.code, Some(0), "{good:?}");
    assert!(good.stdout.contains("pushed each 30s to http://collector:80/v1/metrics"), "{}", good.stdout);
}
