//! Perfetto's traces, of track events. Waits and holds have the names that Android's runtime gives them: so the lock contention plugin and the
//! standard library of ui.perfetto.dev understand them. `google/perfetto:protos/perfetto/trace/track_event/track_event.proto`;
//! names as in `google/perfetto:src/trace_processor/perfetto_sql/stdlib/android/monitor_contention.sql`.

use super::lanes::{Edge, Interval, lanes};
use super::{Format, Renderer};
use crate::protobuf::Message;
use crate::report::schema::{Ns, Place};
use crate::report::timeline::{Hold, NO_PID, Timeline, Wait};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use std::collections::{BTreeSet, HashSet};
use std::io::{self, Write};

/// The format.
pub(super) const PERFETTO: Format = Format {
    name: "perfetto",
    suffixes: &[".perfetto-trace", ".pftrace", ".perfetto"],
    about: "Perfetto: a timeline of threads and locks",
    leaves_out: "Perfetto shows what was recorded one by one: parts of a ns are left out",
    renderer: Renderer::Timeline(write),
};

/// Kinds of track events.
mod kind {
    pub(super) const BEGIN: u64 = 1;
    pub(super) const END: u64 = 2;
    pub(super) const COUNTER: u64 = 4;
    /// What a state track shows from then on; without a name nothing.
    pub(super) const STATE: u64 = 5;
}

/// Holders that the state of a lock names; of the others it tells how many they are.
const NAMED_HOLDERS: usize = 4;

/// All packets are of one sequence. Its first says that nothing is known yet; the others build upon texts told before.
const SEQUENCE: u64 = 1;
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;

/// What is drawn.
#[derive(Clone, Copy)]
enum Slice<'a> {
    /// The call that asks for a lock.
    Asks(&'a Wait),
    /// The wait within that.
    Waits(&'a Wait, usize),
    /// A lock on its thread's track.
    Holds(&'a Hold),
}

struct Trace<'a> {
    timeline: &'a Timeline,
    out: &'a mut dyn Write,
    tracks: u64,
    names: Texts,
    keys: Texts,
    values: Texts,
    /// Texts that the next packet has to tell.
    news: Message,
}

/// Texts that were told, numbered from 1.
type Texts = IndexSet<String, FxBuildHasher>;

/// The number of a text. If it is new, `news` tells it in this field.
fn told(texts: &mut Texts, text: &str, news: &mut Message, field: u32) -> u64 {
    let row = texts.get_index_of(text).unwrap_or_else(|| {
        let row = texts.insert_full(text.to_owned()).0;
        news.message(field, Message::default().number(1, row as u64 + 1).bytes(2, text.as_bytes()));
        row
    });
    row as u64 + 1
}

fn write(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    let mut trace = Trace {
        timeline,
        out,
        tracks: 0,
        names: Texts::default(),
        keys: Texts::default(),
        values: Texts::default(),
        news: Message::default(),
    };
    trace.packet(Message::default().number(13, STATE_CLEARED))?;
    let queued = queued(timeline);
    let mut of_thread: Vec<Vec<Interval<Slice<'_>>>> = vec![Vec::new(); timeline.threads.len()];
    let mut of_lock: Vec<Vec<&Hold>> = vec![Vec::new(); timeline.locks.len()];
    let mut counts: Vec<Vec<(u64, bool)>> = vec![Vec::new(); timeline.locks.len()];
    let waited = timeline.waits.iter().map(|wait| (wait.thread, wait.start_ns + wait.wait_ns));
    let ends: HashSet<_> = timeline.holds.iter().map(|hold| (hold.thread, hold.end_ns)).chain(waited).collect();
    for (wait, &before) in timeline.waits.iter().zip(&queued) {
        let (start, end) = (wait.start_ns, wait.start_ns + wait.wait_ns);
        // The standard library wants the call to begin before the wait; what went before must have ended by then.
        let asked = if ends.contains(&(wait.thread, start)) { start } else { start - Ns::new(1) };
        let intervals = &mut of_thread[wait.thread];
        intervals.push(Interval { start: asked, end, what: Slice::Asks(wait) });
        intervals.push(Interval { start, end, what: Slice::Waits(wait, before) });
        counts[wait.lock].extend([(start.whole(), true), (end.whole(), false)]);
    }
    for hold in &timeline.holds {
        let (start, end) = (hold.start_ns, hold.end_ns);
        of_thread[hold.thread].push(Interval { start, end, what: Slice::Holds(hold) });
        of_lock[hold.lock].push(hold);
    }
    trace.processes()?;
    for (thread, intervals) in of_thread.into_iter().enumerate() {
        trace.thread(thread, intervals)?;
    }
    for (lock, (holds, counts)) in of_lock.into_iter().zip(counts).enumerate() {
        trace.lock(lock, &holds, counts)?;
    }
    Ok(())
}

/// By wait, how many others waited for the lock when it began.
fn queued(timeline: &Timeline) -> Vec<usize> {
    let mut waiting: Vec<BTreeSet<(Ns, usize)>> = vec![BTreeSet::new(); timeline.locks.len()];
    let mut queued = Vec::with_capacity(timeline.waits.len());
    for (at, wait) in timeline.waits.iter().enumerate() {
        let open = &mut waiting[wait.lock];
        while open.first().is_some_and(|&(end, _)| end <= wait.start_ns) {
            open.pop_first();
        }
        queued.push(open.len());
        open.insert((wait.start_ns + wait.wait_ns, at));
    }
    queued
}

impl Trace<'_> {
    fn packet(&mut self, packet: &mut Message) -> io::Result<()> {
        packet.number(10, SEQUENCE);
        let mut trace = Message::default();
        trace.message(1, packet);
        self.out.write_all(trace.as_bytes())
    }

    /// Describes a track, and gives its number.
    fn track(&mut self, fill: impl FnOnce(&mut Message) -> &mut Message) -> io::Result<u64> {
        self.tracks += 1;
        let mut track = Message::default();
        track.number(1, self.tracks);
        fill(&mut track);
        self.packet(Message::default().message(60, &track))?;
        Ok(self.tracks)
    }

    fn event(&mut self, time: Ns, track: u64, event: &mut Message) -> io::Result<()> {
        event.number(11, track);
        let mut packet = Message::default();
        packet.number(8, time.whole()).number(13, NEEDS_STATE).message(11, event);
        let news = std::mem::take(&mut self.news);
        if !news.as_bytes().is_empty() {
            packet.message(12, &news);
        }
        self.packet(&mut packet)
    }

    fn processes(&mut self) -> io::Result<()> {
        let timeline = self.timeline;
        let processes = timeline.threads.iter().map(|thread| match thread.pid {
            Some(pid) => (pid, thread.process.as_str()),
            None => (NO_PID, timeline.target.as_str()),
        });
        for (pid, name) in processes.collect::<BTreeSet<_>>() {
            let mut process = Message::default();
            process.number(1, pid.into()).bytes(6, name.as_bytes());
            self.track(|track| track.message(3, &process))?;
        }
        Ok(())
    }

    fn thread(&mut self, thread: usize, intervals: Vec<Interval<Slice<'_>>>) -> io::Result<()> {
        let known = &self.timeline.threads[thread];
        let mut described = Message::default();
        described.number(1, known.pid.unwrap_or(NO_PID).into()).number(2, known.number.into());
        described.bytes(5, self.timeline.called(thread).as_bytes());
        let track = self.track(|track| track.message(4, &described))?;
        self.lanes(track, intervals)
    }

    fn lock(&mut self, lock: usize, holds: &[&Hold], mut counts: Vec<(u64, bool)>) -> io::Result<()> {
        let named = &self.timeline.locks[lock];
        let run = named.run.map(|run| format!("run {run}: ")).unwrap_or_default();
        let kind = if named.kind.is_empty() { String::new() } else { format!(" ({})", named.kind) };
        let title = format!("{run}{}{kind}", named.name);
        let track = self.track(|track| track.bytes(2, title.as_bytes()).message(18, &Message::default()))?;
        self.states(track, holds)?;
        if counts.is_empty() {
            return Ok(());
        }
        let name = format!("{run}waiting for {}", named.name);
        let counter = self
            .track(|described| described.bytes(2, name.as_bytes()).number(5, track).message(8, &Message::default()))?;
        // At one time, ends come first.
        counts.sort_unstable();
        let mut waiting = 0_u64;
        for (time, begins) in counts {
            waiting = if begins { waiting + 1 } else { waiting.saturating_sub(1) };
            self.event(Ns::new(time), counter, Message::default().number(9, kind::COUNTER).number(30, waiting))?;
        }
        Ok(())
    }

    /// Tells who holds a lock, whenever that changes.
    fn states(&mut self, track: u64, holds: &[&Hold]) -> io::Result<()> {
        let mut changes: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * holds.len());
        for (at, hold) in holds.iter().enumerate().filter(|(_, hold)| hold.end_ns.whole() > hold.start_ns.whole()) {
            changes.extend([(hold.start_ns.whole(), true, at), (hold.end_ns.whole(), false, at)]);
        }
        changes.sort_unstable();
        let mut holders = BTreeSet::new();
        for at_once in changes.chunk_by(|a, b| a.0 == b.0) {
            for &(_, begins, at) in at_once {
                if begins {
                    holders.insert(at);
                } else {
                    holders.remove(&at);
                }
            }
            let now: Vec<&Hold> = holders.iter().map(|&at| holds[at]).collect();
            let mut event = self.state(&now);
            self.event(Ns::new(at_once[0].0), track, event.number(9, kind::STATE))?;
        }
        Ok(())
    }

    /// Nobody, or all holders of a lock; of a single one also with which stack it has it.
    fn state(&mut self, holders: &[&Hold]) -> Message {
        let mut event = Message::default();
        if holders.is_empty() {
            return event;
        }
        let named = holders.iter().take(NAMED_HOLDERS).map(|hold| self.timeline.called(hold.thread));
        let mut name = named.collect::<Vec<_>>().join(" + ");
        if holders.len() > NAMED_HOLDERS {
            name += &format!(" + {} more", holders.len() - NAMED_HOLDERS);
        }
        event.number(10, told(&mut self.names, &name, &mut self.news, 2));
        if let [hold] = holders {
            self.describe(&mut event, hold.lock, hold.stack);
        }
        event
    }

    /// Draws slices on a track; those that do not nest there, on tracks of their own beneath it.
    fn lanes(&mut self, track: u64, intervals: Vec<Interval<Slice<'_>>>) -> io::Result<()> {
        for (at, edges) in lanes(intervals).into_iter().enumerate() {
            let lane = if at == 0 {
                track
            } else {
                let name = format!("more locks ({at})");
                self.track(|described| described.bytes(2, name.as_bytes()).number(5, track))?
            };
            for edge in edges {
                match edge {
                    Edge::End(time) => self.event(time, lane, Message::default().number(9, kind::END))?,
                    Edge::Begin(time, slice) => {
                        let mut event = self.slice(slice);
                        self.event(time, lane, event.number(9, kind::BEGIN))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn slice(&mut self, slice: Slice<'_>) -> Message {
        let timeline = self.timeline;
        let mut event = Message::default();
        let name = match slice {
            Slice::Asks(wait) => format!("{}_lock_acquire", self.lock_name(wait.lock)),
            Slice::Waits(wait, queued) => self.contention(wait, queued),
            Slice::Holds(hold) => format!("{}_lock_held", self.lock_name(hold.lock)),
        };
        event.number(10, told(&mut self.names, &name, &mut self.news, 2));
        let (lock, stack) = match slice {
            // What it asks for stands in the wait within.
            Slice::Asks(_) => return event,
            Slice::Waits(wait, _) => (wait.lock, wait.stack),
            Slice::Holds(hold) => (hold.lock, hold.stack),
        };
        self.describe(&mut event, lock, stack);
        if let Slice::Waits(wait, _) = slice {
            let blamed: Ns = wait.culprits.iter().map(|culprit| culprit.wait_ns).sum();
            for (at, culprit) in wait.culprits.iter().enumerate() {
                self.remark(&mut event, &format!("blamed {}", at + 1), &timeline.blamed(culprit));
            }
            if wait.wait_ns > blamed {
                self.remark(&mut event, "blamed on nobody", &(wait.wait_ns - blamed).to_string());
            }
        }
        event
    }

    /// Says of an event which lock it is about, and by which calls.
    fn describe(&mut self, event: &mut Message, lock: usize, stack: usize) {
        let timeline = self.timeline;
        let lock = &timeline.locks[lock];
        self.annotate(event, "lock", &lock.name);
        self.annotate(event, "kind", &lock.kind);
        let calls: Vec<String> = timeline.stacks[stack].frames.iter().map(super::name).collect();
        self.annotate(event, "stack", &calls.join(" ← "));
    }

    /// Says of an event what is hardly said of another.
    fn remark(&mut self, event: &mut Message, key: &str, value: &str) {
        let key = told(&mut self.keys, key, &mut self.news, 3);
        event.message(4, Message::default().number(1, key).bytes(6, value.as_bytes()));
    }

    /// Says of an event what is said of others, too. Empty texts say nothing.
    fn annotate(&mut self, event: &mut Message, key: &str, value: &str) {
        if !value.is_empty() {
            let key = told(&mut self.keys, key, &mut self.news, 3);
            let value = told(&mut self.values, value, &mut self.news, 29);
            event.message(4, Message::default().number(1, key).number(17, value));
        }
    }

    /// As Android's runtime says it; where nobody is known to be the cause, in words of our own.
    fn contention(&self, wait: &Wait, queued: usize) -> String {
        let Some(most) = self.timeline.mostly(wait) else {
            return format!("waits for {}: nobody known", self.lock_name(wait.lock));
        };
        let owner = owner(&self.timeline.called(most.thread));
        format!(
            "monitor contention with owner {owner} ({}) at {} waiters={queued} blocking from {}",
            self.timeline.threads[most.thread].number,
            method(&self.timeline.places[most.place]),
            method(&self.timeline.stacks[wait.stack].place),
        )
    }

    fn lock_name(&self, lock: usize) -> &str {
        &self.timeline.locks[lock].name
    }
}

/// A thread's name without what divides the parts of a wait's.
fn owner(name: &str) -> String {
    name.replace(") at ", ") ").replace(")(", ")").replace(" (", " ")
}

/// A place as Java's are written: the function's name has no spaces and no parentheses then, and a type comes before it.
fn method(place: &Place) -> String {
    let function = place.function.as_ref().unwrap_or(&place.symbol);
    let bare = function.split('(').next().filter(|bare| !bare.trim().is_empty()).unwrap_or(function);
    let plain = |text: &str, without: &[char]| -> String {
        text.chars().filter(|c| !c.is_whitespace() && !c.is_control() && !without.contains(c)).collect()
    };
    let file = place.file.as_deref().and_then(|file| file.rsplit('/').next()).unwrap_or("unknown");
    let (function, file) = (plain(bare, &['(', ')']), plain(file, &['(', ')', ':']));
    format!("void {function}()({file}:{})", place.line.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One part of a text, as the function of that name in Perfetto's SQL gives it.
    fn str_split<'a>(text: &'a str, by: &str, part: usize) -> &'a str {
        text.split(by).nth(part).unwrap_or_default()
    }

    /// The columns of `android_monitor_contention`, as `monitor_contention.sql` splits them off a slice's name.
    #[test]
    fn names_of_waits_are_split_as_perfettos_standard_library_does() {
        let place = |function: &str, file: &str| {
            let (function, file) = (Some(function.to_owned()), Some(file.to_owned()));
            method(&Place { function, file, line: Some(7), ..Place::default() })
        };
        let (blocking, blocked) =
            (place("std::map<int, long>::at(int) const", "/src/a(b):c.h"), place("(anonymous)", "d.c"));
        let owner = owner("pool (2) at work)(");
        let name =
            format!("monitor contention with owner {owner} (42) at {blocking} waiters=3 blocking from {blocked}");
        assert_eq!(str_split(str_split(&name, "with owner ", 1), " (", 0), "pool 2) work)");
        assert_eq!(str_split(str_split(&name, " (", 1), ")", 0), "42");
        let method = |of: &str| format!("{}({}", str_split(of, "(", 0), str_split(of, "(", 1));
        let short = |method: &str| str_split(str_split(method, " ", 1), "(", 0).to_owned();
        assert_eq!(short(&method(str_split(&name, ") at ", 1))), "std::map<int,long>::at");
        assert_eq!(short(&method(str_split(&name, "blocking from ", 1))), "anonymous");
        assert_eq!(str_split(str_split(&name, "waiters=", 1), " ", 0), "3");
        assert_eq!(str_split(str_split(&name, ")(", 1), ")", 0), "abc.h:7");
        assert_eq!(str_split(str_split(&name, ")(", 2), ")", 0), "d.c:7");
    }
}
