//! `lockbpf dump`: what a flight recorder has kept, as a recording.

use super::destination::{self, Whole};
use super::flight::socket;
use super::segments;
use anyhow::{Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Whose recording, and where it goes.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  lockbpf dump --to slow.bin                                now, of the lockbpf that runs with --keep
  lockbpf dump --of 4321 --to slow.bin                      of this one, where there are several
  lockbpf dump --from /var/lib/lockbpf/ring --to slow.bin   of what one that was killed has left")]
pub(super) struct DumpArgs {
    /// Write the recording to this file; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// The process of the lockbpf that is asked. Without it: the only one that has a flight recorder.
    #[arg(long, value_name = "PID", conflicts_with = "from")]
    pub of: Option<u32>,
    /// Ask nobody: read what a lockbpf with --keep-dir has left in this directory, even if it was killed.
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
}

/// Gets the recording.
///
/// # Errors
/// When nobody can be asked, nothing is kept, or it cannot be written.
pub(super) fn run(args: &DumpArgs) -> Result<ExitCode> {
    let out = Whole::create(&args.to)?;
    let (out, what) = match &args.from {
        Some(dir) => {
            let (out, joined) = segments::joined(dir, out)?;
            (out, joined.stretch)
        }
        None => {
            let pid = args.of.map_or_else(only_one, Ok)?;
            let (out, bytes) = socket::receive(socket::ask(pid)?, out)?;
            (out, format!("{bytes} bytes of process {pid}'s flight recorder."))
        }
    };
    out.finish()?;
    let to = destination::told(&args.to);
    let next = if args.to == Path::new("-") { String::new() } else { format!(" lockbpf report --from {to}") };
    say!("lockbpf: written to {to}: {what}{next}");
    Ok(ExitCode::SUCCESS)
}

/// The only lockbpf that can be asked.
fn only_one() -> Result<u32> {
    match socket::all().as_slice() {
        [pid] => Ok(*pid),
        [] => bail!("no lockbpf with a flight recorder runs here: start one with --keep TIME"),
        all => {
            let all: Vec<String> = all.iter().map(u32::to_string).collect();
            bail!("several lockbpf have a flight recorder: name one of {} with --of", all.join(", "))
        }
    }
}
