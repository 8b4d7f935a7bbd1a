//! What a report must say, and whether it does: in its JSON and in its first sentence, which people read.

use serde::Serialize;
use serde_json::Value;

use super::instance::Facts;

/// What is known of a program by how it is written.
pub(super) enum Expected {
    /// A place that holds a lock.
    Culprit { lock: Lock, place: &'static str, reason: Reason },
    /// Threads that wait for one another.
    Deadlock { locks: [&'static str; 2], places: [&'static str; 2] },
    /// No lock holds the program back.
    NoLock,
}

/// How the right lock is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lock {
    /// Its name contains this.
    Named(&'static str),
    /// By the address that the program told.
    Told,
}

/// What a culprit does while others wait for it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// It is on a CPU.
    Running,
    /// It is on a CPU, or waits for one behind the many that want the lock, or is handing it over.
    Busy,
    /// Others have its CPU.
    Preempted,
    /// It sleeps in one of these functions.
    Asleep(&'static [&'static str]),
    /// It is a task that no thread runs.
    Suspended,
    /// It is blocked in one of these functions.
    Blocked(&'static [&'static str]),
    /// Anything but `unknown`.
    Known,
}

/// Whether a report is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Judgement {
    pub(super) lock: bool,
    pub(super) place: bool,
    pub(super) reason: bool,
}

impl Judgement {
    /// Whether all of it is.
    pub(super) fn is_right(self) -> bool {
        self.lock && self.place && self.reason
    }

    fn all(right: bool) -> Self {
        Self { lock: right, place: right, reason: right }
    }
}

/// What a program told, and what it is written like.
pub(super) struct Truth<'a> {
    pub(super) facts: &'a Facts,
    pub(super) source: &'a str,
}

/// The first sentence of a report.
pub(super) fn first_sentence(report: &Value) -> &str {
    report.pointer("/verdict/0").and_then(Value::as_str).unwrap_or_default()
}

/// Part of all waiting that the first culprit explains.
pub(super) fn explained(report: &Value) -> Option<f64> {
    let culprit = report.pointer("/culprits/0/wait_ns")?.as_f64()?;
    let all = report.pointer("/totals/harm_ns").or_else(|| report.pointer("/totals/recorded_wait_ns"))?.as_f64()?;
    (all > 0.0).then_some(culprit / all)
}

impl Expected {
    /// Judges a report.
    pub(super) fn judge(&self, report: &Value, truth: &Truth<'_>) -> Judgement {
        let sentence = first_sentence(report);
        match self {
            Self::Culprit { lock, place, reason } => {
                let Some(culprit) = report.pointer("/culprits/0") else { return Judgement::default() };
                Judgement {
                    lock: lock.is(culprit, truth.facts) && sentence.contains(text(culprit, "name")),
                    place: is_place(culprit, place, truth) && (place.is_empty() || names(sentence, place)),
                    reason: reason.is(culprit) && reason.is_told(sentence),
                }
            }
            Self::Deadlock { locks, places } => {
                let told = sentence.starts_with("DEADLOCK");
                Judgement {
                    lock: told && locks.iter().all(|lock| names(sentence, lock)),
                    place: told && places.iter().all(|place| names(sentence, place)),
                    reason: told,
                }
            }
            Self::NoLock => Judgement::all(
                sentence.starts_with("No lock holds") || sentence.starts_with("No thread waited for a lock"),
            ),
        }
    }
}

impl Lock {
    fn is(self, culprit: &Value, facts: &Facts) -> bool {
        match self {
            Self::Named(name) => text(culprit, "name").contains(name),
            Self::Told => {
                let address = address(text(culprit, "lock"));
                facts.lock.zip(address).is_some_and(|((from, to), address)| (from..to).contains(&address))
            }
        }
    }
}

impl Reason {
    /// Whether it is what the culprit was doing most of the time.
    fn is(self, culprit: &Value) -> bool {
        let of = |cause: &str| culprit["causes"][cause].as_f64().unwrap_or(0.0);
        let causes = culprit["causes"].as_object();
        let all: f64 = causes.into_iter().flatten().filter_map(|(_, wait)| wait.as_f64()).sum();
        let most = |these: &[&str]| all > 0.0 && 2.0 * these.iter().map(|cause| of(cause)).sum::<f64>() > all;
        let inside = |cause: &str, functions: &[&str]| {
            let stacks = culprit["off_stacks"].as_array();
            stacks.into_iter().flatten().any(|stack| {
                stack["cause"] == cause && functions.iter().any(|function| text(stack, "function").contains(function))
            })
        };
        match self {
            Self::Running => most(&["running"]),
            Self::Busy => most(&["running", "runnable", "handoff"]),
            Self::Preempted => most(&["runnable"]),
            Self::Asleep(functions) => most(&["sleeping"]) && inside("sleeping", functions),
            Self::Suspended => most(&["sleeping"]),
            Self::Blocked(functions) => most(&["blocked"]) && inside("blocked", functions),
            Self::Known => all > 0.0 && 2.0 * of("unknown") < all,
        }
    }

    /// Whether the sentence says so.
    fn is_told(self, sentence: &str) -> bool {
        let inside = |words: &str, functions: &[&str]| {
            let after = sentence.split(words).nth(1).unwrap_or_default();
            functions.iter().any(|function| after.contains(function))
        };
        match self {
            Self::Running => sentence.contains("while running"),
            Self::Busy => {
                ["while running", "preempted", "handing the lock over"].iter().any(|words| sentence.contains(words))
            }
            Self::Preempted => sentence.contains("preempted"),
            Self::Asleep(functions) => inside("asleep in ", functions),
            Self::Suspended => sentence.contains("while suspended"),
            Self::Blocked(functions) => inside("blocked in ", functions),
            Self::Known => sentence.contains(" while ") || sentence.contains("preempted"),
        }
    }
}

/// Whether it is the function, or one that calls it for at least half of the waiting, at a line that the source marks, if it has a line; or in
/// the code that the program told.
fn is_place(culprit: &Value, function: &str, truth: &Truth<'_>) -> bool {
    if let Some((from, to)) = truth.facts.place {
        // A return address may be the one behind the code.
        return address(text(culprit, "site")).is_some_and(|site| from < site && site <= to);
    }
    let marked = |place: &Value| {
        let Some(line) = place["line"].as_u64() else { return true };
        let lines = truth
            .source
            .lines()
            .zip(1u64..)
            .filter(|(text, _)| text.contains("// culprit") || text.contains("# culprit"));
        lines.into_iter().any(|(_, marked)| marked.abs_diff(line) <= 1)
    };
    let caller = culprit.pointer("/callers/most/0").filter(|caller| caller["share"].as_f64() >= Some(0.5));
    [Some(culprit), caller].into_iter().flatten().any(|place| names(text(place, "function"), function) && marked(place))
}

/// Whether the text contains the name, not as a part of a longer one.
fn names(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let after = text.get(at + name.len()..).and_then(|after| after.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// The address of `PID:0xADDRESS`.
fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.rsplit_once("0x")?.1, 16).ok()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SOURCE: &str = "a\nlock(); // culprit\nb\nc\nd\n";

    fn report(change: impl Fn(&mut Value)) -> Value {
        let mut report = json!({
            "verdict": ["72 % of all waiting is caused by `flush` holding `log_lock` at wal.c:2; 61 % of that while blocked in fsync."],
            "culprits": [{
                "lock": "7:0x28", "name": "log_lock", "site": "7:0x1005", "function": "flush", "line": 2, "wait_ns": 50,
                "causes": {"running": 1, "blocked": 9},
                "off_stacks": [{"cause": "blocked", "function": "fsync"}],
            }],
            "totals": {"harm_ns": 100},
        });
        change(&mut report);
        report
    }

    fn judge(lock: Lock, facts: &Facts, report: &Value) -> Judgement {
        let expected = Expected::Culprit { lock, place: "flush", reason: Reason::Blocked(&["fsync"]) };
        expected.judge(report, &Truth { facts, source: SOURCE })
    }

    #[test]
    fn a_right_report_is_right_in_all_three() {
        let (facts, right) = (Facts::default(), report(|_| {}));
        assert!(judge(Lock::Named("log_lock"), &facts, &right).is_right());
        assert_eq!(explained(&right), Some(0.5));
        let told = Facts { lock: Some((0x20, 0x30)), ..Facts::default() };
        assert!(judge(Lock::Told, &told, &right).is_right());
        let told = Facts { lock: Some((0x10, 0x28)), ..Facts::default() };
        assert!(!judge(Lock::Told, &told, &right).lock);
    }

    #[test]
    fn each_part_can_be_wrong_by_itself() {
        let facts = Facts::default();
        let judged = |change: fn(&mut Value)| judge(Lock::Named("log_lock"), &facts, &report(change));
        let right = Judgement::all(true);
        assert_eq!(judged(|r| r["culprits"][0]["name"] = json!("other")), Judgement { lock: false, ..right });
        assert_eq!(judged(|r| r["culprits"][0]["line"] = json!(5)), Judgement { place: false, ..right });
        assert_eq!(judged(|r| r["culprits"][0]["function"] = json!("flush_all")), Judgement { place: false, ..right });
        assert_eq!(judged(|r| r["culprits"][0]["causes"]["running"] = json!(20)), Judgement { reason: false, ..right });
        assert_eq!(judged(|r| r["verdict"][0] = json!("No lock holds it back.")), Judgement::default());
        assert_eq!(judged(|r| r["culprits"] = json!([])), Judgement::default());
    }

    #[test]
    fn a_function_that_locks_for_others_is_right_with_the_caller_that_dominates() {
        let facts = Facts::default();
        let judged = |share: f64, line: u64| {
            let report = report(|report| {
                report["culprits"][0]["function"] = json!("db_lock");
                let caller = json!({"function": "flush", "line": line, "share": share});
                report["culprits"][0]["callers"] = json!({"most": [caller]});
            });
            judge(Lock::Named("log_lock"), &facts, &report).place
        };
        assert!(judged(0.5, 2));
        assert!(!judged(0.49, 2) && !judged(0.9, 5));
    }

    #[test]
    fn a_stripped_place_is_known_by_its_address() {
        let facts = Facts { place: Some((0x1000, 0x1010)), ..Facts::default() };
        let place = |site: &str| {
            let report = report(|report| report["culprits"][0]["site"] = json!(site));
            judge(Lock::Named("log_lock"), &facts, &report).place
        };
        assert!(place("7:0x1005") && place("7:0x1010"));
        assert!(!place("7:0x1000") && !place("7:0x2000"));
    }

    #[test]
    fn a_deadlock_and_no_lock_are_told_in_words() {
        let facts = Facts::default();
        let truth = Truth { facts: &facts, source: SOURCE };
        let says = |text: &str| report(|report| report["verdict"][0] = json!(text));
        assert!(Expected::NoLock.judge(&says("No lock holds p back: …"), &truth).is_right());
        assert_eq!(Expected::NoLock.judge(&says("72 % of all waiting …"), &truth), Judgement::default());
        let deadlock = Expected::Deadlock { locks: ["a", "b"], places: ["f", "g"] };
        let judged = deadlock.judge(&says("DEADLOCK: thread 1 holds `a` and waits for `b` in f (x.c:1)"), &truth);
        assert_eq!(judged, Judgement { lock: true, place: false, reason: true });
    }
}
