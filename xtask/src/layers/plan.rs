//! The declared order of modules (`xtask/layers.toml`), and where the code breaks it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::{circles, imports::Imports};

/// The whole declaration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    #[serde(rename = "crate")]
    pub(super) crates: Vec<CratePlan>,
}

/// One crate's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CratePlan {
    pub(super) name: String,
    /// Its root file, from the workspace's root.
    pub(super) root: String,
    pub(super) house: Vec<House>,
    /// Circles of files inside of folders that have no floors yet: `advice: error fields names`.
    #[serde(default)]
    pub(super) circles: Vec<String>,
}

/// The floors of one folder, or of the crate.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct House {
    /// The folder as a path of modules; empty for the crate.
    #[serde(default)]
    pub(super) of: String,
    /// From the ground up; the modules of one floor are separated by spaces.
    pub(super) floors: Vec<String>,
    /// Imports against the order that are known: `graph -> analysis 2`, with the number of pairs of files.
    #[serde(default)]
    pub(super) known: Vec<String>,
}

impl Plan {
    /// Reads the declaration.
    ///
    /// # Errors
    /// It is not in the form described here.
    pub(super) fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("failed to read xtask/layers.toml")
    }
}

/// What was found: faults, and notes about what the declaration need not allow any more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    pub(super) faults: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl House {
    fn floor(&self, module: &str) -> Option<usize> {
        self.floors.iter().position(|floor| floor.split_whitespace().any(|name| name == module))
    }

    /// Holds the imports among the folder's modules against the floors. `modules` are all that it has.
    pub(super) fn check(&self, modules: &BTreeSet<String>, imports: &Imports) -> Findings {
        let mut findings = Findings::default();
        let label = if self.of.is_empty() { "the crate" } else { &self.of };
        for module in modules {
            if self.floor(module).is_none() {
                findings.faults.push(format!("{label}: {module} is on no floor: give it one in xtask/layers.toml"));
            }
        }
        for name in self.floors.iter().flat_map(|floor| floor.split_whitespace()) {
            if !modules.contains(name) {
                findings.faults.push(format!("{label}: there is no module {name}: take it from xtask/layers.toml"));
            }
        }
        let mut known: Vec<(&str, &str, usize)> = Vec::new();
        for line in &self.known {
            match *line.split_whitespace().collect::<Vec<_>>() {
                [from, "->", to, count] if let Ok(count) = count.parse() => known.push((from, to, count)),
                _ => findings.faults.push(format!("{label}: `{line}` is not of the form `from -> to 1`")),
            }
        }
        for (from, to, found) in self.against(imports) {
            let allowed = known.iter().find(|known| (known.0, known.1) == (from.as_str(), to.as_str()));
            let allowed = allowed.map_or(0, |known| known.2);
            if found.len() > allowed {
                let how = if self.floor(&from) == self.floor(&to) { "beside it" } else { "above it" };
                findings.faults.push(format!(
                    "{label}: {from} imports {to}, which is {how}, in {} pairs of files ({allowed} known):\n    {}",
                    found.len(),
                    found.join("\n    ")
                ));
            }
            if found.len() < allowed {
                findings.notes.push(format!("{label}: {from} -> {to} need be known only {} times", found.len()));
            }
        }
        for (from, to, count) in known {
            if !self.against(imports).iter().any(|found| (found.0.as_str(), found.1.as_str()) == (from, to)) {
                findings.notes.push(format!("{label}: {from} -> {to} {count} need not be known any more"));
            }
        }
        findings
    }

    /// Imports that do not go down: from which module, to which, and the files of each with a path that shows it.
    fn against(&self, imports: &Imports) -> Vec<(String, String, Vec<String>)> {
        let mut found: Vec<(String, String, Vec<String>)> = Vec::new();
        for ((from, to), path) in imports {
            let (Some(a), Some(b)) = (circles::member(&self.of, from), circles::member(&self.of, to)) else { continue };
            if a == b || self.floor(a) > self.floor(b) {
                continue;
            }
            let shown = format!("{} imports {path}", from.join("::"));
            match found.iter_mut().find(|found| (found.0.as_str(), found.1.as_str()) == (a, b)) {
                Some(pair) => pair.2.push(shown),
                None => found.push((a.to_owned(), b.to_owned(), vec![shown])),
            }
        }
        found
    }
}
