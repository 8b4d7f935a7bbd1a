//! A process that filters its system calls (seccomp) from a time on when it is observed already. Some x86 kernels leave a watched return by a system call that filters do not know, and
//! kill the process at it: there nothing may be placed at returns.

use anyhow::{Context as _, Result, ensure};

use crate::{
    check, lockbpf,
    lockbpf::Report,
    tests::{Way, observe},
    workload::{Truth, Workload},
};

/// More calls than a single one would be luck.
const WORKLOAD: &str = "filtered 200";
/// Sections of the workload that are begun by calls that are not watched to their return.
const PLAIN: &str = "plain";

/// It lives, and all of it is seen.
pub(crate) fn exact(way: Way) -> Result<()> {
    ensure!(!doctor_warns()?, "doctor says that this kernel kills filtered processes");
    let (truth, report) = observed(way)?;
    check::exact(&truth, &report, true)
}

/// It lives, since nothing is placed at its returns; what is not seen for that is told.
pub(crate) fn spared(way: Way) -> Result<()> {
    ensure!(doctor_warns()?, "doctor does not say that this kernel kills filtered processes");
    let (truth, report) = observed(way)?;
    let left_out: Vec<String> = report.quality.failed_probes.iter().map(ToString::to_string).collect();
    ensure!(left_out.iter().any(|probe| probe.contains("seccomp")), "nothing says what is left out: {left_out:?}");
    let plain = truth.facts.get(PLAIN).with_context(|| format!("the workload does not tell {PLAIN}"))?;
    let lock = truth.locks.first().context("the workload has no lock")?;
    let name = lock.symbol.as_deref().unwrap_or_default();
    let told = report.locks.iter().find(|told| told.name == name).with_context(|| format!("no {name}"))?;
    // What is tried may be taken and go unseen, and is no lock's then.
    ensure!(told.acquisitions == Some(*plain), "{plain} plain acquisitions were made, but: {told:?}");
    Ok(())
}

/// Observes the workload to its end. A process that is killed has no truth to tell, hence fails the test.
fn observed(way: Way) -> Result<(Truth, Report)> {
    let workload = Workload::start(WORKLOAD)?;
    let observer = observe(&["--pid", &workload.pid().to_string()], way)?;
    let truth = workload.finish().context("the filtered process did not live")?;
    Ok((truth, observer.report()?))
}

/// Whether doctor lacks what watches returns of filtered processes.
fn doctor_warns() -> Result<bool> {
    const FEATURE: &str = "return probes under seccomp";
    let run = lockbpf::run(&["doctor", "--format", "json"])?;
    let told: serde_json::Value = serde_json::from_str(&run.stdout).context("failed to read what doctor says")?;
    let features = told["features"].as_array().context("doctor tells no features")?;
    let found = features.iter().find(|feature| feature["name"] == FEATURE);
    let found = found.with_context(|| format!("doctor does not know of {FEATURE}: {told}"))?;
    Ok(found["state"] != "supported")
}
