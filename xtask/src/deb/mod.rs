//! Makes a Debian package of lockbpf, by `dpkg-deb`.
//!
//! Not by cargo-deb: fetching and compiling it takes longer than all that is done here, and it would have to be done before each test.

mod contents;
mod control;
mod stage;

use crate::{dist, process, workspace};
use anyhow::{Context as _, Result};
use stage::Stage;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

/// How long one of Debian's tools may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Arguments of `deb`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Package this program, instead of one that is compiled for it (`dist`)
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Where the package goes
    #[arg(long, value_name = "DIR", default_value = "target/debian")]
    to: PathBuf,
    /// Who is to be asked about the package
    #[arg(long, value_name = "NAME <MAIL>", default_value = "The lockbpf authors <lockbpf@lockbpf.invalid>")]
    maintainer: String,
    /// Compress little: for tests
    #[arg(long)]
    fast: bool,
}

/// Makes the package, and prints its path.
///
/// # Errors
/// The program does not compile, or one of Debian's tools fails.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let program = match &args.program {
        Some(program) => fs::canonicalize(program).with_context(|| format!("failed to find {}", program.display()))?,
        None => dist::program(false)?,
    };
    let epoch = epoch()?;
    let scratch = tempfile::tempdir().context("failed to make a directory")?;
    let stage = Stage::new(scratch.path().join("root"));
    contents::fill(&stage, &program, &epoch)?;
    let about = control::About::of(&stage, &args.maintainer, scratch.path())?;
    contents::changelog(&stage, &about, &epoch)?;
    control::write(&stage, &about)?;

    fs::create_dir_all(&args.to).with_context(|| format!("failed to make {}", args.to.display()))?;
    let file = args.to.join(format!("lockbpf_{}_{}.deb", about.version, about.architecture));
    let mut dpkg = Command::new("dpkg-deb");
    // Bytes depend on how many threads compress.
    dpkg.args(["--root-owner-group", "-Zxz", "--threads-max=1", if args.fast { "-z1" } else { "-z6" }, "--build"])
        .arg(stage.root())
        .arg(&file);
    process::output(dpkg.env("SOURCE_DATE_EPOCH", &epoch), LIMIT)?;
    println!("{}", file.display());
    Ok(ExitCode::SUCCESS)
}

/// By when everything in the package is dated, in seconds since 1970: two builds of one commit are then the same.
fn epoch() -> Result<String> {
    if let Ok(epoch) = env::var("SOURCE_DATE_EPOCH") {
        return Ok(epoch);
    }
    let mut git = Command::new("git");
    git.current_dir(workspace::root()).args(["log", "-1", "--format=%ct"]);
    let committed =
        process::output(&mut git, LIMIT).context("no date for the package: name one in SOURCE_DATE_EPOCH")?;
    Ok(committed.trim().to_owned())
}

/// A file of the sources.
fn source(name: impl AsRef<Path>) -> PathBuf {
    workspace::root().join(name)
}
