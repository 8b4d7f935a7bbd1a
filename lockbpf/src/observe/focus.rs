//! Focus: what is recorded while everything is counted. Asked for by name (`--lock`, `--site`), or chosen after a first
//! look at what is waited for, where so much is recorded that it costs more than it tells.

use super::audience::Audience;
use super::census::Census;
use super::request::Request;
use crate::capture::focus::{Contention, Ranges, Waits, by_lock};
use crate::capture::session::Session;
use crate::id::{Lock, Process};
use crate::observation::Harvest;
use crate::symbol::{Found, Kind, Symbols};
use anyhow::{Result, bail};
use lockbpf_common::sums::SumKey;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// When the first look is taken.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// How often it is looked what has become important since.
const INTERVAL: Duration = Duration::from_secs(3);
/// Where there are many locks, looking takes longer; it may take one part in so many of the time.
const SHARE: u32 = 200;
/// Records per second that need no focus.
const MAX_RATE: f64 = 2_000.0;
/// Part of the waiting that the locks in the focus make up.
const COVERED: f64 = 0.99;
/// Locks in the focus at least, if so many are waited for; futex words apart from locks.
const MIN_LOCKS: usize = 16;

/// What is recorded.
pub(crate) enum Focus {
    /// Everything.
    Off,
    /// What was asked for.
    Asked(Asked),
    /// What turns out to matter.
    Automatic(Automatic),
}

impl Focus {
    /// As it is asked for, before anything is observed.
    ///
    /// # Errors
    /// When a name matches nothing, or too much, or the kernel refuses.
    pub(crate) fn begin(
        request: &Request,
        session: &mut Session,
        census: &mut Census,
        later: bool,
        audience: &impl Audience,
    ) -> Result<Self> {
        if !request.lock.is_empty() || !request.site.is_empty() {
            let mut asked = Asked {
                locks: request.lock.clone(),
                sites: request.site.clone(),
                later,
                ranges: Ranges::default(),
                loaded: HashMap::new(),
                missing: Vec::new(),
            };
            asked.resolve(session, census, audience)?;
            return Ok(Self::Asked(asked));
        }
        if request.no_focus || request.all_events {
            return Ok(Self::Off);
        }
        Ok(Self::Automatic(Automatic::new(Instant::now())))
    }

    /// Looks whether it should be changed, if it is time to. `events` is how many there were so far.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn look(&mut self, session: &mut Session, events: u64) -> Result<()> {
        match self {
            Self::Automatic(automatic) => automatic.look(session, events),
            Self::Off | Self::Asked(_) => Ok(()),
        }
    }

    /// Looks for what was asked for in what the targets have loaded since.
    ///
    /// # Errors
    /// When a name matches too much, or the kernel refuses.
    pub(crate) fn refresh(
        &mut self,
        session: &mut Session,
        census: &mut Census,
        audience: &impl Audience,
    ) -> Result<()> {
        match self {
            Self::Asked(asked) => asked.resolve(session, census, audience),
            Self::Off | Self::Automatic(_) => Ok(()),
        }
    }

    /// What the reader of the report must know, after the observation.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn notes(&self, session: &Session, harvest: &Harvest) -> Result<Vec<String>> {
        match self {
            Self::Off => Ok(Vec::new()),
            Self::Asked(asked) => Ok(asked.missing.iter().map(|what| format!("No {what} was loaded.")).collect()),
            Self::Automatic(automatic) => automatic.note(session, harvest),
        }
    }
}

/// Locks and functions by name.
pub(crate) struct Asked {
    locks: Vec<String>,
    sites: Vec<String>,
    /// Whether more may be loaded yet: what is not there is then no error.
    later: bool,
    ranges: Ranges,
    /// Files of each process when its names were looked up.
    loaded: HashMap<Process, usize>,
    /// What nothing matches so far, in words.
    missing: Vec<String>,
}

impl Asked {
    /// Looks the names up in every process that has loaded something since.
    fn resolve(&mut self, session: &mut Session, census: &mut Census, audience: &impl Audience) -> Result<()> {
        let processes: Vec<Process> = census.processes().keys().copied().collect();
        let symbols = census.symbols();
        let mut changed = Vec::new();
        for process in processes {
            let files = symbols.loaded(process).count();
            if self.loaded.insert(process, files) != Some(files) {
                changed.push(process);
            }
        }
        if changed.is_empty() && !self.loaded.is_empty() {
            return Ok(());
        }
        let first = self.loaded.len() == changed.len() && self.missing.is_empty();
        let mut locks = Vec::new();
        let mut missing = Vec::new();
        for name in self.locks.clone() {
            let mut found = false;
            for &process in &changed {
                found |= self.take_lock(process, &name, symbols, &mut locks)?;
            }
            missing.extend((!found).then(|| format!("lock `{name}`")));
        }
        for name in self.sites.clone() {
            let mut found = false;
            for &process in &changed {
                for range in site(process, &name, symbols) {
                    self.ranges.function(process, range)?;
                    found = true;
                }
            }
            missing.extend((!found).then(|| format!("function `{name}`")));
        }
        // What was found once is not missing because a file that came later does not have it.
        if first {
            self.missing = missing;
            if !self.missing.is_empty() {
                self.not_there(symbols, &changed, audience)?;
            }
        } else {
            self.missing.retain(|what| missing.contains(what));
        }
        session.focus_on(locks)?;
        session.focus(&self.ranges, if self.sites.is_empty() { Waits::None } else { Waits::All })?;
        Ok(())
    }

    fn take_lock(
        &mut self,
        process: Process,
        name: &str,
        symbols: &mut Symbols,
        locks: &mut Vec<Lock>,
    ) -> Result<bool> {
        if let Some(addr) = address(name) {
            locks.push(Lock { process, addr });
            return Ok(true);
        }
        let (part, offset) = match name.rsplit_once("+0x").map(|(part, hex)| (part, u64::from_str_radix(hex, 16))) {
            Some((part, Ok(offset))) => (part, Some(offset)),
            _ => (name, None),
        };
        let found = symbols.find(process, Kind::Variable, part);
        if found.is_empty() {
            let members = symbols.find_member(process, name);
            locks.extend(&members);
            return Ok(!members.is_empty());
        }
        for Found { range, .. } in &found {
            match offset {
                Some(offset) => locks.push(Lock { process, addr: range.start.wrapping_add(offset) }),
                None => {
                    // The lock itself, mostly: known before it is waited for.
                    locks.push(Lock { process, addr: range.start });
                    self.ranges.variable(process, range.clone())?;
                }
            }
        }
        Ok(!found.is_empty())
    }

    fn not_there(&self, symbols: &mut Symbols, processes: &[Process], audience: &impl Audience) -> Result<()> {
        if self.later {
            let missing = self.missing.join(", no ");
            audience.tell(&format!("lockbpf: no {missing} yet: looked for in what is loaded later\n"));
            return Ok(());
        }
        let what = &self.missing[0];
        let name = what.split('`').nth(1).unwrap_or_default();
        let kind = if what.starts_with("lock") { Kind::Variable } else { Kind::Function };
        let close: Vec<String> = processes.iter().flat_map(|&process| symbols.close(process, kind, name)).collect();
        let close = if close.is_empty() {
            "no name is close to it".to_owned()
        } else {
            format!("close to it: {}", close.join(", "))
        };
        let noun = if kind == Kind::Variable { "variable" } else { "function" };
        bail!(
            "there is no {what}: no {noun} of the target's has a name that contains this; {close}. Locks on the heap have no names: name a function that takes them with --site"
        );
    }
}

/// Return addresses of the calls that a site's name stands for.
fn site(process: Process, name: &str, symbols: &mut Symbols) -> Vec<std::ops::Range<u64>> {
    match address(name) {
        // A return address: the range of functions begins behind its first address.
        Some(addr) => std::iter::once(addr.saturating_sub(1)..addr).collect(),
        None => symbols.find(process, Kind::Function, name).into_iter().map(|found| found.range).collect(),
    }
}

/// `0x…`, or `PID:0x…` as reports identify locks and sites.
fn address(text: &str) -> Option<u64> {
    let hex = match text.split_once(':') {
        Some((pid, rest)) if pid.parse::<u32>().is_ok() => rest,
        _ => text,
    };
    u64::from_str_radix(hex.strip_prefix("0x")?, 16).ok()
}

/// The locks that make up nearly all of the waiting.
pub(crate) struct Automatic {
    began: Instant,
    next: Instant,
    /// Events and time at the last look.
    last: (u64, Instant),
    /// Waiting at the last look.
    waited: HashMap<Lock, u64>,
    focused: HashSet<Lock>,
    /// When it was narrowed first.
    since: Option<Duration>,
}

impl Automatic {
    fn new(now: Instant) -> Self {
        Self {
            began: now,
            next: now + FIRST_LOOK,
            last: (0, now),
            waited: HashMap::new(),
            focused: HashSet::new(),
            since: None,
        }
    }

    fn look(&mut self, session: &mut Session, events: u64) -> Result<()> {
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        let (before, at) = std::mem::replace(&mut self.last, (events, now));
        let rate = events.saturating_sub(before) as f64 / (now - at).as_secs_f64().max(1e-3);
        self.next = now + INTERVAL;
        if self.since.is_none() && rate <= MAX_RATE {
            return Ok(());
        }
        let all = session.contention()?;
        let new: Vec<Lock> =
            important(&all, &self.waited).into_iter().filter(|&lock| self.focused.insert(lock)).collect();
        self.waited = all.iter().map(|c| (c.lock, c.wait_ns)).collect();
        session.focus_on(new)?;
        if self.since.is_none() {
            self.since = Some(now - self.began);
            session.focus(&Ranges::default(), Waits::Long)?;
        }
        self.next = Instant::now() + INTERVAL.max(now.elapsed() * SHARE);
        Ok(())
    }

    fn note(&self, session: &Session, harvest: &Harvest) -> Result<Vec<String>> {
        let Some(since) = self.since else { return Ok(Vec::new()) };
        let focused = session.focused()?;
        let key = |k: &crate::sums::KernelSums| SumKey {
            lock: k.lock.addr,
            site: k.site.addr,
            process: k.lock.process.0,
            via: k.via as u32,
        };
        let all = by_lock(harvest.sums.iter().map(|k| (key(k), k.sums.wait_ns)));
        let all: Vec<_> = all.into_iter().filter(|c| c.wait_ns > 0).collect();
        let inside: Vec<_> = all.iter().filter(|c| focused.contains(&c.lock)).collect();
        let sum = |waits: &mut dyn Iterator<Item = u64>| waits.sum::<u64>() as f64;
        let share = sum(&mut inside.iter().map(|c| c.wait_ns)) / sum(&mut all.iter().map(|c| c.wait_ns)).max(1.0);
        Ok(vec![format!(
            "From {:.1} s on only the most waited-for locks were recorded, {} of {}, with {:.1} % of the waiting; the others \
             were counted only (--no-focus records them all).",
            since.as_secs_f64(),
            inside.len(),
            all.len(),
            100.0 * share,
        )])
    }
}

/// The locks that make up nearly all of what was waited since `before`: those of sections, and futex words apart, since
/// idle threads would hide the locks.
fn important(all: &[Contention], before: &HashMap<Lock, u64>) -> Vec<Lock> {
    let mut important = Vec::new();
    for futex in [false, true] {
        let since = |c: &Contention| c.wait_ns.saturating_sub(before.get(&c.lock).copied().unwrap_or(0));
        let of_kind = all.iter().filter(|c| c.futex == futex);
        let mut waits: Vec<(u64, Lock)> = of_kind.map(|c| (since(c), c.lock)).filter(|&(ns, _)| ns > 0).collect();
        waits.sort_unstable_by_key(|&(ns, lock)| (Reverse(ns), lock));
        let total: u64 = waits.iter().map(|&(ns, _)| ns).sum();
        let mut sum = 0;
        let covering = waits.iter().enumerate().take_while(|&(i, &(ns, _))| {
            let wanted = i < MIN_LOCKS || (sum as f64) < COVERED * total as f64;
            sum += ns;
            wanted
        });
        important.extend(covering.map(|(_, &(_, lock))| lock));
    }
    important
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(addr: u64) -> Lock {
        Lock { process: Process(1), addr }
    }

    fn contention(addr: u64, wait_ns: u64, futex: bool) -> Contention {
        Contention { lock: lock(addr), wait_ns, futex }
    }

    #[test]
    fn nearly_all_of_the_waiting_is_covered() {
        // 20 locks that matter, 1,000 that hardly do.
        let mut all: Vec<_> = (0..20).map(|i| contention(i, 1_000_000, false)).collect();
        all.extend((100..1_100).map(|i| contention(i, 10, false)));
        let chosen = important(&all, &HashMap::new());
        assert_eq!(chosen, (0..20).map(lock).collect::<Vec<_>>());
        // Few that matter: the first sixteen all the same.
        all.truncate(1);
        all.extend((100..1_100).map(|i| contention(i, 1, false)));
        assert_eq!(important(&all, &HashMap::new()).len(), MIN_LOCKS);
    }

    #[test]
    fn idle_words_do_not_hide_locks_and_the_past_does_not_hide_the_present() {
        let all = [contention(1, 10, false), contention(2, u64::MAX / 2, true), contention(3, 0, false)];
        assert_eq!(important(&all, &HashMap::new()), [lock(1), lock(2)]);
        let mut now: Vec<_> = (0..100).map(|i| contention(i, 1_000_000, false)).collect();
        let before: HashMap<_, _> = now.iter().map(|c| (c.lock, c.wait_ns)).collect();
        now.push(contention(200, 5, false));
        assert_eq!(important(&now, &before), [lock(200)]);
    }

    #[test]
    fn addresses_as_people_write_them() {
        assert_eq!(address("0x7f00"), Some(0x7f00));
        assert_eq!(address("1234:0x7f00"), Some(0x7f00));
        for name in ["cache_lock", "ns::lock", "0xlock", "7f00", ""] {
            assert_eq!(address(name), None, "{name}");
        }
    }
}
