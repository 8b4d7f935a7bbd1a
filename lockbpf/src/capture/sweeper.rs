//! Children of observed processes: a fork copies the text with the breakpoints in it, and links that are for one process skip the
//! others, but leave them the breakpoints. Whenever a link is removed, though, the kernel looks at every process that maps the file,
//! and takes away what no other link wants there. So soon after each fork a link is placed, for a process that needs no breakpoints
//! since it has ended, and removed.

use super::CaptureError;
use super::attach::{ProbeSite, Spot};
use super::multi::Program;
use super::perf_uprobe::{self, PerfUprobes};
use super::placer::Links;
use super::remover;
use super::session::clock;
use aya::maps::{HashMap, MapData};
use lockbpf_common::process::{Child, child};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often it is looked for children.
const PERIOD: Duration = Duration::from_millis(20);
/// Sweeps whose links are being removed at one time: each waits for a grace period of the kernel's.
const AT_ONCE: usize = 4;

/// A thread that keeps children free of breakpoints while it exists.
pub(super) struct Sweeper {
    shared: Arc<Shared>,
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    sites: Mutex<Vec<ProbeSite>>,
    children: Mutex<HashMap<MapData, u32, Child>>,
    /// CPU time that children used until they were certainly free, ns.
    used_ns: Arc<AtomicU64>,
}

/// Under way: the removal of a link, and whom that frees.
type Sweep = (JoinHandle<()>, Vec<(u32, Child)>);

impl Sweeper {
    /// Begins.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(children: HashMap<MapData, u32, Child>, sites: &[ProbeSite]) -> Result<Self, CaptureError> {
        remover::expect(sites);
        let shared = Arc::new(Shared {
            sites: Mutex::new(sites.to_vec()),
            children: Mutex::new(children),
            used_ns: Arc::default(),
        });
        let (stop, stopped) = channel();
        let work = shared.clone();
        let thread = thread::Builder::new().name("sweeper".to_owned()).spawn(move || work.run(&stopped));
        let thread = thread.map_err(CaptureError::Thread)?;
        Ok(Self { shared, stop, thread: Some(thread) })
    }

    /// Further places of probes.
    pub(super) fn extend(&self, sites: &[ProbeSite]) {
        remover::expect(sites);
        lock(&self.shared.sites).extend_from_slice(sites);
    }

    /// CPU time that children have used so far until they were certainly free of breakpoints, ns.
    pub(super) fn used_ns(&self) -> Arc<AtomicU64> {
        self.shared.used_ns.clone()
    }

    /// Takes into account what those used that are not known to be free yet.
    pub(super) fn settle(&self) {
        let mut children = lock(&self.shared.children);
        let all: Vec<_> = children.iter().filter_map(Result::ok).collect();
        self.shared.account(&mut children, &all);
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.settle();
        // One that has stopped needs not be told.
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            // A panic has been told already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, stopped: &Receiver<()>) {
        super::be_quick();
        // A kernel without such links has none that would skip a child: the breakpoints of perf events go by themselves.
        let broom = Broom::new().inspect_err(|error| log::info!("children are not swept: {error}")).ok();
        let mut sweeps: Vec<Sweep> = Vec::new();
        while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
            for (removal, freed) in sweeps.extract_if(.., |(removal, _)| removal.is_finished()) {
                // A panic has been told already.
                let _ = removal.join();
                self.account(&mut lock(&self.children), &freed);
            }
            if sweeps.len() < AT_ONCE {
                let found = self.found(&sweeps);
                if found.is_empty() {
                    continue;
                }
                let links = broom.as_ref().map_or_else(Vec::new, |broom| broom.place(&places(&lock(&self.sites))));
                let links = Links::from(links);
                sweeps.push((thread::spawn(move || drop(links)), found));
            }
        }
        for (removal, _) in sweeps {
            let _ = removal.join();
        }
    }

    /// Children that have memory of their own, and for whom no sweep is under way.
    fn found(&self, sweeps: &[Sweep]) -> Vec<(u32, Child)> {
        let children = lock(&self.children);
        let all = children.iter().filter_map(Result::ok).filter(|(_, child)| child.flags & child::SHARES == 0);
        let under_way: HashSet<_> = sweeps.iter().flat_map(|(_, found)| found.iter().map(|(pid, _)| *pid)).collect();
        all.filter(|(pid, _)| !under_way.contains(pid)).collect()
    }

    /// These are free of breakpoints by now, or not looked after any more.
    fn account(&self, children: &mut HashMap<MapData, u32, Child>, freed: &[(u32, Child)]) {
        for (pid, child) in freed {
            let used = cpu_ns(*pid).unwrap_or_else(|| clock(ClockId::CLOCK_MONOTONIC).saturating_sub(child.forked_ns));
            // Else the kernel side has seen its end.
            if children.remove(pid).is_ok() && child.flags & child::PROBED != 0 {
                self.used_ns.fetch_add(used, Ordering::Relaxed);
            }
        }
    }
}

/// What a process has used since its fork; `None` if it is gone.
fn cpu_ns(pid: u32) -> Option<u64> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid.cast_signed())).ok()?;
    Some(Duration::from(clock_gettime(clock).ok()?).as_nanos() as u64)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Places links for nobody.
struct Broom {
    program: Program,
    nobody: Ended,
}

/// Files, and where in them there may be breakpoints.
fn places(sites: &[ProbeSite]) -> Vec<(PathBuf, Vec<Spot>)> {
    let mut files: BTreeMap<(u64, u64), (PathBuf, BTreeSet<Spot>)> = BTreeMap::new();
    for site in sites {
        files.entry(site.file).or_insert_with(|| (site.path(), BTreeSet::new())).1.insert(site.spot());
    }
    files.into_values().map(|(path, spots)| (path, spots.into_iter().collect())).collect()
}

/// Takes away breakpoints there that belong to nobody.
pub(super) fn sweep(places: &[(PathBuf, Vec<Spot>)]) -> io::Result<()> {
    match Broom::new() {
        Ok(broom) => drop(broom.place(places)),
        // A kernel without such links: the same by perf events, for this process.
        Err(_) => {
            let kind = PerfUprobes::find()?;
            let pid = std::process::id();
            for (path, spots) in places {
                let place = |&spot| kind.open(&perf_uprobe::Place { path, spot, pid }, false).ok();
                drop(spots.iter().filter_map(place).collect::<Vec<OwnedFd>>());
            }
        }
    }
    Ok(())
}

impl Broom {
    fn new() -> io::Result<Self> {
        Ok(Self { program: Program::empty()?, nobody: Ended::new()? })
    }

    /// Links at all of these.
    fn place(&self, places: &[(PathBuf, Vec<Spot>)]) -> Vec<OwnedFd> {
        let mut links = Vec::new();
        for (path, spots) in places {
            let attach = |spots: &[Spot]| self.program.attach(path, spots, &vec![0; spots.len()], self.nobody.pid);
            match attach(spots) {
                Ok(link) => links.push(link),
                // One that the kernel refuses must not cost the others.
                Err(_) => links.extend(spots.chunks(1).filter_map(|spot| attach(spot).ok())),
            }
        }
        links
    }
}

/// A process that has ended, and is kept as a number: it has no memory.
struct Ended {
    pid: u32,
}

impl Ended {
    fn new() -> io::Result<Self> {
        // SAFETY: like fork(2), without a signal at its end; the child does nothing but end.
        let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
        match pid {
            0 => {
                // SAFETY: ends this process at once.
                unsafe { libc::_exit(0) }
            }
            1.. => {
                let ended = Self { pid: pid as u32 };
                ended.wait(libc::WEXITED | libc::WNOWAIT);
                Ok(ended)
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn wait(&self, options: libc::c_int) {
        // SAFETY: a null pointer asks for nothing to be told.
        unsafe { libc::waitid(libc::P_PID, self.pid, std::ptr::null_mut(), options | libc::__WALL) };
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.wait(libc::WEXITED);
    }
}
