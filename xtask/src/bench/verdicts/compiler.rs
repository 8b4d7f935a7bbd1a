//! How the programs are built, and started.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::programs::Program;
use crate::{cc, process, workspace};

/// How long a compiler may take.
const LIMIT: Duration = Duration::from_secs(180);

/// What builds a program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Compiler {
    C,
    /// C, linked statically, without symbols.
    StaticC,
    /// C, with a library beside it that it loads.
    Plugin,
    Cpp,
    Rust,
    /// Rust with a crate.
    RustWith(&'static str),
    Go,
    Java,
    Python,
}

/// A program that can be started.
pub(super) struct Built {
    /// Its words.
    words: Vec<PathBuf>,
    /// Its source, for marked lines.
    pub(super) source: String,
    /// Where it is built, and its temporary files are.
    dir: PathBuf,
}

impl Built {
    /// The program, with its culprit or without it.
    pub(super) fn command(&self, cured: bool) -> Command {
        let mut words = self.words.iter();
        let mut command = Command::new(words.next().map_or(Path::new(""), PathBuf::as_path));
        command.args(words).args(cured.then_some("cured")).env("TMPDIR", &self.dir);
        command
    }
}

impl Compiler {
    /// The language, as the table names it.
    pub(super) fn language(self) -> &'static str {
        match self {
            Self::C | Self::StaticC | Self::Plugin => "C",
            Self::Cpp => "C++",
            Self::Rust | Self::RustWith(_) => "Rust",
            Self::Go => "Go",
            Self::Java => "Java",
            Self::Python => "Python",
        }
    }

    fn tool(self) -> &'static str {
        match self {
            Self::C | Self::StaticC | Self::Plugin => cc::HOST,
            Self::Cpp => "c++",
            Self::Rust | Self::RustWith(_) => "rustc",
            Self::Go => "go",
            Self::Java => "javac",
            Self::Python => "python3",
        }
    }

    fn ending(self) -> &'static str {
        match self {
            Self::C | Self::StaticC | Self::Plugin => "c",
            Self::Cpp => "cc",
            Self::Rust | Self::RustWith(_) => "rs",
            Self::Go => "go",
            Self::Java => "java",
            Self::Python => "py",
        }
    }

    /// Why programs of this kind cannot be built here, if so.
    pub(super) fn missing(self) -> Option<String> {
        workspace::find_program(self.tool()).is_none().then(|| format!("there is no `{}` in PATH", self.tool()))
    }

    /// Builds a program in a directory.
    ///
    /// # Errors
    /// The compiler fails.
    pub(super) fn build(self, program: &Program, dir: &Path) -> Result<Built> {
        let sources = workspace::root().join("xtask/src/bench/verdicts/programs");
        let source = sources.join(program.name).with_extension(self.ending());
        let path = dir.join(program.name);
        let run = |command: &mut Command| process::output(command, LIMIT).map(drop);
        let mut words = vec![path.clone()];
        match self {
            Self::C => cc::compile(&source, &path, &["-std=gnu11", "-g"])?,
            Self::StaticC => cc::compile(&source, &path, &["-std=gnu11", "-static", "-s"])?,
            Self::Plugin => {
                cc::compile(&source, &path, &["-std=gnu11", "-g"])?;
                let library = ["-std=gnu11", "-g", "-shared", "-fPIC"];
                cc::compile(&sources.join("plugin.c"), &dir.join("libplugin.so"), &library)?;
            }
            Self::Cpp => cc::compile_with(self.tool(), &source, &path, &["-std=c++17", "-g"])?,
            Self::Rust => {
                run(Command::new(self.tool()).args(["--edition=2024", "-O", "-g", "-o"]).arg(&path).arg(&source))?;
            }
            Self::RustWith(dependency) => words = vec![build_package(program.name, dependency, &source, dir)?],
            Self::Go => {
                let mut go = Command::new(self.tool());
                go.args(["build", "-o"]).arg(&path).arg(&source).env("GO111MODULE", "off");
                run(go.env("GOCACHE", dir.join("go-cache")))?;
            }
            Self::Java => {
                run(Command::new(self.tool()).args(["-g", "-d"]).arg(dir).arg(&source))?;
                // As the documentation asks for.
                words = ["java", "-XX:+PreserveFramePointer", "-cp"].map(PathBuf::from).to_vec();
                words.extend([dir.to_path_buf(), program.name.into()]);
            }
            Self::Python => words = vec![self.tool().into(), source.clone()],
        }
        let text = if matches!(self, Self::Plugin) { sources.join("plugin.c") } else { source };
        let source = fs::read_to_string(&text).with_context(|| format!("failed to read {}", text.display()))?;
        Ok(Built { words, source, dir: dir.to_path_buf() })
    }

    /// What a running program's functions are named by, where its symbols alone do not do.
    ///
    /// # Errors
    /// The tool fails.
    pub(super) fn name_functions(self, pid: nix::unistd::Pid) -> Result<()> {
        if !matches!(self, Self::Java) || workspace::find_program("jcmd").is_none() {
            return Ok(());
        }
        process::output(Command::new("jcmd").args([&pid.to_string(), "Compiler.perfmap"]), LIMIT).map(drop)
    }
}

/// Builds a cargo package of one file, from what cargo has downloaded already if that will do.
fn build_package(name: &str, dependency: &str, source: &Path, dir: &Path) -> Result<PathBuf> {
    let package = dir.join(format!("{name}-package"));
    fs::create_dir_all(package.join("src")).context("failed to create a package")?;
    fs::copy(source, package.join("src/main.rs")).context("failed to copy a program")?;
    let manifest = format!(
        "[package]\nname = \"program\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n{dependency}\n\n\
         [profile.release]\ndebug = true\n\n[workspace]\n"
    );
    fs::write(package.join("Cargo.toml"), manifest).context("failed to write a manifest")?;
    let build = |more: &[&str]| {
        let mut cargo = workspace::cargo();
        cargo.current_dir(&package).args(["build", "--quiet", "--release", "--target-dir"]).arg(package.join("target"));
        process::output(cargo.args(more).env_remove("CARGO_TARGET_DIR"), LIMIT)
    };
    build(&["--offline"]).or_else(|_| build(&[]))?;
    let program = package.join("target/release/program");
    ensure!(program.is_file(), "cargo has not built {}", program.display());
    Ok(program)
}
