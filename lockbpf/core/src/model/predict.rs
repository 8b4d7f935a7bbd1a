//! From what is asked to what is predicted.

use super::error::{ModelError, checked};
use super::network::{Class, Measures, residual};
use super::qd::{self, Program, Station};
use super::schema::{
    Algorithm, Input, LockInput, LockPoint, Overhead, Point, Prediction, QdPoint, SCHEMA, Sleep, Solver,
};
use super::{assumptions, classes, convolution, cores, mva, play, schweitzer, stationary};

/// Locks at most, splits counted.
const MAX_LOCKS: usize = 4_096;
/// Steps (threads × locks) up to which the exact solution of one class is gone through.
const MAX_STEPS: f64 = 1e9;
/// The same for locks whose overhead depends on their waiters (threads² × locks).
const MAX_PRODUCTS: f64 = 1.5e9;
/// How far waits at QD locks may be below and above the model's: the mean error that its authors report, and what a
/// simulated lock may do.
pub(super) const QD_BELOW: f64 = 0.24;
pub(super) const QD_ABOVE: f64 = 0.29;
/// Rounds of the fixpoint for overheads by waiters with several classes.
const ROUNDS: u32 = 10_000;
const SETTLED: f64 = 1e-9;

/// A model, checked: what all threads of a pattern do.
#[derive(Clone, Debug)]
pub(super) struct Checked<'a> {
    pub(super) input: &'a Input,
    pub(super) patterns: Vec<Pattern>,
    /// All threads as if of one pattern.
    pub(super) whole: Pattern,
    /// The lock of each station; a lock that is split has several.
    stations: Vec<usize>,
}

/// Threads of one pattern.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    share: f64,
    /// By lock.
    pub(super) visits: Vec<f64>,
    think: f64,
    /// By lock, without overhead.
    pub(super) hold: Vec<f64>,
}

/// Predicts what the input asks.
///
/// # Errors
/// When the input means nothing: the error names the field. When no solution is found.
pub fn predict(input: &Input) -> Result<Prediction, ModelError> {
    let points = widened(input)?;
    Ok(Prediction {
        schema: SCHEMA,
        model: common(input),
        with: None,
        check: None,
        assumptions: assumptions::all(input, &points),
        violations: input.violations.clone(),
        points,
    })
}

/// The points of an input, with intervals that contain those of its bounds.
pub(super) fn widened(input: &Input) -> Result<Vec<Point>, ModelError> {
    let mut points = points(input)?;
    for bound in &input.bounds {
        let (threads, solver, cores) = (input.threads.clone(), input.solver, input.cores);
        let bound = Input { threads, solver, cores, slice_ns: input.slice_ns, ..bound.clone() };
        for (point, other) in points.iter_mut().zip(self::points(&bound)?) {
            point.contain(&other);
        }
    }
    Ok(points)
}

/// The points of an input by itself.
pub(super) fn points(input: &Input) -> Result<Vec<Point>, ModelError> {
    let (crowded, others): (Vec<u32>, Vec<u32>) =
        input.threads.iter().partition(|&&threads| play::shared(input, threads).is_some());
    if crowded.is_empty() {
        return uncrowded(input);
    }
    let in_turn = input.locks.iter().any(|lock| lock.spins && lock.in_turn);
    let of_crowded = Input { threads: crowded, ..input.clone() };
    let mut crowded = play::points(&check(&of_crowded)?)?;
    if in_turn {
        // Until one that has its turn loses its CPU for the first time, all goes well: for a while that may be so.
        for (point, mut best) in crowded.iter_mut().zip(uncrowded(&Input { slice_ns: None, ..of_crowded })?) {
            best.throughput_interval_per_ns[0] = best.throughput_per_ns;
            point.contain(&best);
        }
    }
    let mut of_crowded = crowded.into_iter();
    let mut of_others = match others.is_empty() {
        true => Vec::new(),
        false => uncrowded(&Input { threads: others, ..input.clone() })?,
    }
    .into_iter();
    let next = |&threads: &u32| {
        if play::shared(input, threads).is_some() { of_crowded.next() } else { of_others.next() }
    };
    Ok(input.threads.iter().filter_map(next).collect())
}

/// The same for threads that have a CPU each, or share them as if in slices of no length.
fn uncrowded(input: &Input) -> Result<Vec<Point>, ModelError> {
    let checked = check(input)?;
    let simulated = input.solver == Solver::Simulation
        || input
            .locks
            .iter()
            .any(|l| matches!(algorithm(input, l), Algorithm::Rwlock | Algorithm::Qd) || sleeps(input, l));
    let qd = input.locks.iter().any(|l| algorithm(input, l) == Algorithm::QdWait);
    let mut points = if simulated {
        play::points(&checked)?
    } else if qd {
        input.threads.iter().map(|&n| checked.qd_point(n)).collect::<Result<_, _>>()?
    } else {
        checked.mutex_points()?
    };
    points.iter_mut().for_each(|point| cores::share(input, point));
    Ok(points)
}

/// How all locks work, if that is the same; else how those do that do not say.
fn common(input: &Input) -> Algorithm {
    let mut all = input.locks.iter().map(|lock| algorithm(input, lock));
    let first = all.next().unwrap_or(input.model);
    if all.all(|other| other == first) { first } else { input.model }
}

/// Whether it is a lock of which it is known what sleeping for it costs.
pub(super) fn sleeps(input: &Input, lock: &LockInput) -> bool {
    // The exact solutions know of no sleep.
    let played = matches!(input.solver, Solver::Auto | Solver::Simulation);
    played && lock.sleep.is_some() && matches!(algorithm(input, lock), Algorithm::Mutex | Algorithm::Rwlock)
}

/// How a lock works.
pub(super) fn algorithm(input: &Input, lock: &LockInput) -> Algorithm {
    lock.algorithm.unwrap_or(input.model)
}

pub(super) fn check(input: &Input) -> Result<Checked<'_>, ModelError> {
    if input.locks.is_empty() {
        return Err(ModelError::invalid("locks", "there are none"));
    }
    if input.threads.is_empty() {
        return Err(ModelError::invalid("threads", "there is no number of threads to predict for"));
    }
    if input.cores == Some(0) {
        return Err(ModelError::invalid("cores", "there must be at least one CPU"));
    }
    if let Some(slice) = input.slice_ns {
        checked(slice, || "slice_ns".to_owned())?;
    }
    if let Some(i) = input.threads.iter().position(|&n| n == 0) {
        return Err(ModelError::invalid(format!("threads[{i}]"), "there must be at least one thread"));
    }
    let mut hold = Vec::with_capacity(input.locks.len());
    let mut stations = Vec::new();
    for (i, lock) in input.locks.iter().enumerate() {
        hold.push(check_lock(input, lock, &format!("locks[{i}]"))?);
        let shards = lock.shards.unwrap_or(1) as usize;
        if stations.len().saturating_add(shards) > MAX_LOCKS {
            return Err(ModelError::invalid("locks", format!("there are more than {MAX_LOCKS}, with their shards")));
        }
        stations.extend(std::iter::repeat_n(i, shards));
    }
    let whole = pattern(&input.routing, &input.local_ns, hold.clone(), 1.0, "")?;
    let mut patterns = Vec::with_capacity(input.classes.len().max(1));
    for (c, class) in input.classes.iter().enumerate() {
        let prefix = format!("classes[{c}].");
        let share = checked(class.share, || format!("{prefix}share"))?;
        let mut own = hold.clone();
        if !class.hold_ns.is_empty() {
            if class.hold_ns.len() != hold.len() {
                let problem = format!("has {} entries for {} locks", class.hold_ns.len(), hold.len());
                return Err(ModelError::invalid(format!("{prefix}hold_ns"), problem));
            }
            for (i, &ns) in class.hold_ns.iter().enumerate() {
                own[i] = checked(ns, || format!("{prefix}hold_ns[{i}]"))?;
            }
        }
        patterns.push(pattern(&class.routing, &class.local_ns, own, share, &prefix)?);
    }
    if patterns.is_empty() {
        patterns.push(whole.clone());
    }
    if patterns.iter().map(|p| p.share).sum::<f64>() <= 0.0 {
        return Err(ModelError::invalid("classes", "no class has a share of the threads"));
    }
    let is = |wanted| input.locks.iter().any(|lock| algorithm(input, lock) == wanted);
    if is(Algorithm::Qd) {
        let overhead = input.detached_overhead_ns.ok_or_else(|| missing("detached_overhead_ns"))?;
        checked(overhead, || "detached_overhead_ns".to_owned())?;
    }
    if is(Algorithm::Qd) || is(Algorithm::QdWait) {
        let overhead = input.lock_overhead_ns.ok_or_else(|| missing("lock_overhead_ns"))?;
        checked(overhead, || "lock_overhead_ns".to_owned())?;
    }
    if is(Algorithm::QdWait) {
        if input.delegation_overhead_ns.is_empty() {
            return Err(missing("delegation_overhead_ns"));
        }
        for (k, &ns) in input.delegation_overhead_ns.iter().enumerate() {
            checked(ns, || format!("delegation_overhead_ns[{k}]"))?;
        }
    }
    Ok(Checked { input, patterns, whole, stations })
}

fn missing(field: &str) -> ModelError {
    ModelError::invalid(field, "a model of QD locks needs it, and it is missing")
}

/// The hold of a lock that everything else about is right, too.
fn check_lock(input: &Input, lock: &LockInput, field: &str) -> Result<f64, ModelError> {
    for (name, value) in [
        ("hold_ns", lock.hold_ns),
        ("helper_hold_ns", lock.helper_hold_ns),
        ("other_hold_ns", lock.other_hold_ns),
        ("hold_cv", lock.hold_cv),
    ] {
        if let Some(value) = value {
            checked(value, || format!("{field}.{name}"))?;
        }
    }
    match &lock.overhead_ns {
        Overhead::Constant(ns) => _ = checked(*ns, || format!("{field}.overhead_ns"))?,
        Overhead::ByWaiters(table) => {
            if table.is_empty() {
                return Err(ModelError::invalid(format!("{field}.overhead_ns"), "the table is empty"));
            }
            for (k, &ns) in table.iter().enumerate() {
                checked(ns, || format!("{field}.overhead_ns[{k}]"))?;
            }
        }
    }
    if let Some(Sleep { wake_ns, call_ns }) = lock.sleep {
        checked(wake_ns, || format!("{field}.sleep.wake_ns"))?;
        checked(call_ns, || format!("{field}.sleep.call_ns"))?;
    }
    if lock.shards == Some(0) {
        return Err(ModelError::invalid(format!("{field}.shards"), "a lock cannot be split into none"));
    }
    let algorithm = algorithm(input, lock);
    if algorithm == Algorithm::Rwlock {
        let share = lock.read_share.ok_or_else(|| {
            ModelError::invalid(format!("{field}.read_share"), "it is not known which share of the sections only read")
        })?;
        if !(0.0..=1.0).contains(&share) {
            return Err(ModelError::invalid(format!("{field}.read_share"), format!("{share} is not between 0 and 1")));
        }
    }
    let hold = match (algorithm, lock.hold_ns) {
        (_, Some(hold)) => Some(hold),
        (Algorithm::QdWait, None) => lock.helper_hold_ns.and(lock.other_hold_ns),
        (_, None) => None,
    };
    hold.ok_or_else(|| ModelError::invalid(format!("{field}.hold_ns"), "it is missing"))
}

fn pattern(r: &[Vec<f64>], z: &[Vec<f64>], hold: Vec<f64>, share: f64, prefix: &str) -> Result<Pattern, ModelError> {
    for (name, rows) in [("routing", r), ("local_ns", z)] {
        if rows.len() != hold.len() {
            let problem = format!("has {} rows for {} locks", rows.len(), hold.len());
            return Err(ModelError::invalid(format!("{prefix}{name}"), problem));
        }
    }
    let visits = stationary(r, &format!("{prefix}routing"))?;
    let mut think = 0.0;
    for (i, (r, z)) in r.iter().zip(z).enumerate() {
        if z.len() != hold.len() {
            let problem = format!("has {} columns for {} locks", z.len(), hold.len());
            return Err(ModelError::invalid(format!("{prefix}local_ns[{i}]"), problem));
        }
        for (j, (share, &ns)) in r.iter().zip(z).enumerate() {
            think += visits[i] * share * checked(ns, || format!("{prefix}local_ns[{i}][{j}]"))?;
        }
    }
    let held: f64 = visits.iter().zip(&hold).map(|(v, s)| v * s).sum();
    if think + held <= 0.0 {
        return Err(ModelError::invalid(
            format!("{prefix}local_ns"),
            "neither sections nor what lies between them take any time",
        ));
    }
    Ok(Pattern { share, visits, think, hold })
}

impl Checked<'_> {
    /// How many threads of each pattern there are among n.
    pub(super) fn populations(&self, threads: u32) -> Vec<u32> {
        let all: f64 = self.patterns.iter().map(|p| p.share).sum();
        let exact: Vec<f64> = self.patterns.iter().map(|p| p.share / all * f64::from(threads)).collect();
        let mut counts: Vec<u32> = exact.iter().map(|n| n.floor() as u32).collect();
        let mut order: Vec<usize> = (0..exact.len()).collect();
        order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()));
        let mut left = threads.saturating_sub(counts.iter().sum());
        for c in order {
            if left == 0 {
                break;
            }
            (counts[c], left) = (counts[c] + 1, left - 1);
        }
        counts
    }

    fn shards(&self, lock: usize) -> f64 {
        f64::from(self.input.locks[lock].shards.unwrap_or(1))
    }

    fn overhead(&self, lock: usize, waiting: f64) -> f64 {
        match &self.input.locks[lock].overhead_ns {
            Overhead::Constant(ns) => *ns,
            Overhead::ByWaiters(table) => qd::at(table, waiting),
        }
    }

    fn depends_on_waiters(&self) -> bool {
        self.input.locks.iter().any(|lock| matches!(lock.overhead_ns, Overhead::ByWaiters(_)))
    }

    /// A pattern's threads, with the overheads of so many waiting threads at each station.
    fn class(&self, pattern: &Pattern, population: u32, waiting: &[f64]) -> Class {
        let overhead = |(i, &lock): (usize, &usize)| {
            pattern.hold[lock] + self.overhead(lock, waiting.get(i).copied().unwrap_or(0.0))
        };
        Class {
            population,
            think: pattern.think,
            visits: self.stations.iter().map(|&lock| pattern.visits[lock] / self.shards(lock)).collect(),
            service: self.stations.iter().enumerate().map(overhead).collect(),
        }
    }

    /// Residuals for constant (`true`) or exponential sections, unless it is known how they vary.
    fn residuals(&self, constant: bool) -> Vec<f64> {
        let of = |&lock: &usize| match (constant, self.input.locks[lock].hold_cv) {
            (true, Some(cv)) => residual(cv * cv),
            (true, None) => residual(0.0),
            (false, _) => 0.0,
        };
        self.stations.iter().map(of).collect()
    }

    fn mutex_points(&self) -> Result<Vec<Point>, ModelError> {
        let input = self.input;
        if let [pattern] = &self.patterns[..]
            && !self.depends_on_waiters()
            && input.solver != Solver::Schweitzer
        {
            let class = self.class(pattern, 0, &[]);
            let most = input.threads.iter().copied().max().unwrap_or(0);
            if f64::from(most) * self.stations.len() as f64 <= MAX_STEPS {
                let found = mva::solve(&class, &[], &input.threads);
                let other = mva::solve(&class, &self.residuals(true), &input.threads);
                let points = input
                    .threads
                    .iter()
                    .zip(found)
                    .zip(other)
                    .map(|((&threads, found), other)| self.point(threads, Solver::Exact, &[found], &[other]));
                return Ok(points.collect());
            }
            self.refuse_exact()?;
        }
        input.threads.iter().map(|&threads| self.mutex_point(threads)).collect()
    }

    fn refuse_exact(&self) -> Result<(), ModelError> {
        if self.input.solver == Solver::Exact {
            let problem = "so many threads and locks take too long to solve exactly: ask for `schweitzer` or `auto`";
            return Err(ModelError::invalid("solver", problem));
        }
        Ok(())
    }

    /// Several classes, overheads by waiters, or Bard and Schweitzer.
    fn mutex_point(&self, threads: u32) -> Result<Point, ModelError> {
        let populations = self.populations(threads);
        let exactly = self.input.solver != Solver::Schweitzer;
        if let [pattern] = &self.patterns[..]
            && exactly
        {
            let n = f64::from(threads);
            if self.depends_on_waiters() && n * n * self.stations.len() as f64 <= MAX_PRODUCTS {
                let class = self.class(pattern, threads, &[]);
                let service = |i: usize, n: u32| {
                    pattern.hold[self.stations[i]] + self.overhead(self.stations[i], f64::from(n - 1))
                };
                let found = convolution::solve(&class, service);
                // What the mean service makes with other distributions.
                let mean = Class { service: found.service.clone(), ..class };
                let other = mva::solve(&mean, &self.residuals(true), &[threads]);
                return Ok(self.point(threads, Solver::Exact, &[found], &other));
            }
            self.refuse_exact()?;
        }
        let solve = |residual: &[f64]| -> Result<(Vec<Measures>, bool), ModelError> {
            let mut waiting = vec![0.0; self.stations.len()];
            for _ in 0..ROUNDS {
                let network: Vec<Class> =
                    self.patterns.iter().zip(&populations).map(|(p, &n)| self.class(p, n, &waiting)).collect();
                let exact = exactly && network.len() > 1 && classes::feasible(&network);
                if !exact && exactly && network.len() > 1 {
                    self.refuse_exact()?;
                }
                let found =
                    if exact { classes::solve(&network, residual)? } else { schweitzer::solve(&network, residual)? };
                if !self.depends_on_waiters() {
                    return Ok((found, exact));
                }
                let mut change = 0.0_f64;
                for (i, waiting) in waiting.iter_mut().enumerate() {
                    let queued = |(m, c): (&Measures, &Class)| m.queue[i] - m.throughput * c.visits[i] * m.service[i];
                    let new = found.iter().zip(&network).map(queued).sum::<f64>().max(0.0);
                    change = change.max((new - *waiting).abs() / new.max(1e-9));
                    *waiting += (new - *waiting) / 2.0;
                }
                if change < SETTLED {
                    return Ok((found, exact));
                }
            }
            let change = "more than 1e-9".to_owned();
            Err(ModelError::NoConvergence { field: "locks[].overhead_ns".to_owned(), rounds: ROUNDS, change })
        };
        let (found, exact) = solve(&[])?;
        let (other, _) = solve(&self.residuals(true))?;
        let solver = if exact { Solver::Exact } else { Solver::Schweitzer };
        Ok(self.point(threads, solver, &found, &other))
    }

    /// The point of a solution, and of another that bounds it.
    fn point(&self, threads: u32, solver: Solver, found: &[Measures], other: &[Measures]) -> Point {
        let visits: Vec<Vec<f64>> = self.patterns.iter().map(|p| self.station_visits(p)).collect();
        let [now, bound] = [found, other].map(|m| self.totals(threads, m, &visits));
        let slack = if solver == Solver::Schweitzer { schweitzer::error(found.len()) } else { 0.0 };
        let ordered = |a: f64, b: f64| [a.min(b) * (1.0 - slack), a.max(b) * (1.0 + slack)];
        let one = |p: &Pattern| 1.0 / (p.think + p.visits.iter().zip(&p.hold).map(|(v, s)| v * s).sum::<f64>());
        let alone = self.patterns.iter().map(one).fold(f64::INFINITY, f64::min);
        let locks = self.input.locks.iter().enumerate().map(|(i, lock)| LockPoint {
            name: lock.name.clone(),
            wait_ns: now.waits[i],
            wait_interval_ns: ordered(now.waits[i], bound.waits[i]),
            lock_ns: now.times[i],
            queue: now.queues[i],
            utilisation: now.busy[i].min(1.0),
            qd: None,
        });
        Point {
            threads,
            solver,
            throughput_per_ns: now.throughput,
            // However long some sections are, threads do not do less than one of them.
            throughput_interval_per_ns: ordered(now.throughput, bound.throughput.max(alone.min(now.throughput))),
            locks: locks.collect(),
            contention_fraction: Some(now.waiting),
            contention_fraction_interval: Some(ordered(now.waiting, bound.waiting)),
        }
    }

    fn station_visits(&self, pattern: &Pattern) -> Vec<f64> {
        self.stations.iter().map(|&lock| pattern.visits[lock] / self.shards(lock)).collect()
    }

    /// What a solution says of each lock, over all classes.
    fn totals(&self, threads: u32, found: &[Measures], visits: &[Vec<f64>]) -> Totals {
        let n = self.input.locks.len();
        let mut totals = Totals {
            waits: vec![0.0; n],
            times: vec![0.0; n],
            queues: vec![0.0; n],
            busy: vec![0.0; n],
            throughput: 0.0,
            waiting: 0.0,
        };
        let mut rates = vec![0.0; n];
        for (measures, visits) in found.iter().zip(visits) {
            totals.throughput += measures.throughput;
            for (i, &lock) in self.stations.iter().enumerate() {
                let rate = measures.throughput * visits[i];
                rates[lock] += rate;
                totals.waits[lock] += rate * (measures.residence[i] - measures.service[i]).max(0.0);
                totals.times[lock] += rate * measures.residence[i];
                totals.queues[lock] += measures.queue[i];
                totals.busy[lock] += rate * measures.service[i] / self.shards(lock);
            }
        }
        totals.waiting = totals.waits.iter().sum::<f64>() / f64::from(threads);
        for (lock, &rate) in rates.iter().enumerate() {
            if rate > 0.0 {
                totals.waits[lock] /= rate;
                totals.times[lock] /= rate;
            } else {
                totals.times[lock] = self.patterns.first().map_or(0.0, |p| p.hold[lock]) + self.overhead(lock, 0.0);
            }
        }
        totals
    }

    fn qd_point(&self, threads: u32) -> Result<Point, ModelError> {
        let input = self.input;
        let visits = self.station_visits(&self.whole);
        let station = |(i, &lock): (usize, &usize)| {
            let of = &input.locks[lock];
            let hold = self.whole.hold[lock];
            let overhead = (algorithm(input, of) != Algorithm::QdWait).then(|| match &of.overhead_ns {
                Overhead::Constant(ns) => vec![*ns],
                Overhead::ByWaiters(table) => table.clone(),
            });
            let (helper, other) = match overhead {
                None => (of.helper_hold_ns.unwrap_or(hold), of.other_hold_ns.unwrap_or(hold)),
                Some(_) => (hold, hold),
            };
            Station { visits: visits[i], helper, other, overhead }
        };
        let program = Program {
            threads,
            think: self.whole.think,
            stations: self.stations.iter().enumerate().map(station).collect(),
            lock_overhead: input.lock_overhead_ns.unwrap_or(0.0),
            delegation_overhead: input.delegation_overhead_ns.clone(),
        };
        let solved = qd::solve(&program, input.solver == Solver::Schweitzer)?;
        if !solved.exact {
            self.refuse_exact()?;
        }
        let both = [solved.helper.clone(), solved.others.clone()];
        let totals = self.totals(threads, &both, &[visits.clone(), visits]);
        let interval = |value: f64| [value * (1.0 - QD_BELOW), value * (1.0 + QD_ABOVE)];
        let mut locks: Vec<LockPoint> = input
            .locks
            .iter()
            .enumerate()
            .map(|(i, lock)| LockPoint {
                name: lock.name.clone(),
                wait_ns: totals.waits[i],
                wait_interval_ns: interval(totals.waits[i]),
                lock_ns: totals.times[i],
                queue: totals.queues[i],
                // Services that differ by class are taken into account approximately, which may make it a bit more than all.
                utilisation: totals.busy[i].min(1.0),
                qd: None,
            })
            .collect();
        for (i, &lock) in self.stations.iter().enumerate() {
            let station = &program.stations[i];
            if station.overhead.is_some() {
                continue;
            }
            let (helper, others, k) = (&solved.helper, &solved.others, solved.contending[i]);
            let helping = helper.residence[i] + k * station.other;
            let delegated = if threads > 1 { others.residence[i] } else { 0.0 };
            let all = helper.throughput + others.throughput;
            // Shards are alike: the last one tells of all.
            let before = locks[lock].qd.map_or(0.0, |qd| qd.contending);
            locks[lock].qd = Some(QdPoint {
                wait_helper_ns: (helper.residence[i] - helper.service[i]).max(0.0),
                wait_other_ns: (delegated - others.service[i]).max(0.0),
                delegation_helper_ns: helping,
                delegation_other_ns: delegated,
                delegation_ns: if all > 0.0 {
                    (helper.throughput * helping + others.throughput * delegated) / all
                } else {
                    0.0
                },
                contending: before + k,
            });
        }
        // A cycle is longer or shorter by what waits are.
        let cycle = f64::from(threads) / totals.throughput;
        let waiting = cycle * totals.waiting;
        let rate = |by: f64| f64::from(threads) / (cycle + waiting * by);
        Ok(Point {
            threads,
            solver: if solved.exact { Solver::Exact } else { Solver::Schweitzer },
            throughput_per_ns: totals.throughput,
            throughput_interval_per_ns: [rate(QD_ABOVE), rate(-QD_BELOW)],
            locks,
            contention_fraction: None,
            contention_fraction_interval: None,
        })
    }
}

/// A solution, lock by lock.
struct Totals {
    throughput: f64,
    /// The share of threads' time that they wait.
    waiting: f64,
    waits: Vec<f64>,
    times: Vec<f64>,
    queues: Vec<f64>,
    busy: Vec<f64>,
}
