//! Alerts while an observation runs: waits and holds that last too long are told while they last, with whoever is to blame. What the kernel
//! side knows of waits in progress is read again and again; the target does nothing for it.

mod caught;
mod naming;
mod outlets;

use super::alert_args::AlertArgs;
use crate::alert::{Alert, Due, HeldFor, Kind, Lasting, MAX_AT_ONCE, Purpose, Rules, SoFar, Tally, purpose};
use crate::capture::earlier::Earlier;
use crate::capture::holder::Holders;
use crate::capture::inflight::Snapshot;
use crate::capture::session::{Session, now};
use crate::capture::waits;
use crate::id::{Lock, Process, Site, Tid};
use crate::names::Frame;
use crate::observation::OpenWait;
use crate::observe::census::Census;
use crate::proc;
use crate::report::{Selection, Sleeps};
use crate::units::{Nanos, Time};
use crate::untrusted::shown_lines;
use anyhow::{Result, bail};
use caught::{Caught, Scene, Waiter};
use lockbpf_common::kind::Via;
use naming::About;
use outlets::Outlet;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Looks may take one part in so many of the time, but for what is asked about what they find: where there is much to look at, they are
/// rarer.
const SHARE: u32 = 20;
/// Waits whose stacks are read at one look to find out what they are for, at most.
const MAX_STACKS: usize = 64;
/// Locks whose holders are looked for at one look, for what those prove who wait.
const MAX_LOCKS: usize = 64;

/// Watches for what lasts too long.
pub(super) struct Alerts {
    wait: Option<Rules>,
    hold: Option<Rules>,
    selection: Selection,
    holders: Holders,
    earlier: Earlier,
    /// Whether those that have lasted long enough are wanted.
    judged: HashMap<Lasting, Judged>,
    outlets: Vec<Outlet>,
    told: SoFar,
    next: Instant,
}

/// What was found out of a wait or a hold.
#[derive(Clone, Copy, Debug)]
struct Judged {
    /// Whether it is to be told.
    wanted: bool,
    /// Whether it is for a lock for certain.
    certain: bool,
    /// What such a lock is called.
    what: Option<&'static str>,
}

/// A hold in progress.
#[derive(Clone, Copy, Debug)]
struct Held {
    lasting: Lasting,
    /// Where it was got, if that was seen.
    site: Option<Site>,
    via: Option<Via>,
}

impl Alerts {
    /// What the user has asked for, of the locks that are selected; `None` for no alerts. Files are opened.
    ///
    /// # Errors
    /// When an outlet is asked for without alerts, or cannot be opened.
    pub(super) fn prepare(args: &AlertArgs, selection: Selection) -> Result<Option<Self>> {
        let AlertArgs { wait_over, hold_over, alerts, on_alert } = args;
        if wait_over.is_none() && hold_over.is_none() {
            if alerts.is_some() || on_alert.is_some() {
                bail!(
                    "--alerts and --on-alert say where alerts go: say of what there are any with --wait-over or --hold-over"
                );
            }
            return Ok(None);
        }
        let rules = |over: Option<Duration>| over.map(|over| Rules::new(Nanos(over.as_nanos() as u64)));
        let mut outlets = Vec::new();
        outlets.extend(alerts.as_deref().map(Outlet::file).transpose()?);
        outlets.extend(on_alert.clone().map(Outlet::command).transpose()?);
        Ok(Some(Self {
            wait: rules(*wait_over),
            hold: rules(*hold_over),
            selection,
            holders: Holders::default(),
            earlier: Earlier::default(),
            judged: HashMap::new(),
            outlets,
            told: SoFar::default(),
            next: Instant::now(),
        }))
    }

    /// The observation begins; `before` are waits that were in progress.
    pub(super) fn begin(&mut self, before: &Snapshot, start: Time, wanted: impl Fn(Tid) -> bool) {
        self.earlier = Earlier::new(before, start, wanted);
    }

    /// Looks, unless the looks before have taken too long. Returns what there is to be told.
    pub(super) fn look(&mut self, session: &Session, census: &mut Census) -> Option<String> {
        let began = Instant::now();
        if began < self.next {
            return None;
        }
        let pids = census.pids();
        // A map that cannot be read now cannot be read at the end either, and then it is an error.
        let mut waits = session.waits().unwrap_or_default();
        waits.extend(self.earlier.look(&waits, |pid| census.number(pid)));
        waits.retain(|wait| pids.contains_key(&wait.lock.process) && purpose(wait) != Purpose::Other);
        waits.sort_unstable_by_key(|wait| (wait.since, wait.tid));
        self.holders.forget();
        let Self { wait, hold, selection, holders, judged, .. } = self;
        let mut look = Look {
            scene: Scene { session, waits: &waits, pids: &pids, holders },
            census,
            selection,
            judged,
            going_on: HashSet::new(),
            naming: Duration::ZERO,
        };
        // All of it is caught before anything is named.
        let mut caught = Vec::new();
        if let Some(rules) = hold {
            caught.extend(look.of_holds(rules));
        }
        if let Some(rules) = wait {
            caught.extend(look.of_waits(rules));
        }
        let alerts: Vec<Alert> = caught
            .iter()
            .map(|(caught, about)| look.named(|census, _| naming::alert(caught, *about, census)))
            .collect();
        let Look { going_on, naming, .. } = look;
        judged.retain(|lasting, _| going_on.contains(lasting));
        let text: String = alerts.iter().map(|alert| self.tell(alert)).collect();
        // Reading symbols, which is done once, is not to delay what comes next; how much is named is bounded.
        self.next = Instant::now() + began.elapsed().saturating_sub(naming) * SHARE + naming;
        (!text.is_empty()).then_some(text)
    }

    /// Hands an alert to whoever is to have it; returns it as a line for people.
    fn tell(&mut self, alert: &Alert) -> String {
        // JSON can be made of numbers and texts.
        if let (false, Ok(json)) = (self.outlets.is_empty(), serde_json::to_string(alert)) {
            self.outlets.iter().for_each(|outlet| outlet.take(&json));
        }
        let count = match alert.kind {
            Kind::Wait => &mut self.told.waits,
            Kind::Hold => &mut self.told.holds,
        };
        *count += 1;
        self.told.last = alert.line();
        shown_lines(&format!("lockbpf: {}", self.told.last)) + "\n"
    }

    /// Those that were told.
    pub(super) fn told(&self) -> &SoFar {
        &self.told
    }

    /// Ends. Returns how many alerts there were, and what has gone wrong.
    pub(super) fn end(mut self) -> String {
        let tally = |rules: &Option<Rules>| rules.as_ref().map_or(Tally::default(), Rules::tally);
        let (waits, holds) = (tally(&self.wait), tally(&self.hold));
        let (told, left_out) = (waits.told + holds.told, waits.left_out + holds.left_out);
        let mut text = format!("lockbpf: alerts: {told} told");
        if left_out > 0 {
            text += &format!(", {left_out} more left out: of one lock at most one a second is told");
        }
        for wrong in self.outlets.iter_mut().flat_map(Outlet::end) {
            text += &format!("; {wrong}");
        }
        text + "\n"
    }
}

/// One look.
struct Look<'a> {
    scene: Scene<'a>,
    census: &'a mut Census,
    selection: &'a Selection,
    judged: &'a mut HashMap<Lasting, Judged>,
    /// What lasts longer than its threshold.
    going_on: HashSet<Lasting>,
    /// What naming took.
    naming: Duration,
}

impl Look<'_> {
    /// What is to be told of waits.
    fn of_waits(&mut self, rules: &mut Rules) -> Vec<(Caught, About)> {
        let at = now();
        let chosen = is_chosen(self.selection);
        let mut wanted = Vec::new();
        let mut unknown = Vec::new();
        let waits = self.scene.waits;
        for wait in waits.iter().filter(|wait| rules.is_over(wait.since, at)) {
            let lasting = Lasting { lock: wait.lock, tid: wait.tid, since: wait.since };
            self.going_on.insert(lasting);
            let needs_names = chosen || purpose(wait) == Purpose::Unknown;
            match self.judged.get(&lasting) {
                None if needs_names => unknown.push((lasting, wait)),
                None => _ = self.judged.insert(lasting, judge(wait, None, self.selection, self.census)),
                Some(_) => {}
            }
            if self.judged.get(&lasting).is_some_and(|judged| judged.wanted) {
                wanted.push(lasting);
            }
        }
        // Beyond that at the next look.
        unknown.truncate(MAX_STACKS);
        let mut caught: HashMap<Lasting, Caught> = HashMap::new();
        if !unknown.is_empty() {
            // Finding out more about these may take a while, after which others may be over.
            let mut locks = HashSet::new();
            let firsts: Vec<_> =
                wanted.iter().copied().filter(|one| locks.insert(one.lock)).take(MAX_AT_ONCE).collect();
            caught.extend(firsts.into_iter().filter_map(|one| Some((one, self.scene.catch(&one)?))));
            caught.extend(unknown.iter().map(|(lasting, wait)| (*lasting, self.scene.wait(wait))));
        }
        for (lasting, wait) in unknown {
            let waiter = caught.get(&lasting).and_then(|caught| caught.waiter.as_ref());
            let judged = self.named(|census, selection| judge(wait, waiter, selection, census));
            self.judged.insert(lasting, judged);
            if judged.wanted {
                wanted.push(lasting);
            }
        }
        let due = rules.look(at, &wanted, |one| caught.contains_key(one) || self.scene.goes_on(one));
        let mut alerts = Vec::with_capacity(due.len());
        for Due { lasting, left_out } in due {
            let caught = caught.remove(&lasting).or_else(|| self.scene.catch(&lasting));
            let (Some(caught), Some(judged)) = (caught, self.judged.get(&lasting)) else { continue };
            let &Judged { certain, what, .. } = judged;
            let threshold = rules.threshold();
            alerts.push((caught, About { kind: Kind::Wait, threshold, left_out, certain, what }));
        }
        alerts
    }

    /// What is to be told of holds.
    fn of_holds(&mut self, rules: &mut Rules) -> Vec<(Caught, About)> {
        let at = now();
        let mut held = self.scene.seen_to_be_held(rules, at);
        held.extend(self.scene.named_by_waits(rules, at, &held));
        let mut wanted = Vec::new();
        for hold in &held {
            self.going_on.insert(hold.lasting);
            let verdict = match self.judged.get(&hold.lasting) {
                Some(judged) => *judged,
                None => self.named(|census, selection| {
                    let permit = hold.via.is_some_and(Via::is_semaphore);
                    let place = hold.site.and_then(|site| naming::place(site.process, site.addr, census));
                    let wanted = if is_chosen(selection) {
                        is_selected(selection, hold.lasting.lock, hold.site, place.as_ref(), census)
                    } else {
                        !permit
                    };
                    Judged { wanted, certain: true, what: None }
                }),
            };
            self.judged.insert(hold.lasting, verdict);
            if verdict.wanted {
                wanted.push(hold.lasting);
            }
        }
        let threshold = rules.threshold();
        let due = rules.look(at, &wanted, |_| true);
        let about = |left_out| About { kind: Kind::Hold, threshold, left_out, certain: true, what: None };
        due.iter().map(|due| (self.scene.hold(due.lasting.lock, due.lasting.tid), about(due.left_out))).collect()
    }

    /// Finds out something by names, which has bounds of its own.
    fn named<T>(&mut self, what: impl FnOnce(&mut Census, &Selection) -> T) -> T {
        let began = Instant::now();
        let found = what(self.census, self.selection);
        self.naming += began.elapsed();
        found
    }
}

/// Whether a wait is one of those that are to be told; `waiter` is what was caught of it, if names are wanted.
fn judge(wait: &OpenWait, waiter: Option<&Waiter>, selection: &Selection, census: &mut Census) -> Judged {
    let asked = waiter.map(|waiter| naming::asked(waiter, census));
    let chosen = is_chosen(selection);
    let (is_lock, certain, what) = match (purpose(wait), asked.as_ref().and_then(|asked| asked.sleeps)) {
        (Purpose::Lock, _) => (true, true, None),
        // Its permits may stand for work.
        (Purpose::Permit, _) => (chosen, true, Some("semaphore")),
        (Purpose::Unknown, Some(Sleeps::ForLock(what))) => (true, true, Some(what)),
        (Purpose::Unknown, None) => (true, false, None),
        (Purpose::Unknown, Some(Sleeps::Otherwise)) | (Purpose::Other, _) => (false, false, None),
    };
    let place = asked.as_ref().and_then(|asked| asked.place.as_ref());
    let wanted = is_lock && (!chosen || is_selected(selection, wait.lock, wait.site, place, census));
    Judged { wanted, certain, what }
}

/// Whether the user has chosen locks or places.
fn is_chosen(selection: &Selection) -> bool {
    !selection.lock.is_empty() || !selection.site.is_empty()
}

/// Whether the user has chosen this lock, asked for there.
fn is_selected(
    selection: &Selection,
    lock: Lock,
    site: Option<Site>,
    place: Option<&Frame>,
    census: &mut Census,
) -> bool {
    let told = naming::lock(lock, site, place, None, census);
    let pid = census.processes().get(&lock.process).map_or(0, |seen| seen.pid);
    let site = site.map(|site| format!("{pid}:{:#x}", site.addr)).unwrap_or_default();
    let symbol = place.map(Frame::symbol).unwrap_or_default();
    let has = |parts: &[String], names: [&str; 2]| {
        parts.is_empty() || parts.iter().any(|part| names.iter().any(|name| name.contains(part.as_str())))
    };
    has(&selection.lock.0, [&told.name, &told.id]) && has(&selection.site.0, [&symbol, &site])
}

impl Scene<'_> {
    /// The wait of which this is told.
    fn find(&self, lasting: &Lasting) -> Option<OpenWait> {
        self.waits.iter().find(|wait| wait.tid == lasting.tid && wait.since == lasting.since).copied()
    }

    /// The same, caught.
    fn catch(&mut self, lasting: &Lasting) -> Option<Caught> {
        self.find(lasting).map(|wait| self.wait(&wait))
    }

    /// Whether the thread is still there, and in that wait as far as can be seen: its end may have been missed.
    fn goes_on(&self, lasting: &Lasting) -> bool {
        let there = proc::is_there(format!("/proc/{}", lasting.tid.0));
        let is_over = |wait: &OpenWait| waits::over(std::slice::from_ref(wait), self.pids).next().is_some();
        there && self.find(lasting).is_some_and(|wait| !is_over(&wait))
    }

    /// The long holds of threads whose lock operations are all seen at this moment.
    fn seen_to_be_held(&self, rules: &Rules, at: Time) -> Vec<Held> {
        // As for waits.
        let threads: Vec<(Process, Tid)> = self.session.threads().unwrap_or_default();
        let mut all = Vec::new();
        for (process, tid) in threads.into_iter().filter(|(process, _)| self.pids.contains_key(process)) {
            let Some(now) = self.session.thread_now(tid) else { continue };
            for hold in now.holds.into_iter().filter(|hold| rules.is_over(hold.since, at)) {
                let lasting = Lasting { lock: Lock { process, addr: hold.lock }, tid, since: hold.since };
                let site = (hold.site != 0).then_some(Site { process, addr: hold.site });
                all.push(Held { lasting, site, via: hold.via });
            }
        }
        all
    }

    /// The long holds that those prove who wait: of a lock that nobody has given back since they began to sleep.
    fn named_by_waits(&mut self, rules: &Rules, at: Time, seen: &[Held]) -> Vec<Held> {
        let mut locks = HashSet::new();
        let mut all = Vec::new();
        for first in self.waits.iter().filter(|wait| rules.is_over(wait.since, at)) {
            let is_known = seen.iter().any(|hold| hold.lasting.lock == first.lock);
            if !locks.insert(first.lock) || is_known || purpose(first) != Purpose::Lock || locks.len() > MAX_LOCKS {
                continue;
            }
            if let Some((tid, HeldFor::AtLeast(_))) = self.held_by(first.lock) {
                let lasting = Lasting { lock: first.lock, tid, since: first.since };
                all.push(Held { lasting, site: None, via: None });
            }
        }
        all
    }
}
