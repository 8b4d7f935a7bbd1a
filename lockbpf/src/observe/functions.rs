//! Which functions of the C library are seen, and what that will cost.

use super::placement;
use super::request::Request;
use crate::capture::attach::ProbeSite;
use crate::capture::library::{self, LibraryProbes};
use crate::capture::target::{FileKey, Library};
use crate::costs::Costs;
use crate::measures::library::LibraryCalls;
use crate::perturbation::STEPPING_NS;
use crate::report::text::{listed, percent};
use std::collections::HashSet;

/// Functions named in a sentence.
const NAMED: usize = 8;
/// Calls a second, of which the cost is told.
const CALLS: f64 = 100_000.0;

/// The probe sites of libraries: for locks, and for calls of the C library if these are asked for.
pub(crate) struct Placing<'a> {
    request: &'a Request,
    /// Files looked at for calls, and what was found in them.
    known: HashSet<FileKey>,
    /// Where these are probed is with the attached probes.
    found: LibraryProbes,
    /// At how many places.
    places: usize,
}

impl<'a> Placing<'a> {
    /// Nothing found yet.
    pub(crate) fn new(request: &'a Request) -> Self {
        Self { request, known: HashSet::new(), found: LibraryProbes::default(), places: 0 }
    }

    /// Where to probe these.
    pub(crate) fn sites(&mut self, libraries: &[Library]) -> Vec<ProbeSite> {
        if self.request.futex_only {
            return Vec::new();
        }
        let mut sites = placement::sites(libraries, self.request.place);
        let Some(categories) = &self.request.functions else { return sites };
        for library in libraries {
            if self.known.insert((library.dev, library.ino)) {
                let mut found = library::place(library, categories);
                self.places += found.sites.len();
                sites.append(&mut found.sites);
                self.add(found);
            }
        }
        sites
    }

    fn add(&mut self, found: LibraryProbes) {
        let LibraryProbes { sites: _, functions, endless, dear, left_out, shared } = found;
        self.found.functions += functions;
        extend(&mut self.found.endless, endless);
        extend(&mut self.found.dear, dear);
        extend(&mut self.found.left_out, left_out);
        extend(&mut self.found.shared, shared);
    }

    /// What seeing calls of the C library will cost by these prices, measured with the events counted; `None` if none are to be seen.
    pub(crate) fn cost(&self, costs: &Costs) -> Option<String> {
        let categories = self.request.functions.as_ref()?;
        let names = categories.iter().map(|category| category.name()).collect::<Vec<_>>().join(",");
        let LibraryProbes { functions, endless, dear, .. } = &self.found;
        if *functions == 0 {
            return Some(format!("--functions {names}: no C library has been found yet"));
        }
        let call = 2.0 * costs.hit_ns;
        let mut text = format!(
            "--functions {names}: {functions} functions probed at {} places. A call will take about {} more, one inside of another {}: \
             {CALLS} calls a second take {} of a CPU",
            self.places,
            microseconds(call),
            microseconds(costs.hit_ns),
            percent(CALLS * call / 1e9),
        );
        if !dear.is_empty() {
            let more = microseconds(STEPPING_NS);
            text += &format!(". Single-stepped, up to {more} more each: {}", listed(dear, NAMED));
        }
        if !endless.is_empty() {
            text += &format!(". Only counted, since their ends cannot be seen: {}", listed(endless, NAMED));
        }
        Some(text)
    }

    /// Completes what the kernel side has counted.
    pub(crate) fn complete(self, calls: &mut LibraryCalls) {
        let Some(categories) = &self.request.functions else { return };
        calls.categories.clone_from(categories);
        calls.endless = self.found.endless;
        calls.left_out = self.found.left_out.into_iter().map(|(name, why)| (name.to_owned(), why)).collect();
        calls.shared = self.found.shared;
    }
}

/// Adds what is not there.
fn extend<T: PartialEq>(to: &mut Vec<T>, more: Vec<T>) {
    for one in more {
        if !to.contains(&one) {
            to.push(one);
        }
    }
}

fn microseconds(ns: f64) -> String {
    format!("{:.1} µs", ns / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::library::Category;

    #[test]
    fn the_cost_is_told_before() {
        let mut request = Request { functions: Some(vec![Category::Io]), ..Request::of_pid(1) };
        let costs = Costs { hit_ns: 900.0, ..Costs::default() };
        let mut placing = Placing::new(&request);
        assert_eq!(placing.cost(&costs).unwrap(), "--functions io: no C library has been found yet");
        placing.add(LibraryProbes {
            functions: 9,
            endless: vec!["select"],
            dear: vec!["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"],
            ..LibraryProbes::default()
        });
        placing.add(LibraryProbes { functions: 1, endless: vec!["select"], ..LibraryProbes::default() });
        assert_eq!(
            placing.cost(&costs).unwrap(),
            "--functions io: 10 functions probed at 0 places. A call will take about 1.8 µs more, one inside of another 0.9 µs: \
             100000 calls a second take 18 % of a CPU. Single-stepped, up to 9.5 µs more each: a, b, c, d, e, f, g, h and 2 more. \
             Only counted, since their ends cannot be seen: select"
        );
        request.functions = None;
        assert_eq!(Placing::new(&request).cost(&costs), None);
    }
}
