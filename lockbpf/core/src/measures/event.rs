//! Events that the processor or the kernel counts, by perf's names.

use lockbpf_common::counts::MAX_EVENTS;

/// Events that can be named: the clock is counted in any case.
pub const MAX_NAMED: usize = MAX_EVENTS - 1;
/// The clock where the processor counts its cycles.
pub const CYCLES: &str = "cycles";
/// The clock elsewhere: ns for which a thread had a CPU.
pub const TASK_CLOCK: &str = "task-clock";
/// `PERF_COUNT_SW_CPU_CLOCK`, which on a CPU is the same as `PERF_COUNT_SW_TASK_CLOCK`. The latter goes back on kernel 5.15 when threads that
/// have events of their own (uprobes as perf events) come to the CPU.
const CPU_TIME: Source = Source::Software(0);

/// Who counts an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The processor; the number of one of the kernel's general events (`PERF_COUNT_HW_*`).
    Hardware(u64),
    /// The processor; its own number of the event.
    Raw(u64),
    /// The kernel (`PERF_COUNT_SW_*`).
    Software(u64),
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// As it was named: `cycles`, `instructions:u`, `r01c4`.
    pub name: String,
    /// Who counts it.
    pub source: Source,
    /// Whether it is counted in the program's own code.
    pub user: bool,
    /// Whether it is counted in the kernel.
    pub kernel: bool,
}

/// Why a list of events makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// No such event.
    #[error("unknown event {0:?}: {NAMES}, or rNNN, perhaps with :u or :k, is expected")]
    Unknown(String),
    /// No such modifier.
    #[error("unknown modifier in {0:?}: :u (in the program) or :k (in the kernel) is expected")]
    Modifier(String),
    /// What is counted neither here nor there.
    #[error("{0} is not counted for program and kernel apart: leave out the modifier")]
    Whole(String),
    /// The same event twice.
    #[error("{0} is named twice")]
    Twice(String),
    /// Too many.
    #[error(
        "{0} events are too many: {MAX_NAMED} can be counted beside the clock (cycles, or task-clock without a PMU)"
    )]
    TooMany(usize),
}

/// Names for the error, those of the kernel last.
const NAMES: &str = "cycles, instructions, cache-misses, cache-references, branch-misses, branches, page-faults, minor-faults, \
                     major-faults, context-switches, cpu-migrations, task-clock";

fn source(name: &str) -> Option<Source> {
    use Source::{Hardware, Raw, Software};
    Some(match name {
        CYCLES | "cpu-cycles" => Hardware(0),
        "instructions" => Hardware(1),
        "cache-references" => Hardware(2),
        "cache-misses" => Hardware(3),
        "branches" | "branch-instructions" => Hardware(4),
        "branch-misses" => Hardware(5),
        TASK_CLOCK => CPU_TIME,
        "page-faults" | "faults" => Software(2),
        "context-switches" | "cs" => Software(3),
        "cpu-migrations" | "migrations" => Software(4),
        "minor-faults" => Software(5),
        "major-faults" => Software(6),
        raw => Raw(u64::from_str_radix(raw.strip_prefix('r').filter(|digits| is_hexadecimal(digits))?, 16).ok()?),
    })
}

fn is_hexadecimal(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

impl Event {
    /// The event of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn parse(text: &str) -> Result<Self, EventError> {
        let (name, modifiers) = text.split_once(':').map_or((text, None), |(name, modifiers)| (name, Some(modifiers)));
        let source = source(name).ok_or_else(|| EventError::Unknown(text.to_owned()))?;
        let (user, kernel) = match modifiers {
            None => (true, true),
            Some("u") => (true, false),
            Some("k") => (false, true),
            Some("uk" | "ku") => (true, true),
            Some(_) => return Err(EventError::Modifier(text.to_owned())),
        };
        // A clock runs here and there; threads change places in the kernel only.
        if modifiers.is_some() && matches!(source, CPU_TIME | Source::Software(3 | 4)) {
            return Err(EventError::Whole(name.to_owned()));
        }
        Ok(Self { name: text.to_owned(), source, user, kernel })
    }

    /// The events in a list with commas between them; none in an empty one.
    ///
    /// # Errors
    /// When one of them makes no sense, is named twice, or they are too many.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, EventError> {
        let mut events: Vec<Self> = Vec::new();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let event = Self::parse(name)?;
            if events.iter().any(|other| other.is_same(&event)) {
                return Err(EventError::Twice(name.to_owned()));
            }
            events.push(event);
        }
        let most = [true, false].map(|pmu| Self::with_clock(&events, pmu).len()).into_iter().max();
        if most > Some(MAX_EVENTS) { Err(EventError::TooMany(events.len())) } else { Ok(events) }
    }

    /// Those to count if these are named: the clock first. Without a PMU there are no cycles, and the time on a CPU stands in for
    /// them. Where none is named, instructions with a PMU.
    #[must_use]
    pub fn with_clock(named: &[Self], pmu: bool) -> Vec<Self> {
        let clock = |name: &str, source| Self { name: name.to_owned(), source, user: true, kernel: true };
        let first = if pmu { clock(CYCLES, Source::Hardware(0)) } else { clock(TASK_CLOCK, CPU_TIME) };
        let mut events = vec![first];
        if named.is_empty() && pmu {
            events.push(clock("instructions", Source::Hardware(1)));
        }
        for event in named {
            if !event.is_same(&events[0]) {
                events.push(event.clone());
            }
        }
        events
    }

    /// Whether it is counted by the processor.
    #[must_use]
    pub fn needs_pmu(&self) -> bool {
        !matches!(self.source, Source::Software(_))
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.source, self.user, self.kernel) == (other.source, other.user, other.kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(events: &[Event]) -> Vec<&str> {
        events.iter().map(|event| event.name.as_str()).collect()
    }

    #[test]
    fn perfs_names_are_known() {
        for name in NAMES.split(',').map(str::trim) {
            assert!(Event::parse(name).is_ok_and(|event| event.user && event.kernel), "{name}");
        }
        let raw = Event::parse("r01C4:u").unwrap();
        assert_eq!((raw.source, raw.user, raw.kernel), (Source::Raw(0x1c4), true, false));
        let kernel = Event::parse("cycles:k").unwrap();
        assert_eq!((kernel.source, kernel.user, kernel.kernel), (Source::Hardware(0), false, true));
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        use EventError::{Modifier, TooMany, Twice, Unknown, Whole};
        let error = |text: &str| Event::parse_list(text).unwrap_err();
        assert_eq!(error("cycles,cats"), Unknown("cats".into()));
        assert_eq!(error("r"), Unknown("r".into()));
        assert_eq!(error("r12345678901234567"), Unknown("r12345678901234567".into()));
        assert_eq!(error("r+1"), Unknown("r+1".into()));
        assert_eq!(error("cycles:p"), Modifier("cycles:p".into()));
        assert_eq!(error("context-switches:u"), Whole("context-switches".into()));
        assert_eq!(error("page-faults,faults"), Twice("faults".into()));
        let five = "instructions,cache-misses,branches,branch-misses,page-faults";
        assert_eq!(error(five), TooMany(5));
    }

    #[test]
    fn the_clock_comes_first_and_once() {
        let list = |text: &str| Event::parse_list(text).unwrap();
        let four = "instructions,cache-misses,branches,branch-misses";
        assert_eq!(names(&Event::with_clock(&list(four), true)).len(), MAX_EVENTS);
        assert_eq!(names(&Event::with_clock(&list("page-faults,cycles"), true)), ["cycles", "page-faults"]);
        assert_eq!(names(&Event::with_clock(&list("page-faults,task-clock"), false)), ["task-clock", "page-faults"]);
        assert_eq!(names(&Event::with_clock(&list("cycles:u"), true)), ["cycles", "cycles:u"]);
        assert_eq!(names(&Event::with_clock(&[], true)), ["cycles", "instructions"]);
        assert_eq!(names(&Event::with_clock(&[], false)), ["task-clock"]);
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in "[a-z0-9:,-]{0,30}") {
            let _ = Event::parse_list(&text);
        }
    }
}
