//! Programs for functions, each loaded once there is a function for it: the verifier takes a tenth of a second for some, and most targets have
//! neither goroutines nor tasks nor a virtual machine.

use super::attach::{ProbeSite, side_by_side};
use super::probe_table::By;
use super::raw_program::{Programs, RawError};
use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Those for mutexes and read-write locks, which every observation has.
const ALWAYS: [By; 2] = [BASIC, By::Return];
/// The one of them that tells how this kernel places programs.
pub(super) const BASIC: By = By::Entry;

/// Programs of one sort, by the functions that they are for. One thread loads them, another one places them.
pub(super) struct OnDemand<P> {
    prepared: Arc<Programs>,
    /// The names of those for a function.
    names: fn(By) -> &'static [&'static str],
    /// Loads one by its name.
    load: fn(&Programs, &'static str) -> Result<P, RawError>,
    loaded: Mutex<HashMap<By, Loaded<P>>>,
}

/// The programs for a function, or why there are none.
type Loaded<P> = Result<Arc<[P]>, String>;

impl<P: Send + Sync> OnDemand<P> {
    /// Loads those for mutexes and read-write locks, and for the functions at `sites`.
    ///
    /// # Errors
    /// When the kernel refuses one of the former: what it says.
    pub(super) fn start(
        prepared: Arc<Programs>,
        names: fn(By) -> &'static [&'static str],
        load: fn(&Programs, &'static str) -> Result<P, RawError>,
        sites: &[ProbeSite],
    ) -> Result<Self, String> {
        let programs = Self { prepared, names, load, loaded: Mutex::default() };
        programs.load(ALWAYS.into_iter().chain(sites.iter().map(|site| site.function.by)));
        ALWAYS.into_iter().try_for_each(|by| programs.of(by).map(drop))?;
        Ok(programs)
    }

    /// Loads those that are missing, side by side. Who places others does not wait for it.
    pub(super) fn load(&self, wanted: impl Iterator<Item = By>) {
        let mut missing: BTreeSet<By> = wanted.collect();
        missing.retain(|by| !self.loaded().contains_key(by));
        let all = missing.iter().flat_map(|&by| (self.names)(by).iter().map(move |&name| (by, name)));
        let Ok(all) = side_by_side(all, |(by, name)| Ok::<_, Infallible>((by, (self.load)(&self.prepared, name))));
        let mut programs: HashMap<By, Result<Vec<P>, RawError>> = HashMap::new();
        for (by, program) in all {
            let of_function = programs.entry(by).or_insert_with(|| Ok(Vec::new()));
            match (of_function.as_mut(), program) {
                (Ok(programs), Ok(program)) => programs.push(program),
                (Ok(_), Err(error)) => *of_function = Err(error),
                (Err(_), _) => {}
            }
        }
        let loaded = |programs: Result<Vec<P>, RawError>| match programs {
            Ok(programs) => Ok(programs.into()),
            Err(error) => {
                log::warn!("{error}");
                Err(error.to_string())
            }
        };
        self.loaded().extend(programs.into_iter().map(|(by, programs)| (by, loaded(programs))));
    }

    /// Those for a function, or why there are none.
    pub(super) fn of(&self, by: By) -> Loaded<P> {
        self.loaded().get(&by).cloned().unwrap_or_else(|| Err("its program is not loaded".to_owned()))
    }

    fn loaded(&self) -> MutexGuard<'_, HashMap<By, Loaded<P>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
