//! `cargo xtask layers`: the floors of our crates as `xtask/layers.toml` declares them, held against the imports in the code. An import
//! goes down only: one that goes up, beside or round fails, unless it is declared as known.

use std::{collections::BTreeSet, fs, process::ExitCode};

use anyhow::{Context as _, Result};

use crate::{test::step::Outcome, workspace};

mod circles;
mod imports;
mod plan;
mod source;

use imports::Imports;
use plan::{CratePlan, Findings, Plan};
use source::{Crate, Module};

/// Arguments of `layers`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Show each import between files, too
    #[arg(long)]
    imports: bool,
}

/// Prints floors and findings; succeeds if nothing breaks the order.
///
/// # Errors
/// A source or the declaration cannot be read.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut faults = 0;
    for plan in plan()?.crates {
        let (crate_, imports) = read(&plan)?;
        print!("{}", floors(&plan));
        if args.imports {
            for ((from, to), path) in &imports {
                println!("    {} -> {} ({path})", from.join("::"), to.join("::"));
            }
        }
        let findings = check(&plan, &crate_, &imports);
        findings.notes.iter().for_each(|note| println!("  note: {note}"));
        findings.faults.iter().for_each(|fault| println!("  FAULT: {fault}"));
        faults += findings.faults.len();
    }
    Ok(if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The check as a step of the tests.
///
/// # Errors
/// As [`run`].
pub(crate) fn step() -> Result<Outcome> {
    let (mut faults, mut modules) = (Vec::new(), 0);
    for plan in plan()?.crates {
        let (crate_, imports) = read(&plan)?;
        modules += crate_.modules.len();
        let findings = check(&plan, &crate_, &imports).faults;
        faults.extend(findings.into_iter().map(|fault| format!("{}: {fault}", plan.name)));
    }
    Ok(if faults.is_empty() {
        Outcome::passed(format!("{modules} modules"))
    } else {
        Outcome::failed(faults.join("\n"))
    })
}

fn plan() -> Result<Plan> {
    let file = workspace::root().join("xtask/layers.toml");
    Plan::parse(&fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))?)
}

fn read(plan: &CratePlan) -> Result<(Crate, Imports)> {
    let crate_ = Crate::read(&workspace::root().join(&plan.root))?;
    let imports = imports::imports(&crate_);
    Ok((crate_, imports))
}

/// Everything that breaks the order in one crate.
fn check(plan: &CratePlan, crate_: &Crate, imports: &Imports) -> Findings {
    let mut all = Findings::default();
    for house in &plan.house {
        let findings = house.check(&members(&house.of, crate_), imports);
        all.faults.extend(findings.faults);
        all.notes.extend(findings.notes);
    }
    let known: Vec<(String, BTreeSet<String>)> = plan.circles.iter().map(|line| circle(line)).collect();
    let mut seen = vec![0; known.len()];
    for folder in folders(crate_).into_iter().filter(|folder| !plan.house.iter().any(|house| &house.of == folder)) {
        for found in circles::circles(&folder, imports) {
            match known.iter().position(|(of, members)| of == &folder && found.is_subset(members)) {
                Some(at) => seen[at] += found.len(),
                None => all.faults.push(format!("{folder}: a circle of {}", join(&found))),
            }
        }
    }
    for ((folder, members), seen) in known.iter().zip(seen) {
        if seen < members.len() {
            all.notes.push(format!("{folder}: the circle of {} has shrunk to {seen} files", join(members)));
        }
    }
    all
}

/// Reads `folder: member member`.
fn circle(line: &str) -> (String, BTreeSet<String>) {
    let (folder, members) = line.rsplit_once(": ").unwrap_or((line, ""));
    (folder.to_owned(), members.split_whitespace().map(str::to_owned).collect())
}

fn join(members: &BTreeSet<String>) -> String {
    members.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// The members of a folder that has floors.
fn members(of: &str, crate_: &Crate) -> BTreeSet<String> {
    let paths = crate_.modules.iter().map(|module| &module.path);
    paths.filter_map(|path| circles::member(of, path)).map(str::to_owned).collect()
}

/// The folders inside of the crate.
fn folders(crate_: &Crate) -> BTreeSet<String> {
    let has_files = |module: &&Module| module.children.values().any(|&child| crate_.modules[child].file == child);
    let folders = crate_.modules.iter().filter(has_files);
    folders.map(|module| module.path.join("::")).filter(|path| !path.is_empty()).collect()
}

/// The declared floors as lines, the top floor first.
fn floors(plan: &CratePlan) -> String {
    let mut text = format!("{}\n", plan.name);
    for house in &plan.house {
        if !house.of.is_empty() {
            text += &format!("  inside {}\n", house.of);
        }
        for (number, floor) in house.floors.iter().enumerate().rev() {
            text += &format!("  {:>4}  {floor}\n", number + 1);
        }
        for known in &house.known {
            text += &format!("  known  {known}\n");
        }
    }
    for known in &plan.circles {
        text += &format!("  known circle  {known}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of these files, read.
    fn crate_of(files: &[(&str, &str)]) -> (Crate, Imports) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let crate_ = Crate::read(&folder.path().join("lib.rs")).unwrap();
        let imports = imports::imports(&crate_);
        (crate_, imports)
    }

    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        crate_of(files).1.keys().map(|(from, to)| format!("{} {}", from.join("::"), to.join("::"))).collect()
    }

    fn faults((crate_, imports): &(Crate, Imports), plan: &str) -> Vec<String> {
        let plan = Plan::parse(&format!("[[crate]]\nname = 'x'\nroot = 'lib.rs'\n{plan}")).unwrap();
        check(&plan.crates[0], crate_, imports).faults
    }

    const ROOT: (&str, &str) = ("lib.rs", "mod a; mod b; mod c;");

    #[test]
    fn imports_are_found_however_they_are_written() {
        let b = ("b/mod.rs", "pub mod d; pub use d::Deep; pub struct B;");
        let d = ("b/d.rs", "pub struct Deep; pub fn f() {}");
        let c = ("c.rs", "pub struct C;");
        for (code, target) in [
            ("use crate::b::{self as other, B};", "b"),
            ("use crate::{b::{d::{Deep}}, std::fmt};", "b::d"),
            ("fn f() { crate::b::d::f() }", "b::d"),
            ("fn f() { use super::c::C; }", "c"),
            ("fn f() { println!(\"{}\", crate::c::C); }", "c"),
            ("#[derive(Serialize)] struct S { #[serde(with = \"crate::c::C\")] x: u8 }", "c"),
            ("mod inner { fn f() -> super::super::c::C { super::super::c::C } }", "c"),
            ("#[cfg(not(test))] use crate::c::C;", "c"),
            ("#[cfg(any(test, target_os = \"linux\"))] use crate::c::C;", "c"),
            // Through a re-export, to the file that defines it.
            ("use crate::b::Deep;", "b::d"),
            ("use self::inner::*; mod inner { pub use crate::c; } fn f(c: c::C) {}", "c"),
        ] {
            assert_eq!(arrows(&[ROOT, ("a.rs", code), b, d, c]).first(), Some(&format!("a {target}")), "{code}");
        }
    }

    #[test]
    fn tests_comments_strings_and_other_crates_are_no_imports() {
        for code in [
            "#[cfg(test)] mod tests { use crate::b::B; }",
            "#[cfg(test)] mod in_no_file;",
            "#[cfg(any(test, fuzzing))] fn f() { crate::b::log() }",
            "fn f() { #[cfg(all(fuzzing, not(test)))] crate::b::log(); }",
            "struct S; impl S { #[cfg(test)] fn f() -> crate::b::B { crate::b::B } }",
            "/// [`crate::b::B`]\nfn f() { let s = \"crate::b::B\"; } // crate::b::B",
            "use log::{self, b::B}; fn f() { log::b::B }",
            "struct B; fn f() { B::log() }",
        ] {
            let files = [ROOT, ("a.rs", code), ("b.rs", "pub struct B; pub fn log() {}"), ("c.rs", "")];
            assert_eq!(arrows(&files), Vec::<String>::new(), "{code}");
        }
    }

    #[test]
    fn imports_go_down_unless_they_are_known() {
        let crate_ = crate_of(&[
            ROOT,
            ("a.rs", "pub struct X;"),
            ("b.rs", "use crate::a::X; pub struct Y;"),
            ("c.rs", "use crate::b::Y;"),
        ]);
        let house = |floors: &str, known: &str| format!("[[crate.house]]\nfloors = [{floors}]\nknown = [{known}]");
        assert_eq!(faults(&crate_, &house("'a', 'b', 'c'", "")), Vec::<String>::new());
        assert!(faults(&crate_, &house("'a', 'c', 'b'", ""))[0].contains("c imports b, which is above it"));
        assert_eq!(faults(&crate_, &house("'a', 'c', 'b'", "'c -> b 1'")), Vec::<String>::new());
        assert!(faults(&crate_, &house("'a', 'c', 'b'", "'c -> b 0'"))[0].contains("(0 known)"));
        assert!(faults(&crate_, &house("'a', 'b c'", ""))[0].contains("beside it"));
        assert!(faults(&crate_, &house("'a', 'b'", ""))[0].contains("c is on no floor"));
        assert!(faults(&crate_, &house("'a', 'b', 'c', 'd'", ""))[0].contains("no module d"));
        assert!(faults(&crate_, &house("'a', 'b', 'c'", "'c b 1'"))[0].contains("is not of the form"));
    }

    #[test]
    fn circles_in_a_folder_do_not_grow() {
        let crate_ = crate_of(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod x; mod y; mod z; pub struct A;"),
            ("a/x.rs", "use super::y::Y; use super::A; pub struct X;"),
            ("a/y.rs", "use super::z::Z; pub struct Y;"),
            ("a/z.rs", "use super::x::X; pub struct Z;"),
        ]);
        let plan = |circles: &str| format!("circles = [{circles}]\n[[crate.house]]\nfloors = ['a']");
        assert_eq!(faults(&crate_, &plan("")), ["a: a circle of x y z"]);
        assert_eq!(faults(&crate_, &plan("'a: x y'")).len(), 1);
        assert_eq!(faults(&crate_, &plan("'a: x y z'")), Vec::<String>::new());
    }

    #[test]
    fn the_sources_of_our_crates_are_read_whole() {
        for plan in plan().unwrap().crates {
            let (_crate, imports) = read(&plan).unwrap();
            assert!(imports.len() > 50, "{} has {} imports", plan.name, imports.len());
        }
    }
}
