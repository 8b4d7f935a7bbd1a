//! Placing the programs: uprobes at the sites that were chosen, tracepoints, and what failed.

use super::CaptureError;
use super::probe_table::{Function, TRACEPOINTS};
use crate::quality::FailedProbe;
use aya::Ebpf;
use aya::programs::uprobe::{UProbeLink, UProbeLinkId, UProbeScope};
use aya::programs::{ProgramError, RawTracePoint, TracePoint, UProbe};
use std::error::Error as _;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// A function of a file, and where in it the probe goes.
#[derive(Clone, Debug)]
pub struct ProbeSite {
    /// The file, as this process can open it.
    pub path: PathBuf,
    /// The file, as a person knows it.
    pub display: String,
    /// The function.
    pub function: &'static Function,
    /// Offset in the file.
    pub file_offset: u64,
}

/// The attached uprobes. Detached when dropped, all at once: each detach waits for the kernel's grace period, and side by
/// side they share it.
#[derive(Default)]
pub(super) struct Probes {
    links: Vec<UProbeLink>,
}

impl Probes {
    /// Places every program of `sites` for the given processes (all processes if `None`). Returns what failed; a process
    /// that is gone meanwhile is not a failure.
    pub(super) fn attach(
        &mut self,
        ebpf: &mut Ebpf,
        sites: &[ProbeSite],
        pids: Option<&[u32]>,
    ) -> Result<Vec<FailedProbe>, CaptureError> {
        let scopes: Vec<UProbeScope> = match pids {
            None => vec![UProbeScope::AllProcesses],
            Some(pids) => pids.iter().filter_map(|&p| NonZeroU32::new(p)).map(UProbeScope::OneProcess).collect(),
        };
        let mut failed = Vec::new();
        for site in sites {
            // The return half first: an entry without its return would leave an attempt open.
            for name in site.function.ret.into_iter().chain([site.function.entry]) {
                let program: &mut UProbe = program(ebpf, name)?;
                for &scope in &scopes {
                    match attach_one(program, site, scope) {
                        Ok(link) => self.links.push(link),
                        Err(error) => failed.push(FailedProbe {
                            probe: site.function.symbol.to_owned(),
                            file: Some(site.display.clone()),
                            reason: reason(&error),
                        }),
                    }
                }
            }
        }
        Ok(failed)
    }

    /// Number of probes in place.
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        std::thread::scope(|scope| {
            for link in self.links.drain(..) {
                scope.spawn(move || drop(link));
            }
        });
    }
}

fn attach_one(program: &mut UProbe, site: &ProbeSite, scope: UProbeScope) -> Result<UProbeLink, ProgramError> {
    let id: UProbeLinkId = program.attach(site.file_offset, &site.path, scope)?;
    program.take_link(id)
}

/// Loads every uprobe program that some site needs.
pub(super) fn load_uprobes(ebpf: &mut Ebpf, sites: &[ProbeSite]) -> Result<(), CaptureError> {
    let mut names: Vec<&str> =
        sites.iter().flat_map(|s| s.function.ret.into_iter().chain([s.function.entry])).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let program: &mut UProbe = program(ebpf, name)?;
        program.load().map_err(|source| CaptureError::Program { name: name.to_owned(), source })?;
    }
    Ok(())
}

/// How the futex system calls are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexTier {
    /// Tracepoints of the futex calls alone.
    Tracepoints,
    /// Tracepoints of every system call, since tracefs is missing: dearer.
    RawSyscalls,
}

/// Attaches the futex tracepoints. Without tracefs, the raw tracepoints of all system calls take their place.
pub(super) fn attach_futex(ebpf: &mut Ebpf, tracefs: bool) -> Result<(FutexTier, Vec<FailedProbe>), CaptureError> {
    if !tracefs {
        for name in ["sys_enter", "sys_exit"] {
            attach_raw(ebpf, name, name)?;
        }
        return Ok((FutexTier::RawSyscalls, Vec::new()));
    }
    let mut failed = Vec::new();
    for tracepoint in TRACEPOINTS {
        let program: &mut TracePoint = program(ebpf, tracepoint.program)?;
        if program.fd().is_err() {
            program.load().map_err(|source| CaptureError::Program { name: tracepoint.program.to_owned(), source })?;
        }
        // A kernel without the system call has no tracepoint for it either.
        match program.attach("syscalls", tracepoint.name) {
            Ok(_) => {}
            Err(_) if tracepoint.optional && !super::has_tracepoint("syscalls", tracepoint.name) => {}
            Err(error) => failed.push(FailedProbe {
                probe: format!("syscalls:{}", tracepoint.name),
                file: None,
                reason: reason(&error),
            }),
        }
    }
    Ok((FutexTier::Tracepoints, failed))
}

/// Loads and attaches a raw tracepoint program.
pub(super) fn attach_raw(ebpf: &mut Ebpf, name: &'static str, tracepoint: &str) -> Result<(), CaptureError> {
    let program: &mut RawTracePoint = program(ebpf, name)?;
    let error = |source| CaptureError::Program { name: name.to_owned(), source };
    program.load().map_err(error)?;
    program.attach(tracepoint).map_err(error)?;
    Ok(())
}

fn program<'a, P>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, CaptureError>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    ebpf.program_mut(name)
        .ok_or(CaptureError::NoProgram(name))?
        .try_into()
        .map_err(|source| CaptureError::Program { name: name.to_owned(), source })
}

/// An error with its causes, in one line.
fn reason(error: &ProgramError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
