//! `lockbpf access`: which memory the critical sections of a running process read and write.

use super::accesses::{self, write_lines, write_trace};
use super::args::{CaptureArgs, Format, Plan, Share, share};
use super::destination::{self, Whole};
use super::source::{self, Input};
use super::{live, output};
use crate::access::record::{Location, Naming, Place, Record, records};
use crate::access::section::{End, Section};
use crate::access::summary::{Pass, SCHEMA, Summary, rows};
use crate::access::table;
use crate::capture::access::{PassEnd, Profile, Wanted, check, profile};
use crate::capture::session;
use crate::governor::Budget;
use crate::id::{Lock, Process, Site};
use crate::names::{Names, place};
use crate::observation::Observation;
use crate::observe::Collector;
use crate::observe::Target;
use crate::observe::record;
use crate::proc;
use crate::report::{Labels, labels};
use crate::rights;
use crate::symbol::Symbols;
use crate::trace::Header;
use crate::units::{Nanos, Time};
use crate::unwind::{StackCopy, Unwind as _};
use anyhow::{Context, Result, bail};
use clap::Args;
use lockbpf_common::via::Via;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Locks that are named in a message.
const NAMED: usize = 8;

/// Which sections to follow, and how many.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A short timing pass chooses the locks, then sampled sections of them are followed instruction by instruction.
The times of the second pass are in no report: a section that is followed takes thousands of times as long.

Examples:
  lockbpf access --pid 1234                            the five locks that are waited for most
  lockbpf access --pid 1234 --lock cache_lock --to accesses.jsonl
  lockbpf access --from trace.bin --to accesses.jsonl  the records that a trace holds"
)]
pub(super) struct AccessArgs {
    /// The process.
    #[arg(short, long, value_name = "PID", required_unless_present = "from")]
    pub pid: Option<u32>,
    /// Instead: copy the access records of this file, lines or a trace, to that named by --to; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "lock"], requires = "to")]
    pub from: Option<PathBuf>,
    /// Follow sections of this lock: a part of its name, or its address (repeatable).
    #[arg(long, value_name = "LOCK")]
    pub lock: Vec<String>,
    /// Without --lock: follow sections of so many locks, those that are waited for most.
    #[arg(long, value_name = "N", default_value_t = 5, conflicts_with = "lock", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub top: u32,
    /// Sections of each lock to follow.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub samples: u64,
    /// Share of its threads' time for which sampled threads may be held up. With 4 threads that use locks, 2% of their time is 8%
    /// of the time; that is never more than 15%, unless the budget itself is.
    #[arg(long, value_name = "SHARE", value_parser = some_share, default_value = "2%")]
    pub budget: Budget,
    /// Write the accesses to this file: a trace if its suffix is `.bin` or `.trace`, else a JSON object a line. `-` is standard
    /// output, without the table then.
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// End after this time, with as many samples as there are.
    #[arg(short, long, value_name = "TIME", value_parser = super::limits::span, default_value = "60s")]
    pub duration: Duration,
    /// Duration of the timing pass.
    #[arg(long, value_name = "TIME", value_parser = super::limits::span, default_value = "1s")]
    pub timing: Duration,
    /// Follow a section over so many instructions at most.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub instructions: u64,
    /// Keep accesses to the thread's own stack, its thread-local variables and the lock itself too, named as such.
    #[arg(long)]
    pub all_accesses: bool,
    /// Output format of the summary.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Exit with status 1 if there are fewer samples than asked for, or some were cut or abandoned.
    #[arg(long)]
    pub strict: bool,
}

/// A share that is one.
pub(super) fn some_share(text: &str) -> Result<Budget, String> {
    share(text)?.0.ok_or_else(|| "accesses are not profiled without a bound: a percentage is expected".to_owned())
}

impl AccessArgs {
    /// With what a user who says no more gets.
    pub(super) fn of(pid: u32, budget: Budget) -> Self {
        Self {
            pid: Some(pid),
            from: None,
            lock: Vec::new(),
            top: 5,
            samples: 200,
            budget,
            to: None,
            duration: Duration::from_secs(60),
            timing: Duration::from_secs(1),
            instructions: 20_000,
            all_accesses: false,
            format: Format::Table,
            strict: false,
        }
    }
}

/// What was followed.
pub(super) struct Followed {
    /// The sections.
    pub records: Vec<Record>,
    /// What is told of them.
    pub summary: Summary,
    /// When it began.
    pub start: Time,
    /// Whether there are fewer samples than asked for, or some were cut or abandoned.
    pub incomplete: bool,
}

/// Profiles and prints.
///
/// # Errors
/// When the process cannot be profiled, no lock is chosen, or the results cannot be written.
pub(super) fn run(args: &AccessArgs) -> Result<ExitCode> {
    let pid = match (&args.from, &args.to, args.pid) {
        (Some(from), Some(to), _) => return copy(from, to, args.strict),
        (_, _, Some(pid)) => pid,
        _ => bail!("nothing to follow: name a process with --pid"),
    };
    // What could not be written is said before anybody is held up.
    let out = args.to.as_deref().map(Whole::create).transpose()?;
    let Followed { records, summary, start, incomplete } = follow(pid, args)?;
    rights::give_up()?;
    if let Some((path, out)) = args.to.as_deref().zip(out) {
        let mut lines = Vec::new();
        write_lines(&mut lines, &records)?;
        write(path, out, &record::header(&summary.target, start)?, &lines[..])?;
    }
    if args.to.as_deref() != Some(Path::new("-")) {
        output::write(&match args.format {
            Format::Table => table::render(&summary, output::layout().width),
            Format::Json => output::json(&summary, "summary")?,
        })?;
    }
    Ok(ExitCode::from(u8::from(args.strict && incomplete)))
}

/// Copies access records from one file to another, in the format that its suffix says.
fn copy(from: &Path, to: &Path, strict: bool) -> Result<ExitCode> {
    destination::differ(from, to)?;
    let input = Input::open(from)?;
    // Nothing is copied that could not be read.
    let read = accesses::read(&input)?;
    let header = Header { lockbpf: env!("CARGO_PKG_VERSION").to_owned(), capture: None, ..input.source(1)?.header() };
    let out = Whole::create(to)?;
    match input.format() {
        source::Format::Lines => write(to, out, &header, input.lines()?)?,
        source::Format::Trace => write(to, out, &header, input.access_lines()?)?,
    }
    say!("lockbpf: {} access records to {}", read.records.executions.len(), to.display());
    for remark in &read.remarks {
        say!("lockbpf: {remark}");
    }
    Ok(ExitCode::from(u8::from(strict && !read.remarks.is_empty())))
}

/// Writes the lines of access records in the format that the suffix says.
fn write(to: &Path, mut file: Whole, header: &Header, mut lines: impl BufRead) -> Result<()> {
    let failed = || format!("failed to write {}", to.display());
    if accesses::is_trace(to) {
        write_trace(&mut file, header, lines).with_context(failed)?;
    } else {
        std::io::copy(&mut lines, &mut file).with_context(failed)?;
    }
    file.finish()
}

/// Chooses locks in a timing pass, and follows sections of them.
///
/// # Errors
/// When the process cannot be profiled, or no lock is chosen.
pub(super) fn follow(pid: u32, args: &AccessArgs) -> Result<Followed> {
    check(pid)?;
    let start = session::now();
    let (observation, mut symbols) = time(pid, args)?;
    let seen = observation.processes.values().max_by_key(|seen| seen.process);
    let Some((process, pid)) = seen.map(|seen| (seen.process, seen.pid)) else {
        bail!("failed to profile pid {pid}: it used no lock within {}", humantime::format_duration(args.timing))
    };
    let labels = labels(&observation, &mut symbols);
    let (chosen, mut notes) = choose(args, &observation, &labels, process)?;
    let names: Vec<&str> = chosen.iter().map(|candidate| candidate.name.as_str()).take(NAMED).collect();
    say!("following sections of {}", names.join(", "));
    let wanted = Wanted {
        pid,
        locks: chosen.iter().map(|candidate| (candidate.lock.addr, candidate.vias.clone())).collect(),
        samples: args.samples,
        budget: args.budget,
        threads: observation.threads.iter().filter(|t| t.acquisitions > 0).count().max(1),
        at_most: args.duration,
        instructions: args.instructions,
    };
    let profile = profile(&wanted)?;
    symbols.refresh(process);
    let mut naming = Named { symbols: &mut symbols, process, labels: &labels };
    let records = records(&profile.sections, &mut naming, args.all_accesses);
    notes.extend(remarks(&profile, args));
    let incomplete = profile.end != PassEnd::Complete
        || !profile.abandoned.is_empty()
        || records.iter().any(|record| record.cut)
        || profile.refused > 0;
    let summary = summary(&observation, &wanted, &profile, &records, notes);
    Ok(Followed { records, summary, start, incomplete })
}

/// The timing pass.
fn time(pid: u32, args: &AccessArgs) -> Result<(Observation, Symbols)> {
    let budget = Share(Budget::new(0.03));
    let capture = CaptureArgs { duration: Some(args.timing), budget, no_focus: true, ..CaptureArgs::default() };
    let plan = Plan { target: Target::Pids(vec![pid]), follow_forks: false, capture };
    let mut collector = Collector::default();
    let captured = live::observe(&plan, None, &mut collector)?;
    let (observation, symbols) = collector.finish(captured, false);
    // It ends early by Ctrl-C, or with the process, of which the next step tells.
    let short = Duration::from_nanos(observation.duration().0) < args.timing.mul_f64(0.9);
    if short && proc::is_there(format!("/proc/{pid}")) {
        bail!("ended by the user during the timing pass");
    }
    Ok((observation, symbols))
}

/// A lock whose sections can be followed.
struct Candidate {
    lock: Lock,
    name: String,
    vias: Vec<Via>,
    wait: Nanos,
    acquisitions: u64,
}

/// The locks whose sections are to be followed, and remarks.
fn choose(
    args: &AccessArgs,
    observation: &Observation,
    labels: &Labels,
    process: Process,
) -> Result<(Vec<Candidate>, Vec<String>)> {
    let mut all: BTreeMap<Lock, Candidate> = BTreeMap::new();
    let mut others = 0;
    for sums in observation.sums.iter().filter(|sums| sums.lock.process == process && sums.acquisitions > 0) {
        if !is_followed(sums.via) {
            others += u64::from(sums.via.runtime().is_some() || sums.via.is_custom() || sums.via == Via::Gil);
            continue;
        }
        let name = || labels.locks.get(&sums.lock).cloned().unwrap_or_else(|| format!("lock {:#x}", sums.lock.addr));
        let entry = all.entry(sums.lock).or_insert_with(|| Candidate {
            lock: sums.lock,
            name: name(),
            vias: Vec::new(),
            wait: Nanos(0),
            acquisitions: 0,
        });
        entry.wait += sums.wait.sum;
        entry.acquisitions += sums.acquisitions;
        if !entry.vias.contains(&sums.via) {
            entry.vias.push(sums.via);
        }
    }
    let mut candidates: Vec<Candidate> = all.into_values().collect();
    candidates.sort_by(|a, b| (b.wait, b.acquisitions, &a.name).cmp(&(a.wait, a.acquisitions, &b.name)));
    if candidates.is_empty() {
        let why = if others > 0 {
            "its locks are none of pthreads' (mutex, read-write lock, spin lock), whose sections alone can be followed"
        } else {
            "it took no pthread mutex, read-write lock or spin lock"
        };
        bail!(
            "failed to choose a lock of {}: within {}, {why}",
            observation.target,
            humantime::format_duration(args.timing)
        );
    }
    let mut notes = Vec::new();
    if args.lock.is_empty() {
        if candidates.iter().all(|candidate| candidate.wait == Nanos(0)) {
            notes.push("Nobody waited for a lock in the timing pass; the locks taken most were followed.".to_owned());
        } else {
            candidates.retain(|candidate| candidate.wait > Nanos(0));
        }
        candidates.truncate(args.top as usize);
        return Ok((candidates, notes));
    }
    let mut chosen = Vec::new();
    for part in &args.lock {
        let address = part.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let (hits, rest): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|candidate| match address {
            Some(address) => candidate.lock.addr == address,
            None => candidate.name.contains(part.as_str()),
        });
        candidates = rest;
        if hits.is_empty() && !chosen.iter().any(|c: &Candidate| c.name.contains(part.as_str())) {
            let some: Vec<&str> = candidates.iter().map(|candidate| candidate.name.as_str()).take(NAMED).collect();
            bail!(
                "no lock that {} took within {} is called `{part}`; it took {}",
                observation.target,
                humantime::format_duration(args.timing),
                some.join(", ")
            );
        }
        chosen.extend(hits);
    }
    Ok((chosen, notes))
}

fn is_followed(via: Via) -> bool {
    matches!(
        via,
        Via::Lock
            | Via::TryLock
            | Via::TimedLock
            | Via::ClockLock
            | Via::ReadLock
            | Via::WriteLock
            | Via::TryReadLock
            | Via::TryWriteLock
            | Via::TimedReadLock
            | Via::TimedWriteLock
            | Via::SpinLock
            | Via::TrySpinLock
    )
}

/// Names from the process's files.
struct Named<'a> {
    symbols: &'a mut Symbols,
    process: Process,
    labels: &'a Labels,
}

impl Naming for Named<'_> {
    fn location(&mut self, address: u64) -> Location {
        match self.symbols.static_place(self.process, address) {
            Some((name, readable)) => Location { readable: readable.filter(|readable| *readable != name), name },
            None => Location { name: format!("{address:#x}"), readable: None },
        }
    }

    fn code(&mut self, address: u64) -> String {
        // As of a return address: the place before it.
        let frames = self.symbols.frames(self.process, address.wrapping_add(1));
        frames.first().map_or_else(|| format!("{address:#x}"), |frame| frame.symbol())
    }

    fn lock(&mut self, address: u64) -> String {
        let lock = Lock { process: self.process, addr: address };
        let known = self.labels.locks.get(&lock).cloned();
        known.or_else(|| self.symbols.global(lock)).unwrap_or_else(|| format!("lock {address:#x}"))
    }

    fn place(&mut self, section: &Section) -> Place {
        let asked = &section.asked;
        let copy = StackCopy::top(self.process, asked.registers, asked.base, asked.stack.clone());
        let raw = self.symbols.unwind(&copy).addresses;
        let outside = self.symbols.call_stack(self.process, &raw, Some(section.site)).first().copied();
        let own = self.symbol(section.site);
        match outside {
            Some(caller) if caller != section.site => Place { site: self.symbol(caller), method: Some(own) },
            _ => Place { site: own, method: None },
        }
    }
}

impl Named<'_> {
    fn symbol(&mut self, address: u64) -> String {
        if let Some(known) = self.labels.sites.get(&Site { process: self.process, addr: address }) {
            return known.clone();
        }
        let frames = self.symbols.frames(self.process, address);
        place(&frames).map_or_else(|| format!("{address:#x}"), |frame| frame.symbol())
    }
}

fn remarks(profile: &Profile, args: &AccessArgs) -> Option<String> {
    match profile.end {
        PassEnd::Complete => None,
        PassEnd::Time => Some(format!(
            "Not all samples were taken within {}: see --duration and --budget.",
            humantime::format_duration(args.duration)
        )),
        PassEnd::Interrupted => Some("Ended by the user before all samples were taken.".to_owned()),
        PassEnd::Exited => Some("The process exited before all samples were taken.".to_owned()),
        PassEnd::SignalTaken => Some(
            "The process has installed a handler for the signal by which its threads were stopped; no further samples were taken."
                .to_owned(),
        ),
    }
}

fn summary(
    observation: &Observation,
    wanted: &Wanted,
    profile: &Profile,
    records: &[Record],
    notes: Vec<String>,
) -> Summary {
    let mut cut: BTreeMap<String, u64> = BTreeMap::new();
    for section in &profile.sections {
        if let End::Cut(why) = &section.end {
            *cut.entry(why.to_string()).or_default() += 1;
        }
    }
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let share = profile.held_up.as_secs_f64() / profile.duration.as_secs_f64().max(f64::MIN_POSITIVE);
    Summary {
        schema: SCHEMA.to_owned(),
        target: observation.target.clone(),
        sections: rows(records),
        pass: Pass {
            samples_wanted: wanted.samples,
            samples_taken: records.len() as u64,
            cut,
            abandoned: profile.abandoned.iter().map(|(why, n)| (why.to_string(), *n)).collect(),
            nobody: profile.nobody,
            attempts_seen: profile.seen,
            stops_refused: profile.refused,
            signals_passed_on: profile.passed_on,
            threads_blocking: profile.blocking as u64,
            held_up_ns: ns(profile.held_up),
            duration_ns: ns(profile.duration),
            held_up_share: share,
            held_up_share_allowed: profile.allowed,
            threads: profile.threads as u64,
            budget: wanted.budget.share(),
        },
        notes,
    }
}
