//! Programs whose truth is known, and the windows through which they are seen.

use crate::estimate::{Costs, Estimates, Estimator, Stretch};
use crate::governor::{PART, Sampled, progress};
use crate::id::{Lock, Process, Site};
use crate::sums::KernelSums;
use crate::units::{Nanos, Time};
use lockbpf_common::kind::Via;
use lockbpf_common::sums::{Sums, bucket};

pub(in super::super) const MS: f64 = 1e6;
pub(super) const S: f64 = 1e9;
pub(super) const P: Process = Process(1);

/// SplitMix64.
#[derive(Clone, Debug)]
pub(in super::super) struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between 0 and 1, neither included.
    pub(in super::super) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    pub(in super::super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }

    pub(super) fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// One critical section as it would be unobserved; ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    pub acquire: f64,
    pub wait: f64,
    pub hold: f64,
    pub contended: bool,
    /// Which lock.
    pub lock: u64,
}

/// A program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// By time of acquisition.
    pub sections: Vec<Section>,
    /// How long it runs, ns.
    pub length: f64,
    /// Up to when it uses which part of a CPU; the last goes on.
    pub cpu: Vec<(f64, f64)>,
}

impl Program {
    /// CPU time used until then.
    fn used(&self, until: f64) -> f64 {
        let (mut sum, mut from) = (0.0, 0.0);
        for &(to, part) in &self.cpu {
            sum += (until.min(to) - from).max(0.0) * part;
            from = to;
        }
        sum
    }

    /// Its progress until then.
    fn progress(&self, until: f64) -> f64 {
        progress(self.used(until), until)
    }

    /// When it has got so far.
    fn when(&self, target: f64) -> f64 {
        let (mut low, mut high) = (0.0, self.length);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            *(if self.progress(middle) < target { &mut low } else { &mut high }) = middle;
        }
        high
    }
}

/// How a program is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looks {
    /// Mean time between windows, ns.
    pub spacing: f64,
    /// Shortest and longest window, ns.
    pub window: (f64, f64),
    /// True cost over the calibrated one.
    pub dearer: f64,
    /// A window is closed after so many sections.
    pub most: usize,
    /// Whether the CPU's clock is sampled.
    pub sampled: bool,
}

impl Default for Looks {
    fn default() -> Self {
        Self { spacing: 500.0 * MS, window: (10.0 * MS, 40.0 * MS), dearer: 1.1, most: usize::MAX, sampled: false }
    }
}

impl Looks {
    /// Samples of so much CPU time, of which so much was the program's own code.
    fn samples(&self, cpu: f64, in_user: f64, each: f64, hits: f64, random: &mut Random) -> Sampled {
        if !self.sampled {
            return Sampled::default();
        }
        let samples = (cpu / each + random.unit()) as u64;
        let user = (0..samples).filter(|_| random.unit() * cpu < in_user).count() as u64;
        Sampled { samples, user, hits: hits as u64 }
    }
}

/// The part of a program's work that is its own code.
const IN_USER: f64 = 0.6;

pub(in super::super) const COSTS: Costs = Costs {
    hit_ns: 500.0,
    user_ns: 80.0,
    hold_bias_ns: 300.0,
    bare_pair_ns: 9.0,
    record_ns: 300.0,
    futex_ns: 300.0,
    switch_ns: 100.0,
    spread: 0.03,
};

pub(super) fn lock(addr: u64) -> Lock {
    Lock { process: P, addr }
}

pub(super) fn site(addr: u64) -> Site {
    Site { process: P, addr: addr + 0x100 }
}

/// Sums as the kernel keeps them, by lock from 0 on.
#[derive(Clone, Debug, Default)]
pub(super) struct Kernel(pub Vec<KernelSums>);

impl Kernel {
    pub(super) fn sums(&mut self, addr: u64) -> &mut Sums {
        while self.0.len() as u64 <= addr {
            let at = self.0.len() as u64;
            self.0.push(KernelSums { lock: lock(at), site: site(at), via: Via::Lock, sums: Sums::EMPTY });
        }
        &mut self.0[addr as usize].sums
    }

    /// Sees what a window shows of a section.
    pub(super) fn see(&mut self, s: &Section, close: f64, dearer: f64) {
        let sums = self.sums(s.lock);
        let hold = s.hold + COSTS.hold_bias_ns * dearer;
        if s.acquire + hold > close {
            sums.cut += 1;
            sums.cut_ns += (close - s.acquire) as u64;
            return;
        }
        sums.acquisitions += 1;
        sums.hold_ns += hold as u64;
        sums.hold_max_ns = sums.hold_max_ns.max(hold as u64);
        sums.hold_hist[bucket(hold as u64)] += 1;
        if s.contended {
            sums.contended += 1;
            sums.wait_ns += s.wait as u64;
            sums.wait_hist[bucket(s.wait as u64)] += 1;
        }
    }
}

/// Looks at a program through windows at random places.
pub(super) fn look(program: &Program, looks: &Looks, random: &mut Random) -> Estimates {
    let mut estimator = Estimator::new(COSTS, Some(0.03));
    let mut kernel = Kernel::default();
    // Apart, so that programs and windows are the same with samples and without.
    let mut drawn = random.clone();
    let step = program.progress(program.length) * looks.spacing / program.length;
    let (mut from, mut begin) = (0.0, 0.0);
    while from < program.length {
        let open = program.when(begin + random.unit() * step).max(from);
        let most = program.when(program.progress(open) + step * PART) - open;
        let length = random.between(looks.window.0, looks.window.1).min(most);
        begin += step;
        let first = program.sections.partition_point(|s| s.acquire < open);
        let last = program.sections.get(first.saturating_add(looks.most)).map_or(f64::MAX, |s| s.acquire);
        let close = (open + length).min(last);
        let mut hits = 0.0;
        for s in program.sections[first..].iter().take_while(|s| s.acquire < close) {
            if s.acquire - s.wait >= open {
                kernel.see(s, close, looks.dearer);
                hits += 2.0;
            }
        }
        let to = program.when(begin).max(close);
        let cost = hits * COSTS.hit_ns;
        let own = program.used(close) - program.used(open);
        let all = program.used(to) - program.used(from);
        let ns = |ns: f64| Nanos(ns as u64);
        let in_user = own * IN_USER + hits * COSTS.user_ns;
        let observed_sampled = looks.samples(own + cost * looks.dearer, in_user, 0.25 * MS, hits, &mut drawn);
        let between = looks.samples(all - own, (all - own) * IN_USER, 5.0 * MS, 0.0, &mut drawn);
        let sampled = observed_sampled + between;
        estimator.stretch(Stretch {
            process: P,
            from: Time(from as u64),
            to: Time(to as u64),
            observed: ns(close - open),
            cpu: ns(all + cost * looks.dearer),
            observed_cpu: ns(own + cost * looks.dearer),
            cost: ns(cost),
            observed_cost: ns(cost),
            sampled,
            observed_sampled,
            whole: false,
        });
        estimator.snapshot(&kernel.0);
        from = to;
    }
    estimator.finish()
}
