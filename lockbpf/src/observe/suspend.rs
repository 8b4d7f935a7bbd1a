//! Ctrl-Z while an observation runs: the target is let go first.

use super::audience::Audience;
use super::budget::Watch;
use crate::capture::{aside, session::Session, suspend};
use anyhow::Result;

pub(crate) use crate::capture::suspend::asked;

/// Removes the probes, stops this process, and goes on when it is continued.
///
/// # Errors
/// When the kernel side cannot be told.
pub(crate) fn stop(session: &mut Session, watch: &Watch, audience: &impl Audience) -> Result<()> {
    session.lease().pause()?;
    let placed = watch.suspend(session)?;
    aside::wait(|| audience.tell("lockbpf: waiting until the kernel has removed the probes\n"));
    session.lease().guarded(false);
    audience.tell("lockbpf: stopped; its probes are removed until it goes on\n");
    suspend::stop();
    session.lease().guarded(true);
    session.lease().go_on()?;
    watch.resume(session, &placed)?;
    audience.tell("lockbpf: goes on\n");
    Ok(())
}
