//! The service: what it serves agrees with the truth and with itself, real readers understand it, and nothing that asks or is configured
//! wrongly harms it.

use crate::deploy::{deployed, queries};
use crate::harness::agent::{Agent, Metrics, TOKEN, configuration, text};
use crate::harness::may_observe;
use crate::harness::observer::run;
use crate::harness::process::{Running, eventually};
use crate::harness::workload::Workload;
use crate::pprof::top;
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

#[test]
fn sums_are_those_of_the_program_and_go_on_when_the_observation_is_begun_anew() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_lingering("culprit 20");
    let agent = Agent::of(workload.pid(), "renew = \"10s\"");
    // One that hangs, all the time.
    let mut hung = TcpStream::connect(&agent.address).expect("it listens");
    hung.write_all(b"GET /metr").expect("it reads");
    workload.go();
    let truth = workload.truth();
    let (cache, quiet) = (truth.lock("cache_lock"), truth.lock("quiet_lock"));
    let of_cache = ["lock=\"cache_lock\"", "kind=\"mutex\"", "comm=\"culprit\""];
    let told = |metrics: &Metrics| metrics.sum("lockbpf_lock_acquisitions_total", &of_cache);
    eventually("all acquisitions are told", || told(&agent.metrics()) >= cache.acquisitions as f64);
    let check = |metrics: &Metrics| {
        let of = |name: &str| metrics.sum(name, &of_cache);
        assert_eq!(of("lockbpf_lock_acquisitions_total"), cache.acquisitions as f64);
        assert_eq!(of("lockbpf_lock_contentions_total"), cache.contended as f64);
        // Nobody waited for it: it is told with others, those of the C library among them.
        assert!(metrics.sum("lockbpf_lock_acquisitions_total", &["lock=\"other\""]) >= quiet.acquisitions as f64);
        let (waits, holds) = (of("lockbpf_lock_wait_seconds_count"), of("lockbpf_lock_hold_seconds_count"));
        assert_eq!((waits, holds), (cache.contended as f64, cache.acquisitions as f64));
        let waited = of("lockbpf_lock_wait_seconds_sum") * 1e9;
        assert!(waited >= cache.wait_min_ns as f64 && waited <= cache.call_ns as f64, "{waited} {cache:?}");
        let held = of("lockbpf_lock_hold_seconds_sum") * 1e9;
        assert!(held >= cache.hold_ns as f64 && waited + held <= cache.span_ns as f64, "{held} {cache:?}");
        let long = |le: &str| metrics.sum("lockbpf_lock_wait_seconds_bucket", &["cache_lock", &format!("le=\"{le}\"")]);
        assert_eq!(long("+Inf"), waits);
        assert!(long("0.016777216") <= 20.0 && long("68.719476736") == waits, "half of them last 20 ms: {metrics:?}");
        let caused = of("lockbpf_wait_caused_seconds_total") * 1e9;
        assert!((caused - waited).abs() <= 0.01 * waited, "{caused} ns of blame for {waited} ns of waiting");
        let slow = ["cache_lock", "site=\"slow_holder (culprit.c:", "cause=\"sleeping\""];
        assert!(metrics.sum("lockbpf_wait_caused_seconds_total", &slow) >= 20.0 * 0.019, "{metrics:?}");
        assert_eq!(metrics.sum("lockbpf_lost_total", &[]), 0.0, "{metrics:?}");
        assert_eq!(metrics.sum("lockbpf_deadlocks_total", &[]), 0.0);
    };
    check(&agent.metrics());
    let (pid, address) = (format!("\"{}\"", truth.pid), cache.addr.clone());
    for key in agent.metrics().0.keys() {
        assert!(!key.contains(&pid) && !key.contains(&address), "{key}");
    }
    eventually("it is begun anew", || agent.metrics().sum("lockbpf_observations_total", &[]) >= 1.0);
    let before = agent.metrics().sum("lockbpf_snapshots_total", &[]);
    eventually("it goes on", || agent.metrics().sum("lockbpf_snapshots_total", &[]) >= before + 2.0);
    check(&agent.metrics());
    workload.end();
    agent.end();
}

#[test]
fn go_tool_pprof_reads_the_profiles_of_the_agent() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_lingering("culprit 10");
    let agent = Agent::of(workload.pid(), "");
    workload.go();
    let truth = workload.truth();
    let contended = truth.lock("cache_lock").contended as f64;
    let told = |name: &str| agent.metrics().sum(name, &["cache_lock"]);
    eventually("all waits are told", || told("lockbpf_lock_wait_seconds_count") >= contended);
    let waited = told("lockbpf_lock_wait_seconds_sum") * 1e9;
    for name in ["block", "mutex"] {
        let file = agent.path(name);
        std::fs::write(&file, agent.body(&format!("/debug/pprof/{name}"), "")).expect("a profile");
        let (total, nodes) = top(&file);
        let of_lock = nodes.get("cache_lock").copied().unwrap_or(0);
        // Beside other work, threads wait for locks of the C library, too.
        assert!(
            total as f64 >= 0.99 * waited && of_lock as f64 <= 1.01 * waited,
            "{name}: {total}, {of_lock} of {waited}"
        );
        assert!(of_lock as f64 >= 0.9 * waited, "{name}: {nodes:?}");
    }
    workload.end();
    agent.end();
}

#[test]
fn prometheus_scrapes_the_agent_and_answers() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_lingering("hold 10 2 5000");
    let tokens = tempfile::tempdir().expect("a directory");
    let token = tokens.path().join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).expect("a token");
    let agent = Agent::of(workload.pid(), &format!("token_file = \"{}\"", token.display()));
    workload.go();
    let acquisitions = workload.truth().lock("cache_lock").acquisitions as f64;
    let told = || agent.metrics().sum("lockbpf_lock_acquisitions_total", &["cache_lock"]);
    eventually("all is told", || told() == acquisitions);
    let lint = Command::new("sh")
        .args(["-c", "promtool check metrics < \"$0\""])
        .arg({
            let file = agent.path("metrics");
            std::fs::write(&file, agent.body("/metrics", "")).expect("a file");
            file
        })
        .output()
        .expect("promtool runs");
    let said = format!("{}{}", String::from_utf8_lossy(&lint.stdout), String::from_utf8_lossy(&lint.stderr));
    assert!(lint.status.success() && said.is_empty(), "{said}");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: lockbpf\n  authorization: {{credentials_file: {}}}\n  \
         static_configs: [{{targets: ['{}']}}]\n",
        token.display(),
        agent.address
    );
    let file = agent.path("prometheus.yml");
    std::fs::write(&file, config).expect("a configuration");
    let data = agent.path("data");
    let prometheus = Running::start(Command::new("prometheus").args([
        format!("--config.file={}", file.display()),
        format!("--storage.tsdb.path={}", data.display()),
        format!("--web.listen-address=127.0.0.1:{port}"),
    ]));
    let answer = |query: &str| -> Option<serde_json::Value> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        write!(stream, "GET /api/v1/query?query={escaped} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    };
    let query = |query: &str| -> Option<f64> { answer(query)?["data"]["result"][0]["value"][1].as_str()?.parse().ok() };
    let counted = "sum(lockbpf_lock_acquisitions_total{lock=\"cache_lock\"})";
    eventually("Prometheus answers", || query(counted) == Some(acquisitions));
    let median = query("histogram_quantile(0.5,lockbpf_lock_wait_seconds_bucket{lock=\"cache_lock\"})");
    assert!(median.is_some_and(|median| median > 0.004 && median < 60.0), "{median:?}");
    // So are the questions of the dashboard: none is empty, but nothing may be lost.
    for (title, asked) in queries() {
        let is_rare = title == "Lost";
        let told = |answer: &serde_json::Value| answer["data"]["result"].as_array().is_some_and(|all| !all.is_empty());
        eventually(&format!("{title}: {asked}"), || {
            answer(&asked).is_some_and(|answer| answer["status"] == "success" && (is_rare || told(&answer)))
        });
    }
    let mut asked = TcpStream::connect(&agent.address).expect("it listens");
    asked.write_all(b"GET /metrics HTTP/1.1\r\nHost: agent\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    asked.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    drop(prometheus);
    workload.end();
    agent.end();
}

#[test]
fn a_configuration_is_read_again_if_it_is_right() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_lingering("hold 5 1 1000");
    let mut agent = Agent::of(workload.pid(), "");
    let config = agent.path("agent.toml");
    workload.go();
    let acquisitions = workload.truth().lock("cache_lock").acquisitions as f64;
    let told = |agent: &Agent| agent.metrics().sum("lockbpf_lock_acquisitions_total", &["cache_lock"]);
    eventually("all is told", || told(&agent) == acquisitions);
    std::fs::write(&config, "listen = \"127.0.0.1:0\"\nintervall = \"1s\"\n").expect("a configuration");
    agent.running.signal(Signal::SIGHUP);
    let said = agent.running.err.find(|line| line.contains("configuration")).expect("it says so");
    assert!(said.contains("stays as it was") && said.contains("agent.toml, line 2: unknown field"), "{said}");
    std::fs::write(&config, configuration(workload.pid(), "renew = \"1h\"")).expect("a configuration");
    agent.running.signal(Signal::SIGHUP);
    let said = agent.running.err.find(|line| line.contains("configuration")).expect("it says so");
    assert!(said.contains("read the configuration again") && said.contains("begun anew each 1h"), "{said}");
    eventually("another observation goes on", || {
        agent.metrics().sum("lockbpf_observations_total", &[]) >= 1.0 && agent.metrics().sum("lockbpf_up", &[]) == 1.0
    });
    assert_eq!(told(&agent), acquisitions);
    workload.end();
    agent.end();
}

#[test]
fn a_configuration_is_checked() {
    let good = run(&["agent", "--config", text(&deployed("agent.toml")), "--check"]);
    assert_eq!((good.code, good.stderr.as_str()), (Some(0), ""), "{good:?}");
    assert!(good.stdout.contains("no mistakes; the whole system"), "{}", good.stdout);
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("agent.toml");
    std::fs::write(&config, "\n[observe]\nbudget = \"much\"\n").expect("a configuration");
    let check = |more: &[&str]| run(&[&["agent", "--check", "--config", text(&config)], more].concat());
    check(&[]).assert_error(&["agent.toml, line 3: a percentage like 3%"]);
    std::fs::write(&config, "listen = \"0.0.0.0:9948\"\n").expect("a configuration");
    check(&[]).assert_error(&["other machines reach 0.0.0.0:9948", "token_file"]);
    let token = dir.path().join("token");
    std::fs::write(&token, "short").expect("a token");
    check(&["--token-file", text(&token)]).assert_error(&["at least 16 characters"]);
    check(&["--listen", "unix:/run/lockbpf.sock", "--token-file", "/no/such/token"]).assert_error(&["/no/such/token"]);
    assert_eq!(check(&["--listen", "127.0.0.1:1"]).code, Some(0));
}

#[test]
fn what_cannot_be_had_is_an_error() {
    let Some(_turn) = may_observe() else { return };
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    run(&["agent", "--listen", &address]).assert_error(&["failed to listen at", &address]);
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("agent.toml");
    std::fs::write(&config, "listen = \"127.0.0.1:0\"\n[observe]\npids = [4194303]\n").expect("a configuration");
    let outcome = run(&["agent", "--config", text(&config)]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("4194303"), "{}", outcome.stderr);
}

#[test]
fn what_was_kept_is_served() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_lingering("hold 20 2 5000");
    let agent = Agent::configured(&(configuration(workload.pid(), "") + "keep = \"1m\"\n"));
    workload.go();
    let truth = workload.truth();
    let file = agent.path("kept.bin");
    std::fs::write(&file, agent.body("/dump", "")).expect("a file");
    let report = run(&["report", "--from", text(&file), "--format", "json"]).report();
    let (told, lock) = (report.named("cache_lock"), truth.lock("cache_lock"));
    assert_eq!((told.acquisitions, told.contended), (lock.acquisitions, lock.contended));
    let waited = told.contended_wait_ns.sum;
    assert!(lock.wait_min_ns as f64 <= waited && waited <= lock.call_ns as f64, "{waited}: {lock:?}");
    agent.end();
    // Nothing is kept unless that is wanted.
    let agent = Agent::of(workload.pid(), "");
    assert!(agent.get("/dump").starts_with("HTTP/1.1 503"), "{}", agent.get("/dump"));
    agent.end();
}
