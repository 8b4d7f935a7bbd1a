//! Debian's Prometheus, the collector: it asks all hosts, and tells what it has taken.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::unistd::Pid;

use crate::{
    bench::{
        child::Child,
        exposition::{family, get, series},
        interrupt, memcached,
        usage::bytes_below,
    },
    process,
};

/// How long a question may be without an answer, and all hosts may take to be known.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(200);
/// How long `promtool` may take for a day.
const DAY_LIMIT: Duration = Duration::from_secs(600);

/// A Prometheus that runs. Killed when dropped.
pub(super) struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts one that asks so many hosts of a farm each `interval`.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn start(farm: SocketAddr, hosts: u64, interval: Duration, dir: &Path) -> Result<Self> {
        let targets: Vec<String> = (0..hosts).map(|host| format!("h{host}")).collect();
        let config = format!(
            "global: {{scrape_interval: {}s}}\n\
             scrape_configs:\n\
             - job_name: lockbpf\n  \
               static_configs: [{{targets: {targets:?}}}]\n  \
               relabel_configs:\n  \
               - {{source_labels: [__address__], target_label: instance}}\n  \
               - {{source_labels: [__address__], regex: 'h(.*)', target_label: __metrics_path__, replacement: '/metrics/$1'}}\n  \
               - {{target_label: __address__, replacement: '{farm}'}}\n",
            interval.as_secs()
        );
        let file = dir.join("prometheus.yml");
        fs::write(&file, config).with_context(|| format!("failed to write {}", file.display()))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, memcached::free_port()?));
        let child = Child::start_into(
            Command::new("prometheus").args([
                format!("--config.file={}", file.display()),
                format!("--storage.tsdb.path={}", dir.join("data").display()),
                format!("--web.listen-address={address}"),
            ]),
            Stdio::null(),
        )?;
        let mut prometheus = Self { child, address };
        prometheus.wait_for("all hosts", hosts as f64, "count(up == 1)")?;
        Ok(prometheus)
    }

    /// Its process.
    pub(super) fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// Waits until a question has this answer.
    fn wait_for(&mut self, what: &str, wanted: f64, question: &str) -> Result<()> {
        let begin = Instant::now();
        loop {
            self.child.check_alive()?;
            let answer = self.ask(question).unwrap_or_default();
            if answer.first() == Some(&wanted) {
                return Ok(());
            }
            ensure!(begin.elapsed() < PATIENCE, "{what} were not known within {PATIENCE:?}: {question} is {answer:?}");
            interrupt::sleep(LOOK)?;
        }
    }

    /// The values that answer a question.
    ///
    /// # Errors
    /// It does not answer, or not with numbers.
    pub(super) fn ask(&self, question: &str) -> Result<Vec<f64>> {
        let escaped: String = question.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = get(self.address, &format!("/api/v1/query?query={escaped}"))?;
        let answer: serde_json::Value = serde_json::from_str(&answer).context("the answer is no JSON")?;
        let Some(results) = answer["data"]["result"].as_array() else { bail!("{question}: {answer}") };
        let value = |result: &serde_json::Value| result["value"][1].as_str()?.parse().ok();
        results.iter().map(|result| value(result).with_context(|| format!("{question}: {result}"))).collect()
    }

    /// What it tells of itself: the sum of a family's series.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn own(&self, name: &str) -> Result<f64> {
        let text = get(self.address, "/metrics")?;
        Ok(series(&text).filter(|(key, _)| family(key) == name).map(|(_, value)| value).sum())
    }
}

/// Makes blocks of a history, as Prometheus keeps them for good. Returns their bytes.
///
/// # Errors
/// `promtool` fails.
pub(super) fn stored(history: &Path, to: &Path) -> Result<u64> {
    let mut promtool = Command::new("promtool");
    promtool.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(history).arg(to);
    process::output(&mut promtool, DAY_LIMIT)?;
    let bytes = bytes_below(to)?;
    ensure!(bytes > 0, "promtool made no block of {}", history.display());
    Ok(bytes)
}
