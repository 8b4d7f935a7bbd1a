//! What observing really cost a process, by samples of the CPU's clock.
//!
//! The cost is calibrated on an empty loop, and in a program whose caches the probes disturb it is another. Where a window is hardly more than cost, what
//! is left of it as the program's own work is anybody's guess. But probes take their time in the kernel, and the program's own code takes
//! as long as before, nearly: the part of the samples that finds it there, against the same part between windows, tells how much work was done.

use super::Costs;
use super::interval::wilson;
use super::stretch::{Cluster, multiples};
use crate::governor::Sampled;

/// The part of a hit that passes as the program's own code, as a multiple of the calibrated one: at least and at most. Calibration sees a few dozen samples of it.
const HIT_RANGE: (f64, f64) = (0.6, 1.4);
/// By how much probes lengthen the program's own code at most, as a part of it: caches are cold after each. In windows a loop of 0.5 µs that goes at random over
/// 4 MiB took twice as long as before, and one of 3 µs half as long again.
const DISTURBED: f64 = 1.0;
/// A hit leaves cold caches behind. The program's own code takes longer until they are filled again: at most so many times the part of a hit that
/// passes as own code.
const REFILL: f64 = 6.0;
/// The part of this that is likely.
const LIKELY_COLD: f64 = 0.5;
/// Fewer samples of one window tell nothing of it.
const LEAST_IN_WINDOW: u64 = 20;
/// Nor do samples tell windows apart if less than this part of those in own code is more than hits.
const LEAST_OWN: f64 = 0.4;
/// The least part that work is of a window's CPU time against the same part in all: of less samples cannot tell.
const LEAST_SHARE: f64 = 0.1;
/// The shortest pair there may be, as a part of the calibrated one.
pub(super) const LEAST_PAIR: f64 = 0.75;
/// Fewer samples of all windows tell nothing.
const LEAST_SAMPLES: u64 = 30;

/// CPU time, cost and samples of windows, and of all between them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shadow {
    windows: Part,
    between: Part,
    /// Acquisitions in windows.
    acquisitions: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// CPU time and cost, ns.
    cpu: f64,
    cost: f64,
    samples: u64,
    user: u64,
    hits: u64,
}

impl Part {
    fn add(&mut self, cpu: f64, cost: f64, sampled: Sampled) {
        self.cpu += cpu;
        self.cost += cost;
        self.samples += sampled.samples;
        self.user += sampled.user;
        self.hits += sampled.hits;
    }

    /// CPU time in the program's own code, ns: at least, likely, at most.
    fn user(&self) -> Option<[f64; 3]> {
        let enough = self.samples >= LEAST_SAMPLES;
        let share = self.user as f64 / self.samples.max(1) as f64;
        let (low, high) = wilson(share, self.samples as f64);
        enough.then(|| [low, share, high].map(|share| share * self.cpu))
    }
}

/// CPU time of the program's own work in all windows, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Own {
    pub least: f64,
    pub likely: f64,
    pub most: f64,
}

impl Shadow {
    /// Adds stretches that are over. Their windows have seen this number of acquisitions.
    pub(super) fn add(&mut self, cluster: &Cluster, acquisitions: f64) {
        self.acquisitions += acquisitions;
        self.windows.add(cluster.observed_cpu, cluster.observed_cost, cluster.observed_sampled);
        let (cpu, cost) = (cluster.cpu - cluster.observed_cpu, cluster.cost - cluster.observed_cost);
        self.between.add(cpu.max(0.0), cost.max(0.0), cluster.sampled - cluster.observed_sampled);
    }

    /// The part of all windows' CPU time, ns, that is a window's as it has a part of the work in all, itself included. By its own CPU time and cost its work would be
    /// the small difference of two large numbers, of which the kernel's ticks blur one, and what a window stands for is divided by it. `None` if there are too few samples.
    pub(super) fn part_of(&self, window: &Cluster, costs: &Costs) -> Option<f64> {
        let all = &self.windows;
        let each = all.cpu / all.samples.max(1) as f64;
        let in_own_code = |user: u64, hits: u64| user as f64 * each - hits as f64 * costs.user_ns;
        let Sampled { samples, user, hits } = window.observed_sampled;
        let (own, together) = (in_own_code(user, hits), in_own_code(all.user, all.hits));
        // A program that does nothing but lock has hardly any own code. Only the number of hits tells its windows apart.
        let tells = together > LEAST_OWN * all.user as f64 * each;
        let share = if tells { own / together } else { hits as f64 / all.hits.max(1) as f64 };
        let least = LEAST_SHARE * window.observed_cpu / all.cpu.max(1.0);
        (samples >= LEAST_IN_WINDOW).then_some(share.max(least) * all.cpu)
    }

    /// The program's own work in windows: what samples tell, within what calibration leaves possible; `None` if there are too few samples.
    pub(super) fn own(&self, costs: &Costs) -> Option<Own> {
        let (least, most) = multiples(costs);
        let Part { cpu, cost, .. } = self.windows;
        let floor = (self.acquisitions * costs.bare_pair_ns * LEAST_PAIR).clamp(1.0, cpu.max(1.0));
        let at_cost = |multiple: f64| (cpu - multiple * cost).max(floor);
        let [least, likely, most] = self.by_samples(costs)?.map(|own| own.clamp(at_cost(most), at_cost(least)));
        Some(Own { least, likely, most })
    }

    /// CPU time of the program's own work in all windows, ns: at least, likely, at most; `None` if there are too few samples.
    fn by_samples(&self, costs: &Costs) -> Option<[f64; 3]> {
        let [user_least, user, user_most] = self.windows.user()?;
        let [usual_least, usual, usual_most] = self.between.user()?;
        // Between windows, too, hits pass as own code: those while probes are placed and removed.
        let hits = |part: &Part, multiple: f64| part.hits as f64 * costs.user_ns * multiple;
        let work = self.between.cpu - self.between.cost;
        if work <= 0.0 {
            return None;
        }
        let in_own_code = |user: f64, multiple: f64| (user - hits(&self.between, multiple)).max(0.0) / work;
        let own = |user: f64, multiple: f64, cold: f64, usual: f64| {
            let code = (user - hits(&self.windows, multiple)).max(0.0);
            let undisturbed = (code / (1.0 + cold * DISTURBED)).max(code - hits(&self.windows, cold * REFILL));
            let usual = in_own_code(usual, multiple);
            (usual > 0.0).then(|| undisturbed / usual)
        };
        let mut all = [
            own(user_least, HIT_RANGE.1, 1.0, usual_most)?,
            own(user, 1.0, LIKELY_COLD, usual)?,
            own(user_most, HIT_RANGE.0, 0.0, usual_least)?,
        ];
        all.sort_by(f64::total_cmp);
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Stretch;
    use super::super::tests::sim::{COSTS, MS, Random};
    use super::*;
    use crate::units::{Nanos, Time};

    /// How a program is seen: the share of its work that is its own code, how much of a window's CPU time is cost, and by how much it is dearer than
    /// calibrated and disturbs the program's code.
    struct Seen {
        user: f64,
        cost: f64,
        dearer: f64,
        user_dearer: f64,
        disturbed: f64,
    }

    const SAMPLES_EACH: f64 = 0.25 * MS;

    /// What 20 windows of 10 ms tell, beside 10 s between them.
    fn shadow(seen: &Seen, random: &mut Random) -> Shadow {
        let mut draw = |n: f64, share: f64| (0..n as u64).filter(|_| random.unit() < share).count() as u64;
        let cpu = 200.0 * MS;
        // So much own work that the cost is that share of all, in time that is longer where caches are cold.
        let cost = cpu * seen.cost;
        let own = (cpu - cost) / (1.0 + seen.user * seen.disturbed);
        let hits = cost / seen.dearer / COSTS.hit_ns;
        let in_user = own * seen.user * (1.0 + seen.disturbed) + hits * COSTS.user_ns * seen.user_dearer;
        let (inside, between) = (cpu / SAMPLES_EACH, 2_000.0);
        let observed_sampled =
            Sampled { samples: inside as u64, user: draw(inside, (in_user / cpu).min(1.0)), hits: hits as u64 };
        // While probes are placed and removed a tenth as many hits.
        let edges = (hits / 10.0) as u64;
        let in_user = (10_000.0 * MS * seen.user + edges as f64 * COSTS.user_ns * seen.user_dearer) / (10_000.0 * MS);
        let between = Sampled { samples: between as u64, user: draw(between, in_user.min(1.0)), hits: edges };
        let sampled = observed_sampled + between;
        let ns = |ns: f64| Nanos(ns as u64);
        let calibrated = ns(hits * COSTS.hit_ns);
        let stretch = Stretch {
            from: Time(0),
            to: Time(20_000_000_000),
            observed: ns(cpu),
            cpu: ns(10_000.0 * MS + cpu),
            observed_cpu: ns(cpu),
            cost: calibrated,
            observed_cost: calibrated,
            sampled,
            observed_sampled,
            ..Stretch::default()
        };
        let mut shadow = Shadow::default();
        shadow.add(&Cluster::add(None, &stretch), hits / 2.0);
        shadow
    }

    #[test]
    fn the_true_cost_is_within_what_samples_tell() {
        let mut random = Random(11);
        for cost in [0.2, 0.5, 0.7, 0.9] {
            let (mut held, mut own_widths) = (0, Vec::new());
            for _ in 0..400 {
                let seen = Seen {
                    user: random.between(0.2, 1.0),
                    cost,
                    dearer: random.between(0.8, 1.2),
                    user_dearer: random.between(0.75, 1.25),
                    disturbed: random
                        .between(0.0, 0.9_f64.min(2.0 * COSTS.user_ns / COSTS.hit_ns * cost / (1.0 - cost))),
                };
                let shadow = shadow(&seen, &mut random);
                let found = shadow.own(&COSTS).unwrap();
                assert!(found.least <= found.likely && found.likely <= found.most, "{found:?}");
                let truth = (1.0 - cost) * shadow.windows.cpu / (1.0 + seen.user * seen.disturbed);
                held += u32::from(found.least <= truth && truth <= found.most);
                own_widths.push((found.most - found.least) / truth);
            }
            own_widths.sort_by(f64::total_cmp);
            assert!(held >= 380, "cost {cost}: held {held} of 400 times");
            let (least, most) = multiples(&COSTS);
            let unknown = ((1.0 - least * cost).max(0.0) - (1.0 - most * cost).max(0.0)) / (1.0 - cost);
            // Where the cost is small, calibration alone is as good.
            assert!(cost < 0.5 || own_widths[200] < unknown, "cost {cost}: {} and {unknown}", own_widths[200]);
        }
    }

    #[test]
    fn without_samples_nothing_is_told() {
        assert_eq!(Shadow::default().own(&COSTS), None);
    }
}
