//! The observer's shadow: what observing added to the times that a model is made of.
//!
//! A probe reads the clock in the midst of its work. So the time from one probe to the next holds the end of the first probe and the
//! beginning of the second, and a pair of calls costs both its probes, wherever the clock is read in them:
//!
//! | from … to the next probe | holds |
//! |---|---|
//! | a lock call | the measured part of a pair's cost that falls into a hold |
//! | an unlock call | the rest of the pair's cost |
//! | a wait or anything else | half a probe |
//!
//! Probes inside of a section lengthen it by a whole hit each, wherever the clock is read in them, too. What one waited for a lock
//! adds falls between sections: the records of both threads, and the call that wakes the waiter.
//!
//! Only what was measured on the machine of the recording is taken out: without [`Prices`] there is no shadow.

use super::script::{Script, Step, What};
use crate::estimate::COST_RANGE;
use crate::perturbation::Prices;

/// Probes of an uncontended section: of the lock call and of the unlock call.
const PROBES: f64 = 2.0;
/// Records of a contended section: of who waited, and of who was waited for.
const RECORDS: f64 = 2.0;

/// What is left at least of an observed time, however much of it observing is taken to have added.
pub(super) const LEFT: f64 = 0.02;

/// What observing adds, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shadow {
    hit: f64,
    after_lock: f64,
    after_unlock: f64,
    contended: f64,
    range: [f64; 2],
}

impl Shadow {
    /// By the prices of a recording; `None` if they make no sense.
    #[must_use]
    pub fn new(prices: &Prices) -> Option<Self> {
        let [hit, hold, record, futex] =
            [prices.hit_ns, prices.hold_bias_ns, prices.record_ns, prices.futex_ns].map(|ns| ns as f64);
        let after_lock = hold.min(PROBES * hit);
        let spread = (prices.spread_permille as f64 / 1e3).min(0.5);
        let (least, most) = COST_RANGE;
        (hit > 0.0).then_some(Self {
            hit,
            after_lock,
            after_unlock: PROBES * hit - after_lock,
            contended: RECORDS * record + futex,
            range: [least * (1.0 - spread), most * (1.0 + spread)],
        })
    }

    /// In a section with so many probes between its lock call and its unlock call.
    #[must_use]
    pub fn in_section(&self, inner: f64) -> f64 {
        self.after_lock + inner * self.hit
    }

    /// Between two sections, of which the first one's lock was contended with this probability.
    #[must_use]
    pub fn between(&self, contended: f64) -> f64 {
        self.after_unlock + contended * self.contended
    }

    /// In what was seen of a section, or of the time after one, that a window's end has cut: the probe at its beginning.
    #[must_use]
    pub fn cut(&self) -> f64 {
        self.hit / 2.0
    }

    /// Before a step of a thread, given the one before it.
    #[must_use]
    pub fn before(&self, step: What, last: Option<What>) -> f64 {
        match (last, step) {
            (Some(What::Ask { .. }), _) => self.after_lock,
            (Some(What::Release { .. }), What::Ask { .. } | What::Release { .. }) => self.after_unlock,
            (Some(What::Release { .. }), _) | (_, What::Ask { .. } | What::Release { .. }) => self.hit / 2.0,
            _ => 0.0,
        }
    }

    /// The multiples of all this that it was at least and at most: in a real program probes cost more or less than measured beside it.
    #[must_use]
    pub fn range(&self) -> [f64; 2] {
        self.range
    }
}

/// How a script's steps are to be shortened by what observing added to them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Light {
    shadow: Shadow,
    /// Multiple of the shadow in units of the script's time.
    times: f64,
    /// What is left of the time between sections without the sections that were not recorded one by one.
    between: f64,
}

impl Light {
    /// Of a script without so many times the shadow; so many sections were observed in it that it has no steps of.
    #[must_use]
    pub fn new(shadow: Shadow, times: f64, script: &Script, unrecorded: u64) -> Self {
        let times = times * script.ticks_per_ns as f64;
        let mut light = Self { shadow, times, between: 1.0 };
        if unrecorded > 0 {
            let pairs = times * PROBES * shadow.hit * unrecorded as f64;
            let between: f64 = script.threads.iter().map(|thread| light.between(&thread.steps)).sum();
            light.between = if between > 0.0 { (1.0 - pairs / between).clamp(LEFT, 1.0) } else { 1.0 };
        }
        light
    }

    /// The time before a step, given the one before it.
    #[must_use]
    pub fn own(&self, step: &Step, last: Option<What>) -> u64 {
        let after = step.after as f64;
        let own = (after - self.times * self.shadow.before(step.what, last)).max(LEFT * after);
        let part = if is_between(step.what, last) { self.between } else { 1.0 };
        (own * part).round() as u64
    }

    /// Σ own time between sections of a thread.
    fn between(&self, steps: &[Step]) -> f64 {
        let last = std::iter::once(None).chain(steps.iter().map(|step| Some(step.what)));
        let between = steps.iter().zip(last).filter(|(step, last)| is_between(step.what, *last));
        between.map(|(step, last)| self.own(step, last) as f64).sum()
    }
}

/// Whether no lock is held between these steps, as far as they tell by themselves.
fn is_between(step: What, last: Option<What>) -> bool {
    matches!(step, What::Ask { .. }) && !matches!(last, Some(What::Ask { .. }))
}

#[cfg(test)]
mod tests {
    use super::super::script::Thread;
    use super::*;
    use crate::id::{Process, Tid};

    const PRICES: Prices =
        Prices { hit_ns: 1_000, hold_bias_ns: 900, record_ns: 200, futex_ns: 300, spread_permille: 100 };
    const ASK: What = What::Ask { lock: 0, site: 0, shared: false };
    const RELEASE: What = What::Release { lock: 0, told: false };

    #[test]
    fn a_pair_costs_both_its_probes_wherever_the_clock_is_read() {
        let shadow = Shadow::new(&PRICES).unwrap();
        assert_eq!((shadow.in_section(0.0), shadow.between(0.0)), (900.0, 1_100.0));
        // A section inside of another adds two probes to it, step by step as in sum.
        let steps = [ASK, RELEASE, RELEASE];
        let mut last = ASK;
        let mut added = 0.0;
        for step in steps {
            added += shadow.before(step, Some(last));
            last = step;
        }
        assert_eq!(added, shadow.in_section(2.0));
        assert_eq!(shadow.before(ASK, Some(RELEASE)), shadow.between(0.0));
    }

    #[test]
    fn waits_add_records_and_a_call() {
        let shadow = Shadow::new(&PRICES).unwrap();
        assert_eq!(shadow.between(0.5) - shadow.between(0.0), 350.0);
    }

    #[test]
    fn what_was_not_measured_is_no_shadow() {
        assert_eq!(Shadow::new(&Prices::default()), None);
        let all_in_holds = Shadow::new(&Prices { hold_bias_ns: 5_000, ..PRICES }).unwrap();
        assert_eq!((all_in_holds.in_section(0.0), all_in_holds.between(0.0)), (2_000.0, 0.0));
    }

    #[test]
    fn what_was_not_recorded_shortens_the_time_between_sections() {
        let step = |after, what| Step { after, what };
        let steps = vec![step(21_100, ASK), step(1_400, RELEASE), step(21_100, ASK), step(500, RELEASE)];
        let thread = Thread { tid: Tid(1), process: Process(1), begin: 0, steps };
        let script = Script { threads: vec![thread], ticks_per_ns: 1, ..Script::default() };
        let own = |unrecorded| -> Vec<u64> {
            let light = Light::new(Shadow::new(&PRICES).unwrap(), 1.0, &script, unrecorded);
            let steps = &script.threads[0].steps;
            let last = std::iter::once(None).chain(steps.iter().map(|step| Some(step.what)));
            steps.iter().zip(last).map(|(step, last)| light.own(step, last)).collect()
        };
        // At least a fiftieth is left.
        assert_eq!(own(0), [20_600, 500, 20_000, 10]);
        assert_eq!(own(10).iter().sum::<u64>(), 20_600 + 500 + 20_000 + 10 - 20_000);
        assert_eq!(own(1_000_000), [412, 500, 400, 10]);
    }

    #[test]
    fn it_is_known_within_a_range() {
        let [least, most] = Shadow::new(&PRICES).unwrap().range();
        assert!((least - 0.54).abs() < 1e-9 && (most - 1.65).abs() < 1e-9);
    }
}
