//! Programs whose locking is known, told by a shared file when to work, and asked there how much they did: neither
//! needs the program to do anything that an observer could see.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::{child::Child, server::Loaded, stats::ratio, wrapper::Wrapper};
use crate::cc;

const SOURCE: &str = include_str!("locker.c");
/// Numbers of a worker in the shared file.
const SLOT: usize = 8;
/// Workers at most.
const MAX_WORKERS: usize = 512;
const NUMBER: usize = size_of::<u64>();

/// The compiled program.
pub(super) struct Program {
    _dir: TempDir,
    path: PathBuf,
}

/// What it is to do; locker.c tells the meaning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// How the program names it.
    pub(super) name: &'static str,
    /// Threads, locks or processes.
    pub(super) count: usize,
    /// What it is, in words.
    pub(super) text: &'static str,
}

/// A running one. It rests at first.
pub(super) struct Locker {
    kind: Kind,
    child: Child,
    page: File,
    _dir: TempDir,
}

/// Sums over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Sections.
    pub(super) sections: u64,
    /// CPU time of the workers, ns, known with a delay while they work.
    pub(super) cpu_ns: u64,
    /// Sections that this time was used for.
    pub(super) cpu_sections: u64,
}

impl Done {
    /// What was done after an earlier moment.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            sections: self.sections.saturating_sub(before.sections),
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            cpu_sections: self.cpu_sections.saturating_sub(before.cpu_sections),
        }
    }

    /// CPU time of a section, ns.
    pub(super) fn pair_ns(self) -> Option<f64> {
        ratio(self.cpu_ns as f64, self.cpu_sections as f64)
    }
}

impl Program {
    /// Compiles it.
    ///
    /// # Errors
    /// There is no C compiler, or it fails.
    pub(super) fn compile() -> Result<Self> {
        let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
        let path = cc::compile_text(SOURCE, dir.path(), "locker", &["-g"])?;
        Ok(Self { _dir: dir, path })
    }

    /// Starts it as the wrapper says.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(&self, kind: Kind, wrapper: &Wrapper) -> Result<Locker> {
        let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
        let path = dir.path().join("page");
        fs::write(&path, [0; NUMBER * SLOT * (1 + MAX_WORKERS)])?;
        let page = File::options().read(true).write(true).open(&path)?;
        let mut child = Child::start(&mut command(&self.path, &path, kind, wrapper))?;
        child.expect_out(|line| (line == "ready").then_some(()))?;
        Ok(Locker { kind, child, page, _dir: dir })
    }
}

fn command(program: &Path, page: &Path, kind: Kind, wrapper: &Wrapper) -> Command {
    let mut command = wrapper.command(program);
    command.arg(page).args([kind.name, &kind.count.to_string()]);
    command
}

impl Locker {
    /// What all workers have done so far.
    ///
    /// # Errors
    /// It has exited.
    pub(super) fn done(&mut self) -> Result<Done> {
        self.child.check_alive()?;
        let mut bytes = vec![0; NUMBER * SLOT * (1 + MAX_WORKERS)];
        self.page.read_exact_at(&mut bytes, 0).context("failed to read what the program has done")?;
        Ok(sum(&bytes))
    }

    fn work(&mut self, go: bool) -> Result<()> {
        self.page.write_all_at(&u64::from(go).to_ne_bytes(), 0).context("failed to tell the program to work or to rest")
    }
}

impl Loaded for Locker {
    fn name(&self) -> &'static str {
        self.kind.name
    }

    fn load(&self) -> &'static str {
        self.kind.text
    }

    fn pid(&self) -> Pid {
        self.child.pid()
    }

    fn resume(&mut self) -> Result<()> {
        self.work(true)
    }

    fn pause(&mut self) -> Result<()> {
        self.work(false)
    }

    fn requests(&mut self) -> Result<u64> {
        Ok(self.done()?.sections)
    }
}

/// Adds up the workers' numbers in the shared file.
fn sum(bytes: &[u8]) -> Done {
    let numbers: Vec<u64> = bytes.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
    numbers.chunks(SLOT).skip(1).fold(Done::default(), |sum, slot| match slot {
        [sections, cpu_ns, cpu_sections, ..] => Done {
            sections: sum.sections + sections,
            cpu_ns: sum.cpu_ns + cpu_ns,
            cpu_sections: sum.cpu_sections + cpu_sections,
        },
        _ => sum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::server;
    use std::time::Duration;

    #[test]
    fn the_workers_numbers_are_added_up() {
        let mut numbers = [0_u64; 3 * SLOT];
        numbers[0] = 1;
        numbers[SLOT..SLOT + 3].copy_from_slice(&[5, 100, 4]);
        numbers[2 * SLOT..2 * SLOT + 3].copy_from_slice(&[7, 200, 6]);
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        assert_eq!(sum(&bytes), Done { sections: 12, cpu_ns: 300, cpu_sections: 10 });
        assert_eq!(sum(&[]), Done::default());
    }

    #[test]
    fn every_kind_works_when_told_to_and_rests_otherwise() {
        let program = Program::compile().unwrap();
        for name in ["tight", "sections", "nested", "shared", "threads", "locks", "processes"] {
            let mut locker = program.start(Kind { name, count: 3, text: "" }, &Wrapper::none()).unwrap();
            assert_eq!(locker.done().unwrap(), Done::default());
            // In a single window all its workers may get no CPU time, where others want that.
            let worked = (0..100).find_map(|_| server::window(&mut locker, Duration::from_millis(20)).ok());
            assert!(worked.unwrap().throughput > 0.0, "{name}");
            let mut numbers = std::iter::from_fn(|| {
                std::thread::sleep(Duration::from_millis(20));
                Some(locker.done().unwrap())
            });
            let (mut done, mut rests) = (numbers.next().unwrap(), false);
            for now in numbers.take(100) {
                rests = now == done;
                if rests {
                    break;
                }
                done = now;
            }
            assert!(rests && done.sections > 0, "{name}: {done:?}");
            assert!(done.cpu_ns > 0 && done.cpu_sections <= done.sections, "{name}: {done:?}");
        }
    }
}
