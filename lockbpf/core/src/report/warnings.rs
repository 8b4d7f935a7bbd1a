//! Deadlocks and lock-order inversions, as text.

use super::phrase::Threads;
use super::schema::{BlockedEntry, InversionEntry, OrderEntry, Report, StackFrame};
use super::text::{clip, count, counted, wrap};

/// Functions shown of a stack.
const FRAMES: usize = 8;
/// Characters of a function's name.
const FUNCTION: usize = 56;

/// The stacks of the threads that wait for one another.
pub(super) fn deadlocks(report: &Report, width: u16) -> Option<String> {
    let threads = Threads::of(report);
    let blocked: Vec<&BlockedEntry> = report.deadlocks.iter().flat_map(|d| &d.threads).collect();
    let mut lines = Vec::new();
    for b in blocked.into_iter().filter(|b| !b.stack.is_empty()) {
        lines.push(format!("{} waits for `{}`:", threads.long(&b.tid), b.name));
        lines.extend(b.stack.iter().take(FRAMES).map(|frame| format!("  {}", function(frame))));
    }
    (!lines.is_empty()).then(|| lines.iter().map(|line| wrap(line, width.into())).collect::<Vec<_>>().join("\n"))
}

/// A function on a stack, and where.
fn function(frame: &StackFrame) -> String {
    let name = match (&frame.function, &frame.module, &frame.offset) {
        (Some(function), ..) => clip(function, FUNCTION),
        (None, Some(module), Some(offset)) => format!("{module}+{offset}"),
        _ => frame.address.clone(),
    };
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{name} ({}:{line})", file.rsplit('/').next().unwrap_or(file)),
        _ => name,
    }
}

/// Lock orders that could deadlock.
pub(super) fn inversions(report: &Report, most: usize, width: u16) -> Option<String> {
    let threads = Threads::of(report);
    let order = |o: &OrderEntry| {
        let others = if o.other_threads { " and others" } else { "" };
        let who = threads.long(&o.tid);
        format!(
            "`{}` (in {}), then `{}` (in {}): {}, by {who}{others}",
            o.outer_name,
            clip(&o.outer_symbol, FUNCTION),
            o.inner_name,
            clip(&o.inner_symbol, FUNCTION),
            times(o.count),
        )
    };
    let mut lines = vec!["Lock orders that could deadlock: each lock was held while the next one was taken".to_owned()];
    for InversionEntry { orders } in report.inversions.iter().take(most) {
        let names: Vec<_> = orders.iter().map(|o| format!("`{}`", o.outer_name)).collect();
        let first = names.first().cloned().unwrap_or_default();
        lines.push(format!("  {} → {first}", names.join(" → ")));
        lines.extend(orders.iter().map(|o| format!("    {}", order(o))));
    }
    let rest = report.inversions.len().saturating_sub(most) as u64;
    if rest > 0 {
        lines.push(format!("and {}", counted(rest, "more such order")));
    }
    (lines.len() > 1).then(|| lines.iter().map(|line| wrap(line, width.into())).collect::<Vec<_>>().join("\n"))
}

fn times(n: u64) -> String {
    match n {
        1 => "once".to_owned(),
        n => format!("{} times", count(n)),
    }
}
