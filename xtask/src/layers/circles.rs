//! Files of one folder that import one another in a circle. The folder's own file (`mod.rs`) is the face of them all: it and its members
//! may use one another.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::Imports;

/// What stands for a folder's own file (`mod.rs`) among its members.
const OWN_FILE: &str = "mod";

/// The member of the folder `of` that the module belongs to; `None` if it is outside.
pub(super) fn member<'a>(of: &str, module: &'a [String]) -> Option<&'a str> {
    let folder = of.split("::").filter(|part| !part.is_empty());
    let depth = folder.clone().count();
    if !folder.eq(module.iter().take(depth).map(String::as_str)) {
        return None;
    }
    match module.get(depth) {
        Some(member) => Some(member),
        // The crate's root declares and re-exports; what it defines is for no module of it.
        None if depth == 0 => None,
        None => Some(OWN_FILE),
    }
}

/// The circles among the members of the folder `of`, each as its sorted members.
pub(super) fn circles(of: &str, imports: &Imports) -> BTreeSet<BTreeSet<String>> {
    let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in imports.keys() {
        if let (Some(from), Some(to)) = (member(of, from), member(of, to))
            && from != to
            && ![from, to].contains(&OWN_FILE)
        {
            arrows.entry(from).or_default().insert(to);
        }
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = arrows.keys().map(|&from| (from, reach(from, &arrows))).collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|reached| reached.contains(to));
    let circle = |member: &str| -> BTreeSet<String> {
        let around = reached.keys().filter(|&&other| reaches(member, other) && reaches(other, member));
        around.map(|&other| other.to_owned()).collect()
    };
    reached.keys().map(|member| circle(member)).filter(|circle| !circle.is_empty()).collect()
}

/// Whom `from` imports, and whom those import, and so on.
fn reach<'a>(from: &'a str, arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(from) = next.pop() {
        for &to in arrows.get(from).into_iter().flatten() {
            if reached.insert(to) {
                next.push(to);
            }
        }
    }
    reached
}
