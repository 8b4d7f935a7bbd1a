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
        let of_function = |by| {
            let programs = (self.names)(by).iter().map(|name| (self.load)(&self.prepared, name));
            let programs = programs.collect::<Result<Arc<[P]>, _>>().map_err(|error| error.to_string());
            Ok::<_, Infallible>((by, programs.inspect_err(|error| log::warn!("{error}"))))
        };
        let Ok(loaded) = side_by_side(missing.into_iter(), of_function);
        self.loaded().extend(loaded);
    }

    /// Those for a function, or why there are none.
    pub(super) fn of(&self, by: By) -> Loaded<P> {
        self.loaded().get(&by).cloned().unwrap_or_else(|| Err("its program is not loaded".to_owned()))
    }

    fn loaded(&self) -> MutexGuard<'_, HashMap<By, Loaded<P>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
