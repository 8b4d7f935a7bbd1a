//! Function templates that run a caller's function under a lock: `with<F>(F f) { lock(); f(); unlock(); }`. Each caller makes an
//! instantiation of its own, but all of them lock in one place, which says nothing of what is done under the lock. So a reader
//! knows such a section by the caller.

use super::divide::top_stack;
use super::gather::Gathered;
use super::place::{Places, Told};
use crate::id::{Lock, Site, StackId};
use crate::names::Frame;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// What compilers and demanglers call functions without a name, and types of functions.
const FUNCTIONS: &[&str] = &["lambda", "{closure", "$_", "(*)", "std::function<"];

/// A template: its name, and the source file.
type Template = (String, String);

/// Finds the templates among the functions in which locks are requested or given back, and the places that are told instead.
pub(super) fn find(all: &BTreeMap<Lock, Gathered<'_>>, places: &mut Places<'_>) -> HashMap<Site, Told> {
    let known: BTreeSet<(Site, Option<StackId>)> = all.values().flat_map(sites).collect();
    let outside: Vec<_> = known.iter().map(|&(site, stack)| (places.outside(site, stack), stack)).collect();
    let addresses: BTreeSet<(Site, Option<StackId>)> = known.into_iter().chain(outside).collect();
    let mut instances: HashMap<(Template, u32), HashSet<String>> = HashMap::new();
    for &(site, _) in &addresses {
        for frame in places.frames_at(site).iter() {
            if let (Some(template), Some(function), Some((_, line))) =
                (template(frame), &frame.function, &frame.location)
            {
                instances.entry((template, *line)).or_default().insert(function.clone());
            }
        }
    }
    let several = instances.into_iter().filter(|(_, instances)| instances.len() > 1);
    let templates: HashSet<Template> = several.map(|((template, _), _)| template).collect();
    let is_one = |frame: &Frame| template(frame).is_some_and(|template| templates.contains(&template));
    let mut told: HashMap<Site, Option<Told>> = HashMap::new();
    for (site, stack) in addresses {
        let frames = places.frames_at(site);
        let Some(from) = behind(&frames, is_one) else { continue };
        let place = if from < frames.len() {
            Some(Told { addr: site.addr, from })
        } else {
            places.callers(site, stack).into_iter().find_map(|addr| {
                let frames = places.frames_at(Site { addr, ..site });
                let from = behind(&frames, is_one).unwrap_or(0);
                (from < frames.len()).then_some(Told { addr, from })
            })
        };
        let Some(place) = place else { continue };
        let known = *told.entry(site).or_insert(Some(place));
        let mut symbol = |told: Told| places.symbol(Site { addr: told.addr, ..site }, told.from);
        // An instantiation with several callers is not known by one of them.
        if known.is_some_and(|known| known != place && symbol(known) != symbol(place)) {
            told.insert(site, None);
        }
    }
    told.into_iter().filter_map(|(site, told)| Some((site, told?))).collect()
}

/// How many of the functions at an address are templates, and what they have inlined; `None` if it is no template's own code.
fn behind(frames: &[Frame], is_one: impl Fn(&Frame) -> bool) -> Option<usize> {
    let own = frames.iter().position(|frame| !frame.is_wrapper()).or(frames.len().checked_sub(1))?;
    is_one(frames.get(own)?)
        .then(|| own + frames.iter().skip(own).take_while(|frame| is_one(frame) || frame.is_wrapper()).count())
}

/// Where a lock was requested or given back, and with which stack.
fn sites(gathered: &Gathered<'_>) -> Vec<(Site, Option<StackId>)> {
    let summed = gathered.mutex.iter().filter(|s| s.site.addr != 0).map(|s| (s.site, s.stack));
    let shares = gathered.blame();
    let waiters = shares.iter().flat_map(|s| &s.waiters).filter_map(|w| Some((w.site?, top_stack(&w.stacks))));
    let holders = shares.iter().flat_map(|s| &s.holders).filter_map(|h| Some((h.who.site()?, top_stack(&h.stacks))));
    waiters.chain(holders).chain(summed).collect()
}

/// The template that a function is an instantiation of, if it is one for a function.
fn template(frame: &Frame) -> Option<Template> {
    let (name, arguments) = split(frame.function.as_deref()?)?;
    let (file, _) = frame.location.as_ref()?;
    FUNCTIONS.iter().any(|function| arguments.contains(function)).then(|| (name.to_owned(), file.clone()))
}

/// A function's name without and with the arguments that follow it: `with<f()::<lambda(int)> >`.
fn split(function: &str) -> Option<(&str, &str)> {
    let inner = function.strip_suffix('>')?;
    let mut depth = 1_u32;
    for (at, byte) in inner.bytes().enumerate().rev() {
        let before = at.checked_sub(1).and_then(|at| inner.as_bytes().get(at));
        match byte {
            // The arrow before the type that a lambda returns.
            b'>' if before == Some(&b'-') => {}
            b'>' => depth += 1,
            b'<' if depth == 1 => {
                let name = function.get(..at)?.trim_end_matches("::");
                let is_name = name.ends_with(|c: char| c.is_alphanumeric() || c == '_') && !name.ends_with("operator");
                return is_name.then_some((name, inner.get(at + 1..)?));
            }
            b'<' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(function: &str) -> Option<String> {
        let location = Some(("a.h".to_owned(), 11));
        template(&Frame { function: Some(function.to_owned()), location, ..Frame::default() }).map(|(name, _)| name)
    }

    #[test]
    fn templates_of_functions_are_known_by_their_arguments() {
        for function in [
            "with<reindex()::<lambda(Catalog&)> >",
            "with<f(int)::<lambda(int)->std::vector<int>> >",
            "with<(lambda at a.cc:37:18)>",
            "with<u32, prog::f::{closure_env#0}, ()>",
            "with::<prog::f::{closure#0}>",
            "with<void (*)(int)>",
        ] {
            assert_eq!(of(function).as_deref(), Some("with"), "{function}");
        }
        let member = "Synchronized<Catalog>::with<reindex()::{lambda(Catalog&)#1}>";
        assert_eq!(of(member).as_deref(), Some("Synchronized<Catalog>::with"));
    }

    #[test]
    fn others_are_none() {
        for function in [
            "find",
            "Registry<int>::find",
            "insert<int>",
            "std::vector<int>::push_back<int const&>",
            "reindex()::<lambda(Catalog&)>",
            "<lambda(Catalog&)>",
            "operator()",
            "operator<",
            "operator>",
            ">",
            "",
        ] {
            assert_eq!(of(function), None, "{function}");
        }
    }
}
