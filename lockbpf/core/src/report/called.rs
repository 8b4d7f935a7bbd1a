//! Calls of the C library as text: a row per category, and per function.

use super::schema::{CallsEntry, FunctionsEntry, Ns, Report};
use super::table::{UNKNOWN, table};
use super::text::{count, counted, listed, percent, wrap};
use std::collections::BTreeMap;

/// Functions left out that are named.
const NAMED: usize = 6;

/// What was seen of the C library, if it was asked for; the `most` functions that were called most.
pub(super) fn render(report: &Report, most: usize, width: u16) -> Option<String> {
    let f = report.functions.as_ref()?;
    let rows: Vec<&CallsEntry> = f.categories.iter().chain(f.functions.iter().take(most)).collect();
    let mut lines = vec![wrap(&summary(f), width.into()), calls(f, &rows, width)];
    let rest = f.functions.len().saturating_sub(most);
    if rest > 0 {
        lines.push(format!("and {}", counted(rest as u64, "more function")));
    }
    let remarks = remarks(f);
    if !remarks.is_empty() {
        lines.push(wrap(&remarks, width.into()));
    }
    Some(lines.join("\n"))
}

fn summary(f: &FunctionsEntry) -> String {
    let all = f.categories.iter().fold((0, 0), |(calls, nested), c| (calls + c.calls, nested + c.nested));
    let kernel = f.kernel_share.map(|share| format!("; {} of all in the kernel", percent(share))).unwrap_or_default();
    format!(
        "Calls of the C library, each charged with what happens inside of it: {} ({} more inside of others). {} of the execution in \
         them, {} in the program{kernel}.",
        counted(all.0, "call"),
        count(all.1),
        percent(f.library_share),
        percent(f.program_share),
    )
}

fn calls(f: &FunctionsEntry, rows: &[&CallsEntry], width: u16) -> String {
    type Part = (&'static str, fn(&CallsEntry) -> Option<f64>, bool);
    let parts: [Part; 7] = [
        ("User", |c| c.share_user, true),
        ("Kernel", |c| c.share_kernel, true),
        ("CPI", |c| c.cpi, false),
        ("CPI\nuser", |c| c.cpi_user, false),
        ("CPI\nkernel", |c| c.cpi_kernel, false),
        ("Misses\nper 1,000", |c| c.misses_per_kilo_instruction, false),
        ("Misses\nkernel", |c| c.misses_per_kilo_instruction_kernel, false),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|&(_, of, _)| rows.iter().any(|row| of(row).is_some())).collect();
    let more: Vec<&String> = f.events.iter().skip(1).filter(|name| !is_ratio(name)).collect();
    let mut headers = vec!["Function", "Category", "Calls", "Inside\nothers", "Time", "Each", "Share"];
    headers.extend(parts.iter().map(|&(header, ..)| header));
    headers.extend(more.iter().map(|name| name.as_str()));
    let cells = rows.iter().map(|c| {
        let each = Ns::from_f64((c.time_ns.as_f64() / c.ended.max(1) as f64).round());
        let (time, each, share) = if c.ended == 0 {
            (UNKNOWN.to_owned(), UNKNOWN.to_owned(), UNKNOWN.to_owned())
        } else {
            (c.time_ns.to_string(), each.to_string(), percent(c.share))
        };
        let name = c.function.clone().unwrap_or_else(|| "(all)".to_owned());
        let mut row = vec![name, c.category.clone(), count(c.calls), count(c.nested), time, each, share];
        row.extend(parts.iter().map(|&(_, of, is_share)| match of(c) {
            Some(share) if is_share => percent(share),
            Some(ratio) => format!("{ratio:.2}"),
            None => UNKNOWN.to_owned(),
        }));
        let number = |name: &str| c.counts.get(name).map_or_else(|| UNKNOWN.to_owned(), |&n| count(n.round() as u64));
        row.extend(more.iter().map(|name| number(name)));
        row
    });
    table(&headers, &[0, 1], cells.collect(), width)
}

/// Whether an event is told by a ratio.
fn is_ratio(event: &str) -> bool {
    ["cycles", "instructions", "cache-misses"].contains(&event.split_once(':').map_or(event, |(name, _)| name))
}

fn remarks(f: &FunctionsEntry) -> String {
    let mut remarks = Vec::new();
    if f.kernel_share.is_none() {
        remarks.push(
            "User and kernel are not told apart: that takes counts of one of them (cycles:k), which no event here is."
                .to_owned(),
        );
    }
    let called = |name: &String| f.functions.iter().any(|c| c.function.as_ref() == Some(name));
    let endless: Vec<&str> = f.endless.iter().filter(|name| called(name)).map(String::as_str).collect();
    if !endless.is_empty() {
        remarks.push(format!("Only counted, since their ends cannot be seen: {}.", endless.join(", ")));
    }
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for left in &f.left_out {
        reasons.entry(&left.reason).or_default().push(&left.function);
    }
    for (reason, names) in reasons {
        remarks.push(format!("Left out: {} ({reason}).", listed(&names, NAMED)));
    }
    remarks.join("\n")
}
