//! What an alert says: as JSON for programs, and as one line for people.

use crate::names::Frame;
use crate::units::Nanos;
use serde::Serialize;
use std::fmt::Write;

/// The schema of an alert's JSON.
pub const SCHEMA: &str = "lockbpf.alert/1";

/// One alert. What is not known is not there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alert {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What it is of.
    pub kind: Kind,
    /// When, UTC, as in RFC 3339.
    pub time: String,
    /// The process of the one that waits or holds.
    pub pid: u32,
    /// Its name.
    pub process: String,
    /// The lock.
    pub lock: LockTold,
    /// From when on there is an alert, ns.
    pub threshold_ns: Nanos,
    /// The thread that has waited longest, if any waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiter: Option<ThreadTold>,
    /// How many threads wait for the lock, that one included.
    pub waiting: u64,
    /// Who holds the lock; else [`Alert::no_holder`] says why that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderTold>,
    /// Why the holder is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_holder: Option<&'static str>,
    /// What the holder waits for itself, and so on.
    pub chain: Vec<LinkTold>,
    /// Alerts of this kind and this lock that were left out since the one before.
    pub left_out: u64,
}

/// What lasts too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A thread waits.
    Wait,
    /// A thread holds.
    Hold,
}

/// A lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LockTold {
    /// `PID:0xADDRESS`, as reports have it.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// Whether it is one for certain: else a futex word, used as contended locks use theirs.
    pub certain: bool,
}

/// A place in the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CodePlace {
    /// The function; its file and the offset therein if it has no name.
    pub function: String,
    /// Source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// A thread that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ThreadTold {
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// For how long it has waited, ns.
    pub waited_ns: Nanos,
    /// Whether it may be longer: it waited already when the observation began.
    pub at_least: bool,
    /// Where it asked for the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<CodePlace>,
    /// How it got there, innermost first.
    pub stack: Vec<CodePlace>,
}

/// For how long a lock is held, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldFor {
    /// So long: its acquisition was seen.
    Exactly(Nanos),
    /// So long or longer: meanwhile nobody has given it back to the one who waits.
    AtLeast(Nanos),
    /// So long or less: so long ago it was given back last.
    AtMost(Nanos),
}

/// A thread that holds a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HolderTold {
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// What it does, in words.
    pub doing: String,
    /// For how long it is off the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_ns: Option<Nanos>,
    /// For how long it holds the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_ns: Option<HeldFor>,
    /// Where it got the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<CodePlace>,
    /// Where it sleeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<CodePlace>,
    /// How it got there, innermost first.
    pub stack: Vec<CodePlace>,
}

/// A lock that the holder before waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkTold {
    /// The lock.
    pub lock: LockTold,
    /// Who holds that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderTold>,
    /// Why that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_holder: Option<&'static str>,
}

impl From<&Frame> for CodePlace {
    fn from(frame: &Frame) -> Self {
        let Frame { location, .. } = frame;
        let (file, line) = location.clone().unzip();
        Self { function: Frame { location: None, ..frame.clone() }.symbol(), file, line }
    }
}

impl CodePlace {
    fn text(&self) -> String {
        let location = self.file.clone().zip(self.line);
        Frame { function: Some(self.function.clone()), location, ..Frame::default() }.symbol()
    }
}

impl Alert {
    /// The alert in one line, without its end.
    #[must_use]
    pub fn line(&self) -> String {
        let mut text = match self.kind {
            Kind::Wait => format!("wait over {}", self.threshold_ns),
            Kind::Hold => format!("hold over {}", self.threshold_ns),
        };
        _ = write!(text, " in {} ({}): ", self.pid, self.process);
        match self.kind {
            Kind::Wait => self.wait(&mut text),
            Kind::Hold => self.hold(&mut text),
        }
        match self.left_out {
            0 => {}
            1 => text.push_str(" (1 more alert of this lock left out before)"),
            more => _ = write!(text, " ({more} more alerts of this lock left out before)"),
        }
        text
    }

    fn wait(&self, text: &mut String) {
        if let Some(waiter) = &self.waiter {
            text.push_str(&waiter.text(&self.lock.text()));
        }
        match self.waiting.saturating_sub(1) {
            0 => {}
            1 => text.push_str(", as does 1 more"),
            more => _ = write!(text, ", as do {more} more"),
        }
        text.push_str(&held_by(";", self.holder.as_ref(), self.no_holder));
        self.chain(text);
    }

    /// What the holder waits for, and so on.
    fn chain(&self, text: &mut String) {
        let mut holder = self.holder.as_ref();
        for link in &self.chain {
            let who = holder.map_or_else(String::new, |holder| format!("thread {}", holder.tid));
            _ = write!(text, "; {who} in turn waits for {}", link.lock.text());
            text.push_str(&held_by(",", link.holder.as_ref(), link.no_holder));
            holder = link.holder.as_ref();
        }
    }

    fn hold(&self, text: &mut String) {
        if let Some(holder) = &self.holder {
            _ = write!(text, "{} holds {}", named(holder.tid, &holder.name), self.lock.text());
            text.push_str(&holder.about());
        }
        self.chain(text);
        match (&self.waiter, self.waiting) {
            (Some(waiter), 1) => _ = write!(text, "; 1 thread waits: {}", waiter.text("it")),
            (Some(waiter), n) => _ = write!(text, "; {n} threads wait, longest {}", waiter.text("it")),
            (None, _) => text.push_str("; nobody was seen to wait"),
        }
    }
}

impl LockTold {
    fn text(&self) -> String {
        let Self { name, certain, .. } = self;
        if *certain { name.clone() } else { format!("{name} (a futex word, perhaps a lock's)") }
    }
}

impl ThreadTold {
    fn text(&self, lock: &str) -> String {
        let at_least = if self.at_least { "at least " } else { "" };
        let mut text = format!("{} has waited {at_least}{} for {lock}", named(self.tid, &self.name), self.waited_ns);
        if let Some(place) = &self.place {
            _ = write!(text, " in {}", place.text());
        }
        text
    }
}

impl HolderTold {
    /// For how long, where it was taken, what the thread does.
    fn about(&self) -> String {
        let mut text = match self.held_ns {
            Some(HeldFor::Exactly(ns)) => format!(" for {ns}"),
            Some(HeldFor::AtLeast(ns)) => format!(" for at least {ns}"),
            Some(HeldFor::AtMost(ns)) => format!(" for at most {ns}"),
            None => String::new(),
        };
        if let Some(place) = &self.taken_at {
            _ = write!(text, ", taken in {}", place.text());
        }
        _ = write!(text, ", {}", self.doing);
        if let Some(place) = &self.place {
            _ = write!(text, " in {}", place.text());
        }
        if let Some(off) = self.off_ns {
            _ = write!(text, ", off the CPU for {off}");
        }
        text
    }
}

fn held_by(stop: &str, holder: Option<&HolderTold>, no_holder: Option<&'static str>) -> String {
    match (holder, no_holder) {
        (Some(holder), _) => format!("{stop} held by {}{}", named(holder.tid, &holder.name), holder.about()),
        (None, Some(why)) => format!("; its holder is not known: {why}"),
        (None, None) => String::new(),
    }
}

fn named(tid: u32, name: &str) -> String {
    if name.is_empty() { format!("thread {tid}") } else { format!("thread {tid} ({name})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn place(function: &str, line: u32) -> Option<CodePlace> {
        Some(CodePlace { function: function.to_owned(), file: Some("src/wal.c".to_owned()), line: Some(line) })
    }

    fn lock(name: &str) -> LockTold {
        LockTold { id: "42:0x10".to_owned(), name: name.to_owned(), certain: true }
    }

    fn alert() -> Alert {
        Alert {
            schema: SCHEMA,
            kind: Kind::Wait,
            time: "2026-11-25T22:53:02.123Z".to_owned(),
            pid: 42,
            process: "db".to_owned(),
            lock: lock("cache_lock"),
            threshold_ns: Nanos(100 * MS),
            waiter: Some(ThreadTold {
                tid: 43,
                name: "worker".to_owned(),
                waited_ns: Nanos(132 * MS),
                place: place("handle", 12),
                stack: place("handle", 12).into_iter().collect(),
                at_least: false,
            }),
            waiting: 4,
            holder: Some(HolderTold {
                tid: 44,
                name: "flusher".to_owned(),
                doing: "asleep in fsync".to_owned(),
                off_ns: Some(Nanos(120 * MS)),
                held_ns: Some(HeldFor::Exactly(Nanos(240 * MS))),
                taken_at: place("flush", 88),
                place: place("sync", 90),
                stack: Vec::new(),
            }),
            no_holder: None,
            chain: Vec::new(),
            left_out: 0,
        }
    }

    #[test]
    fn a_wait_in_one_line() {
        assert_eq!(
            alert().line(),
            "wait over 100 ms in 42 (db): thread 43 (worker) has waited 132 ms for cache_lock in handle (wal.c:12), as do 3 more; \
             held by thread 44 (flusher) for 240 ms, taken in flush (wal.c:88), asleep in fsync in sync (wal.c:90), off the CPU for \
             120 ms"
        );
    }

    #[test]
    fn a_chain_and_what_is_not_known() {
        let link =
            LinkTold { lock: LockTold { certain: false, ..lock("0x20") }, no_holder: Some("it is free"), holder: None };
        let holder = HolderTold { tid: 44, doing: "waiting for a lock itself".to_owned(), ..HolderTold::default() };
        let waiter = ThreadTold { tid: 43, waited_ns: Nanos(132 * MS), at_least: true, ..ThreadTold::default() };
        let alert =
            Alert { holder: Some(holder), waiter: Some(waiter), waiting: 2, chain: vec![link], left_out: 5, ..alert() };
        assert_eq!(
            alert.line(),
            "wait over 100 ms in 42 (db): thread 43 has waited at least 132 ms for cache_lock, as does 1 more; held by thread 44, \
             waiting for a lock itself; thread 44 in turn waits for 0x20 (a futex word, perhaps a lock's); its holder is not known: it is free \
             (5 more alerts of this lock left out before)"
        );
        let nobody = Alert { holder: None, no_holder: Some("it is free"), chain: Vec::new(), waiting: 1, ..alert };
        assert!(nobody.line().contains("for cache_lock; its holder is not known: it is free (5"), "{}", nobody.line());
    }

    #[test]
    fn a_hold_in_one_line() {
        let hold = Alert { kind: Kind::Hold, threshold_ns: Nanos(50 * MS), ..alert() };
        assert!(
            hold.line().starts_with(
                "hold over 50.0 ms in 42 (db): thread 44 (flusher) holds cache_lock for 240 ms, taken in flush"
            ),
            "{}",
            hold.line()
        );
        assert!(
            hold.line().ends_with(
                "; 4 threads wait, longest thread 43 (worker) has waited 132 ms for it in handle (wal.c:12)"
            )
        );
        let alone = Alert { waiter: None, waiting: 0, ..hold };
        assert!(alone.line().ends_with("off the CPU for 120 ms; nobody was seen to wait"), "{}", alone.line());
    }

    #[test]
    fn json_has_what_is_known() {
        let json = serde_json::to_value(alert()).unwrap();
        assert_eq!(json["schema"], "lockbpf.alert/1");
        assert_eq!((&json["kind"], &json["waiter"]["waited_ns"]), (&"wait".into(), &(132 * MS).into()));
        assert_eq!(json["holder"]["held_ns"], serde_json::json!({"exactly": 240 * MS}));
        assert_eq!(json["holder"]["taken_at"]["function"], "flush");
        assert!(json.get("no_holder").is_none());
    }

    #[test]
    fn a_place_is_as_good_as_its_frame() {
        let frame = Frame { module: Some(("libx.so".to_owned(), 0x20)), ..Frame::default() };
        assert_eq!(CodePlace::from(&frame).text(), "libx.so+0x20");
        let frame = Frame::from_symbol("flush (wal.c:88)");
        assert_eq!(CodePlace::from(&frame).text(), "flush (wal.c:88)");
    }
}
