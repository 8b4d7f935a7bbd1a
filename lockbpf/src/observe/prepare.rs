//! What an observation needs before it begins: rights and features, its targets, the command that is to be observed, who guards it, what
//! observing costs here.

use super::audience::Audience;
use super::cost_cache::{self, Entry, Key};
use super::request::{Request, Target};
use super::{counters, described, placement, threads};
use crate::capture::btf::Btf;
use crate::capture::calibrate::{Calibration, Setup, calibrate};
use crate::capture::cgroup::Cgroup;
use crate::capture::guardian::Guardian;
use crate::capture::launch::{How, Launched};
use crate::capture::newcomers::Newcomers;
use crate::capture::session::{Options, Session, now};
use crate::capture::target::Targets;
use crate::capture::{calibrate, feature, guardian, kernel, privilege, reader, seccomp, target, user};
use crate::costs::Costs;
use crate::event::ProcessSeen;
use crate::id::Process;
use crate::kallsyms::Kallsyms;
use crate::measures::event;
use crate::proc;
use crate::rights;
use crate::units::Time;
use crate::untrusted::shown_bytes;
use anyhow::Result;
use lockbpf_common::config::MAX_PROCESSES;
use lockbpf_common::kernel::Kernel;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

/// What is observed, made ready.
pub(crate) struct Prepared {
    pub targets: Targets,
    pub launched: Option<Launched>,
    /// Empty for the whole system.
    pub pids: Vec<u32>,
    pub description: String,
    pub cgroup: Option<Cgroup>,
    /// Whether probes may be in all processes at once: without a budget, and if nobody has to be left out.
    pub at_once: bool,
    pub tracefs: bool,
    pub kernel: Option<Kernel>,
    pub events: Vec<event::Event>,
    pub notes: Vec<String>,
}

const APART: &str = "a process had to be left out, so each other one was given probes of its own: where many processes run, each \
                     lock operation costs more than usual (some 40 ns for each process).";

/// Checks rights and features, finds the targets, starts the command.
pub(crate) fn prepare(request: &Request, newcomers: &mut Newcomers, audience: &impl Audience) -> Result<Prepared> {
    rights::lay_down()?;
    privilege::require()?;
    // It becomes ready while features are looked at.
    reader::get_ready();
    feature::require(!request.futex_only)?;
    raise_file_limit();
    if !request.futex_only {
        seccomp::try_aside();
    }
    let mut notes = Vec::new();
    let tracefs = match feature::ensure_tracefs() {
        Ok(tracefs) => {
            if tracefs.mounted_now {
                audience.tell(&format!("lockbpf: mounted tracefs at {}, which stays\n", tracefs.dir.display()));
            }
            true
        }
        Err(error) => {
            notes.push(format!("{error}; futex calls are watched among all system calls, at a cost to each of them."));
            false
        }
    };
    let kernel = if request.kernel_locks { Some(kernel_locks(&mut notes)?) } else { None };
    let asked = request.counters.clone();
    let asked = asked.or_else(|| request.functions.as_ref().map(|_| counters::of_functions()));
    let events = asked.as_ref().map(|asked| counters::choose(asked, &mut notes)).transpose()?.unwrap_or_default();
    let cgroup = request.target.cgroup()?;
    if matches!(request.target, Target::SystemWide | Target::Cgroup(_) | Target::Container(_))
        && !rights::covers_others()
    {
        return Err(target::TargetError::OthersNotYours.into());
    }
    if !request.futex_only {
        described::load(&request.locks)?;
    }
    let survey = newcomers.survey();
    let (targets, launched) = match &request.target {
        Target::Pids(pids) => (survey.of_pids(pids)?, None),
        Target::SystemWide => (survey.of_all(&target::all()?, std::process::id()), None),
        Target::Cgroup(_) | Target::Container(_) => {
            let members = cgroup.as_ref().map(Cgroup::pids).unwrap_or_default();
            (survey.of_all(&members, std::process::id()), None)
        }
        Target::Command(command) => {
            let program = command.first().map(AsRef::as_ref).unwrap_or_default();
            let targets = target::of_command(program, request.launch.user.as_ref())?;
            (targets, Some(command))
        }
    };
    let named: Vec<u32> = match request.target {
        Target::Pids(_) => targets.processes.iter().filter_map(|process| process.pid).collect(),
        _ => Vec::new(),
    };
    threads::check(&request.tids, &named)?;
    let mut at_once = request.kept_budget().is_none();
    if !request.futex_only {
        match request.target {
            Target::SystemWide => {
                targets.check_any()?;
                if at_once {
                    let left_out: Vec<String> = targets.harmed().filter_map(|process| process.waits_only()).collect();
                    at_once = left_out.is_empty();
                    if !at_once {
                        notes.push(APART.to_owned());
                    }
                    notes.extend(left_out);
                }
            }
            // Who can be probed may come later.
            Target::Cgroup(_) | Target::Container(_) => {}
            Target::Pids(_) | Target::Command(_) if request.functions.is_some() || request.counters.is_some() => {
                targets.check_full_tier()?;
            }
            Target::Pids(_) | Target::Command(_) => notes.extend(targets.waits_only()),
        }
        notes.extend(placement::remarks(&targets));
    }
    if !request.futex_only && seccomp::kills() {
        notes.push(seccomp::REMAINS.to_owned());
    }
    notes.extend(targets.notes.iter().map(|note| format!("{note}.")));
    // Last: it waits at its exec until the probes are there.
    let launched = launched.map(|command| launch(command, &request.launch, audience)).transpose()?;
    let pids = match (&request.target, &launched) {
        (Target::SystemWide | Target::Cgroup(_) | Target::Container(_), _) => Vec::new(),
        (_, Some(child)) => vec![child.id()],
        (_, None) => targets.processes.iter().filter_map(|p| p.pid).collect(),
    };
    let description = request.name.clone().unwrap_or_else(|| describe(request, &targets, &pids, cgroup.as_ref()));
    Ok(Prepared { targets, launched, pids, description, cgroup, at_once, tracefs, kernel, events, notes })
}

/// Starts a command, stopped. Who got root's rights from somebody else is told as whom it runs.
fn launch(command: &[OsString], how: &How, audience: &impl Audience) -> Result<Launched> {
    let launched = Launched::stopped(command, how)?;
    let name = command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let caller = ["SUDO_USER", "DOAS_USER"].iter().find_map(|variable| std::env::var(variable).ok());
    let own = user::own_name();
    match (&how.user, caller.filter(|caller| *caller != own)) {
        (Some(user), _) => audience.tell(&format!("lockbpf: {name} runs as {}\n", user.name())),
        (None, Some(caller)) => {
            audience.tell(&format!("lockbpf: {name} runs as {own}; with --user {caller} it would run as {caller}\n"))
        }
        (None, None) => {}
    }
    Ok(launched)
}

/// What the programs on kernel locks have to know of this kernel.
fn kernel_locks(notes: &mut Vec<String>) -> Result<Kernel> {
    let types = Btf::kernel()?;
    kernel::require(types)?;
    let symbols = Kallsyms::kernel();
    if let Err(error) = &symbols {
        notes.push(format!("{error}; it is not known where kernel locks were asked for."));
    }
    notes.push(
        "Of kernel locks only the waiting is seen: neither how often they were free, nor for how long they were held. Who \
         held them is inferred, from what the lock named as its owner and from who got it last."
            .to_owned(),
    );
    Ok(kernel::describe(types, symbols.as_ref().ok()))
}

fn describe(request: &Request, targets: &Targets, pids: &[u32], cgroup: Option<&Cgroup>) -> String {
    match &request.target {
        Target::SystemWide => "the whole system".to_owned(),
        Target::Cgroup(_) | Target::Container(_) => {
            let (n, es) = (targets.processes.len(), if targets.processes.len() == 1 { "" } else { "es" });
            format!("cgroup {} ({n} process{es} now)", cgroup.map_or("", Cgroup::name))
        }
        Target::Command(command) => {
            let name = command.first().map(|c| c.to_string_lossy().into_owned()).unwrap_or_default();
            format!("{name} (pid {})", pids.first().copied().unwrap_or_default())
        }
        Target::Pids(_) => {
            let named = |p: &target::Process| format!("pid {} ({})", p.pid.unwrap_or_default(), p.name);
            targets.processes.iter().map(named).collect::<Vec<_>>().join(", ")
        }
    }
}

/// The processes that are there at the start, numbered: what their names need is taken before the first event, since they
/// may be gone after the last.
pub(crate) fn known(targets: &Targets, pids: &[u32]) -> Vec<ProcessSeen> {
    let name = |pid: u32| shown_bytes(proc::read(format!("/proc/{pid}/comm")).unwrap_or_default().trim_ascii_end());
    let number = |(i, pid): (usize, u32)| ProcessSeen {
        time: now(),
        process: Process(i as u32 + 1),
        pid,
        start: Time(0),
        comm: name(pid),
    };
    let all = targets.processes.iter().filter_map(|p| p.pid).take(MAX_PROCESSES as usize / 2);
    if pids.is_empty() {
        all.enumerate().map(number).collect()
    } else {
        pids.iter().copied().enumerate().map(number).collect()
    }
}

pub(crate) fn options(request: &Request, ready: &Prepared, known: Vec<ProcessSeen>) -> Result<Options> {
    let types = Btf::kernel()?;
    let scope = request.target.scope(&ready.pids, ready.cgroup.as_ref(), ready.at_once);
    let common = Options::new(scope, types, types.task_offsets()?, ready.tracefs);
    Ok(Options {
        known,
        comm: request.comm.clone(),
        tids: request.tids.clone(),
        all_events: request.all_events,
        transitions: request.transitions,
        min_wait: request.min_wait,
        stack_wait: request.stack_wait,
        unwind: request.unwind,
        kernel_log: request.kernel_log,
        futex_only: request.futex_only,
        kernel_locks: ready.kernel,
        events: ready.events.clone(),
        library: request.functions.is_some(),
        plain_uprobes: request.plain_uprobes,
        follow_forks: request.follow_forks,
        governed: request.kept_budget().is_some(),
        ..common
    })
}

/// What observing costs, and, if it was measured just now, what still observes the child that it was measured on.
pub(crate) struct Prices {
    pub costs: Costs,
    pub measured_by: Option<Session>,
}

/// What observing costs on this machine, as it was measured before, or is measured now; `None` if it cannot be.
pub(crate) fn prices(options: &Options, notes: &mut Vec<String>) -> Option<Prices> {
    let setup = Setup {
        types: options.types,
        task_offsets: options.task_offsets,
        tracefs: options.tracefs,
        plain_uprobes: options.plain_uprobes,
        events: &options.events,
        all_events: options.all_events,
        transitions: options.transitions,
    };
    let (path, key) = (cost_cache::path(), Key::here(&setup));
    if let Some(path) = &path {
        match cost_cache::load_for(path, &key) {
            Ok(Some(entry)) => {
                log::info!("{:?}, as in {}", entry.costs, path.display());
                return Some(Prices { costs: entry.costs, measured_by: None });
            }
            Ok(None) => {}
            Err(error) => notes.push(format!(
                "what observing costs was measured anew: {}, where it is kept, is not used ({error}).",
                path.display()
            )),
        }
    }
    match calibrate(Path::new(calibrate::SELF), &setup) {
        Ok(Calibration { costs, session, .. }) => {
            log::info!("{costs:?}");
            if let Some(path) = &path
                && let Err(error) = cost_cache::keep(path, Entry::new(key, costs))
            {
                log::info!("failed to keep what observing costs in {}: {error}", path.display());
            }
            Some(Prices { costs, measured_by: Some(session) })
        }
        Err(error) => {
            notes.push(format!("{error:#}; the budget is kept with cautious figures of another machine."));
            None
        }
    }
}

/// Who ends this process if it is stopped while its probes are in place. Without one the target pays for them as long as that lasts.
pub(crate) fn guardian(notes: &mut Vec<String>) -> Option<Arc<Guardian>> {
    match Guardian::start(guardian::PROBES) {
        Ok(guardian) => Some(Arc::new(guardian)),
        Err(error) => {
            notes.push(format!(
                "nobody would have ended lockbpf if it had been stopped while its probes were in place: {error}."
            ));
            None
        }
    }
}

/// Symbols keep the files of observed processes open: use as many descriptors as the hard limit allows.
fn raise_file_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // A refusal only means fewer names.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
