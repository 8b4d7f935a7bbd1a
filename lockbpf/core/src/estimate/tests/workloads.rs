//! Programs to look at.

use super::sim::{MS, Program, Random, S, Section};

/// How long sections are, ns.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holds {
    Constant(f64),
    Exponential(f64),
    /// Median, and standard deviation of the logarithm.
    Lognormal(f64, f64),
}

impl Holds {
    fn draw(self, random: &mut Random) -> f64 {
        match self {
            Self::Constant(hold) => hold,
            Self::Exponential(mean) => random.exponential(mean),
            Self::Lognormal(median, sigma) => median * (sigma * random.normal()).exp(),
        }
    }
}

/// Acquisitions of a lock at a rate per s from one time to another, `contended` of 1 of them after a wait.
pub(super) struct Arrivals {
    pub lock: u64,
    pub rate: f64,
    pub holds: Holds,
    pub contended: f64,
    pub wait: f64,
}

impl Arrivals {
    pub(super) fn new(lock: u64, rate: f64, holds: Holds) -> Self {
        Self { lock, rate, holds, contended: 0.2, wait: 20_000.0 }
    }

    fn fill(&self, from: f64, to: f64, random: &mut Random, sections: &mut Vec<Section>) {
        let gap = S / self.rate;
        let mut t = from + random.exponential(gap);
        while t < to {
            let contended = random.unit() < self.contended;
            let wait = if contended { random.exponential(self.wait) } else { 0.0 };
            sections.push(Section { acquire: t, wait, hold: self.holds.draw(random), contended, lock: self.lock });
            t += random.exponential(gap);
        }
    }
}

/// At random, always at the same rate.
pub(super) fn poisson(length: f64, all: &[Arrivals], random: &mut Random) -> Program {
    let mut sections = Vec::new();
    all.iter().for_each(|a| a.fill(0.0, length, random, &mut sections));
    if all.len() > 1 {
        sections.sort_by(|a, b| a.acquire.total_cmp(&b.acquire));
    }
    Program { sections, length, cpu: vec![(f64::MAX, 0.6)] }
}

/// A thousand times as many for a while each second, in which the CPU time used is another.
pub(super) fn bursty(length: f64, burst: f64, quiet: &Arrivals, cpu: (f64, f64), random: &mut Random) -> Program {
    let (mut sections, mut used) = (Vec::new(), Vec::new());
    let loud = Arrivals { rate: quiet.rate * 1_000.0, ..*quiet };
    let phase = random.between(0.0, S - burst);
    let mut t = 0.0;
    while t < length {
        let (begin, end) = ((t + phase).min(length), (t + phase + burst).min(length));
        quiet.fill(t, begin, random, &mut sections);
        loud.fill(begin, end, random, &mut sections);
        quiet.fill(end, (t + S).min(length), random, &mut sections);
        used.extend([(begin, cpu.0), (end, cpu.1), ((t + S).min(length), cpu.0)]);
        t += S;
    }
    Program { sections, length, cpu: used }
}

/// Active for 100 ms of each period, as long as the spacing of windows.
pub(super) fn periodic(length: f64, busy: &Arrivals, random: &mut Random) -> Program {
    let (mut sections, mut used) = (Vec::new(), Vec::new());
    let phase = random.between(0.0, 400.0 * MS);
    let mut t = 0.0;
    while t < length {
        let (begin, end) = ((t + phase).min(length), (t + phase + 100.0 * MS).min(length));
        busy.fill(begin, end, random, &mut sections);
        used.extend([(begin, 0.02), (end, 0.9)]);
        t += 500.0 * MS;
    }
    used.push((f64::MAX, 0.02));
    Program { sections, length, cpu: used }
}
