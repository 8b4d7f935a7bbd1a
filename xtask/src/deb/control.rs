//! What the package says of itself to `dpkg`.

use super::stage::Stage;
use super::{LIMIT, source};
use crate::process;
use anyhow::{Context as _, Result};
use std::{fs, path::Path, process::Command};

/// What `dpkg` runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// The package's own revision of this version of the program.
const REVISION: u32 = 1;

/// What is to be found out.
pub(super) struct About {
    /// The program's version and the package's revision.
    pub(super) version: String,
    /// Debian's name of the machine.
    pub(super) architecture: String,
    /// Who is to be asked.
    pub(super) maintainer: String,
    /// Packages whose libraries the program uses.
    depends: String,
}

impl About {
    /// Finds it out of what is in the tree.
    ///
    /// # Errors
    /// One of Debian's tools fails.
    pub(super) fn of(stage: &Stage, maintainer: &str, scratch: &Path) -> Result<Self> {
        let program = stage.root().join("usr/bin/lockbpf");
        let said = process::output(Command::new(&program).arg("--version"), LIMIT)?;
        let version = said.trim().trim_start_matches("lockbpf ");
        let architecture = process::output(Command::new("dpkg").arg("--print-architecture"), LIMIT)?;
        Ok(Self {
            version: format!("{version}-{REVISION}"),
            architecture: architecture.trim().to_owned(),
            maintainer: maintainer.to_owned(),
            depends: depends(&program, scratch)?,
        })
    }
}

/// Which packages, in which versions, have the libraries that a program uses.
fn depends(program: &Path, scratch: &Path) -> Result<String> {
    // It asks for the sources of a package.
    let sources = scratch.join("sources");
    fs::create_dir_all(sources.join("debian"))?;
    fs::write(sources.join("debian/control"), "Source: lockbpf\n\nPackage: lockbpf\nArchitecture: any\n")?;
    let mut shlibdeps = Command::new("dpkg-shlibdeps");
    let said = process::output(shlibdeps.current_dir(&sources).arg("-O").arg(program), LIMIT)
        .context("failed to find out which libraries the program uses (Debian: dpkg-dev)")?;
    let depends = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    depends.map(str::to_owned).with_context(|| format!("dpkg-shlibdeps says {said:?}"))
}

/// Writes what `dpkg` reads.
///
/// # Errors
/// A file cannot be read or written.
pub(super) fn write(stage: &Stage, about: &About) -> Result<()> {
    let files = stage.files()?;
    let is_configuration = |file: &&std::path::PathBuf| file.starts_with("etc");
    let conffiles: String =
        files.iter().filter(is_configuration).map(|file| format!("/{}\n", file.display())).collect();
    stage.add("DEBIAN/conffiles", 0o644, conffiles)?;
    let mut md5sum = Command::new("md5sum");
    md5sum.current_dir(stage.root()).args(files.iter().filter(|file| !is_configuration(file)));
    stage.add("DEBIAN/md5sums", 0o644, process::output(&mut md5sum, LIMIT)?)?;
    for script in SCRIPTS {
        stage.copy(&source("deploy/debian").join(script), Path::new("DEBIAN").join(script), 0o755)?;
    }
    let mut size = 0;
    for file in &files {
        // As on a disk, in blocks of 1 KiB.
        size += fs::metadata(stage.root().join(file))?.len().div_ceil(1024);
    }
    let mut control = fs::read_to_string(source("deploy/debian/control")).context("failed to read the control file")?;
    for (name, value) in [
        ("version", &about.version),
        ("architecture", &about.architecture),
        ("maintainer", &about.maintainer),
        ("depends", &about.depends),
        ("size", &size.to_string()),
    ] {
        control = control.replace(&format!("{{{name}}}"), value);
    }
    stage.add("DEBIAN/control", 0o644, control).map(drop)
}
