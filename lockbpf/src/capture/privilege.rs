//! The capabilities that observing needs. Checked one by one, never by user id: root in a container
//! may lack them, and an ordinary user may have been granted them.

use crate::rights;
use caps::{Capability, CapsHashSet};
use serde::Serialize;

/// When a capability is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// Nothing can be observed without it.
    Always,
    /// Only in the case that its purpose names.
    Sometimes,
}

/// A capability, what it is for, and whether this process has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Privilege {
    /// As the manual writes it, `CAP_BPF`.
    pub capability: String,
    /// What it is needed for.
    pub purpose: &'static str,
    /// When it is needed.
    pub need: Need,
    /// Whether it, or one that includes it, is there to be taken up.
    pub held: bool,
}

/// Rights that are missing, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// Capabilities without which nothing can be observed.
    #[error("failed to start observing: {missing} missing; {remedy}")]
    Missing {
        /// Which, and for what.
        missing: String,
        /// What the user can do.
        remedy: String,
    },
    /// The kernel would not tell.
    #[error("failed to read this process's capabilities: {0}")]
    Unreadable(#[from] caps::errors::CapsError),
}

/// Capability, purpose, and when it is needed.
const NEEDED: [(Capability, &str, Need); 5] = [
    (Capability::CAP_BPF, "load eBPF programs", Need::Always),
    (Capability::CAP_PERFMON, "attach them to functions and tracepoints", Need::Always),
    (Capability::CAP_SYS_PTRACE, "look into other users' processes", Need::Sometimes),
    (Capability::CAP_DAC_READ_SEARCH, "read tracefs and files that belong to others", Need::Sometimes),
    (Capability::CAP_SYS_ADMIN, "mount tracefs, or reach libraries replaced on disk", Need::Sometimes),
];

/// Every capability that matters, and whether this process has it.
///
/// # Errors
/// If the kernel does not tell.
pub fn survey() -> Result<Vec<Privilege>, PrivilegeError> {
    Ok(judge(&rights::available()?))
}

/// Whether this process may observe at all.
///
/// # Errors
/// Names each capability that is missing, and how to get it.
pub fn require() -> Result<(), PrivilegeError> {
    let privileges = survey()?;
    let missing: Vec<_> = privileges.iter().filter(|p| p.need == Need::Always && !p.held).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|p| format!("{} (to {})", p.capability, p.purpose)).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    Err(PrivilegeError::Missing { missing: format!("{} {verb}", names.join(" and ")), remedy: remedy() })
}

/// How to get the capabilities, as one clause.
#[must_use]
pub fn remedy() -> String {
    let program = std::env::current_exe().map_or_else(|_| "lockbpf".to_owned(), |path| path.display().to_string());
    format!(
        "run lockbpf with sudo, or grant them once: \
         sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep {program}"
    )
}

fn judge(available: &CapsHashSet) -> Vec<Privilege> {
    let held = |capability| {
        let included = matches!(capability, Capability::CAP_BPF | Capability::CAP_PERFMON);
        available.contains(&capability) || included && available.contains(&Capability::CAP_SYS_ADMIN)
    };
    let privilege = |(capability, purpose, need): (Capability, _, _)| Privilege {
        capability: capability.to_string(),
        purpose,
        need,
        held: held(capability),
    };
    NEEDED.into_iter().map(privilege).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(effective: &[Capability]) -> Vec<String> {
        let set = effective.iter().copied().collect();
        judge(&set).into_iter().filter(|p| p.held).map(|p| p.capability).collect()
    }

    #[test]
    fn each_capability_counts_by_itself() {
        assert_eq!(held(&[Capability::CAP_BPF, Capability::CAP_CHOWN]), ["CAP_BPF"]);
        assert_eq!(held(&[Capability::CAP_SYS_ADMIN]), ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN"]);
        assert!(held(&[]).is_empty());
    }

    #[test]
    fn the_answer_is_the_kernels() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
        for (privilege, (capability, ..)) in survey().unwrap().iter().zip(NEEDED) {
            let admin = mask >> Capability::CAP_SYS_ADMIN.index() & 1 == 1;
            assert!(privilege.held == (mask >> capability.index() & 1 == 1) || admin && privilege.held);
        }
    }
}
