//! Where uprobes go, attaching to tracepoints, and what failed.

use super::CaptureError;
use super::btf::Btf;
use super::probe_table::{Function, TRACEPOINTS};
use super::raw_program::{self, Kind, Programs, RawError};
use super::verifier::to_the_end;
use crate::quality::FailedProbe;
use crate::rights;
use aya::Ebpf;
use aya::programs::{Program, ProgramError, RawTracePoint, TracePoint};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

/// A function of a file, and where in it the probe goes.
#[derive(Clone, Debug)]
pub struct ProbeSite {
    /// The file: by this it is reached when its path has gone, with a container or an update.
    pub open: Arc<File>,
    /// The file itself, by whatever path: device and inode.
    pub file: (u64, u64),
    /// The file, as a person knows it.
    pub display: String,
    /// The function.
    pub function: Function,
    /// Offset in the file.
    pub file_offset: u64,
    /// Whether the instruction there must be single-stepped.
    pub stepped: bool,
    /// What else the program is told by the cookie ([`lockbpf_common::gate::with_detail`]); 0 for nothing.
    pub detail: u32,
    /// Where in the file the program counts who watches, which the kernel then does; 0 if it does not.
    pub counter: u64,
}

/// Where in a file there may be a probe, and where the program counts who watches it, or 0.
pub(super) type Spot = (u64, u64);

/// The attached tracepoints. Detached when dropped, all at once: each detach waits for the kernel's grace period, and side by
/// side they share it.
#[derive(Default)]
pub(super) struct Tracepoints {
    /// Each is removed by being dropped.
    links: Vec<Box<dyn Send>>,
}

impl Drop for Tracepoints {
    fn drop(&mut self) {
        std::thread::scope(|scope| {
            for link in self.links.drain(..) {
                scope.spawn(move || drop(link));
            }
        });
    }
}

impl ProbeSite {
    /// A path that leads to the file as long as this exists.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.open.as_raw_fd()))
    }

    pub(super) fn spot(&self) -> Spot {
        (self.file_offset, self.counter)
    }

    pub(super) fn failed(&self, reason: String) -> FailedProbe {
        FailedProbe { probe: self.function.symbol.to_owned(), file: Some(self.display.clone()), reason }
    }
}

/// How the futex system calls are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexTier {
    /// Tracepoints of the futex calls alone.
    Tracepoints,
    /// Tracepoints of every system call, since tracefs is missing: dearer.
    RawSyscalls,
}

/// Programs on every system call, and their tracepoints.
const RAW_SYSCALLS: [&str; 2] = ["sys_enter", "sys_exit"];

/// The programs that watch the futex calls.
pub(super) fn futex_programs(tracefs: bool) -> Vec<&'static str> {
    if tracefs { TRACEPOINTS.iter().map(|t| t.program).collect() } else { RAW_SYSCALLS.to_vec() }
}

/// Loads programs for tracepoints, side by side: the verifier takes a tenth of a second for some.
pub(super) fn load(ebpf: &mut Ebpf, wanted: &[&'static str]) -> Result<(), CaptureError> {
    let one = |program: &mut Program| match program {
        Program::RawTracePoint(program) => to_the_end(|| rights::reach(|| program.load())),
        Program::TracePoint(program) => to_the_end(|| rights::reach(|| program.load())),
        _ => Err(ProgramError::UnexpectedProgramType),
    };
    let programs = ebpf.programs_mut().filter(|(name, _)| wanted.contains(name));
    side_by_side(programs, |(name, program)| {
        one(program).map_err(|source| CaptureError::Program { name: name.to_owned(), source })
    })?;
    Ok(())
}

/// Loads the program for the tracepoint of this name, with typed arguments.
pub(super) fn load_typed(programs: &Programs, types: &Btf, name: &'static str) -> Result<OwnedFd, CaptureError> {
    let id = types.tracepoint(name).ok_or_else(|| typed(name, &RawError::NoTracepoint(name)))?;
    programs.load(name, Kind::Tracepoint(id)).map_err(|error| typed(name, &error))
}

/// Loads the program that is run for each of what the kernel's iterator of this name is over.
pub(super) fn load_iterator(
    programs: &Programs,
    types: &Btf,
    name: &'static str,
    over: &'static str,
) -> Result<OwnedFd, CaptureError> {
    let id = types.iterator(over).ok_or_else(|| typed(name, &RawError::NoIterator(over)))?;
    programs.load(name, Kind::Iterator(id)).map_err(|error| typed(name, &error))
}

fn typed(name: &'static str, error: &RawError) -> CaptureError {
    CaptureError::Typed { name, reason: reason(error) }
}

/// Does the same with each, in a thread of its own, and returns what became of all, or the first error.
pub(super) fn side_by_side<T: Send, R: Send, E: Send>(
    all: impl Iterator<Item = T>,
    work: impl Fn(T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = all.map(|one| scope.spawn(move || work(one))).collect();
        threads.into_iter().map(joined).collect()
    })
}

/// What a thread has come to; its panic is passed on.
pub(super) fn joined<R>(thread: std::thread::ScopedJoinHandle<'_, R>) -> R {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Tracepoints {
    /// Attaches the loaded futex programs. Without tracefs, the raw tracepoints of all system calls take their place.
    pub(super) fn attach_futex(
        &mut self,
        ebpf: &mut Ebpf,
        tracefs: bool,
    ) -> Result<(FutexTier, Vec<FailedProbe>), CaptureError> {
        if !tracefs {
            for name in RAW_SYSCALLS {
                self.attach_raw(ebpf, name, name)?;
            }
            return Ok((FutexTier::RawSyscalls, Vec::new()));
        }
        let mut failed = Vec::new();
        for tracepoint in TRACEPOINTS {
            let program: &mut TracePoint = program(ebpf, tracepoint.program)?;
            // Its number is in tracefs.
            let attached = rights::reach(|| program.attach("syscalls", tracepoint.name));
            match attached.and_then(|id| program.take_link(id)) {
                Ok(link) => self.links.push(Box::new(link)),
                // A kernel without the system call has no tracepoint for it either.
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

    /// Attaches a program of [`load_typed`].
    pub(super) fn attach_typed(&mut self, program: OwnedFd, name: &'static str) -> Result<(), CaptureError> {
        let link = raw_program::attach_tracepoint(&program).map_err(|error| typed(name, &error))?;
        self.links.push(Box::new((link, program)));
        Ok(())
    }

    /// Attaches a loaded raw tracepoint program.
    pub(super) fn attach_raw(
        &mut self,
        ebpf: &mut Ebpf,
        name: &'static str,
        tracepoint: &str,
    ) -> Result<(), CaptureError> {
        let program: &mut RawTracePoint = program(ebpf, name)?;
        let error = |source| CaptureError::Program { name: name.to_owned(), source };
        let id = rights::reach(|| program.attach(tracepoint)).map_err(error)?;
        self.links.push(Box::new(program.take_link(id).map_err(error)?));
        Ok(())
    }
}

/// A program of the object.
pub(super) fn program<'a, P>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, CaptureError>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    ebpf.program_mut(name)
        .ok_or(CaptureError::NoProgram(name))?
        .try_into()
        .map_err(|source| CaptureError::Program { name: name.to_owned(), source })
}

/// An error with its causes, in one line.
pub(super) fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
