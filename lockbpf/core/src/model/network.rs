//! Closed networks as the solvers take them, and what they find.

/// The threads of one pattern: how often they come to which lock, for how long, and how long they are elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// How many threads.
    pub population: u32,
    /// Time outside of locks per cycle, ns. A cycle is one lock operation where the visits add up to 1.
    pub think: f64,
    /// Visits to each station per cycle.
    pub visits: Vec<f64>,
    /// Mean service of a visit at each station, ns.
    pub service: Vec<f64>,
}

impl Class {
    /// Visits × service of each station.
    pub fn demands(&self) -> impl Iterator<Item = f64> {
        self.visits.iter().zip(&self.service).map(|(v, s)| v * s)
    }
}

/// What a solver finds for one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures {
    /// Cycles per ns, of all the class's threads together.
    pub throughput: f64,
    /// Time per visit at each station, ns: waiting and service.
    pub residence: Vec<f64>,
    /// Mean number of the class's threads at each station, the one in service included.
    pub queue: Vec<f64>,
    /// Mean service per visit at each station, ns: differs from the class's where that depends on the waiters.
    pub service: Vec<f64>,
}

impl Measures {
    /// Of no threads.
    #[must_use]
    pub fn none(class: &Class) -> Self {
        let stations = class.visits.len();
        Self {
            throughput: 0.0,
            residence: vec![0.0; stations],
            queue: vec![0.0; stations],
            service: class.service.clone(),
        }
    }
}

/// What of a waiting thread's share of the service in progress is to be left off, for a coefficient of variation whose
/// square is this: nothing for an exponential service (1), half for a constant one (0).
#[must_use]
pub fn residual(cv2: f64) -> f64 {
    (1.0 - cv2) / 2.0
}
