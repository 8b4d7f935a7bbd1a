//! In what the threads slept, by kind: only who knows that can say that no lock holds a program back.

use super::schema::{ConditionEntry, FutexEntry, Ns, Report, SleepEntry, SleepPlace};
use super::sleepers::{self, CONDITION, JOIN, PARKING, UNKNOWN};

/// Places named.
const PLACES: usize = 3;

/// All sleep in futex calls that is known, waits that have not ended included.
pub(super) fn of(report: &Report) -> Option<SleepEntry> {
    let condition = |c: &ConditionEntry| c.idle_ns.sum + c.waiting_now_ns;
    let word = |f: &FutexEntry| f.wait_ns.sum + f.counts.timed_out_wait_ns + f.waiting_now_ns;
    let conditions = |parking: bool| report.conditions.iter().filter(move |c| (c.purpose == PARKING) == parking);
    let words = |purpose: &'static str| report.futexes.iter().filter(move |f| f.purpose == purpose);
    let of_known = |f: &&FutexEntry| ![CONDITION, JOIN].contains(&f.purpose.as_str());
    let parked = conditions(true).map(|c| (c.first_site.clone().unwrap_or_else(|| c.label.clone()), condition(c)));
    let unknown = report.futexes.iter().filter(of_known).map(|f| (place(f), word(f)));
    let mut places: Vec<SleepPlace> = Vec::new();
    for (symbol, slept_ns) in parked.chain(unknown).filter(|&(_, slept)| slept > Ns::default()) {
        match places.iter_mut().find(|p| p.symbol == symbol) {
            Some(known) => known.slept_ns += slept_ns,
            None => places.push(SleepPlace { symbol, slept_ns }),
        }
    }
    places.sort_by(|a, b| (b.slept_ns, &a.symbol).cmp(&(a.slept_ns, &b.symbol)));
    places.truncate(PLACES);
    let sum = |wanted: &dyn Fn(&FutexEntry) -> bool| {
        report.futexes.iter().filter(of_known).filter(|f| wanted(f)).map(word).sum::<Ns>()
    };
    let entry = SleepEntry {
        locks_ns: report.totals.harm_ns,
        conditions_ns: conditions(false).map(condition).sum::<Ns>() + words(CONDITION).map(word).sum(),
        joins_ns: words(JOIN).map(word).sum(),
        parked_ns: conditions(true).map(condition).sum::<Ns>() + words(PARKING).map(word).sum(),
        runtimes_ns: Some(sum(&|f| sleepers::is_runtimes(&f.purpose))).filter(|&slept| slept > Ns::default()),
        unknown_ns: sum(&|f| f.purpose != PARKING && !sleepers::is_runtimes(&f.purpose)),
        places,
    };
    (entry != SleepEntry::default()).then_some(entry)
}

/// Where a word was slept on, in words.
fn place(f: &FutexEntry) -> String {
    let longest = f.waiters.first().and_then(|w| w.place.function.clone());
    match (f.purpose.as_str(), longest) {
        (UNKNOWN, Some(function)) => function,
        (UNKNOWN | PARKING, None) => f.label.clone(),
        (_, Some(function)) if f.purpose == PARKING || sleepers::is_runtimes(&f.purpose) => function,
        (purpose, _) => purpose.to_owned(),
    }
}
