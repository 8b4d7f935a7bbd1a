//! Steps that only compute, on the time that the tests beside them leave: those observe, and mostly wait.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Gives this thread, and what it starts from now on, only the time that nobody else wants (SCHED_IDLE). Where that cannot be had, it says
/// so: the tests hold beside busy programs, too.
pub(super) fn give_way() {
    if let Err(error) = scheduled("--idle") {
        eprintln!("what runs beside the tests does not give way to them: {error:#}");
    }
}

/// Gives this thread another policy.
fn scheduled(policy: &str) -> Result<()> {
    let mut chrt = Command::new("chrt");
    chrt.args([policy, "--pid", "0", &nix::unistd::gettid().to_string()]);
    let output = chrt.stdin(Stdio::null()).output().context("failed to start `chrt`")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_starts_gives_way_when_that_does() {
        let policy = || {
            let output = Command::new("chrt").args(["--pid", "0"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let (before, after) = std::thread::spawn(move || {
            // This test itself may run where all give way.
            scheduled("--batch").unwrap();
            let before = policy();
            scheduled("--idle").unwrap();
            (before, policy())
        })
        .join()
        .unwrap();
        assert!(before.contains("SCHED_BATCH") && after.contains("SCHED_IDLE"), "{before} {after}");
    }
}
