//! What a page asks of a recording beside its report: what changes would gain, and what to do about its locks.

use super::script::{self, Timed};
use super::source::Input;
use super::{accesses, advise};
use crate::advice::Advice;
use crate::model::sliders::Sliders;
use crate::render::Answer;
use crate::report::words::Called;
use anyhow::Result;

/// Acquisitions beyond which a page does not wait for replays: each answer replays all of them several times.
const MAX_ACQUISITIONS: u64 = 200_000;

/// What came of the questions.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub what_if: Answer<Sliders>,
    pub advice: Answer<Advice>,
}

/// Asks what changes would gain, as far as the recording tells, and for advice if it has access records.
///
/// Its sections that several functions call are only asked for where there are access records.
pub(super) fn ask(input: &Input, has_accesses: bool, called: impl FnOnce() -> Vec<Called>) -> Answers {
    let timed = match script::read_whole(input, has_accesses) {
        Ok(timed) => timed,
        Err(error) => return Answers::none(has_accesses, &format!("cannot be told: {error:#}.")),
    };
    match timed.recorded.script.acquisitions() {
        0 => Answers::none(has_accesses, "cannot be told: no section has a beginning."),
        1..=MAX_ACQUISITIONS => {
            let advice = if has_accesses { self::advice(input, &timed, &called()) } else { Answer::default() };
            Answers { what_if: what_if(timed), advice }
        }
        _ => Answers::none(
            has_accesses,
            "takes long for a recording of this length: `lockbpf what-if --from FILE --auto` and `lockbpf advise --from FILE` tell it.",
        ),
    }
}

impl Answers {
    fn none(has_accesses: bool, why: &str) -> Self {
        let advice = if has_accesses { format!("What to do about locks {why}") } else { String::new() };
        Self { what_if: Answer::NotAsked(format!("What changes would gain {why}")), advice: Answer::NotAsked(advice) }
    }
}

fn what_if(timed: Timed) -> Answer<Sliders> {
    let recorded = timed.recorded;
    let mut sliders = recorded.oracle(None).sliders(&recorded.locks, &recorded.sites);
    sliders.common.violations.extend(recorded.remarks);
    Answer::Asked(sliders)
}

fn advice(input: &Input, timed: &Timed, called: &[Called]) -> Answer<Advice> {
    let read = || -> Result<Advice> {
        let accesses = accesses::read(input)?;
        let mut advice = advise::of(&accesses.records, Some(timed), called, &advise::Known::default())?;
        advice.cautions.extend(accesses.remarks);
        Ok(advice)
    };
    match read() {
        Ok(advice) => Answer::Asked(advice),
        Err(error) => Answer::NotAsked(format!("What to do about locks cannot be told: {error:#}.")),
    }
}
