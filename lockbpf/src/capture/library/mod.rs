//! Calls of the C library by category (`--functions`): where their beginnings and ends are probed.
//!
//! A function that cannot be left but by returning is watched by a return probe. One that a cancelled thread, or an exception, may be
//! unwound through must keep its return address: its ends are probed at its own instructions, and at those of the functions that it
//! jumps to. So must those of pthread, whose probes for locks read it, as do stacks of waits in them. Where the ends are not understood,
//! calls are only counted.

mod chosen;
mod extents;
pub(super) mod find;

use super::attach::ProbeSite;
use super::elf::Libc;
use super::probe_table::{By, Runtime};
use super::reader::{self, AskedCalls, At, Calls};
use super::target::Library;
use super::unusable::Unusable;
use crate::measures::library::{Category, FUNCTIONS};
use std::fs::File;

/// The probes on one file's functions, and what is not probed.
#[derive(Clone, Debug, Default)]
pub struct LibraryProbes {
    /// Where they go.
    pub sites: Vec<ProbeSite>,
    /// Functions whose calls are seen.
    pub functions: usize,
    /// Functions among these of which calls are only counted.
    pub endless: Vec<&'static str>,
    /// Functions among these with a probe that must be single-stepped.
    pub dear: Vec<&'static str>,
    /// Functions left out, each with the reason.
    pub left_out: Vec<(&'static str, &'static str)>,
    /// Names of functions that go by another name as well, by which they are known, in that order.
    pub shared: Vec<(&'static str, &'static str)>,
}

/// Finds the functions of these categories in a file that has a C library; nothing in one that has none, or cannot be read.
#[must_use]
pub fn place(library: &Library, categories: &[Category]) -> LibraryProbes {
    let (Some(runtime), Some(open)) = (runtime(library), &library.open) else { return LibraryProbes::default() };
    let Calls { sites, functions, endless, dear, left_out, shared } = find(library, open, categories, runtime)
        .inspect_err(|why| {
            log::warn!("failed to look for functions in {}, whose calls are not seen: {why}", library.display)
        })
        .unwrap_or_default();
    let sites = sites.iter().filter_map(|site| library.probe_site(site, false)).collect();
    let left_out = left_out.into_iter().map(|(name, why)| (name, why.as_str())).collect();
    LibraryProbes { sites, functions, endless, dear, left_out, shared }
}

fn find(library: &Library, open: &File, categories: &[Category], runtime: Runtime) -> Result<Calls, Unusable> {
    let wanted = FUNCTIONS.iter().enumerate().filter(|(_, row)| categories.contains(&row.category));
    let functions: Vec<u16> = wanted.map(|(number, _)| number as u16).collect();
    let (resolvers, base) = reader::resolvers(open, &functions)?;
    let moved = base.map_or_else(Vec::new, |base| chosen::moved(library, base));
    let chosen = resolvers.iter().filter_map(|resolver| {
        let name = FUNCTIONS.get(usize::from(resolver.function))?.symbol;
        Some((resolver.function, chosen::candidates(&moved, name, resolver.word)))
    });
    let returns = library.sites.iter().filter(|site| site.function.by == By::Return);
    let watched = returns.filter_map(At::of).collect();
    reader::calls(open, &AskedCalls { chosen: chosen.collect(), functions, watched }, runtime)
}

fn runtime(library: &Library) -> Option<Runtime> {
    if library.unusable.is_some() {
        return None;
    }
    match library.libc? {
        Libc::Musl => Some(Runtime::Musl),
        Libc::Glibc(_) => Some(Runtime::Glibc),
        Libc::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::target;
    use lockbpf_common::library::END;

    fn own(categories: &[Category]) -> LibraryProbes {
        let targets = target::of_pids(&[std::process::id()]).unwrap();
        let with_libc = targets.libraries.iter().find(|library| library.libc.is_some());
        place(with_libc.expect("the tests run on a C library"), categories)
    }

    fn entries(probes: &LibraryProbes) -> Vec<&'static str> {
        probes.sites.iter().filter(|s| s.function.code != END).map(|s| s.function.symbol).collect()
    }

    #[test]
    fn the_running_c_library_has_what_the_categories_are_named_for() {
        let probes = own(&Category::ALL);
        let entries = entries(&probes);
        assert_eq!(entries.len(), probes.functions);
        for symbol in ["read", "write", "pwrite", "printf", "fwrite", "malloc", "free", "pthread_mutex_lock"] {
            assert!(entries.contains(&symbol), "{symbol}: {probes:?}");
        }
        // Points of cancellation keep their return addresses, and what locks is left as it is.
        let keeps = ["pthread_mutex_lock", "pthread_mutex_unlock", "pthread_cond_signal", "pthread_create"];
        assert!(probes.sites.iter().all(|s| s.function.by == By::Library || !keeps.contains(&s.function.symbol)));
        for site in &probes.sites {
            let row = FUNCTIONS.iter().find(|row| row.symbol == site.function.symbol).unwrap();
            assert!(!row.unwound || site.function.by == By::Library, "{site:?}");
        }
        for symbol in ["read", "write", "fwrite", "printf", "pthread_mutex_lock", "pthread_mutex_unlock"] {
            assert!(!probes.endless.contains(&symbol), "{symbol}: {probes:?}");
        }
    }

    #[test]
    fn implementations_chosen_at_run_time_are_found() {
        let probes = own(&[Category::Memory]);
        let entries = entries(&probes);
        let name = |symbol| probes.shared.iter().find(|s| s.0 == symbol).map_or(symbol, |s| s.1);
        for symbol in ["memcpy", "memmove", "memset"] {
            assert!(entries.contains(&name(symbol)), "{symbol}: {probes:?}");
        }
    }

    #[test]
    fn only_what_was_asked_for() {
        let of = |category| entries(&own(&[category]));
        assert!(!of(Category::Io).contains(&"malloc") && !of(Category::Memory).contains(&"read"));
    }
}
