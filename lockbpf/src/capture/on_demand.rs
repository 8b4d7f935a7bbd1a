//! Programs for functions, each loaded once there is a function for it: the verifier takes a tenth of a second for some, and most targets have
//! neither goroutines nor tasks nor a virtual machine.

use super::attach::{ProbeSite, reason, side_by_side};
use super::probe_table::By;
use super::raw_program::{Programs, RawError};
use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

/// What every observation has: it is loaded whatever there is, so that a kernel that refuses it is known from the start.
const ALWAYS: [By; 2] = [By::Entry, By::Return];

/// Programs of one sort, by the functions that they are for.
pub(super) struct OnDemand<P> {
    prepared: Arc<Programs>,
    /// The names of those for a function.
    names: fn(By) -> &'static [&'static str],
    /// Loads one by its name.
    load: fn(&Programs, &'static str) -> Result<P, RawError>,
    loaded: HashMap<By, Result<Vec<P>, RawError>>,
}

impl<P: Send> OnDemand<P> {
    /// Loads those for the functions at `sites`.
    ///
    /// # Errors
    /// When the kernel refuses one.
    pub(super) fn start(
        prepared: Arc<Programs>,
        names: fn(By) -> &'static [&'static str],
        load: fn(&Programs, &'static str) -> Result<P, RawError>,
        sites: &[ProbeSite],
    ) -> Result<Self, RawError> {
        let mut programs = Self { prepared, names, load, loaded: HashMap::new() };
        programs.load(ALWAYS.into_iter().chain(sites.iter().map(|site| site.function.by)));
        match programs.loaded.extract_if(|_, loaded| loaded.is_err()).find_map(|(_, loaded)| loaded.err()) {
            Some(error) => Err(error),
            None => Ok(programs),
        }
    }

    /// Loads those that are missing, side by side.
    pub(super) fn load(&mut self, wanted: impl Iterator<Item = By>) {
        let missing: BTreeSet<By> = wanted.filter(|by| !self.loaded.contains_key(by)).collect();
        let Self { prepared, names, load, loaded } = self;
        let all = missing.into_iter().flat_map(|by| names(by).iter().map(move |&name| (by, name)));
        let Ok(all) = side_by_side(all, |(by, name)| Ok::<_, Infallible>((by, load(prepared, name))));
        for (by, program) in all {
            let programs = loaded.entry(by).or_insert_with(|| Ok(Vec::new()));
            match (programs.as_mut(), program) {
                (Ok(programs), Ok(program)) => programs.push(program),
                (Ok(_), Err(error)) => *programs = Err(error),
                (Err(_), _) => {}
            }
        }
    }

    /// Those for a function, or why there are none.
    pub(super) fn of(&self, by: By) -> Result<&[P], String> {
        match self.loaded.get(&by) {
            Some(Ok(programs)) => Ok(programs),
            Some(Err(error)) => Err(reason(error)),
            None => Err("its program is not loaded".to_owned()),
        }
    }

    /// All that are loaded.
    pub(super) fn all(&self) -> impl Iterator<Item = &P> {
        self.loaded.values().flatten().flatten()
    }
}
