//! Events of a run inside a machine, one line of JSON each, on a serial port of their own.

use serde::{Deserialize, Serialize};

/// What happened in the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The kernel has started the init: whatever happens from here on is a result and no accident of the boot.
    Init {
        /// The kernel's full name.
        kernel: String,
    },
    /// A test begins.
    Begin {
        /// Its name.
        test: String,
    },
    /// The test that began last ended.
    End {
        /// Its name.
        test: String,
        /// How long it took, ms on the machine's own clock.
        took_ms: u64,
        /// Why it failed; `None` if it passed.
        failure: Option<String>,
        /// What it measured, if it did.
        figures: Option<String>,
    },
    /// Every test has ended. Without this line nothing counts as passed.
    Done {
        /// How many there were.
        tests: usize,
    },
}

impl Event {
    /// The event as a line, without its end.
    ///
    /// # Errors
    /// Never for the events there are.
    pub fn to_line(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// The event in a line.
    ///
    /// # Errors
    /// The line is no event, or not a whole one.
    pub fn parse(line: &str) -> serde_json::Result<Self> {
        serde_json::from_str(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_and_is_read_back() {
        let failure = Some("two\nlines, \"quoted\" \u{1b}[0m".to_owned());
        let event = Event::End { test: "a test".into(), took_ms: 7, failure, figures: None };
        let line = event.to_line().unwrap();
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(Event::parse(&line).unwrap(), event);
    }

    #[test]
    fn what_is_cut_off_is_no_event() {
        let line = Event::Done { tests: 12 }.to_line().unwrap();
        assert!(Event::parse(&line[..line.len() - 1]).is_err());
        assert!(Event::parse("").is_err());
    }
}
