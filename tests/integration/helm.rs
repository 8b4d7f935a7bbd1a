//! The chart of `deploy/helm`: Helm renders it, and what comes out is what `deploy/kubernetes.yml` says, which runs in a test of its own.

use crate::deploy::{KUBERNETES, READ_MANIFEST, deployed};
use crate::harness::python;
use serde_json::{Value, json};
use std::path::Path;

/// Helm's own engine, of its release 4.2.
const HELM: &str = "helm-python-sdk==0.2.2";

/// Renders a chart with the values of a file, and prints what comes out by kind; that no template may be rendered so, as Helm says it.
const RENDER: &str = r#"
import json, sys
import helm_python as helm
import kubernetes_validate, yaml

findings = helm.lint(sys.argv[1])
# 1 is advice: that it has no icon.
assert all(said["severity"] < 2 for said in findings["messages"]) and not findings["errors"], findings
with open(sys.argv[2]) as file:
    values = json.load(file)
with helm.Chart.load(sys.argv[1]) as chart:
    try:
        texts = chart.render(values, name="lockbpf", namespace="lockbpf").values()
    except helm.HelmError as error:
        print(json.dumps({"refused": str(error)}))
        sys.exit()
documents = [document for text in texts for document in yaml.safe_load_all(text) if document]
for document in documents:
    if "/" not in document["apiVersion"] or document["apiVersion"] == "apps/v1":
        kubernetes_validate.validate(document, "1.30", strict=True)
print(json.dumps({document["kind"]: document for document in documents}))
"#;

fn rendered(python: &Path, values: &Value) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("values.json");
    std::fs::write(&file, values.to_string()).expect("a file");
    serde_json::from_str(&python::run(python, RENDER, &[&deployed("helm"), &file])).expect("JSON")
}

fn configuration(documents: &Value) -> toml::Table {
    documents["ConfigMap"]["data"]["agent.toml"].as_str().expect("a configuration").parse().expect("TOML")
}

#[test]
fn helm_renders_what_the_manifest_says() {
    let Some(python) = python::with(&[HELM, KUBERNETES]) else { return };
    let read = python::run(&python, READ_MANIFEST, &[&deployed("kubernetes.yml")]);
    let manifest: Value = serde_json::from_str(&read).expect("JSON");
    let chart = rendered(&python, &json!({}));
    assert_eq!(configuration(&chart), configuration(&manifest));
    let [mut theirs, ours] =
        [&chart, &manifest].map(|documents| documents["DaemonSet"]["spec"]["template"]["spec"].clone());
    let container = theirs["containers"][0].as_object_mut().expect("a container");
    assert_eq!(container.remove("imagePullPolicy"), Some(json!("IfNotPresent")));
    assert_eq!(container["image"], format!("lockbpf:{}", env!("CARGO_PKG_VERSION")));
    container["image"] = json!("lockbpf");
    assert_eq!(theirs, ours);
    assert!(chart.get("PodMonitor").is_none(), "{chart}");
}

#[test]
fn helm_puts_values_where_they_belong() {
    let Some(python) = python::with(&[HELM, KUBERNETES]) else { return };
    let values = json!({
        "agent": {"interval": "20s", "observe": {"kernel_locks": true}},
        "port": 9000,
        "token": {"secret": "other", "key": "word"},
        "podLabels": {"team": "storage"},
        "nodeSelector": {"disk": "ssd"},
        "podMonitor": {"enabled": true},
    });
    let chart = rendered(&python, &values);
    let expected = "interval = '20s'\nlisten = '0.0.0.0:9000'\ntoken_file = '/etc/lockbpf-secret/word'\n\
                    [observe]\nbudget = '3%'\nkernel_locks = true";
    assert_eq!(configuration(&chart), expected.parse::<toml::Table>().expect("TOML"));
    let template = &chart["DaemonSet"]["spec"]["template"];
    assert_eq!(template["metadata"]["labels"]["team"], "storage");
    assert_eq!(template["spec"]["nodeSelector"], json!({"disk": "ssd"}));
    assert_eq!(template["spec"]["containers"][0]["ports"][0]["containerPort"], 9000);
    assert_eq!(template["spec"]["volumes"][1]["secret"]["secretName"], "other");
    let endpoint = &chart["PodMonitor"]["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["authorization"]["credentials"], json!({"name": "other", "key": "word"}));
    let refused = rendered(&python, &json!({"agent": {"listen": "0.0.0.0:1"}}));
    assert!(refused["refused"].as_str().is_some_and(|why| why.contains("set by the chart")), "{refused}");
}
