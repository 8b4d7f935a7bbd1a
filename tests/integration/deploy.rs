//! The files of `deploy/`: those who read them accept them, and they ask for what there is.

use crate::containers::{copy, install, may_contain};
use crate::harness::agent::{Agent, TOKEN, text};
use crate::harness::privilege::{installed, skipped};
use crate::harness::process::eventually;
use crate::harness::python;
use crate::harness::workload::Workload;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Grafana's own definitions of dashboards, of release 10.1.
const SCHEMA: &str = "grafana-foundation-sdk==1769699998!10.1.0";

/// Reads a dashboard by them, and prints what of it they do not know.
const READ: &str = r#"
import json, sys
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

def lost(written, read, at=""):
    if isinstance(written, dict):
        for key, value in written.items():
            if key in read:
                lost(value, read[key], f"{at}.{key}")
            elif value not in (None, "", [], {}):
                print(f"{at}.{key}")
    elif isinstance(written, list):
        if len(written) != len(read):
            print(at)
        for number, pair in enumerate(zip(written, read)):
            lost(*pair, f"{at}[{number}]")
    elif written != read:
        print(at, written, read)

register_default_plugins()
with open(sys.argv[1]) as file:
    text = file.read()
lost(json.loads(text), json.loads(JSONEncoder().encode(Dashboard.from_json(json.loads(text)))))
"#;

/// Kubernetes' definitions.
pub(crate) const KUBERNETES: &str = "kubernetes-validate==1.37.0";

/// Holds documents against them, in the oldest release that has all that is used, and prints them by kind.
pub(crate) const READ_MANIFEST: &str = r#"
import json, sys
import kubernetes_validate, yaml

with open(sys.argv[1]) as file:
    documents = list(yaml.safe_load_all(file))
for document in documents:
    kubernetes_validate.validate(document, "1.30", strict=True)
print(json.dumps({document["kind"]: document for document in documents}))
"#;

/// A container as a cluster makes it: a root directory that is read only, the node's processes, few capabilities.
const CONTAINER: &str = r#"
mount --bind "$0" "$0" && mount --rbind /proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" &&
mount -t tmpfs tmp "$0/tmp" && mount -o remount,bind,ro "$0" &&
exec chroot "$0" /setpriv --bounding-set="-all,$1" --inh-caps=-all --no-new-privs /lockbpf agent --config /etc/lockbpf/agent.toml
"#;

/// A file of `deploy/`.
pub(crate) fn deployed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

fn dashboard() -> Value {
    let text = fs::read_to_string(deployed("dashboard.json")).expect("the dashboard");
    serde_json::from_str(&text).expect("JSON")
}

fn panels(dashboard: &Value) -> &[Value] {
    dashboard["panels"].as_array().expect("panels")
}

/// What the dashboard's panels ask Prometheus, with their titles, everything chosen and a minute shown.
pub(crate) fn queries() -> Vec<(String, String)> {
    let dashboard = dashboard();
    let targets = |panel: &Value| panel["targets"].as_array().cloned().unwrap_or_default();
    let title = |panel: &Value| panel["title"].as_str().expect("a title").to_owned();
    let all = panels(&dashboard).iter().flat_map(|panel| targets(panel).into_iter().map(move |t| (title(panel), t)));
    all.map(|(title, target)| {
        let asked = target["expr"].as_str().expect("a question").to_owned();
        let asked = asked.replace("$__rate_interval", "1m").replace("$__range", "1m");
        (title, asked.replace("$instance", ".*").replace("$comm", ".*"))
    })
    .collect()
}

#[test]
fn promtool_accepts_the_rules() {
    assert_rules(&deployed("alerts.yml"));
    assert_known(&fs::read_to_string(deployed("alerts.yml")).expect("the rules"));
}

/// Prometheus accepts the rules of a file.
fn assert_rules(file: &Path) {
    let output = Command::new("promtool").args(["check", "rules"]).arg(file).output().expect("promtool runs");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("SUCCESS"), "{said}");
}

/// Each metric of lockbpf's that is asked for is there.
fn assert_known(asked: &str) {
    let told = concat!(
        include_str!("../../lockbpf/core/src/metrics/expose.rs"),
        include_str!("../../lockbpf/core/src/metrics/own.rs")
    );
    let names =
        asked.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| word.starts_with("lockbpf_"));
    for name in names {
        let base = name.strip_suffix("_total").or(name.strip_suffix("_bucket")).unwrap_or(name);
        let base = base.strip_suffix("_sum").or(base.strip_suffix("_count")).unwrap_or(base);
        assert!(told.contains(&format!("\"{base}\"")), "no metric is called {name}");
    }
}

#[test]
fn systemd_accepts_the_unit() {
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        return skipped("there is no systemd-analyze");
    };
    assert!(version.status.success());
    let dir = tempfile::tempdir().expect("a directory");
    let unit = dir.path().join("lockbpf.service");
    let written = fs::read_to_string(deployed("lockbpf.service")).expect("the unit");
    // What it starts has to be there.
    fs::write(&unit, written.replace("/usr/bin/lockbpf", env!("CARGO_BIN_EXE_lockbpf"))).expect("a unit");
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let about_us: Vec<&str> = said.lines().filter(|line| line.contains("lockbpf.service")).collect();
    assert!(about_us.is_empty(), "{said}");
}

#[test]
fn promtool_accepts_what_the_dashboard_asks() {
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (number, (_, asked)) in queries().into_iter().enumerate() {
        assert!(!asked.contains('$'), "{asked}");
        assert_known(&asked);
        let asked = serde_json::to_string(&asked).expect("text");
        writeln!(rules, "  - record: question_{number}\n    expr: {asked}").expect("text takes all");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("rules.yml");
    fs::write(&file, rules).expect("a file");
    assert_rules(&file);
}

#[test]
fn grafanas_own_definitions_read_the_dashboard() {
    let Some(python) = python::with(&[SCHEMA]) else { return };
    assert_eq!(python::run(&python, READ, &[&deployed("dashboard.json")]), "");
}

#[test]
fn the_dashboards_panels_have_places_of_their_own() {
    let dashboard = dashboard();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels(&dashboard) {
        assert!(ids.insert(panel["id"].as_u64()), "{} has another's id", panel["title"]);
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a number"));
        assert!(x + w <= 24, "{} is too wide", panel["title"]);
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{} covers another", panel["title"]);
        }
    }
}

#[test]
fn what_kubernetes_lets_the_agent_do_is_enough() {
    let Some(_turn) = may_contain() else { return };
    let Some(python) = python::with(&[KUBERNETES]) else { return };
    let manifest: Value =
        serde_json::from_str(&python::run(&python, READ_MANIFEST, &[&deployed("kubernetes.yml")])).expect("JSON");
    let pod = &manifest["DaemonSet"]["spec"]["template"]["spec"];
    let rights = &pod["containers"][0]["securityContext"];
    assert_eq!(pod["hostPID"], true);
    for (right, is) in [
        ("privileged", json!(false)),
        ("allowPrivilegeEscalation", json!(false)),
        ("readOnlyRootFilesystem", json!(true)),
        ("runAsUser", json!(0)),
    ] {
        assert_eq!(rights[right], is, "{right}");
    }
    assert_eq!(rights["capabilities"]["drop"], json!(["ALL"]));
    let added = rights["capabilities"]["add"].as_array().expect("capabilities");
    let added: Vec<_> =
        added.iter().map(|name| format!("+{}", name.as_str().expect("a name").to_lowercase())).collect();

    let mut workload = Workload::start_lingering("hold 10 2 5000");
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().to_owned();
    for (program, name) in [
        (PathBuf::from(env!("CARGO_BIN_EXE_lockbpf")), "lockbpf"),
        (installed("setpriv").expect("util-linux has it"), "setpriv"),
    ] {
        install(&root, &program, name, copy);
    }
    for needed in ["proc", "sys", "dev", "tmp", "etc/lockbpf", "etc/lockbpf-secret"] {
        fs::create_dir_all(root.join(needed)).expect("a directory");
    }
    fs::write(root.join("etc/lockbpf-secret/token"), TOKEN).expect("a token");
    // As it is deployed, but for whom it observes, how closely, and where it listens.
    let mut config = manifest["ConfigMap"]["data"]["agent.toml"].as_str().expect("a configuration").to_owned();
    for (deployed, here) in [
        ("0.0.0.0:9948", "127.0.0.1:0".to_owned()),
        ("[observe]", "interval = \"1s\"\n[observe]".to_owned()),
        ("budget = \"3%\"", format!("budget = \"off\"\npids = [{}]", workload.pid())),
    ] {
        assert!(config.contains(deployed), "{config}");
        config = config.replace(deployed, &here);
    }
    fs::write(root.join("etc/lockbpf/agent.toml"), config).expect("a configuration");
    let mut container = Command::new("unshare");
    container.args(["--mount", "sh", "-c", CONTAINER, text(&root), &added.join(",")]).env("XDG_CACHE_HOME", "/tmp");
    let agent = Agent::started(dir, &mut container);
    workload.go();
    let acquisitions = workload.truth().lock("cache_lock").acquisitions as f64;
    eventually("all is told", || {
        agent.metrics().sum("lockbpf_lock_acquisitions_total", &["lock=\"cache_lock\""]) == acquisitions
    });
    workload.end();
    agent.end();
}
