//! The program that is disturbed, and the recorder that disturbs it from inside.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::super::child::Child;
use crate::cc;

/// The compiled program and recorder.
pub(super) struct Programs {
    _dir: TempDir,
    work: PathBuf,
    recorder: PathBuf,
}

/// What disturbs the program from inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    /// Nothing.
    Nothing,
    /// RDTSC-Lock without its records.
    Monitor,
    /// RDTSC-Lock.
    Recorder,
}

impl Inside {
    /// What it writes for each section: four records, of 16 bytes.
    pub(super) fn bytes_per_section(self) -> f64 {
        if self == Self::Recorder { 64.0 } else { 0.0 }
    }
}

/// A running program. It rests at first.
pub(super) struct Work(Child);

/// What some work took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Took {
    /// Wall time, ns.
    pub(super) wall_ns: f64,
    /// CPU time of all threads, ns.
    pub(super) cpu_ns: f64,
    /// Cache references and misses, of machines with hardware counters.
    pub(super) memory: Option<(f64, f64)>,
}

impl Programs {
    /// Compiles both.
    ///
    /// # Errors
    /// There is no C compiler, or it fails.
    pub(super) fn compile() -> Result<Self> {
        let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
        let work = cc::compile_text(include_str!("work.c"), dir.path(), "work", &[])?;
        let options = ["-shared", "-fPIC", "-ldl"];
        let recorder = cc::compile_text(include_str!("rdtsc_lock.c"), dir.path(), "rdtsc_lock", &options)?;
        Ok(Self { _dir: dir, work, recorder })
    }

    /// Starts the program with so many threads.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(&self, threads: usize, inside: Inside) -> Result<Work> {
        let mut child = Child::start(&mut command(&self.work, &self.recorder, threads, inside))?;
        child.expect_out(|line| (line == "ready").then_some(()))?;
        Ok(Work(child))
    }
}

fn command(work: &Path, recorder: &Path, threads: usize, inside: Inside) -> Command {
    let mut command = Command::new(work);
    command.arg(threads.to_string());
    if inside != Inside::Nothing {
        command.env("LD_PRELOAD", recorder);
        command.env("RDTSC_LOCK", if inside == Inside::Monitor { "monitor" } else { "record" });
    }
    command
}

impl Work {
    /// Its process.
    pub(super) fn pid(&self) -> Pid {
        self.0.pid()
    }

    /// Lets it do so many sections.
    ///
    /// # Errors
    /// It has gone.
    pub(super) fn run(&mut self, sections: u64) -> Result<Took> {
        self.0.tell(&sections.to_string())?;
        self.0.expect_out(parse)
    }
}

/// `WALL_NS CPU_NS REFERENCES MISSES`, the last two `-` without hardware counters.
fn parse(line: &str) -> Option<Took> {
    let mut words = line.split_whitespace();
    let mut number = || words.next()?.parse::<f64>().ok();
    let (wall_ns, cpu_ns) = (number()?, number()?);
    let memory = number().zip(number());
    Some(Took { wall_ns, cpu_ns, memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_two_numbers_and_perhaps_two_more() {
        assert_eq!(parse("10 20 30 4"), Some(Took { wall_ns: 10.0, cpu_ns: 20.0, memory: Some((30.0, 4.0)) }));
        assert_eq!(parse("10 20 - -"), Some(Took { wall_ns: 10.0, cpu_ns: 20.0, memory: None }));
        assert_eq!(parse("10"), None);
    }

    #[test]
    fn the_program_does_its_work_with_and_without_the_recorder() {
        let programs = Programs::compile().unwrap();
        for inside in [Inside::Nothing, Inside::Monitor, Inside::Recorder] {
            let took = programs.start(3, inside).unwrap().run(300).unwrap();
            // 300 sections are 1/16 s of CPU time.
            assert!(took.cpu_ns > 3e7 && took.wall_ns > 1e7, "{inside:?}: {took:?}");
        }
    }
}
