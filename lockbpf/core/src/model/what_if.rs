//! What-if on a recording: its script is played with one change and without, and the observed run time scaled by the
//! quotient. Two ways of handing locks on, and several draws of what is left to chance, give the interval.

pub use super::divide::Unpredictable;
use super::divide::divide;
use super::replay::{Ask, Change, Fate, HandOff, How, Played, play};
use super::script::Script;
use super::shadow::{Light, Shadow};
use crate::report::table::table;
use crate::report::text::{clip, count, counted, percent, wrap};
use crate::units::Nanos;
use serde::Serialize;

/// Name and number of what [`Answer`] is.
pub const SCHEMA: &str = "lockbpf.what-if/1";
/// Draws of what is left to chance.
const DRAWS: u64 = 3;
/// Relative error of the replay without a change from which on it is said.
const UNFAITHFUL: f64 = 0.1;
/// Locks and sites that are tried by themselves.
const TRIED: usize = 5;
/// Into how many locks one is split where nobody says.
const PARTS: u32 = 4;
/// Characters of a name.
const NAME: usize = 48;

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// Sections requested at these sites take this share less of their own time.
    Shorten(Vec<usize>, f64),
    /// Sections requested at these sites hold their lock for this share of their own time less; that is then spent outside.
    Narrow(Vec<usize>, f64),
    /// Nobody asks for these locks.
    Remove(Vec<usize>),
    /// Each of these locks is split into so many.
    Split(Vec<usize>, u32),
    /// These locks become reader–writer locks, with this share of sections that only read.
    Rwlock(Vec<usize>, f64),
    /// Each of these locks is split into so many, and sections ask for what is told by site.
    BySite(Vec<usize>, u32, Vec<Ask>),
    /// The same work by so many threads.
    Threads(u32),
}

/// A predicted outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Answer {
    /// The change, in words.
    pub change: String,
    /// How long the recorded work would take, ns.
    pub run_time_ns: f64,
    /// Where that is expected.
    pub run_time_interval_ns: [f64; 2],
    /// The share of the run time that is saved.
    pub gain: f64,
    /// Where that is expected.
    pub gain_interval: [f64; 2],
    /// Σ wait over all locks, ns.
    pub wait_ns: f64,
    /// The lock that is waited for longest then; `None` if none is.
    pub bottleneck: Option<String>,
    /// Waits by lock, those that were or would be longest first.
    pub locks: Vec<LockAnswer>,
    /// What of the assumptions does not hold here.
    pub violations: Vec<String>,
}

/// The waits for one lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LockAnswer {
    /// Its name.
    pub name: String,
    /// Σ wait as recorded, ns.
    pub observed_wait_ns: f64,
    /// Σ wait as replayed without a change, ns.
    pub replayed_wait_ns: f64,
    /// Σ wait predicted, ns.
    pub predicted_wait_ns: f64,
}

/// What all questions about a recording were answered with.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Answers {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// From the first step of the recording to the last, ns.
    pub observed_ns: f64,
    /// The same as replayed without a change.
    pub replayed_ns: f64,
    /// How long the recorded run would have taken unobserved, ns: to this gains refer. `None` where what observing cost was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unobserved_ns: Option<f64>,
    /// What has to hold for the predictions to hold.
    pub assumptions: Vec<String>,
    /// What is known not to, whatever the change.
    pub violations: Vec<String>,
    /// One for each question; where they were not asked one by one, the greatest gain first.
    pub answers: Vec<Answer>,
}

/// Answers questions about one recording.
pub struct Oracle<'a> {
    script: &'a Script,
    names: &'a [String],
    sites: &'a [String],
    cpus: u32,
    base: [Played; 2],
    /// The way of handing on that comes nearest to what was observed.
    best: usize,
    /// What may have to be taken out of the script's times, and the script played without it: the likeliest first.
    lights: Vec<(Option<Light>, [Played; 2])>,
}

const WAYS: [HandOff; 2] = [HandOff::Barging, HandOff::Fair];

/// The script without a change, with each way of handing on.
fn bases(script: &Script, light: Option<Light>) -> [Played; 2] {
    WAYS.map(|hand_off| play(script, &Change::default(), How { hand_off, seed: 0, light }))
}

impl<'a> Oracle<'a> {
    /// Plays the script as it is. `names` and `sites` are what its locks and sites are called; `cpus` how many there are.
    #[must_use]
    pub fn new(script: &'a Script, names: &'a [String], sites: &'a [String], cpus: u32) -> Self {
        let base = bases(script, None);
        let observed: u64 = script.seen.iter().map(|seen| seen.wait).sum();
        let off = |played: &Played| {
            let waits: u64 = played.waits.iter().map(|(_, wait)| wait).sum();
            let part = |a: u64, b: u64| a.abs_diff(b) as f64 / b.max(1) as f64;
            // Run time first; between ways that agree there, waits decide.
            part(played.duration, script.duration) + 0.01 * part(waits, observed).min(1.0)
        };
        let best = usize::from(off(&base[1]) < off(&base[0]));
        let lights = vec![(None, base.clone())];
        Self { script, names, sites, cpus, base, best, lights }
    }

    /// The same for the script without what observing added to it; so many sections were observed beside those that it has.
    #[must_use]
    pub fn without(self, shadow: &Shadow, unrecorded: u64) -> Self {
        let [least, most] = shadow.range();
        let light = |times| Some(Light::new(*shadow, times, self.script, unrecorded));
        let lights = [1.0, least, most].map(light).map(|light| (light, bases(self.script, light)));
        Self { lights: lights.into(), ..self }
    }

    /// Whether what observing added is taken out.
    fn is_lit(&self) -> bool {
        self.lights.iter().any(|(light, _)| light.is_some())
    }

    /// How long the recorded run would have taken unobserved, ticks.
    fn unobserved(&self) -> f64 {
        let as_recorded = self.base[self.best].duration.max(1) as f64;
        let replayed = self.lights.first().map_or(as_recorded, |(_, base)| base[self.best].duration as f64);
        self.script.duration as f64 * replayed / as_recorded
    }

    /// How far the replay without a change is off the recording.
    fn error(&self) -> f64 {
        (self.base[self.best].duration as f64 / self.script.duration.max(1) as f64 - 1.0).abs()
    }

    fn ns(&self, ticks: f64) -> f64 {
        ticks / self.script.ticks_per_ns as f64
    }

    /// Answers one question.
    ///
    /// # Errors
    /// When the work cannot be divided among another number of threads, or threads would wait for one another for ever.
    pub fn ask(&self, question: &Question) -> Result<Answer, Unpredictable> {
        let divided;
        let (script, change) = match question {
            Question::Threads(n) => {
                divided = divide(self.script, *n)?;
                (&divided, Change::default())
            }
            question => (self.script, self.change(question)),
        };
        let chance = matches!(question, Question::Split(..) | Question::Rwlock(..));
        let draws = if chance { DRAWS } else { 1 };
        let (mut ratios, mut nearest) = (Vec::new(), Vec::new());
        for (likely, (light, base)) in self.lights.iter().enumerate() {
            for (way, hand_off) in WAYS.into_iter().enumerate() {
                for seed in 0..draws {
                    let played = play(script, &change, How { hand_off, seed, light: *light });
                    let ratio = played.duration as f64 / base[way].duration.max(1) as f64;
                    if played.stuck > base[way].stuck {
                        return Err(Unpredictable::Stuck(played.stuck - base[way].stuck));
                    }
                    ratios.push(ratio);
                    if way == self.best && likely == 0 {
                        nearest.push((ratio, played));
                    }
                }
            }
        }
        let mean = nearest.iter().map(|(ratio, _)| ratio).sum::<f64>() / nearest.len().max(1) as f64;
        let error = self.error();
        let low = ratios.iter().copied().fold(mean, f64::min) * (1.0 - error);
        let mut high = ratios.iter().copied().fold(mean, f64::max) * (1.0 + error);
        let mut violations = Vec::new();
        let unobserved = self.unobserved();
        let played = nearest.into_iter().next().map(|(_, played)| played).unwrap_or_default();
        // Who no longer waits wants a CPU.
        let crowded = played.own as f64 / f64::from(self.cpus.max(1)) / unobserved.max(1.0);
        if crowded > mean && script.threads.len() > self.cpus as usize {
            high = high.max(crowded.min(1.0_f64.max(mean)));
            violations.push(format!(
                "Threads' own time would fill more than the {} CPUs that the program may use: what they wait less for locks they may wait \
                 more for CPUs.",
                self.cpus
            ));
        }
        let scale = self.script.duration as f64 / self.base[self.best].duration.max(1) as f64;
        let waits = |i: usize| played.waits.get(i).map_or(0.0, |&(_, wait)| wait as f64 * scale);
        let mut locks: Vec<LockAnswer> = (0..self.names.len())
            .map(|i| LockAnswer {
                name: self.names[i].clone(),
                observed_wait_ns: self.ns(self.script.seen[i].wait as f64),
                replayed_wait_ns: self.ns(self.base[self.best].waits[i].1 as f64),
                predicted_wait_ns: self.ns(waits(i)),
            })
            .filter(|lock| lock.observed_wait_ns + lock.predicted_wait_ns > 0.0)
            .collect();
        locks.sort_by(|a, b| {
            let longest = |lock: &LockAnswer| lock.observed_wait_ns.max(lock.predicted_wait_ns);
            longest(b).total_cmp(&longest(a)).then_with(|| a.name.cmp(&b.name))
        });
        let worst = locks.iter().max_by(|a, b| a.predicted_wait_ns.total_cmp(&b.predicted_wait_ns));
        Ok(Answer {
            change: self.words(question),
            run_time_ns: self.ns(unobserved * mean),
            run_time_interval_ns: [self.ns(unobserved * low), self.ns(unobserved * high)],
            gain: 1.0 - mean,
            gain_interval: [1.0 - high, 1.0 - low],
            wait_ns: locks.iter().map(|lock| lock.predicted_wait_ns).sum(),
            bottleneck: worst.filter(|lock| lock.predicted_wait_ns > 0.0).map(|lock| lock.name.clone()),
            locks,
            violations,
        })
    }

    fn change(&self, question: &Question) -> Change {
        let fates = |locks: &[usize], fate: Fate| {
            let mut fates = vec![Fate::Stays; self.script.locks.len()];
            locks.iter().for_each(|&lock| fates[lock] = fate);
            Change { locks: fates, ..Change::default() }
        };
        match question {
            Question::Shorten(sites, by) | Question::Narrow(sites, by) => {
                let mut shorten = vec![1.0; self.script.sites.len()];
                sites.iter().for_each(|&site| shorten[site] = 1.0 - by);
                Change { shorten, moved: matches!(question, Question::Narrow(..)), ..Change::default() }
            }
            Question::Remove(locks) => fates(locks, Fate::Removed),
            Question::Split(locks, k) => fates(locks, Fate::Split(*k)),
            Question::Rwlock(locks, share) => fates(locks, Fate::Rwlock(*share)),
            Question::BySite(locks, parts, sites) => {
                Change { sites: sites.clone(), ..fates(locks, Fate::BySite(*parts)) }
            }
            Question::Threads(_) => Change::default(),
        }
    }

    fn words(&self, question: &Question) -> String {
        let list = |names: &[String], of: &[usize]| {
            let mut all: Vec<String> = of.iter().take(3).map(|&i| format!("`{}`", clip(&names[i], NAME))).collect();
            if of.len() > 3 {
                all.push(format!("{} more", of.len() - 3));
            }
            all.join(", ")
        };
        match question {
            Question::Shorten(sites, by) => format!("{} shorter by {}", list(self.sites, sites), percent(*by)),
            Question::Narrow(sites, by) => {
                format!("{} of {} outside of the lock", percent(*by), list(self.sites, sites))
            }
            Question::Remove(locks) => format!("{} removed", list(self.names, locks)),
            Question::Split(locks, k) => format!("{} split into {k}", list(self.names, locks)),
            Question::Rwlock(locks, share) => {
                format!("{} a reader–writer lock, {} reads", list(self.names, locks), percent(*share))
            }
            Question::BySite(locks, parts, sites) => {
                let all = list(self.names, locks);
                let some = |ask: Ask| sites.contains(&ask);
                match (some(Ask::Nothing), some(Ask::Reading)) {
                    (_, true) => format!("{all} a reader–writer lock by site"),
                    (true, false) => format!("{all} split into {parts} by site, and not taken at some"),
                    (false, false) => format!("{all} split into {parts} by site"),
                }
            }
            Question::Threads(n) => format!("the same work by {n} threads"),
        }
    }

    /// Single changes that are worth a try: of the locks waited for longest, and of the sites with most own time in sections
    /// of those.
    #[must_use]
    pub fn candidates(&self) -> Vec<Question> {
        let mut locks: Vec<usize> = (0..self.script.seen.len()).filter(|&i| self.script.seen[i].wait > 0).collect();
        locks.sort_by_key(|&i| std::cmp::Reverse(self.script.seen[i].wait));
        locks.truncate(TRIED);
        let mut own = vec![0_u64; self.script.sites.len()];
        for thread in &self.script.threads {
            let mut held: Vec<(u32, u32)> = Vec::new();
            for step in &thread.steps {
                if let Some(&(lock, site)) = held.last()
                    && locks.contains(&(lock as usize))
                {
                    own[site as usize] += step.after;
                }
                match step.what {
                    super::script::What::Ask { lock, site, .. } => held.push((lock, site)),
                    super::script::What::Release { lock, .. } => {
                        if let Some(at) = held.iter().rposition(|&(held, _)| held == lock) {
                            held.remove(at);
                        }
                    }
                    _ => {}
                }
            }
        }
        let mut sites: Vec<usize> = (0..own.len()).filter(|&i| own[i] > 0).collect();
        sites.sort_by_key(|&i| std::cmp::Reverse(own[i]));
        sites.truncate(TRIED);
        let shorter = sites.into_iter().map(|site| Question::Shorten(vec![site], 0.5));
        let removed = locks.iter().map(|&lock| Question::Remove(vec![lock]));
        let split = locks.iter().map(|&lock| Question::Split(vec![lock], PARTS));
        shorter.chain(removed).chain(split).collect()
    }

    /// All that was asked, with what it rests upon.
    #[must_use]
    pub fn answers(&self, answers: Vec<Answer>) -> Answers {
        let (script, mut violations) = (self.script, Vec::new());
        let time = |ticks: u64| Nanos(self.ns(ticks as f64) as u64);
        if self.error() > UNFAITHFUL {
            violations.push(format!(
                "Replayed without a change, the recording takes {} instead of {}: intervals are widened by that.",
                time(self.base[self.best].duration),
                time(script.duration)
            ));
        }
        if script.unexplained.time > script.duration / 20 {
            violations.push(format!(
                "Threads waited {} for conditions, of which nothing recorded explains the end: those waits are kept as they were.",
                time(script.unexplained.time)
            ));
        }
        if script.semaphores.time > script.duration / 20 {
            violations.push(format!("Threads waited {} for semaphores: kept as it was.", time(script.semaphores.time)));
        }
        if self.base[self.best].stuck > 0 {
            let stuck = counted(self.base[self.best].stuck.into(), "thread");
            violations.push(format!("{stuck} waited to the end of the recording, and does not count in the run time."));
        }
        if script.cut > 0 {
            violations.push(format!("{} steps belong to sections that began before the recording.", count(script.cut)));
        }
        let assumptions = [
            "Threads do the same as in the recording, in as much time of their own; only waits change.",
            "A thread whose wait for a condition ended when another had held its mutex was woken by that; one that went on right \
             after another exited waited for that.",
            "Whoever no longer waits for a lock has a CPU to run on.",
            "A lock that is split is asked for in equal parts at random; readers go before waiting writers.",
            "Interval: locks handed on to the longest waiting thread, or to whoever asks first, and the error of the replay without a \
             change.",
        ];
        let observer = self.is_lit().then_some(
            "What observing cost, as it was measured on the machine of the recording, has been taken out of threads' own times; intervals \
             include that it was 0.6 to 1.5 times that.",
        );
        Answers {
            schema: SCHEMA,
            observed_ns: self.ns(script.duration as f64),
            replayed_ns: self.ns(self.base[self.best].duration as f64),
            unobserved_ns: self.is_lit().then(|| self.ns(self.unobserved())),
            assumptions: assumptions.into_iter().chain(observer).map(str::to_owned).collect(),
            violations,
            answers,
        }
    }
}

/// Renders answers, with a newline at the end.
#[must_use]
pub fn render(answers: &Answers, width: u16) -> String {
    let time = |ns: f64| Nanos(ns.round() as u64).to_string();
    let signed = |share: f64| if share < 0.0 { format!("−{}", percent(-share)) } else { percent(share) };
    let row = |answer: &Answer| {
        let [low, high] = answer.run_time_interval_ns.map(time);
        let [least, most] = answer.gain_interval.map(signed);
        vec![
            answer.change.clone(),
            time(answer.run_time_ns),
            format!("{low} – {high}"),
            signed(answer.gain),
            format!("{least} – {most}"),
            time(answer.wait_ns),
            answer.bottleneck.as_deref().map_or_else(String::new, |name| clip(name, NAME)),
        ]
    };
    let headers = ["Change", "Run time", "from – to", "Gain", "from – to", "Waiting", "Then waited for most"];
    let mut paragraphs = vec![
        format!(
            "Observed: {}. Replayed without a change: {}.{}",
            time(answers.observed_ns),
            time(answers.replayed_ns),
            answers
                .unobserved_ns
                .map_or_else(String::new, |ns| format!(" Check: as recorded but unobserved: {}.", time(ns)))
        ),
        table(&headers, &[0, 6], answers.answers.iter().map(row).collect(), width),
    ];
    if let [answer] = &answers.answers[..]
        && !answer.locks.is_empty()
    {
        let row = |lock: &LockAnswer| {
            let times = [lock.observed_wait_ns, lock.replayed_wait_ns, lock.predicted_wait_ns].map(time);
            std::iter::once(clip(&lock.name, NAME)).chain(times).collect()
        };
        let headers = ["Lock", "Wait observed", "replayed", "predicted"];
        paragraphs.push(table(&headers, &[0], answer.locks.iter().take(10).map(row).collect(), width));
    }
    let list = |head: &str, lines: Vec<&String>| {
        let lines: Vec<String> = lines.into_iter().map(|line| format!("  {line}")).collect();
        wrap(&format!("{head}\n{}", lines.join("\n")), width.into())
    };
    let mut violations: Vec<&String> = answers.violations.iter().collect();
    for violation in answers.answers.iter().flat_map(|answer| &answer.violations) {
        if !violations.contains(&violation) {
            violations.push(violation);
        }
    }
    if !violations.is_empty() {
        paragraphs.push(list("What of this does not hold in the recording:", violations));
    }
    paragraphs.push(list("Assumptions:", answers.assumptions.iter().collect()));
    paragraphs.join("\n\n") + "\n"
}
