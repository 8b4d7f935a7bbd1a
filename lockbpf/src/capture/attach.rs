//! Placing the programs: uprobes at the sites that were chosen, tracepoints, and what failed.

use super::CaptureError;
use super::btf::Btf;
use super::multi;
use super::probe_table::{FUNCTIONS, Function, SCHED_SWITCH, TRACEPOINTS};
use super::raw_program::{self, Kind, RawError};
use crate::quality::FailedProbe;
use aya::Ebpf;
use aya::programs::uprobe::{UProbeLink, UProbeLinkId, UProbeScope};
use aya::programs::{ProgramError, RawTracePoint, TracePoint, UProbe};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// A function of a file, and where in it the probe goes.
#[derive(Clone, Debug)]
pub struct ProbeSite {
    /// The file, as this process can open it.
    pub path: PathBuf,
    /// The file itself, by whatever path: device and inode.
    pub file: (u64, u64),
    /// The file, as a person knows it.
    pub display: String,
    /// The function.
    pub function: &'static Function,
    /// Offset in the file.
    pub file_offset: u64,
}

/// How uprobes are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// One link per file and process, the return half only where it is needed (kernel 6.13).
    Session,
    /// A perf event per function and half.
    PerfEvents,
}

/// The attached probes and tracepoints. Detached when dropped, all at once: each detach waits for the kernel's grace period, and side by
/// side they share it.
#[derive(Default)]
pub(super) struct Probes {
    session: Option<multi::Program>,
    /// Each is removed by being dropped.
    links: Vec<Box<dyn Send>>,
    placed: usize,
}

impl Probes {
    /// Loads the programs: the session program if wanted and the kernel takes it, else the plain ones.
    pub(super) fn load(ebpf: &mut Ebpf, sessions: bool) -> Result<Self, CaptureError> {
        let mut probes = Self::default();
        if sessions {
            match multi::Program::load(super::object::BYTES, ebpf.maps()) {
                Ok(program) => {
                    probes.session = Some(program);
                    return Ok(probes);
                }
                Err(error) => log::info!("no uprobe sessions, using perf events: {error}"),
            }
        }
        let mut names: Vec<&str> = FUNCTIONS.iter().flat_map(programs).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let program: &mut UProbe = program(ebpf, name)?;
            program.load().map_err(|source| CaptureError::Program { name: name.to_owned(), source })?;
        }
        Ok(probes)
    }

    /// How uprobes are placed.
    pub(super) fn mechanism(&self) -> Mechanism {
        if self.session.is_some() { Mechanism::Session } else { Mechanism::PerfEvents }
    }

    /// Places the programs at `sites` for the given processes (all processes if `None`). Returns what failed.
    pub(super) fn attach(
        &mut self,
        ebpf: &mut Ebpf,
        sites: &[ProbeSite],
        pids: Option<&[u32]>,
    ) -> Result<Vec<FailedProbe>, CaptureError> {
        if self.session.is_some() { Ok(self.attach_sessions(sites, pids)) } else { self.attach_perf(ebpf, sites, pids) }
    }

    fn attach_sessions(&mut self, sites: &[ProbeSite], pids: Option<&[u32]>) -> Vec<FailedProbe> {
        let Some(program) = &self.session else { return Vec::new() };
        let mut failed = Vec::new();
        for sites in sites.chunk_by(|a, b| a.path == b.path) {
            let offsets: Vec<u64> = sites.iter().map(|s| s.file_offset).collect();
            let cookies: Vec<u64> = sites.iter().map(|s| s.function.cookie).collect();
            for &pid in pids.unwrap_or(&[0]) {
                match program.attach(&sites[0].path, &offsets, &cookies, pid) {
                    Ok(link) => {
                        self.links.push(Box::new(link));
                        self.placed += sites.len();
                    }
                    Err(error) => failed.extend(sites.iter().map(|site| site.failed(reason(&error)))),
                }
            }
        }
        failed
    }

    fn attach_perf(
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
            for name in programs(site.function) {
                let program: &mut UProbe = program(ebpf, name)?;
                for &scope in &scopes {
                    match attach_one(program, site, scope) {
                        Ok(link) => {
                            self.links.push(Box::new(link));
                            self.placed += 1;
                        }
                        Err(error) => failed.push(site.failed(reason(&error))),
                    }
                }
            }
        }
        Ok(failed)
    }

    /// Number of probes in place.
    pub(super) fn placed(&self) -> usize {
        self.placed
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

impl ProbeSite {
    fn failed(&self, reason: String) -> FailedProbe {
        FailedProbe { probe: self.function.symbol.to_owned(), file: Some(self.display.clone()), reason }
    }
}

/// The plain programs of a function, the return half first: an entry without its return would leave an attempt open.
fn programs(function: &'static Function) -> impl Iterator<Item = &'static str> {
    function.ret.into_iter().chain([function.entry])
}

fn attach_one(program: &mut UProbe, site: &ProbeSite, scope: UProbeScope) -> Result<UProbeLink, ProgramError> {
    let id: UProbeLinkId = program.attach(site.file_offset, &site.path, scope)?;
    program.take_link(id)
}

/// How the futex system calls are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexTier {
    /// Tracepoints of the futex calls alone.
    Tracepoints,
    /// Tracepoints of every system call, since tracefs is missing: dearer.
    RawSyscalls,
}

impl Probes {
    /// Attaches the futex tracepoints. Without tracefs, the raw tracepoints of all system calls take their place.
    pub(super) fn attach_futex(
        &mut self,
        ebpf: &mut Ebpf,
        tracefs: bool,
    ) -> Result<(FutexTier, Vec<FailedProbe>), CaptureError> {
        if !tracefs {
            for name in ["sys_enter", "sys_exit"] {
                self.attach_raw(ebpf, name, name)?;
            }
            return Ok((FutexTier::RawSyscalls, Vec::new()));
        }
        let mut failed = Vec::new();
        for tracepoint in TRACEPOINTS {
            let program: &mut TracePoint = program(ebpf, tracepoint.program)?;
            if program.fd().is_err() {
                program
                    .load()
                    .map_err(|source| CaptureError::Program { name: tracepoint.program.to_owned(), source })?;
            }
            // A kernel without the system call has no tracepoint for it either.
            match program.attach("syscalls", tracepoint.name).and_then(|id| program.take_link(id)) {
                Ok(link) => self.links.push(Box::new(link)),
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

    /// Attaches the scheduler's tracepoint, which tells what a holder does instead of running. Returns it if that failed:
    /// without it, only that is missing.
    pub(super) fn attach_sched(&mut self, ebpf: &Ebpf, types: &Btf) -> Option<FailedProbe> {
        match attach_typed(ebpf, types, SCHED_SWITCH) {
            Ok(link) => {
                self.links.push(Box::new(link));
                None
            }
            Err(error) => {
                Some(FailedProbe { probe: format!("sched:{SCHED_SWITCH}"), file: None, reason: reason(&error) })
            }
        }
    }

    /// Loads and attaches a raw tracepoint program.
    pub(super) fn attach_raw(
        &mut self,
        ebpf: &mut Ebpf,
        name: &'static str,
        tracepoint: &str,
    ) -> Result<(), CaptureError> {
        let program: &mut RawTracePoint = program(ebpf, name)?;
        let error = |source| CaptureError::Program { name: name.to_owned(), source };
        program.load().map_err(error)?;
        let id = program.attach(tracepoint).map_err(error)?;
        self.links.push(Box::new(program.take_link(id).map_err(error)?));
        Ok(())
    }
}

/// Loads the program of this name and attaches it to the tracepoint of this name.
fn attach_typed(ebpf: &Ebpf, types: &Btf, name: &'static str) -> Result<OwnedFd, RawError> {
    let id = types.tracepoint(name).ok_or_else(|| RawError::Object {
        program: name,
        reason: "the kernel's types have no such tracepoint".to_owned(),
    })?;
    let program = raw_program::load(super::object::BYTES, ebpf.maps(), name, Kind::Tracepoint(id))?;
    raw_program::attach_tracepoint(&program)
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
fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
