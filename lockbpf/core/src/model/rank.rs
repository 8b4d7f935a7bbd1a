//! Which of several locks would be fastest: each compared with today's by drawing all that is not known, the same for both where it is the
//! same.

use super::error::ModelError;
use super::predict::points;
use super::schema::{Check, Input, Point};
use super::{assumptions, cores};
use serde::Serialize;

/// Name and number of what [`Ranking`] is.
pub const SCHEMA: &str = "lockbpf.ranking/1";
/// Draws.
const DRAWS: usize = 2_000;
/// Where the random numbers begin.
const SEED: u64 = 1;
/// Normal quantile of a two-sided 95 %: bounds of models are those of that.
const Z: f64 = 1.96;
/// A lock is faster, or slower, if it is so in this share of the draws.
pub const SURE: f64 = 0.95;

/// Locks in the place of today's, ranked.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ranking {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The recording predicted from itself; `None` of a model that is of no recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// What has to hold for the predictions to hold.
    pub assumptions: Vec<String>,
    /// What of that is known not to.
    pub violations: Vec<String>,
    /// One for each number of threads.
    pub points: Vec<RankingPoint>,
}

/// Locks ranked for a number of threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RankingPoint {
    /// How many.
    pub threads: u32,
    /// Lock operations per ns with today's locks.
    pub today_per_ns: f64,
    /// Where that is expected.
    pub today_interval_per_ns: [f64; 2],
    /// Others, the one with the greatest gain first.
    pub alternatives: Vec<Alternative>,
}

/// A lock in the place of today's.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Alternative {
    /// As `--with` calls it.
    pub lock: String,
    /// Lock operations per ns.
    pub throughput_per_ns: f64,
    /// By which share more than today.
    pub gain: f64,
    /// Where that is expected.
    pub gain_interval: [f64; 2],
    /// The share of the draws in which it is faster than today's locks.
    pub faster: f64,
    /// Whether the model may miss that it all but stops: more threads spin than there are CPUs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_collapse: bool,
}

/// A solution, and those of the bounds, for a number of threads.
struct Solved {
    likely: Point,
    bounds: Option<[f64; 2]>,
}

impl Solved {
    fn all(input: &Input) -> Result<Vec<Self>, ModelError> {
        let bound = |bound: &Input| {
            let (threads, solver, cores) = (input.threads.clone(), input.solver, input.cores);
            points(&Input { threads, solver, cores, slice_ns: input.slice_ns, ..bound.clone() })
        };
        let bounds: Vec<Vec<Point>> = input.bounds.iter().map(bound).collect::<Result<_, _>>()?;
        let of = |(i, likely): (usize, Point)| {
            let at = |bound: usize| Some(bounds.get(bound)?.get(i)?.throughput_per_ns);
            Self { likely, bounds: at(0).zip(at(1)).map(|(a, b)| [a, b]) }
        };
        Ok(points(input)?.into_iter().enumerate().map(of).collect())
    }

    /// Where its throughput is expected.
    fn interval(&self) -> [f64; 2] {
        let [low, high] = self.likely.throughput_interval_per_ns;
        let ends = self.bounds.unwrap_or([low, high]);
        [ends[0].min(ends[1]).min(low), ends[0].max(ends[1]).max(high)]
    }

    /// Throughput where what both have in common is so far off, and what this one has for itself is drawn.
    fn draw(&self, common: f64, random: &mut fastrand::Rng) -> f64 {
        let likely = self.likely.throughput_per_ns;
        let toward = |bound: f64| likely.max(f64::MIN_POSITIVE) * (bound / likely).powf(common.abs() / Z);
        let common = match self.bounds {
            Some([slow, _]) if common < 0.0 => toward(slow),
            Some([_, fast]) => toward(fast),
            None => likely,
        };
        let [low, high] = self.likely.throughput_interval_per_ns.map(|end| end / likely);
        common * triangular(low.min(1.0), high.max(1.0), random.f64())
    }
}

/// Quantile of a triangular distribution with its peak at 1.
fn triangular(low: f64, high: f64, at: f64) -> f64 {
    let all = high - low;
    let below = if all > 0.0 { (1.0 - low) / all } else { return 1.0 };
    if at < below { low + (at * all * (1.0 - low)).sqrt() } else { high - ((1.0 - at) * all * (high - 1.0)).sqrt() }
}

/// Ranks models that differ in their locks only, each with its name, against today's.
///
/// # Errors
/// When one means nothing or has no solution.
pub fn rank(today: &Input, others: &[(String, Input)]) -> Result<Ranking, ModelError> {
    let solved = others.iter().map(|(_, input)| Solved::all(input)).collect::<Result<Vec<_>, _>>()?;
    let mut ranked = Vec::new();
    for (i, now) in Solved::all(today)?.iter().enumerate() {
        let mut alternatives: Vec<Alternative> = others
            .iter()
            .zip(&solved)
            .filter_map(|((name, input), solved)| Some(compare(now, solved.get(i)?, name, input)))
            .collect();
        alternatives.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        ranked.push(RankingPoint {
            threads: now.likely.threads,
            today_per_ns: now.likely.throughput_per_ns,
            today_interval_per_ns: now.interval(),
            alternatives,
        });
    }
    let mut all = Vec::new();
    for input in std::iter::once(today).chain(others.iter().map(|(_, input)| input)) {
        for assumption in assumptions::all(input, &points(input)?) {
            if !all.contains(&assumption) {
                all.push(assumption);
            }
        }
    }
    let violations = today.violations.clone();
    Ok(Ranking { schema: SCHEMA, check: None, assumptions: all, violations, points: ranked })
}

fn compare(today: &Solved, other: &Solved, name: &str, input: &Input) -> Alternative {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut gains: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let common = normal(&mut random);
            other.draw(common, &mut random) / today.draw(common, &mut random).max(f64::MIN_POSITIVE) - 1.0
        })
        .collect();
    gains.sort_by(f64::total_cmp);
    let at = |share: f64| gains.get(((DRAWS - 1) as f64 * share) as usize).copied().unwrap_or_default();
    let gain = other.likely.throughput_per_ns / today.likely.throughput_per_ns.max(f64::MIN_POSITIVE) - 1.0;
    Alternative {
        lock: name.to_owned(),
        throughput_per_ns: other.likely.throughput_per_ns,
        gain,
        // What is likeliest need not be in the midst of what is drawn.
        gain_interval: [at(0.025).min(gain), at(0.975).max(gain)],
        faster: gains.iter().filter(|&&gain| gain > 0.0).count() as f64 / DRAWS as f64,
        may_collapse: cores::may_collapse(input, today.likely.threads),
    }
}

/// A standard normal number, by Box and Muller.
fn normal(random: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}
