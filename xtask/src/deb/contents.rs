//! What the package brings along: one list, and what the program makes of itself.

use super::control::About;
use super::stage::{Stage, gzip};
use super::{LIMIT, source};
use crate::{process, workspace};
use anyhow::{Context as _, Result};
use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path, process::Command, time::Duration};

/// Where documents go.
const DOCS: &str = "usr/share/doc/lockbpf";
/// What is copied as it is, and where.
const COPIED: [(&str, &str); 7] = [
    ("deploy/lockbpf.service", "usr/lib/systemd/system/lockbpf.service"),
    ("deploy/agent.toml", "etc/lockbpf/agent.toml"),
    ("deploy/alerts.yml", "usr/share/doc/lockbpf/examples/alerts.yml"),
    ("deploy/dashboard.json", "usr/share/doc/lockbpf/examples/dashboard.json"),
    ("deploy/kubernetes.yml", "usr/share/doc/lockbpf/examples/kubernetes.yml"),
    ("deploy/debian/lintian-overrides", "usr/share/lintian/overrides/lockbpf"),
    ("README.md", "usr/share/doc/lockbpf/README.md"),
];
/// What each shell reads, and where.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/lockbpf"),
    ("zsh", "usr/share/zsh/vendor-completions/_lockbpf"),
    ("fish", "usr/share/fish/vendor_completions.d/lockbpf.fish"),
];

/// Fills the tree with everything but Debian's own changelog.
///
/// # Errors
/// Something is not there, or the program cannot be run or stripped.
pub(super) fn fill(stage: &Stage, program: &Path, epoch: &str) -> Result<()> {
    let installed = stage.copy(program, "usr/bin/lockbpf", 0o755)?;
    // Lines of the code go, which are nine tenths of the file; names of functions and locks stay, since `lockbpf demo` observes itself.
    process::output(Command::new("strip").args(["--strip-debug", "--remove-section=.comment"]).arg(&installed), LIMIT)?;
    for (from, at) in COPIED {
        stage.copy(&source(from), at, 0o644)?;
    }
    for document in fs::read_dir(source("docs"))? {
        let document = document?.path();
        if let (Some("md" | "png"), Some(name)) =
            (document.extension().and_then(|ext| ext.to_str()), document.file_name())
        {
            stage.copy(&document, Path::new(DOCS).join(name), 0o644)?;
        }
    }
    gzip(&stage.copy(&source("CHANGELOG.md"), Path::new(DOCS).join("changelog"), 0o644)?)?;
    stage.add(Path::new(DOCS).join("copyright"), 0o644, copyright()?)?;

    let pages = stage.place("usr/share/man/man1/lockbpf.1")?;
    let pages = pages.parent().context("a file has a directory")?;
    process::output(Command::new(&installed).arg("man").arg(pages).env("SOURCE_DATE_EPOCH", epoch), LIMIT)?;
    for page in fs::read_dir(pages)?.collect::<Result<Vec<_>, _>>()? {
        let text = fs::read(page.path())?;
        gzip(&stage.add(Path::new("usr/share/man/man1").join(page.file_name()), 0o644, text)?)?;
    }
    for (shell, at) in COMPLETIONS {
        let script = process::output(Command::new(&installed).args(["completions", shell]), LIMIT)?;
        stage.add(at, 0o644, script)?;
    }
    Ok(())
}

/// Adds the changelog of the package: that of the program is beside it.
///
/// # Errors
/// It cannot be written.
pub(super) fn changelog(stage: &Stage, about: &About, epoch: &str) -> Result<()> {
    let date =
        process::output(Command::new("date").args(["-u", "-R", "-d", &format!("@{epoch}")]).env("LC_ALL", "C"), LIMIT)?;
    let About { version, maintainer, .. } = about;
    let text = format!(
        "lockbpf ({version}) unstable; urgency=medium\n\n  * Package of this version; changelog.gz tells what is new in it.\n\n -- {maintainer}  {date}"
    );
    gzip(&stage.add(Path::new(DOCS).join("changelog.Debian"), 0o644, text)?)
}

/// The copyright file, with the packages that are linked into the program.
fn copyright() -> Result<String> {
    let mut cargo = workspace::cargo();
    cargo.args(["tree", "--quiet", "--locked", "--package", "lockbpf", "--edges", "normal", "--prefix", "none"]);
    cargo.args(["--format", "{p}|{l}"]);
    let listed =
        process::output(&mut cargo, Duration::from_secs(300)).context("failed to list the packages of the program")?;
    let mut text = fs::read_to_string(source("deploy/debian/copyright")).context("failed to read the copyright")?;
    text.push_str("\nLicense: Linked-packages\n");
    for package in linked(&listed) {
        writeln!(text, " {package}")?;
    }
    Ok(text)
}

/// Name, version and licence of each package of others, in their order.
fn linked(tree: &str) -> BTreeSet<String> {
    let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    let of_others = lines.filter_map(|line| line.split_once('|')).filter(|(package, _)| !package.contains(" (/"));
    of_others.map(|(package, licence)| format!("{}: {licence}", package.trim_end_matches(" (proc-macro)"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_others_are_listed_once() {
        let tree =
            "lockbpf v0.1.0 (/somewhere)|MIT\nb v2.0.0|MIT (*)\na v1.0.0 (proc-macro)|MIT OR Zlib\nb v2.0.0|MIT\n";
        assert_eq!(linked(tree).into_iter().collect::<Vec<_>>(), ["a v1.0.0: MIT OR Zlib", "b v2.0.0: MIT"]);
    }
}
