//! Placing uprobes: by sessions where the kernel has them (6.13), by links of many functions where it has those and they are right
//! (6.10), else by a perf event per function and half.

use super::CaptureError;
use super::attach::{ProbeSite, reason, side_by_side};
use super::btf::Btf;
use super::edits;
use super::multi;
use super::perf_uprobe::{self, PerfUprobes};
use super::probe_table::{By, Runtime, is_return_half};
use super::raw_program::{Programs, RawError};
use super::remover;
use super::seccomp;
use super::verifier::to_the_end;
use crate::quality::FailedProbe;
use aya::Ebpf;
use aya::programs::UProbe;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};

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

/// The loaded uprobe programs, ready to be placed.
pub(super) enum Placer {
    Links { mechanism: Mechanism, programs: HashMap<By, Vec<multi::Program>> },
    PerfEvents { kind: PerfUprobes, programs: HashMap<&'static str, OwnedFd> },
}

/// Probes in place: each is removed by being dropped. The breakpoints go at once, but the kernel then waits for a grace period
/// (some 50 ms), and a drop with it.
#[derive(Default)]
pub(super) struct Links(Vec<OwnedFd>);

impl Placer {
    /// Loads the programs for the functions that are `wanted`, for links; `None` where the kernel has none, or none that are right.
    pub(super) fn with_links(programs: &Programs, types: &Btf, wanted: Wanted) -> Option<Self> {
        if !types.has_uprobe_links() {
            return None;
        }
        let sessions = types.has_uprobe_sessions();
        let mechanism = if sessions { Mechanism::Session } else { Mechanism::Link };
        match load_multi(programs, wanted, sessions) {
            Ok(programs) if programs.values().flatten().all(|p| sessions || p.sees_all_threads()) => {
                return Some(Self::Links { mechanism, programs });
            }
            Ok(_) => log::info!("uprobe links would see one thread of each process, using perf events"),
            Err(error) => log::warn!("no uprobe links, using perf events: {error}"),
        }
        None
    }

    /// The same for perf events.
    pub(super) fn with_perf_events(ebpf: &mut Ebpf, wanted: Wanted) -> Result<Self, CaptureError> {
        let kind = PerfUprobes::find().map_err(|error| CaptureError::NothingAttached(error.to_string()))?;
        let mut programs = HashMap::new();
        for &name in wanted.by().flat_map(By::programs) {
            let error = |source| CaptureError::Program { name: name.to_owned(), source };
            let program: &mut UProbe = super::attach::program(ebpf, name)?;
            to_the_end(|| program.load()).map_err(error)?;
            let fd = program.fd().map_err(error)?.as_fd().try_clone_to_owned();
            programs.insert(name, fd.map_err(|e| error(e.into()))?);
        }
        Ok(Self::PerfEvents { kind, programs })
    }

    /// How uprobes are placed.
    pub(super) fn mechanism(&self) -> Mechanism {
        match self {
            Self::Links { mechanism, .. } => *mechanism,
            Self::PerfEvents { .. } => Mechanism::PerfEvents,
        }
    }

    /// Places the programs at `sites`, with the slot and the set in their cookies. Also returns what failed.
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
                    for program in programs.get(&sites[0].function.by).into_iter().flatten() {
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
                    for &name in site.function.by.programs() {
                        let Some(program) = programs.get(name) else { continue };
                        let returns = is_return_half(name);
                        let at = perf_uprobe::Place { path: &path, spot: site.spot(), pid, returns };
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
/// their programs run whoever has placed a breakpoint.
pub(super) fn hold(sites: &[&ProbeSite], tid: u32) -> Links {
    let Ok(kind) = PerfUprobes::find().inspect_err(|error| log::warn!("no perf events: {error}")) else {
        return Links::default();
    };
    let mut known = BTreeSet::new();
    let places = hot_last(sites).into_iter().filter(|site| known.insert((site.file, site.file_offset)));
    let open = |site: &ProbeSite| {
        let place = perf_uprobe::Place { path: &site.path(), spot: site.spot(), pid: tid, returns: false };
        kind.open(&place).ok()
    };
    Links(places.filter_map(open).collect())
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

/// Which of the functions are to be seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Not only those of mutexes and read-write locks.
    pub rare: bool,
    /// Calls of the C library.
    pub library: bool,
    /// Those that the user has described.
    pub custom: bool,
}

impl Wanted {
    /// What sees them.
    fn by(self) -> impl Iterator<Item = By> {
        let rare: &[By] = if self.rare {
            &[By::OtherEntry, By::Go, By::Tokio, By::Virtual, By::VirtualReturn, By::VirtualAbsence]
        } else {
            &[]
        };
        let library: &[By] = if self.library { &[By::Library, By::LibraryReturn] } else { &[] };
        let custom: &[By] = if self.custom {
            &[By::Custom, By::CustomReturn, By::CustomPoint, By::CustomBlock, By::CustomWake]
        } else {
            &[]
        };
        [&[By::Entry, By::Return][..], rare, library, custom].concat().into_iter()
    }
}

/// Side by side: the verifier takes a tenth of a second for some.
fn load_multi(ready: &Programs, wanted: Wanted, sessions: bool) -> Result<HashMap<By, Vec<multi::Program>>, RawError> {
    let all = wanted.by().flat_map(|by| multi::programs(by, sessions).iter().map(move |&name| (by, name)));
    let load = |(by, name)| multi::Program::load(ready, name).map(|program| (by, program));
    let mut programs: HashMap<By, Vec<multi::Program>> = HashMap::new();
    for (by, program) in side_by_side(all, load)? {
        programs.entry(by).or_default().push(program);
    }
    Ok(programs)
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
