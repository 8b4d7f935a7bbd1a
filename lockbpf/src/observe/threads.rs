//! Threads named on the command line: they must be there, and of a process that is observed.

use crate::proc;
use anyhow::{Result, bail};

/// Checks threads against the processes that are observed; without any, everybody may be.
///
/// # Errors
/// When there is no such thread, or it is another process's.
pub(crate) fn check(tids: &[u32], pids: &[u32]) -> Result<()> {
    for &tid in tids {
        let Some(pid) = process_of(tid) else { bail!("--tid {tid}: there is no such thread") };
        if !pids.is_empty() && !pids.contains(&pid) {
            let observed: Vec<String> = pids.iter().map(ToString::to_string).collect();
            bail!("--tid {tid}: that thread is of process {pid}, and process {} is observed", observed.join(", "));
        }
    }
    Ok(())
}

/// The process of a thread that is there.
fn process_of(tid: u32) -> Option<u32> {
    let status = proc::text(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_of_one_process() {
        let (pid, tid) = (std::process::id(), nix::unistd::gettid().as_raw().cast_unsigned());
        assert!(check(&[pid, tid], &[1, pid]).is_ok() && check(&[tid], &[]).is_ok() && check(&[], &[1]).is_ok());
        let foreign = check(&[tid], &[1]).unwrap_err().to_string();
        assert!(foreign.contains(&format!("of process {pid}")), "{foreign}");
        // Beyond the highest there is.
        assert!(check(&[1 << 25], &[]).is_err());
    }
}
