//! In what the threads slept, by kind: only who knows that can say that no lock holds a program back.

use super::in_turn;
use super::schema::{ConditionEntry, FutexEntry, Ns, Report, SleepEntry, SleepPlace};
use super::sleepers::{self, CONDITION, JAVA_LOCK, JOIN, OF_CONDITIONS, PARKING, SEMAPHORE, UNKNOWN};

/// In this function threads sleep for locks of `java.util.concurrent`, and otherwise.
const PARKER: &str = "Parker::park";
/// Places named.
const PLACES: usize = 3;

/// All sleep in futex calls that is known, waits that have not ended included.
pub(super) fn of(report: &Report) -> Option<SleepEntry> {
    let condition = |c: &ConditionEntry| c.waited_ns() + c.waiting_now_ns;
    let word = |f: &FutexEntry| f.wait_ns.sum + f.counts.timed_out_wait_ns + f.waiting_now_ns;
    let conditions = |parking: bool| report.conditions.iter().filter(move |c| (c.purpose == PARKING) == parking);
    let words = |wanted: &dyn Fn(&str) -> bool| {
        let wanted = report.futexes.iter().filter(|f| wanted(&f.purpose));
        wanted.map(word).sum::<Ns>()
    };
    let is_condition = |purpose: &str| [CONDITION, OF_CONDITIONS].contains(&purpose);
    let is_known = |purpose: &str| is_condition(purpose) || purpose == JOIN;
    let parked = conditions(true).map(|c| (c.first_site.clone().unwrap_or_else(|| c.label.clone()), condition(c)));
    let unknown = report.futexes.iter().filter(|f| !is_known(&f.purpose)).map(|f| (place(f), word(f)));
    let mut places: Vec<SleepPlace> = Vec::new();
    // What was slept there is counted for locks and all else together, and told with the locks, too.
    let of_locks = for_locks_of_java(report);
    let mut still_there = of_locks;
    for (symbol, mut slept_ns) in parked.chain(unknown) {
        let told = if symbol.contains(PARKER) { still_there.min(slept_ns) } else { Ns::default() };
        (still_there, slept_ns) = (still_there - told, slept_ns - told);
        if slept_ns == Ns::default() {
            continue;
        }
        match places.iter_mut().find(|p| p.symbol == symbol) {
            Some(known) => known.slept_ns += slept_ns,
            None => places.push(SleepPlace { symbol, slept_ns }),
        }
    }
    places.sort_by(|a, b| (b.slept_ns, &a.symbol).cmp(&(a.slept_ns, &b.symbol)));
    places.truncate(PLACES);
    let waited_ns = conditions(false).map(condition).sum::<Ns>() + words(&is_condition);
    let entry = SleepEntry {
        locks_ns: report.totals.harm_ns,
        conditions_ns: waited_ns - in_turn::told(report),
        joins_ns: words(&|purpose| purpose == JOIN),
        parked_ns: conditions(true).map(condition).sum::<Ns>() + words(&|purpose| purpose == PARKING) - of_locks,
        runtimes_ns: Some(words(&sleepers::is_runtimes)).filter(|&slept| slept > Ns::default()),
        unknown_ns: words(&|purpose| !is_known(purpose) && purpose != PARKING && !sleepers::is_runtimes(purpose)),
        places,
    };
    (entry != SleepEntry::default()).then_some(entry)
}

/// What idle threads waited for: of these two what there was.
pub(super) fn idle_for(report: &Report) -> &'static str {
    let row = |semaphore: bool| report.conditions.iter().any(|c| (c.kind == SEMAPHORE) == semaphore);
    let conditions = row(false) || report.futexes.iter().any(|f| f.purpose == CONDITION);
    match (conditions, row(true)) {
        (_, false) => "conditions",
        (false, true) => "semaphores",
        (true, true) => "conditions and semaphores",
    }
}

/// Waiting that the report tells with the locks of `java.util.concurrent`. The rows of conditions and futex words count it as well.
pub(super) fn for_locks_of_java(report: &Report) -> Ns {
    report.locks.iter().filter(|lock| lock.kind == JAVA_LOCK).map(|lock| lock.wait_ns.sum).sum()
}

/// Where a word was slept on, in words.
fn place(f: &FutexEntry) -> String {
    let says_little = [UNKNOWN, PARKING].contains(&f.purpose.as_str());
    match f.waiters.first().and_then(|w| w.place.function.clone()) {
        Some(function) if says_little || sleepers::is_runtimes(&f.purpose) => function,
        None if says_little => f.label.clone(),
        _ => f.purpose.clone(),
    }
}
