//! The comparison as Markdown, for summaries and comments in continuous integration, and as annotations of GitHub's workflows.

use super::change::Change;
use super::findings::{frequency, from_to, per_second, time};
use super::gate::{Judged, Outcome};
use super::schema::{Diff, RecordingEntry};
use crate::report::text::{counted, percent};
use crate::units::Nanos;

/// Renders the comparison with at most `top` locks, with a newline at its end.
#[must_use]
pub fn render(diff: &Diff, top: usize) -> String {
    let mut text = String::from("## Locks, before and after\n\n");
    for judged in &diff.gate {
        let mark = match judged.outcome {
            Outcome::Passed => "✅ passed",
            Outcome::Inconclusive => "⚠️ inconclusive",
            Outcome::Failed => "❌ failed",
        };
        text += &format!("* **{mark}**: `{}`", judged.condition.to_string().replace('`', "'"));
        for reason in &judged.reasons {
            text += &format!("<br>{}", plain(reason));
        }
        text.push('\n');
    }
    if !diff.gate.is_empty() {
        text.push('\n');
    }
    for (which, recording) in [("A", &diff.a), ("B", &diff.b)] {
        text += &format!("* {which}: {}\n", plain(&self::recording(recording)));
    }
    text.push('\n');
    for finding in diff.findings.iter().take(2 * top) {
        text += &format!("* {}\n", plain(&finding.text));
    }
    if diff.findings.is_empty() {
        text += "Nothing changed that exceeds the thresholds.\n";
    }
    text += "\n| lock | acquired | contended | wait per s | mean hold | held |\n|---|---|---|---|---|---|\n";
    for lock in diff.locks.iter().take(top) {
        let cells = [
            plain(&lock.name),
            cell(&lock.acquisitions_per_s, frequency),
            cell(&lock.contended_share, percent),
            cell(&lock.wait_ns_per_s, per_second),
            cell(&lock.mean_hold_ns, time),
            cell(&lock.held_share, percent),
        ];
        text += &format!("| {} |\n", cells.join(" | "));
    }
    if diff.locks.len() > top {
        text += &format!("\nand {}\n", counted((diff.locks.len() - top) as u64, "more lock"));
    }
    text
}

/// Renders conditions that did not pass, and changes to notice, as commands that GitHub's workflows show as annotations.
#[must_use]
pub fn annotations(diff: &Diff) -> String {
    let mut text = String::new();
    for judged in &diff.gate {
        let level = match judged.outcome {
            Outcome::Passed => continue,
            Outcome::Inconclusive => "warning",
            Outcome::Failed => "error",
        };
        let Judged { condition, reasons, .. } = judged;
        text += &format!("::{level} title={}::{}\n", property(&condition.to_string()), data(&reasons.join(" ")));
    }
    for finding in &diff.findings {
        text += &format!("::notice title=locks::{}\n", data(&finding.text));
    }
    text
}

fn recording(entry: &RecordingEntry) -> String {
    let incomplete = if entry.incomplete { ", incomplete" } else { "" };
    format!("{}, {}, {}{incomplete}", entry.target, Nanos(entry.observed_ns as u64), counted(entry.threads, "thread"))
}

/// Both values; in bold if the change is called out.
fn cell(change: &Change, show: fn(f64) -> String) -> String {
    match (change.a, change.b, change.called_out) {
        (None, None, _) => "–".to_owned(),
        (.., false) => from_to(change, show).replace("->", "→"),
        (.., true) => format!("**{}**", from_to(change, show).replace("->", "→")),
    }
}

/// Text in which nothing means anything to Markdown or HTML, but backquotes: what stands between two is code.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut code = false;
    for c in text.chars() {
        match c {
            '`' => {
                plain += if code { "</code>" } else { "<code>" };
                code = !code;
            }
            '&' => plain += "&amp;",
            '<' => plain += "&lt;",
            '>' => plain += "&gt;",
            '|' | '*' | '_' | '[' | ']' | '\\' | '#' | '~' | '!' | '@' => plain += &format!("&#{};", u32::from(c)),
            c if c.is_control() => plain.push(' '),
            c => plain.push(c),
        }
    }
    plain + if code { "</code>" } else { "" }
}

/// What a command of GitHub's workflows says.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of one.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_nothing_to_markdown_or_to_workflows() {
        assert_eq!(plain("a|b <c>*\n"), "a&#124;b &lt;c&gt;&#42; ");
        assert_eq!(plain("`a_b` `"), "<code>a&#95;b</code> <code></code>");
        assert_eq!(property("a::b,100 %\n"), "a%3A%3Ab%2C100 %25%0A");
    }
}
