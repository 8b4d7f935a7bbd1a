//! What the figures were measured on.

use std::{fmt, fs, thread};

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::workspace;

/// Load per core from which on other programs distort the figures.
const HIGH_LOAD: f64 = 0.3;

/// Facts about the machine.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    memory_kb: Option<u64>,
    rustc: Option<String>,
    /// Load averages of the last 1, 5 and 15 minutes at the start.
    load_average: Vec<f64>,
}

impl Machine {
    /// Looks, and tells; for tasks that attach programs. Comes before any build, which is a load of its own.
    ///
    /// # Errors
    /// Without root's rights.
    pub(super) fn look_as_root() -> Result<Self> {
        ensure!(nix::unistd::geteuid().is_root(), "attaching eBPF programs needs root: run this task as root");
        Ok(Self::look_and_tell())
    }

    /// Looks, and tells; for tasks that need no rights.
    pub(super) fn look_and_tell() -> Self {
        let machine = Self::look();
        println!("{machine}");
        machine.warning().iter().for_each(|warning| println!("{warning}"));
        machine
    }

    fn look() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: value(&read("/proc/cpuinfo"), "model name").unwrap_or(std::env::consts::ARCH).to_owned(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_kb: value(&read("/proc/meminfo"), "MemTotal").and_then(|text| text.split(' ').next()?.parse().ok()),
            rustc: workspace::rustc_version().ok(),
            load_average: load_average(&read("/proc/loadavg")),
        }
    }

    /// What to say if other programs were busy at the start.
    fn warning(&self) -> Option<String> {
        let now = *self.load_average.first()?;
        (now > HIGH_LOAD * self.cores as f64).then(|| {
            format!(
                "warning: the load average is {now:.2} on {} cores: other programs distort what follows, throughput \
                 more than CPU time",
                self.cores
            )
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine: {}, {} cores, ", self.cpu, self.cores)?;
        if let Some(memory) = self.memory_kb {
            write!(f, "{:.1} GB, ", memory as f64 * 1024.0 / 1e9)?;
        }
        write!(f, "Linux {}", self.kernel)?;
        if let Some(rustc) = &self.rustc {
            write!(f, ", rustc {rustc}")?;
        }
        let load: Vec<String> = self.load_average.iter().map(|load| format!("{load:.2}")).collect();
        write!(f, "\nload average at the start: {}", load.join(" "))
    }
}

/// The value in a line `KEY : VALUE`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

fn load_average(text: &str) -> Vec<f64> {
    text.split_whitespace().take(3).map_while(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_understood() {
        assert_eq!(value("processor\t: 0\nmodel name\t: A: B\n", "model name"), Some("A: B"));
        assert_eq!(value("no such line", "model name"), None);
        assert_eq!(load_average("1.50 0.25 0.00 2/100 17050\n"), [1.5, 0.25, 0.0]);
        assert!(load_average("").is_empty());
    }

    #[test]
    fn a_loaded_machine_is_warned_of() {
        let mut machine = Machine::look();
        machine.cores = 2;
        machine.load_average = vec![0.1, 9.0, 9.0];
        assert_eq!(machine.warning(), None);
        machine.load_average = vec![1.5, 0.0, 0.0];
        assert!(machine.warning().unwrap().contains("1.50"));
    }
}
