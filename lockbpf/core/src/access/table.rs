//! The summary of a pass as text.

use super::summary::{Pass, Row, Summary};
use crate::report::table::table;
use crate::report::text::{clip, count, counted, percent, wrap};
use crate::units::Nanos;

/// Characters of a name.
const NAME: usize = 48;

/// Renders a summary, with a newline at its end.
#[must_use]
pub fn render(summary: &Summary, width: u16) -> String {
    let mut paragraphs = vec![format!("Accesses in critical sections of {}", summary.target)];
    if !summary.sections.is_empty() {
        let headers = [
            "Lock",
            "Site",
            "Sampled",
            "Cut",
            "Threads",
            "Instructions",
            "Stops",
            "Read only",
            "Written",
            "Conflicting",
        ];
        let rows = summary.sections.iter().map(row).collect();
        paragraphs.push(table(&headers, &[0, 1], rows, width));
        paragraphs.push(wrap(
            "Instructions and stops: of the middle section. Locations: distinct ones of all sections; conflicting are those that a \
             thread wrote and another used.",
            width.into(),
        ));
    }
    paragraphs.push(wrap(&pass(&summary.pass), width.into()));
    if !summary.notes.is_empty() {
        paragraphs.push(wrap(&summary.notes.join("\n"), width.into()));
    }
    paragraphs.join("\n\n") + "\n"
}

fn row(row: &Row) -> Vec<String> {
    vec![
        clip(&row.lock, NAME),
        clip(&row.site, NAME),
        count(row.sampled),
        count(row.cut),
        count(row.threads),
        count(row.instructions),
        count(row.stops),
        count(row.read_only),
        count(row.written),
        count(row.conflicting),
    ]
}

fn pass(pass: &Pass) -> String {
    let mut lines = vec![format!(
        "{} recorded ({} of each lock wanted) in {}.",
        counted(pass.samples_taken, "section"),
        count(pass.samples_wanted),
        Nanos(pass.duration_ns)
    )];
    lines.push(format!(
        "Threads were held up for {}: {} of the time. The budget is {} of the time of {}, which allows {}.",
        Nanos(pass.held_up_ns),
        percent(pass.held_up_share),
        percent(pass.budget),
        counted(pass.threads, "thread"),
        percent(pass.held_up_share_allowed)
    ));
    let causes = |what: &str, all: &std::collections::BTreeMap<String, u64>| {
        let told: Vec<String> = all.iter().map(|(why, n)| format!("{} {why}", count(*n))).collect();
        (!told.is_empty()).then(|| format!("{what}: {}.", told.join("; ")))
    };
    lines.extend(causes("Not followed to their end", &pass.cut));
    lines.extend(causes("Begun, but not recorded", &pass.abandoned));
    let mut rest = Vec::new();
    for (n, what) in [
        (pass.nobody, "times nobody asked for a chosen lock"),
        (pass.stops_refused, "stops the kernel did not make"),
        (pass.signals_passed_on, "signals were passed on to the process"),
        (pass.threads_blocking, "threads block the signal that stops, and were left out"),
    ] {
        if n > 0 {
            rest.push(format!("{} {what}", count(n)));
        }
    }
    if !rest.is_empty() {
        lines.push(format!("{}.", rest.join("; ")));
    }
    lines.join("\n")
}
