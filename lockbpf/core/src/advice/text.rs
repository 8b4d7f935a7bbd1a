//! Advice as text for a terminal.

use super::schema::{Advice, Item, Occ};
use crate::report::table::table;
use crate::report::text::{clip, count, counted, percent, wrap};
use crate::units::Nanos;

/// Characters of a name in a table.
const NAME: usize = 40;
/// Rows of a table.
const ROWS: usize = 12;
/// What stands for a figure that is not known.
const UNKNOWN: &str = "–";

/// Renders advice, with a newline at the end.
#[must_use]
pub fn render(advice: &Advice, width: u16) -> String {
    let width = width.max(40);
    let mut paragraphs = vec![wrap(&sampled(advice), width.into())];
    if !advice.sections.is_empty() {
        paragraphs.push(sections(advice, width));
    }
    if advice.advice.is_empty() {
        paragraphs.push("No advice: nothing conflicts that could be told.".to_owned());
    }
    paragraphs.extend(advice.advice.iter().enumerate().map(|(i, item)| self::item(i + 1, item, width)));
    paragraphs.extend(advice.occ.as_ref().map(|occ| optimistic(occ, width)));
    let cautions: Vec<String> = advice.cautions.iter().map(|line| format!("  {line}")).collect();
    paragraphs.push(wrap(&format!("What could make all of this wrong:\n{}", cautions.join("\n")), width.into()));
    paragraphs.join("\n\n") + "\n"
}

/// What advice rests upon, in a sentence.
#[must_use]
pub fn sampled(advice: &Advice) -> String {
    let sampled = &advice.sampled;
    let cut = if sampled.cut == 0 { String::new() } else { format!(", {} not to their end", count(sampled.cut)) };
    format!(
        "Sampled: {} of {} by {} in {}{cut}; they touched {}.",
        counted(sampled.executions, "execution"),
        counted(advice.sections.len() as u64, "critical section"),
        counted(sampled.threads, "thread"),
        counted(sampled.runs, "run"),
        counted(sampled.locations, "location")
    )
}

fn probability(p: Option<f64>) -> String {
    p.map_or_else(|| UNKNOWN.to_owned(), |p| format!("{p:.3}"))
}

fn sections(advice: &Advice, width: u16) -> String {
    let by_line = advice.sections.iter().any(|section| section.p_c_line > section.p_c);
    let rows = advice.sections.iter().take(ROWS).map(|section| {
        let mut row = vec![
            clip(&section.site, NAME),
            clip(&section.lock, NAME),
            count(section.instances),
            count(section.threads),
            section.paths.map_or_else(|| UNKNOWN.to_owned(), count),
            format!("{:.3}", section.p_c),
            format!("{:.3}", section.p_c_lock),
            section.w_c.map_or_else(|| UNKNOWN.to_owned(), |w| format!("{w:.2}")),
            probability(section.p_conflict),
        ];
        if by_line {
            row.push(format!("{:.3}", section.p_c_line));
        }
        row
    });
    let mut headers = vec![
        "Critical section",
        "Lock",
        "Executions",
        "Threads",
        "Ways",
        "p_c",
        "with any\nof the lock",
        "w_c",
        "Conflict",
    ];
    if by_line {
        headers.push("p_c by\ncache line");
    }
    let mut text = table(&headers, &[0, 1], rows.collect(), width);
    let more = advice.sections.len().saturating_sub(ROWS);
    if more > 0 {
        text += &format!("\nand {}", counted(more as u64, "more section"));
    }
    text
}

fn item(number: usize, item: &Item, width: u16) -> String {
    let head = format!("{number}. ");
    let indent = head.len();
    let mut lines = vec![format!("{:indent$}{}", "", item.advice)];
    lines.push(format!("   Seen: {}", item.evidence.join(" ")));
    if let Some(predicted) = &item.predicted {
        let signed = |share: f64| if share < 0.0 { format!("−{}", percent(-share)) } else { percent(share) };
        let [low, high] = predicted.gain_interval;
        lines.push(format!(
            "   Predicted gain: {} of the run time ({} to {}), with {} of waiting left ({}).",
            signed(predicted.gain),
            signed(low),
            signed(high),
            Nanos(predicted.wait_ns.max(0.0).round() as u64),
            predicted.change
        ));
    }
    if let Some(reason) = &item.unpredictable {
        lines.push(format!("   Gain not predicted: {reason}."));
    }
    let violations = item.predicted.iter().flat_map(|predicted| &predicted.violations);
    let cautions: Vec<&str> = item.cautions.iter().chain(violations).map(String::as_str).collect();
    if !cautions.is_empty() {
        lines.push(format!("   Could be wrong: {}", cautions.join(" ")));
    }
    let text = wrap(&lines.join("\n"), width.into());
    // The number stands in the indent.
    head + text.get(indent..).unwrap_or_default()
}

fn optimistic(occ: &Occ, width: u16) -> String {
    let best = occ.best_case_speedup.map_or_else(
        || "all of the time would be saved".to_owned(),
        |best| format!("the program would be {best:.2} times as fast"),
    );
    let mut text = wrap(
        &format!(
            "Optimistic execution (without locks, done again after a conflict): at best {best}, with {} of all threads' time saved \
             (PinCS; an upper bound).",
            percent(occ.efficiency)
        ),
        width.into(),
    );
    let mut rows: Vec<_> = occ.threads.iter().collect();
    rows.sort_by(|a, b| b.benefit.total_cmp(&a.benefit).then_with(|| (&a.tid, &a.site).cmp(&(&b.tid, &b.site))));
    let told = rows.iter().take(ROWS).map(|row| {
        let speedup = match row.speedup {
            _ if row.conflicts_always => "conflicts always".to_owned(),
            None => UNKNOWN.to_owned(),
            Some(factor) => format!("{factor:.2}"),
        };
        vec![
            clip(&row.tid, NAME),
            clip(&row.site, NAME),
            clip(&row.lock, NAME),
            percent(row.f_wait),
            percent(row.f_exec),
            speedup,
            percent(row.benefit),
        ]
    });
    if !rows.is_empty() {
        let headers = ["Thread", "Critical section", "Lock", "Waiting", "Inside", "Speed-up", "Saved"];
        text += "\n";
        text += &table(&headers, &[0, 1, 2], told.collect(), width);
    }
    let more = rows.len().saturating_sub(ROWS);
    if more > 0 {
        text += &format!("\nand {}", count(more as u64) + " more");
    }
    if occ.overhead_ns > 0.0 {
        let note =
            format!("{:.0} ns for each recorded operation were taken from waits and run times.", occ.overhead_ns);
        text += &format!("\n{}", wrap(&note, width.into()));
    }
    for note in &occ.notes {
        text += &format!("\n{}", wrap(note, width.into()));
    }
    text
}
