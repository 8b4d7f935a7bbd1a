//! `cargo xtask build-ebpf`: compiles the eBPF programs and keeps the objects beside the crate that embeds them, or
//! checks that the committed ones are what the sources give.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    arch::Arch,
    bpf_linker,
    compile::{RUSTFLAGS, Toolchain},
    provenance::{self, Provenance},
    stack_depth, workspace,
};

const REMEDY: &str = "run `cargo xtask build-ebpf` and commit lockbpf/ebpf/";

/// Arguments of `build-ebpf`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing; fail if the committed objects are not what the sources give
    #[arg(long)]
    check: bool,
}

/// Builds the objects, or checks them.
///
/// # Errors
/// A tool is missing and cannot be got, the programs do not compile, or the committed objects are stale.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.check {
        check_sources()?;
        check_objects(&Toolchain::find()?)?;
    } else {
        build(&Toolchain::find()?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn build(toolchain: &Toolchain) -> Result<()> {
    let mut objects = BTreeMap::new();
    for (arch, object) in compile_all(toolchain)? {
        let path = arch.object_path();
        fs::create_dir_all(workspace::root().join("lockbpf/ebpf"))?;
        fs::write(&path, &object).with_context(|| format!("failed to write {}", path.display()))?;
        eprintln!("wrote {} ({} bytes)", arch.object(), object.len());
        objects.extend([provenance::object(arch, &object)]);
    }
    let toolchain = provenance::toolchain(toolchain);
    Provenance { sources: provenance::sources()?, crates: provenance::crates()?, toolchain, objects }.write()?;
    eprintln!("wrote {}", provenance::FILE);
    Ok(())
}

fn compile_all(toolchain: &Toolchain) -> Result<Vec<(Arch, Vec<u8>)>> {
    let compile = |arch: Arch| {
        eprintln!("compiling the eBPF programs for {}", arch.name());
        let object = toolchain.compile(arch)?;
        stack_depth::check(&object).with_context(|| format!("the programs for {} need too much stack", arch.name()))?;
        Ok((arch, object))
    };
    Arch::ALL.into_iter().map(compile).collect()
}

/// The cheap half of the check, which needs no tools: the sources, crates, flags and objects are the recorded ones.
///
/// # Errors
/// One is not; the error names each.
pub(crate) fn check_sources() -> Result<()> {
    let recorded = Provenance::read().with_context(|| format!("the eBPF objects are not there: {REMEDY}"))?;
    let mut stale = differences(&recorded.sources, &provenance::sources()?, |name, recorded, here| {
        let what = match (recorded, here) {
            (Some(_), Some(_)) => "has changed",
            (None, _) => "is new",
            (_, None) => "is gone",
        };
        format!("{name} {what} since the objects were built")
    });
    stale.extend(differences(&recorded.crates, &provenance::crates()?, version_difference));
    let flags = RUSTFLAGS.join(" ");
    if recorded.toolchain.get("rustflags") != Some(&flags) {
        stale.push(format!("the objects were built with other flags than {flags}"));
    }
    for arch in Arch::ALL {
        let object =
            fs::read(arch.object_path()).with_context(|| format!("failed to read {}: {REMEDY}", arch.object()))?;
        let (name, sha256) = provenance::object(arch, &object);
        if recorded.objects.get(&name) != Some(&sha256) {
            stale.push(format!("{name} is not the object that {} records", provenance::FILE));
        }
    }
    if !stale.is_empty() {
        bail!("the eBPF objects are stale:\n  {}\n{REMEDY}", stale.join("\n  "));
    }
    Ok(())
}

/// Whether the compiler and the linker here are those with which the objects were made.
///
/// # Errors
/// The record cannot be read, or rustc does not run.
pub(crate) fn has_recorded_tools() -> Result<bool> {
    let recorded = Provenance::read()?.toolchain;
    let is = |name: &str, version: &str| recorded.get(name).is_some_and(|recorded| recorded == version);
    Ok(is("rustc", &workspace::rustc_version()?) && is("bpf-linker", bpf_linker::VERSION))
}

/// The other half: compiling the sources gives the committed objects, byte for byte.
///
/// # Errors
/// It does not; the error says whether the tools are the recorded ones.
pub(crate) fn check_objects(toolchain: &Toolchain) -> Result<()> {
    let recorded = Provenance::read()?;
    let tools = differences(&recorded.toolchain, &provenance::toolchain(toolchain), version_difference);
    let mut stale = Vec::new();
    for (arch, object) in compile_all(toolchain)? {
        let committed = fs::read(arch.object_path()).with_context(|| format!("failed to read {}", arch.object()))?;
        if committed != object {
            stale.push(arch.object());
        }
    }
    let tools_differ = tools.join("\n  ");
    match (stale.is_empty(), tools.is_empty()) {
        (true, true) => eprintln!("the eBPF objects are what the sources give"),
        (true, false) => eprintln!(
            "the eBPF objects are what the sources give; only the toolchain is another one than {} records:\n  {tools_differ}",
            provenance::FILE
        ),
        (false, true) => {
            bail!("{} differ from what the sources give with the recorded tools: {REMEDY}", stale.join(" and "))
        }
        (false, false) => bail!(
            "{} differ from what the sources give here, but only the toolchain has changed, so they need not be stale:\n  \
             {tools_differ}\ncheck with the recorded versions, or {REMEDY}",
            stale.join(" and ")
        ),
    }
    Ok(())
}

fn version_difference(name: &str, recorded: Option<&String>, here: Option<&String>) -> String {
    let version = |version: Option<&String>| version.map_or("none", String::as_str).to_owned();
    format!("{name}: the objects were built with {}, here is {}", version(recorded), version(here))
}

/// One line for each name whose values differ.
fn differences(
    recorded: &BTreeMap<String, String>,
    here: &BTreeMap<String, String>,
    describe: impl Fn(&str, Option<&String>, Option<&String>) -> String,
) -> Vec<String> {
    let names: BTreeSet<&String> = recorded.keys().chain(here.keys()).collect();
    let differing = names.into_iter().filter(|name| recorded.get(*name) != here.get(*name));
    differing.map(|name| describe(name, recorded.get(name), here.get(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_named() {
        let map = |entries: &[(&str, &str)]| entries.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        let recorded = map(&[("rustc", "1.95.0"), ("bpf-linker", "0.10.4"), ("gone", "1")]);
        let here = map(&[("rustc", "1.96.0"), ("bpf-linker", "0.10.4")]);
        assert_eq!(
            differences(&recorded, &here, version_difference),
            [
                "gone: the objects were built with 1, here is none",
                "rustc: the objects were built with 1.95.0, here is 1.96.0"
            ]
        );
    }
}
