//! `lockbpf what-if`: how long a recorded run would have taken with one change.

use super::args::Format;
use super::{output, script};
use crate::model::what_if::{self, Question};
use crate::model::with::percent;
use anyhow::{Result, bail};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Which change of which recording.
#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(false))]
#[command(after_help = "Examples:
  lockbpf what-if --from t.bin --auto
  lockbpf what-if --from t.bin --shorten flush_cache=50%
  lockbpf what-if --from t.bin --split cache_lock=8")]
pub(super) struct WhatIfArgs {
    /// The recording: a trace (best with every section: `lockbpf export --all-events`) or event lines; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
    /// Sections whose symbol contains SITE take so much less of their own time.
    #[arg(long, value_name = "SITE=SHARE%", group = "change", value_parser = named_share)]
    pub shorten: Option<(String, f64)>,
    /// Nobody asks for the locks whose name contains this.
    #[arg(long, value_name = "LOCK", group = "change")]
    pub remove: Option<String>,
    /// Each of these locks is split into K, of which sections ask for any.
    #[arg(long, value_name = "LOCK=K", group = "change", value_parser = named_count)]
    pub split: Option<(String, u32)>,
    /// These locks become reader–writer locks, and this share of their sections only reads.
    #[arg(long, value_name = "LOCK=SHARE%", group = "change", value_parser = named_share)]
    pub rwlock: Option<(String, f64)>,
    /// The same sections are done by so many threads.
    #[arg(long, value_name = "N", group = "change", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,
    /// How many CPUs the program has. Default: those that the recorded program could use, else those of this machine.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub cores: Option<u32>,
    /// Try single changes, and rank them by what they gain.
    #[arg(long, group = "change")]
    pub auto: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

fn named_share(text: &str) -> Result<(String, f64), String> {
    let (name, share) = text.rsplit_once('=').ok_or("`=` and a share are missing")?;
    Ok((name.to_owned(), percent(share)?))
}

fn named_count(text: &str) -> Result<(String, u32), String> {
    let (name, count) = text.rsplit_once('=').ok_or("`=` and a number of locks are missing")?;
    match count.parse() {
        Ok(k) if (1..=4_096).contains(&k) => Ok((name.to_owned(), k)),
        _ => Err(format!("`{count}` is no number of locks from 1 to 4096")),
    }
}

/// Predicts and prints.
///
/// # Errors
/// When the recording cannot be read, nothing has the name, or the change cannot be predicted.
pub(super) fn run(args: &WhatIfArgs) -> Result<ExitCode> {
    let recorded = script::read(&args.from)?;
    let script = &recorded.script;
    if script.acquisitions() == 0 {
        bail!("{}: it has no section of which there is a beginning", args.from.display());
    }
    let lock = |part: &str| matching(&recorded.locks, part, "lock");
    let question = match args {
        WhatIfArgs { shorten: Some((site, by)), .. } => {
            Some(Question::Shorten(matching(&recorded.sites, site, "site")?, *by))
        }
        WhatIfArgs { remove: Some(name), .. } => Some(Question::Remove(lock(name)?)),
        WhatIfArgs { split: Some((name, k)), .. } => Some(Question::Split(lock(name)?, *k)),
        WhatIfArgs { rwlock: Some((name, share)), .. } => Some(Question::Rwlock(lock(name)?, *share)),
        WhatIfArgs { threads: Some(n), .. } => Some(Question::Threads(*n)),
        _ => None,
    };
    let oracle = recorded.oracle(args.cores);
    let answers = match question {
        Some(question) => vec![oracle.ask(&question)?],
        None => {
            // A change that would be a deadlock is no proposal.
            let mut answers: Vec<_> =
                oracle.candidates().iter().filter_map(|question| oracle.ask(question).ok()).collect();
            if answers.is_empty() {
                bail!("{}: no thread waited for a lock: there is nothing to gain", args.from.display());
            }
            answers.sort_by(|a, b| b.gain.total_cmp(&a.gain).then_with(|| a.change.cmp(&b.change)));
            answers
        }
    };
    let mut answers = oracle.answers(answers);
    answers.violations.extend(recorded.remarks);
    output::write(&match args.format {
        Format::Table => what_if::render(&answers, output::layout().width),
        Format::Json => output::json(&answers, "prediction")?,
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The places of names that contain a part: those that are it exactly, if any are.
fn matching(names: &[String], part: &str, what: &str) -> Result<Vec<usize>> {
    let places = |is: &dyn Fn(&str) -> bool| (0..names.len()).filter(|&i| is(&names[i])).collect::<Vec<_>>();
    let exactly = places(&|name| name == part);
    let found = if exactly.is_empty() { places(&|name| name.contains(part)) } else { exactly };
    if found.is_empty() {
        let some: Vec<&str> = names.iter().map(String::as_str).take(8).collect();
        bail!("no {what} of the recording is called `{part}`; it has {}", some.join(", "));
    }
    Ok(found)
}
