//! Who imports whom: the paths that modules mention, followed through `use`, globs and re-exports to the file that defines the name.

use std::collections::BTreeMap;

use super::source::{Crate, Id};

/// How many re-exports one name may go through.
const MAX_STEPS: usize = 16;

/// Imports from one module's file to another's, each with one path in the code that shows it.
pub(super) type Imports = BTreeMap<(Vec<String>, Vec<String>), String>;

/// What a path names.
#[derive(Clone, Copy)]
enum Named {
    Module(Id),
    /// An item that this module defines.
    ItemOf(Id),
}

/// All imports between files of the crate.
pub(super) fn imports(crate_: &Crate) -> Imports {
    let mut imports = Imports::new();
    for (id, module) in crate_.modules.iter().enumerate() {
        let uses = module.uses.iter().map(|import| &import.path);
        for path in uses.chain(&module.paths) {
            let Some(Named::Module(target) | Named::ItemOf(target)) = resolve(crate_, id, path, MAX_STEPS) else {
                continue;
            };
            let (from, to) = (module.file, crate_.modules[target].file);
            if from != to {
                let key = (crate_.modules[from].path.clone(), crate_.modules[to].path.clone());
                imports.entry(key).or_insert_with(|| path.join("::"));
            }
        }
    }
    imports
}

/// What `path`, written in the module `from`, names; none if that is another crate's.
fn resolve(crate_: &Crate, from: Id, path: &[String], steps: usize) -> Option<Named> {
    let (first, rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => Named::Module(0),
        "self" => Named::Module(from),
        "super" => Named::Module(crate_.modules[from].parent?),
        name => lookup(crate_, from, name, steps)?,
    };
    for part in rest {
        // What follows an item is of its own: a variant, a method.
        let Named::Module(module) = at else { break };
        at = match part.as_str() {
            "super" => Named::Module(crate_.modules[module].parent?),
            name => lookup(crate_, module, name, steps)?,
        };
    }
    Some(at)
}

/// What `name` means within the module `at`: its own, imported, or brought by a glob.
fn lookup(crate_: &Crate, at: Id, name: &str, steps: usize) -> Option<Named> {
    let module = &crate_.modules[at];
    if let Some(&child) = module.children.get(name) {
        return Some(Named::Module(child));
    }
    if module.items.contains(name) {
        return Some(Named::ItemOf(at));
    }
    let steps = steps.checked_sub(1)?;
    if let Some(import) = module.uses.iter().find(|import| import.name.as_deref() == Some(name)) {
        // `use log::{self, …}` names a crate by its own name: following it would lead here again.
        let itself = import.path.first().is_some_and(|first| first == name);
        return if itself { None } else { resolve(crate_, at, &import.path, steps) };
    }
    let globs = module.uses.iter().filter(|import| import.name.is_none());
    globs.filter_map(|glob| resolve(crate_, at, &glob.path, steps)).find_map(|target| match target {
        Named::Module(target) if target != at => lookup(crate_, target, name, steps),
        // The variants of an enumeration, or the module itself.
        Named::Module(_) | Named::ItemOf(_) => None,
    })
}
