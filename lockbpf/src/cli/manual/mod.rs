//! `lockbpf man`: manual pages, and `lockbpf completions`: what shells complete. Both are made of the definition of the command line that
//! the help is made of, so that none of them can tell anything else.

mod files;
mod page;

use super::output;
use anyhow::{Context, Result};
use clap::{Arg, ArgGroup, Args, Command, Id, ValueEnum};
use clap_complete::Shell;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// By when pages are dated where builds are to be reproducible: seconds since 1970.
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// For which shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockbpf completions bash > /usr/share/bash-completion/completions/lockbpf
  lockbpf completions zsh > /usr/local/share/zsh/site-functions/_lockbpf
  lockbpf completions fish > ~/.config/fish/completions/lockbpf.fish

Packages of distributions bring them along.")]
pub(super) struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub shell: Completed,
}

/// Shells that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Completed {
    /// GNU Bash.
    Bash,
    /// The Z shell.
    Zsh,
    /// fish.
    Fish,
}

/// Where pages go.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockbpf man ~/.local/share/man/man1   where `man lockbpf` finds them

Dates are those of SOURCE_DATE_EPOCH, if that is set, else of today. Packages of distributions bring the pages along.")]
pub(super) struct ManArgs {
    /// The directory, which is made if it is not there.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Prints what a shell reads to complete `lockbpf`.
///
/// # Errors
/// When it cannot be written.
pub(super) fn complete(args: &CompletionsArgs, cli: &Command) -> Result<ExitCode> {
    let shell = match args.shell {
        Completed::Bash => Shell::Bash,
        Completed::Zsh => Shell::Zsh,
        Completed::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offered(cli), "lockbpf", &mut script);
    output::write(script)?;
    Ok(ExitCode::SUCCESS)
}

/// A command without what is hidden, which `clap_complete` would offer.
fn offered(command: &Command) -> Command {
    let arguments: Vec<Arg> = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned().collect();
    let is_offered = |id: &&Id| arguments.iter().any(|argument| argument.get_id() == *id);
    let groups: Vec<ArgGroup> = command
        .get_groups()
        .map(|group| ArgGroup::new(group.get_id().clone()).args(group.get_args().filter(is_offered)).multiple(true))
        .collect();
    Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .version(command.get_version().unwrap_or_default().to_owned())
        .args(arguments)
        .groups(groups)
        .subcommands(command.get_subcommands().filter(|below| !below.is_hide_set()).map(offered))
}

/// Writes a page for each command.
///
/// # Errors
/// When a page cannot be written.
pub(super) fn run(args: &ManArgs, cli: Command) -> Result<ExitCode> {
    fs::create_dir_all(&args.dir).with_context(|| format!("failed to make the directory {}", args.dir.display()))?;
    for (name, text) in page::all(cli, &date()?) {
        let file = args.dir.join(name).with_extension("1");
        fs::write(&file, text).with_context(|| format!("failed to write {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The day that pages bear.
fn date() -> Result<String> {
    let at = match std::env::var(EPOCH) {
        Ok(seconds) => {
            let after = seconds.parse().with_context(|| format!("{EPOCH}={seconds:?} is no number of seconds"))?;
            SystemTime::UNIX_EPOCH
                .checked_add(Duration::from_secs(after))
                .with_context(|| format!("{EPOCH} is too late"))?
        }
        Err(_) => SystemTime::now(),
    };
    Ok(humantime::format_rfc3339_seconds(at).to_string().chars().take_while(|&c| c != 'T').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_not_offered() {
        let hidden = Arg::new("inner").long("inner").hide(true);
        let shown = Arg::new("outer").long("outer");
        let group = ArgGroup::new("both").args(["inner", "outer"]).required(true);
        let command = Command::new("look").about("Looks").args([hidden, shown]).group(group);
        let cli = Command::new("lockbpf").version("1.2.3").subcommands([command, Command::new("within").hide(true)]);
        let mut offered = offered(&cli);
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut offered, "lockbpf", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("look") && script.contains("outer"), "{script}");
            assert!(!script.contains("within") && !script.contains("inner"), "{script}");
        }
    }
}
