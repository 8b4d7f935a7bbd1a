//! Rankings as text.

use super::check;
use super::rank::{Alternative, Ranking, RankingPoint, SURE};
use crate::report::table::table;
use crate::report::text::{percent, rate, wrap};

/// The smallest gain or loss worth a change of locks, as a share of the throughput.
const MATTERS: f64 = 0.01;

/// Renders a ranking, with a newline at its end.
#[must_use]
pub fn render(ranking: &Ranking, width: u16) -> String {
    let check = ranking.check.as_ref().map(|check| wrap(&check::sentence(check), width.into()));
    let mut paragraphs: Vec<String> = check.into_iter().collect();
    let headers = ["Threads", "Lock", "Lock operations\nper s", "Gain", "from – to", "Faster in", ""];
    let rows = ranking.points.iter().flat_map(rows).collect();
    paragraphs.push(table(&headers, &[1, 6], rows, width));
    let list = |head: &str, lines: &[String]| {
        let lines: Vec<String> = lines.iter().map(|line| format!("  {line}")).collect();
        wrap(&format!("{head}\n{}", lines.join("\n")), width.into())
    };
    if !ranking.violations.is_empty() {
        paragraphs.push(list("What of this does not hold in the recording:", &ranking.violations));
    }
    paragraphs.push(list("Assumptions:", &ranking.assumptions));
    paragraphs.join("\n\n") + "\n"
}

fn rows(point: &RankingPoint) -> Vec<Vec<String>> {
    let none = String::new;
    let now =
        [point.threads.to_string(), "today's".to_owned(), rate(point.today_per_ns), none(), none(), none(), none()];
    let row = |of: &Alternative| {
        let [low, high] = of.gain_interval.map(signed);
        let verdict = verdict(of).to_owned();
        let (gain, interval) = (signed(of.gain), format!("{low} – {high}"));
        vec![none(), of.lock.clone(), rate(of.throughput_per_ns), gain, interval, percent(of.faster), verdict]
    };
    std::iter::once(now.to_vec()).chain(point.alternatives.iter().map(row)).collect()
}

fn verdict(of: &Alternative) -> &'static str {
    match of.faster {
        _ if of.may_collapse => "cannot tell: more threads spin than there are CPUs",
        _ if of.gain_interval.iter().all(|gain| gain.abs() < MATTERS) => "no difference that matters",
        share if share >= SURE => "faster",
        share if share <= 1.0 - SURE => "not faster",
        _ => "cannot tell",
    }
}

fn signed(share: f64) -> String {
    if share < 0.0 { format!("−{}", percent(-share)) } else { format!("+{}", percent(share)) }
}
