//! Compiles lockbpf for others: the same sources, lock file and compiler make the same bytes, wherever they lie.

use crate::{process, workspace};
use anyhow::{Context as _, Result, ensure};
use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

/// How long compiling everything may take.
const LIMIT: Duration = Duration::from_secs(3600);

/// Arguments of `dist`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Link the C library in, too: the program then runs on any Linux of this architecture
    #[arg(long = "static")]
    is_static: bool,
}

/// Compiles, and prints the program's path.
///
/// # Errors
/// It does not compile.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    println!("{}", program(args.is_static)?.display());
    Ok(ExitCode::SUCCESS)
}

/// The program, compiled.
///
/// # Errors
/// It does not compile.
pub(crate) fn program(is_static: bool) -> Result<PathBuf> {
    let rustc = Rustc::ask()?;
    let target = workspace::root().join("target").join(if is_static { "dist-static" } else { "dist" });
    let mut cargo = workspace::cargo();
    // Named even though it is this machine's: flags are then for the program, and not for what compiles it.
    cargo.args([
        "build",
        "--release",
        "--locked",
        "--quiet",
        "--package",
        "lockbpf",
        "--bin",
        "lockbpf",
        "--target",
        &rustc.host,
    ]);
    cargo.arg("--target-dir").arg(&target);
    let places = places(&target, &rustc)?;
    let mut flags: Vec<String> =
        places.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect();
    if is_static {
        flags.push("-Ctarget-feature=+crt-static".to_owned());
    }
    // Paths may have spaces: flags are told apart by a character that no path has.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}")).env_remove("RUSTFLAGS");
    let c_flags: Vec<String> =
        places.iter().map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display())).collect();
    cargo.env("CFLAGS", c_flags.join(" "));
    ensure!(process::status(&mut cargo, LIMIT)?.success(), "lockbpf does not compile");
    Ok(target.join(rustc.host).join("release/lockbpf"))
}

/// Places on this machine whose paths would get into the program, and what they are called there.
fn places(target: &Path, rustc: &Rustc) -> Result<[(PathBuf, String); 4]> {
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let cargo_home = cargo_home.context("there is no home directory")?;
    // The last that fits counts.
    Ok([
        (cargo_home, "/usr/src/cargo".to_owned()),
        // What the standard library's sources are called where they are not installed.
        (rustc.sysroot.join("lib/rustlib/src/rust"), format!("/rustc/{}", rustc.commit)),
        (workspace::root(), "/usr/src/lockbpf".to_owned()),
        (target.to_path_buf(), "/usr/src/target".to_owned()),
    ])
}

/// The compiler.
struct Rustc {
    /// What it calls this machine.
    host: String,
    /// Of what it was made.
    commit: String,
    /// Where it lies.
    sysroot: PathBuf,
}

impl Rustc {
    fn ask() -> Result<Self> {
        let ask = |question: &[&str]| process::output(workspace::rustc().args(question), Duration::from_secs(60));
        let about = ask(&["-vV"])?;
        let told = |name: &str| {
            let value = about.lines().find_map(|line| line.strip_prefix(name));
            value.map(str::to_owned).with_context(|| format!("rustc does not tell its {name:?}"))
        };
        let sysroot = ask(&["--print", "sysroot"])?;
        Ok(Self { host: told("host: ")?, commit: told("commit-hash: ")?, sysroot: sysroot.trim().into() })
    }
}
