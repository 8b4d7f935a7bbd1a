//! Placing uprobes: by sessions where the kernel has them (6.13), by links of many functions where it has those and they are right
//! (6.10), else by a perf event per function and half.

use super::CaptureError;
use super::attach::{ProbeSite, reason};
use super::btf::Btf;
use super::edits;
use super::multi;
use super::on_demand::{BASIC, OnDemand};
use super::perf_uprobe::{self, PerfUprobes};
use super::probe_table::{By, Runtime};
use super::raw_program::Programs;
use super::remover;
use super::seccomp;
use crate::leader;
use crate::quality::FailedProbe;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Threads that remove probes side by side: all that the kernel does before and after each perf event's grace period.
const REMOVERS: usize = 64;

/// How uprobes are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// Links per file and process, sessions for the functions whose return may matter (kernel 6.13).
    Session,
    /// Links per file, process and half.
    Link,
    /// A perf event per function and half.
    PerfEvents,
}

/// The uprobe programs, ready to be placed.
pub(super) enum Placer {
    Links { mechanism: Mechanism, programs: OnDemand<multi::Program> },
    PerfEvents { kind: PerfUprobes, programs: OnDemand<perf_uprobe::Program> },
}

/// Probes in place: each is removed by being dropped. The breakpoints go at once, but the kernel then waits for a grace period
/// (some 50 ms), and a drop with it.
#[derive(Default)]
pub(super) struct Links(Vec<OwnedFd>);

impl Placer {
    /// Loads the programs for `sites`: for links, unless they are to be `plain`, or the kernel has none, or none that are right.
    ///
    /// # Errors
    /// When the kernel refuses a program, or has no uprobes.
    pub(super) fn start(
        programs: &Arc<Programs>,
        types: &Btf,
        plain: bool,
        sites: &[ProbeSite],
    ) -> Result<Self, CaptureError> {
        if !plain && let Some(links) = Self::with_links(programs, types, sites) {
            return Ok(links);
        }
        let kind = PerfUprobes::find().map_err(|error| CaptureError::NothingAttached(error.to_string()))?;
        let programs = OnDemand::start(programs.clone(), By::programs, perf_uprobe::Program::load, sites);
        let programs = programs.map_err(CaptureError::Unprepared)?;
        Ok(Self::PerfEvents { kind, programs })
    }

    fn with_links(programs: &Arc<Programs>, types: &Btf, sites: &[ProbeSite]) -> Option<Self> {
        if !types.has_uprobe_links() {
            return None;
        }
        let sessions = types.has_uprobe_sessions();
        let (mechanism, names): (_, fn(By) -> _) =
            if sessions { (Mechanism::Session, multi::with_sessions) } else { (Mechanism::Link, By::programs) };
        match OnDemand::start(programs.clone(), names, multi::Program::load, sites) {
            Ok(programs) if sessions || sees_all_threads(&programs) => {
                return Some(Self::Links { mechanism, programs });
            }
            Ok(_) => log::info!("uprobe links would see one thread of each process, using perf events"),
            Err(error) => log::warn!("no uprobe links, using perf events: {error}"),
        }
        None
    }

    /// Loads the programs for further sites.
    pub(super) fn load(&self, sites: &[ProbeSite]) {
        self.load_for(sites.iter().map(|site| site.function.by));
    }

    fn load_for(&self, wanted: impl Iterator<Item = By>) {
        match self {
            Self::Links { programs, .. } => programs.load(wanted),
            Self::PerfEvents { programs, .. } => programs.load(wanted),
        }
    }

    /// Why there is no program for a function, if there is none.
    fn lacks(&self, by: By) -> Option<String> {
        match self {
            Self::Links { programs, .. } => programs.of(by).err(),
            Self::PerfEvents { programs, .. } => programs.of(by).err(),
        }
    }

    /// Loads all programs that there are; returns what the kernel says of those that it refuses.
    pub(super) fn refused(&self) -> Vec<String> {
        self.load_for(By::ALL.into_iter());
        By::ALL.into_iter().filter_map(|by| self.lacks(by)).collect()
    }

    /// Loads the programs for these sites; returns those for which there is one, and of the others one of each file and sort, as failed.
    pub(super) fn usable(&self, sites: &[ProbeSite]) -> (Vec<ProbeSite>, Vec<FailedProbe>) {
        self.load(sites);
        let (usable, others): (Vec<_>, Vec<_>) =
            sites.iter().cloned().partition(|site| self.lacks(site.function.by).is_none());
        let others: BTreeMap<_, _> = others.iter().map(|site| ((site.file, site.function.by), site)).collect();
        let failed = |((_, by), site): (_, &ProbeSite)| self.lacks(by).map(|reason| site.failed(reason));
        (usable, others.into_iter().filter_map(failed).collect())
    }

    /// How uprobes are placed.
    pub(super) fn mechanism(&self) -> Mechanism {
        match self {
            Self::Links { mechanism, .. } => *mechanism,
            Self::PerfEvents { .. } => Mechanism::PerfEvents,
        }
    }

    /// Places the programs at `sites`, which are [usable](Self::usable), with the slot and the set in their cookies. Also returns what failed.
    pub(super) fn place(&self, sites: &[&ProbeSite], whom: Whom) -> (Links, Vec<FailedProbe>) {
        let Whom { pid, stand_in, slot, set } = whom;
        let cookie = |site: &ProbeSite| {
            let musl = site.function.runtime == Runtime::Musl;
            let cookie = lockbpf_common::gate::cookie(site.function.code, site.stepped, musl, slot);
            let cookie = lockbpf_common::gate::with_detail(cookie, site.detail);
            match set {
                Some(set) => lockbpf_common::gate::of_set(cookie, set),
                None => lockbpf_common::gate::ungated(cookie),
            }
        };
        let mut links = Links::default();
        let mut failed = Vec::new();
        let sites = &permitted(sites, &mut failed);
        let _edit = edits::begin();
        match self {
            Self::Links { programs, .. } => {
                let mut sites: Vec<&ProbeSite> = sites.to_vec();
                sites.sort_by_key(|site| (site.file, site.function.by));
                for sites in sites.chunk_by(|a, b| a.file == b.file && a.function.by == b.function.by) {
                    let path = sites[0].path();
                    let Ok(programs) = programs.of(sites[0].function.by) else { continue };
                    for program in programs.iter() {
                        let attach = |sites: &[&ProbeSite]| {
                            let spots: Vec<_> = sites.iter().map(|site| site.spot()).collect();
                            let cookies: Vec<u64> = sites.iter().map(|site| cookie(site)).collect();
                            program.attach(&path, &spots, &cookies, pid)
                        };
                        if let Ok(link) = attach(sites) {
                            links.0.push(link);
                            continue;
                        }
                        // One that the kernel refuses must not cost the others.
                        for site in sites.chunks(1) {
                            match attach(site) {
                                Ok(link) => links.0.push(link),
                                Err(error) => failed.push(site[0].failed(reason(&error))),
                            }
                        }
                    }
                }
            }
            Self::PerfEvents { kind, programs } => {
                let pid = stand_in.unwrap_or(pid);
                for site in hot_last(sites) {
                    let path = site.path();
                    let Ok(programs) = programs.of(site.function.by) else { continue };
                    for program in programs.iter() {
                        let at = perf_uprobe::Place { path: &path, spot: site.spot(), pid };
                        match kind.attach(program, &at, cookie(site)) {
                            Ok((event, link)) => links.0.extend([link, event]),
                            Err(error) => failed.push(site.failed(reason(&error))),
                        }
                    }
                }
            }
        }
        (links, failed)
    }
}

/// Whether the kernel lets all threads of a link's process through: what holds for one program holds for all.
fn sees_all_threads(programs: &OnDemand<multi::Program>) -> bool {
    programs.of(BASIC).is_ok_and(|programs| programs.iter().all(multi::Program::sees_all_threads))
}

/// The sites at which probes do a process no harm; of those left out, one of each file is entered as failed.
fn permitted<'a>(sites: &[&'a ProbeSite], failed: &mut Vec<FailedProbe>) -> Vec<&'a ProbeSite> {
    let is_watched = |site: &&ProbeSite| {
        matches!(
            site.function.by,
            By::Return | By::LibraryReturn | By::CustomReturn | By::CustomBlock | By::VirtualReturn
        )
    };
    if !sites.iter().any(is_watched) || !seccomp::kills() {
        return sites.to_vec();
    }
    let (watched, rest): (Vec<&ProbeSite>, Vec<&ProbeSite>) = sites.iter().partition(|site| is_watched(site));
    let files: BTreeMap<_, _> = watched.iter().map(|site| (site.file, *site)).collect();
    let told =
        |site: &ProbeSite| FailedProbe { probe: "returns".to_owned(), ..site.failed(seccomp::REASON.to_owned()) };
    failed.extend(files.into_values().map(told));
    rest
}

/// Keeps the breakpoints at `sites` in the memory of a thread's process while the thread runs: links do so only by the main thread, but
/// their programs run whoever has placed a breakpoint. Also returns where that failed: probes there may see nothing. Where the thread has ended that
/// is why, and the caller leaves it out.
pub(super) fn hold(sites: &[&ProbeSite], tid: u32) -> (Links, Vec<FailedProbe>) {
    let mut known = BTreeSet::new();
    let places = hot_last(sites).into_iter().filter(|site| known.insert((site.file, site.file_offset)));
    let kind = match PerfUprobes::find() {
        Ok(kind) => kind,
        Err(error) => return (Links::default(), places.map(|site| site.failed(reason(&error))).collect()),
    };
    let (mut links, mut failed) = (Links::default(), Vec::new());
    for site in places {
        match kind.open(&perf_uprobe::Place { path: &site.path(), spot: site.spot(), pid: tid }, false) {
            Ok(event) => links.0.push(event),
            Err(error) => failed.push(site.failed(reason(&error))),
        }
    }
    (links, failed)
}

/// Sites in the order in which perf events go there: what was placed last is removed first, and the kernel takes its time for each.
fn hot_last<'a>(sites: &[&'a ProbeSite]) -> Vec<&'a ProbeSite> {
    let mut sites = sites.to_vec();
    sites.sort_by_key(|site| site.function.by == By::Entry);
    sites
}

/// In which process probes go.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Whom {
    /// The process; 0 for all.
    pub pid: u32,
    /// The thread that stands in for its main thread, if that has ended.
    pub stand_in: Option<u32>,
    /// Its slot.
    pub slot: u32,
    /// Number of the set of probes in that; `None` for those that no gate closes.
    pub set: Option<u64>,
}

impl Whom {
    /// Whether the thread that keeps breakpoints in place has ended.
    pub(super) fn is_gone(&self) -> bool {
        self.pid != 0 && !leader::runs(self.pid, self.stand_in.unwrap_or(self.pid))
    }
}

impl From<Vec<OwnedFd>> for Links {
    fn from(probes: Vec<OwnedFd>) -> Self {
        Self(probes)
    }
}

impl Links {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds others.
    pub(super) fn extend(&mut self, mut more: Self) {
        self.0.append(&mut more.0);
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if self.is_empty() {
            return;
        }
        let Err(mut rest) = remover::remove(std::mem::take(&mut self.0)) else { return };
        let _edit = edits::begin();
        // Each removal waits for the kernel's grace period; side by side they share it.
        let each = rest.len().div_ceil(REMOVERS).max(1);
        std::thread::scope(|scope| {
            while !rest.is_empty() {
                let some = rest.split_off(rest.len().saturating_sub(each));
                scope.spawn(move || drop(some));
            }
        });
    }
}
