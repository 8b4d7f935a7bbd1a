mod figures;
mod pairs;
mod promises;
mod reading;
mod sharing;
mod times;

use super::{Advice, Options, Records, advise, read};
use serde_json::{Value, json};

/// Lines as records.
fn records(lines: &[Value]) -> Records {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    read(text.as_bytes()).unwrap()
}

/// A record: thread, site, reads and writes, under the lock `L`.
fn section(run: u32, seq: u32, tid: &str, site: &str, reads: &[&str], writes: &[&str]) -> Value {
    json!({"run": run, "seq": seq, "tid": tid, "lock": "L", "site": site, "reads": reads, "writes": writes})
}

fn edge(run: u32, from: u32, to: u32) -> Value {
    json!({"run": run, "edge": [from.to_string(), to.to_string()]})
}

fn advice(lines: &[Value]) -> Advice {
    advise(&records(lines), &Options::default())
}

fn told(lines: &[Value]) -> Value {
    serde_json::to_value(advice(lines)).unwrap()
}
