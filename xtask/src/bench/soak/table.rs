//! A run as a table.

use std::time::Duration;

use comfy_table::{Table, presets};

use super::judge::{Period, Verdict};

const DAY: f64 = 86_400.0;

/// The periods, a row each.
pub(super) fn table(periods: &[Period]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "period",
        "memory, MB",
        "maps, MB",
        "descriptors",
        "threads",
        "CPU, % of a core",
        "observed in full",
        "lost",
        "observations",
    ]);
    for (number, period) in periods.iter().enumerate() {
        table.add_row(cells(number as u32, period));
    }
    table
}

/// A period in one line, while the run goes on.
pub(super) fn line(number: u32, period: &Period) -> String {
    cells(number, period).join("; ")
}

fn cells(number: u32, period: &Period) -> [String; 9] {
    [
        (number + 1).to_string(),
        format!("{:.1}", mb(period.memory as f64)),
        format!("{:.1}", mb(period.maps as f64)),
        period.descriptors.to_string(),
        period.threads.to_string(),
        format!("{:.1}", period.cpu_percent),
        period.observed.map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", 100.0 * share)),
        format!("{:.0}", period.lost.abs()),
        period.observations.to_string(),
    ]
}

/// What holds, in words.
pub(super) fn verdict(verdict: &Verdict, period: Duration) -> String {
    let growth = ["memory", "maps", "descriptors", "threads"].iter().zip(verdict.growth);
    let growth: Vec<String> = growth.map(|(what, growth)| format!("{what} {:+.1} %", 100.0 * growth)).collect();
    let mut lines = vec![format!("peaks of the second half beside those of the first: {}", growth.join(", "))];
    if let Some(slope) = verdict.memory_slope {
        lines.push(format!("memory: {:+.1} MB a day by its peaks", mb(slope * DAY / period.as_secs_f64())));
    }
    lines.push(told("counters that fell", &verdict.fallen));
    lines.push(told("programs harmed", &verdict.harmed));
    lines.push(if verdict.holds() { "holds" } else { "does not hold" }.to_owned());
    lines.join("\n")
}

fn told(what: &str, those: &[String]) -> String {
    format!("{what}: {}", if those.is_empty() { "none".to_owned() } else { those.join(", ") })
}

fn mb(bytes: f64) -> f64 {
    bytes / 1e6
}
