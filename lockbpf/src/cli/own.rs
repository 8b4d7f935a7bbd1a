//! What lockbpf itself uses.

use crate::units::Nanos;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};

/// CPU time, user and system, of this process, or of the children that it has collected.
///
/// # Errors
/// When the kernel does not tell.
pub(super) fn cpu(who: UsageWho) -> nix::Result<Nanos> {
    let usage = getrusage(who)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Nanos(u64::try_from(micros).unwrap_or(0) * 1_000))
}

/// Memory of this process, bytes; 0 if it is not known.
pub(super) fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| u64::try_from(size).ok());
    pages.unwrap_or(0) * page.unwrap_or(4_096)
}

/// Now, ns since 1970 (UTC).
pub(super) fn wall_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |now| u64::try_from(now.num_nanoseconds()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        assert!(resident_bytes() > 100_000);
        assert!(wall_ns() > 1_600_000_000_000_000_000);
        assert!(cpu(UsageWho::RUSAGE_SELF).unwrap() > Nanos(0));
    }
}
