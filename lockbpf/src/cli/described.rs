//! Descriptions of locks: those that an observation goes by, and `lockbpf locks`, which checks and shows them.

use super::output::{self, right, table};
use crate::capture::described::Wanted;
use crate::capture::prologue::Cost;
use crate::capture::reader::{self, Described};
use crate::capture::target::{self, Library};
use crate::custom::{self, Catalogue, Key, SHIPPED};
use crate::door;
use crate::observe::described as descriptions;
use crate::report::text::listed;
use crate::units::Nanos;
use crate::untrusted::shown;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use lockbpf_common::custom::number;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Functions named in a sentence.
const NAMED: usize = 8;

/// Check or show descriptions of locks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockbpf locks check latches.toml ./server   what of it is found where, and what is not
  lockbpf locks show postgresql               a description that lockbpf brings along")]
pub(super) struct DescribedArgs {
    /// What to do.
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Tell whether a file describes locks as it should, and what of it is found where. Exits with status 1 if anything is not.
    #[command(
        after_help = "Exit status: 0 it is right, and all of it is found; 1 something is wrong or not found; 2 error."
    )]
    Check {
        /// The file, or the name of a description that lockbpf brings along.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Look in what these processes have loaded (repeatable).
        #[arg(long, value_name = "PID", conflicts_with = "program")]
        pid: Vec<u32>,
        /// Look in this program or library.
        #[arg(value_name = "PROGRAM")]
        program: Option<PathBuf>,
    },
    /// Print a description that lockbpf brings along; without a name, tell which there are.
    Show {
        /// Its name.
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

impl DescribedArgs {
    /// Whether no process is looked into.
    pub(super) fn only_reads(&self) -> bool {
        match &self.what {
            What::Check { pid, .. } => pid.is_empty(),
            What::Show { .. } => true,
        }
    }
}

/// Runs `lockbpf locks`.
///
/// # Errors
/// When the description has a mistake, or what it is looked for in cannot be read.
pub(super) fn run(args: DescribedArgs) -> Result<ExitCode> {
    let (file, pid, program) = match args.what {
        What::Show { name: None } => {
            output::write(SHIPPED.iter().map(|(name, _)| format!("{name}\n")).collect::<String>())?;
            return Ok(ExitCode::SUCCESS);
        }
        What::Show { name: Some(name) } => {
            let Some((_, text)) = SHIPPED.iter().find(|(known, _)| *known == name) else {
                let known: Vec<_> = SHIPPED.iter().map(|(name, _)| *name).collect();
                bail!("lockbpf brings no description {name:?} along: there is {}", known.join(", "));
            };
            output::write(text)?;
            return Ok(ExitCode::SUCCESS);
        }
        What::Check { file, pid, program } => (file, pid, program),
    };
    let mut catalogue = Catalogue::default();
    descriptions::add(&mut catalogue, &file)?;
    custom::install(catalogue);
    let catalogue = custom::catalogue();
    let mut text = said(catalogue);
    let mut is_whole = true;
    if let Some(program) = program {
        is_whole = in_file(catalogue, &program, &mut text)?;
    } else if !pid.is_empty() {
        let targets = target::of_pids(&pid)?;
        let found: Vec<_> =
            targets.libraries.iter().filter(|library| catalogue.describes(Path::new(&library.display))).collect();
        if found.is_empty() {
            is_whole = false;
            let _ = writeln!(text, "\nNothing that these processes have loaded is among the files that it is for.");
        }
        for library in found {
            is_whole &= in_library(library, &mut text)?;
        }
    }
    output::write(text)?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the description says, in sentences.
fn said(catalogue: &'static Catalogue) -> String {
    let mut text = String::new();
    for (number, kind) in catalogue.kinds().iter().enumerate() {
        let rows: Vec<_> = catalogue.functions().iter().filter(|f| f.kind == number).collect();
        let names: Vec<String> = rows.iter().map(|f| shown(f.pattern.text()).into_owned()).collect();
        let _ = writeln!(text, "{}: {} functions ({}).", shown(&kind.name), rows.len(), listed(&names, NAMED));
        // A point tells.
        if kind.kernel.taken.size == 0 && rows.iter().any(|f| f.key != Key::Point) {
            let _ = writeln!(
                text,
                "  Without `taken` nobody knows whether it is free: waiting is seen where threads sleep, and each call is watched to its return."
            );
            if kind.kernel.sort == lockbpf_common::custom::sort::SPIN {
                let _ = writeln!(
                    text,
                    "  Whoever waits for a spin lock does not sleep, so its waiting will not be seen at all."
                );
            }
        }
    }
    text
}

/// What is found in one file; returns whether that is all.
fn in_file(catalogue: &'static Catalogue, file: &Path, text: &mut String) -> Result<bool> {
    let name = shown(&file.display().to_string()).into_owned();
    let path = std::fs::canonicalize(file).with_context(|| format!("failed to find {name}"))?;
    if !catalogue.describes(&path) {
        let _ = writeln!(text, "\n{name} is none of the files that it is for.");
        return Ok(false);
    }
    let open = door::open_named(&path).with_context(|| format!("failed to read {name}"))?;
    in_open(catalogue, &name, &path, &open, text)
}

fn in_library(library: &Library, text: &mut String) -> Result<bool> {
    let open = library.open.as_ref().with_context(|| format!("failed to read {}", library.display))?;
    in_open(custom::catalogue(), &library.display, Path::new(&library.display), open, text)
}

fn in_open(catalogue: &'static Catalogue, name: &str, path: &Path, open: &File, text: &mut String) -> Result<bool> {
    let found = reader::described(open, &Wanted::of(catalogue, path));
    Ok(told(name, &found.with_context(|| format!("failed to read {name}"))?, text))
}

/// What was found, as a table and sentences; returns whether that is all.
fn told(file: &str, found: &Described, text: &mut String) -> bool {
    let functions = custom::catalogue().functions();
    let _ = writeln!(text, "\n{file}");
    let mut rows = table(["described", "symbol", "at", "instruction", "per hit", "return"]);
    for (site, symbol) in found.sites.iter().zip(&found.symbols) {
        let function = functions.get(usize::from(number(site.detail)));
        let line = function.map_or(0, |f| f.line);
        let watched = function.is_some_and(|f| f.is_watched);
        rows.add_row([
            format!("line {line}"),
            shown(&crate::demangle::demangle(symbol)).into_owned(),
            format!("+{}", site.placement.offset),
            site.placement.instruction.clone(),
            format!("~{}", Nanos(site.placement.cost.expected_ns())),
            if watched { "watched" } else { "" }.to_owned(),
        ]);
    }
    right(&mut rows, &[2, 4]);
    if !found.sites.is_empty() {
        let _ = writeln!(text, "{rows}");
    }
    let dear = found.sites.iter().filter(|site| site.placement.cost == Cost::SingleStepped).count();
    if dear > 0 {
        let _ = writeln!(text, "{dear} of these must be single-stepped, which is dear.");
    }
    for missing in &found.missing {
        let of = functions.iter().find(|f| std::ptr::eq(f.pattern.text(), missing.function.symbol));
        let line = of.map_or(0, |f| f.line);
        let _ = writeln!(
            text,
            "line {line}: {} is not found: {}.",
            shown(missing.function.symbol),
            missing.reason.as_str()
        );
    }
    found.missing.is_empty()
}
