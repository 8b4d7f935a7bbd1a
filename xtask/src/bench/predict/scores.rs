//! How predictions for real locks come out: row by row, by lock, and pair by pair of locks.

use super::{Errors, locks::Row, percent};

/// The smallest difference between two locks, as a share of the slower one's throughput, of which the winner has to be told.
const DIFFERS: f64 = 0.05;

/// Pairs of locks that differ, by what was predicted of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Winners {
    right: usize,
    wrong: usize,
    /// Pairs of which one may all but stop: no winner is told.
    open: usize,
}

/// Prints all rows, and what they come to.
pub(super) fn print(rows: &[Row]) {
    println!(
        "\n(d) real locks: recorded with a mutex, predicted with other locks, measured with these unobserved; sections per s"
    );
    println!(
        "{:<28} {:<28} {:>7} {:<8} {:>10} {:>10} {:>21} {:>9}",
        "recording", "section, local work", "threads", "lock", "measured", "predicted", "interval", "off"
    );
    for row in rows {
        let [low, high] = row.interval;
        println!(
            "{:<28} {:<28} {:>7} {:<8} {:>10.0} {:>10.0} {:>21} {:>9}{}",
            row.recording,
            row.setting.text(),
            row.threads,
            row.lock,
            row.measured,
            row.predicted,
            format!("{low:.0} – {high:.0}"),
            percent(row.predicted / row.measured - 1.0),
            if within(row) { "" } else { " *" }
        );
    }
    println!("* not within the interval\n");
    println!(
        "{:<28} {:>7} {:<8} {:>10} {:>10} {:>12}",
        "recording", "threads", "lock", "mean off", "at worst", "within"
    );
    groups(rows, |row| (row.recording, row.threads, row.lock));
    println!("\nover all locks");
    groups(rows, |row| (row.recording, row.threads, ""));
    println!(
        "\npairs of locks that differ by more than {:.0} %, and whether the faster one was told; and those",
        DIFFERS * 100.0
    );
    println!("of them of which every run of one was faster than every run of the other");
    for key in keys(rows, |row| (row.recording, row.threads)) {
        let of: Vec<&Row> = rows.iter().filter(|row| (row.recording, row.threads) == key).collect();
        let text = |winners: Winners| {
            let Winners { right, wrong, open } = winners;
            let told = right as f64 / (right + wrong).max(1) as f64 * 100.0;
            format!("{right} right, {wrong} wrong ({told:.0} %), {open} not told")
        };
        let [all, clear] = [false, true].map(|clear| text(winners(&of, clear)));
        println!("{:<28} {:>7} {all}; {clear}", key.0, key.1);
    }
}

fn groups<'a>(rows: &'a [Row], key: impl Fn(&'a Row) -> (&'static str, u32, &'static str)) {
    for group in keys(rows, &key) {
        let (mut errors, mut inside) = (Errors::default(), 0);
        for row in rows.iter().filter(|row| key(row) == group) {
            errors.add(row.predicted, row.measured);
            inside += usize::from(within(row));
        }
        println!(
            "{:<28} {:>7} {:<8} {:>8.1} % {:>8.1} % {:>12}",
            group.0,
            group.1,
            group.2,
            errors.mean(),
            errors.worst(),
            format!("{inside} of {}", errors.0.len())
        );
    }
}

/// The different keys of rows, in the order of the rows.
fn keys<'a, T: PartialEq>(rows: &'a [Row], key: impl Fn(&'a Row) -> T) -> Vec<T> {
    let mut keys = Vec::new();
    for key in rows.iter().map(key) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

fn within(row: &Row) -> bool {
    let [low, high] = row.interval;
    (low..=high).contains(&row.measured)
}

/// Every two locks of the same setting that differ; if so wanted, only those of which no run tells otherwise.
fn winners(rows: &[&Row], clear: bool) -> Winners {
    let mut winners = Winners::default();
    for (i, a) in rows.iter().enumerate() {
        for b in rows.iter().skip(i + 1).filter(|b| b.setting == a.setting) {
            let (low, high) = (a.measured.min(b.measured), a.measured.max(b.measured));
            let apart = a.runs[1] < b.runs[0] || b.runs[1] < a.runs[0];
            if high / low - 1.0 <= DIFFERS || clear && !apart {
                continue;
            }
            if a.interval[0] <= 0.0 || b.interval[0] <= 0.0 {
                winners.open += 1;
            } else if (a.measured > b.measured) == (a.predicted > b.predicted) {
                winners.right += 1;
            } else {
                winners.wrong += 1;
            }
        }
    }
    winners
}

#[cfg(test)]
mod tests {
    use super::super::locks::Setting;
    use super::*;

    #[test]
    fn winners_are_told_of_locks_that_differ() {
        let setting = Setting::all(true)[0];
        let row = |lock, measured, predicted, low| Row {
            recording: "",
            setting,
            threads: 2,
            lock,
            measured,
            runs: [measured - 60.0, measured + 60.0],
            predicted,
            interval: [low, 1e6],
        };
        let rows = [
            row("mutex", 100.0, 100.0, 1.0),
            // Hardly another rate.
            row("spin", 103.0, 50.0, 1.0),
            row("mcs", 200.0, 90.0, 1.0),
            row("qd", 300.0, 300.0, 0.0),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        assert_eq!(winners(&rows, false), Winners { right: 1, wrong: 1, open: 3 });
        // The runs of some overlap.
        assert_eq!(winners(&rows, true), Winners { right: 0, wrong: 0, open: 2 });
    }
}
