//! Counted events as text: a row per section, and the sums of lock profilers in a sentence each.

use super::schema::{CountedEntry, CountersEntry, Ns, Report};
use super::table::{NAME, UNKNOWN, table};
use super::text::{clip, count, counted, percent, wrap};

/// Characters of a critical section's symbol.
const SYMBOL: usize = 56;

/// What was counted in sections, if anything was; the `most` that were held longest.
pub(super) fn render(report: &Report, most: usize, width: u16) -> Option<String> {
    let c = report.counters.as_ref()?;
    let mut lines = vec![wrap(&totals(c), width.into())];
    if !c.sites.is_empty() {
        lines.push(sections(c, most, width));
    }
    Some(lines.join("\n"))
}

fn totals(c: &CountersEntry) -> String {
    let t = &c.totals;
    let share = |part: f64| percent(if t.execution > 0.0 { part / t.execution } else { 0.0 });
    let clock = |n: f64| amount(n, &c.unit);
    let turns: Vec<String> = c
        .events
        .iter()
        .filter_map(|e| match e.counted_share {
            Some(share) if share >= 0.995 => None,
            Some(share) => Some(format!("{} ({} of the time)", e.name, percent(share))),
            None => Some(format!("{} (never)", e.name)),
        })
        .collect();
    let turns = if turns.is_empty() {
        String::new()
    } else {
        format!(" Events took turns, and are scaled: {}.", turns.join(", "))
    };
    format!(
        "Counted inside of critical sections, as the threads' own: {}.{turns}\n\
         Of {} in {}: lock calls {}, unlock calls {}, a lock held {} (summed over locks {}), free {}.\n\
         {} of {} each on average; {:.3} per 10,000 {}; {:.3} locks a thread.",
        c.events.iter().map(|e| e.name.as_str()).collect::<Vec<_>>().join(", "),
        clock(t.execution),
        counted(t.threads, "thread"),
        share(t.lock),
        share(t.unlock),
        share(t.held_union),
        share(t.held_sum),
        percent(c.regions.free),
        counted(t.sections, "section"),
        clock(t.average_held),
        t.dynamic_locks_per_10k,
        c.unit,
        t.static_locks_per_thread,
    )
}

/// A number of cycles, or a time.
fn amount(n: f64, unit: &str) -> String {
    if unit == "ns" { Ns::from_f64(n.round()).to_string() } else { format!("{} {unit}", rounded(n)) }
}

/// A mean: whole if it is large, else with decimals.
fn rounded(n: f64) -> String {
    match n {
        n if n >= 100.0 || n == n.trunc() => count(n.round() as u64),
        n if n < 0.005 => "<0.01".to_owned(),
        n => format!("{n:.2}"),
    }
}

fn sections(c: &CountersEntry, most: usize, width: u16) -> String {
    let shown = &c.sites[..most.min(c.sites.len())];
    let ratio = |n: Option<f64>| n.map_or_else(|| UNKNOWN.to_owned(), |n| format!("{n:.2}"));
    let each = |s: &CountedEntry, event: &str| match s.hold.get(event) {
        Some(n) if event == "task-clock" => Ns::from_f64((n / s.sections.max(1) as f64).round()).to_string(),
        Some(n) => rounded(n / s.sections.max(1) as f64),
        None => UNKNOWN.to_owned(),
    };
    let any = |of: fn(&CountedEntry) -> Option<f64>| shown.iter().any(|s| of(s).is_some());
    let mut headers = vec!["Critical section", "Lock", "Sections", "Share"];
    let names: Vec<String> = c.events.iter().map(|e| format!("{}\neach", e.name)).collect();
    headers.extend(names.iter().map(String::as_str));
    type Ratio = (&'static str, fn(&CountedEntry) -> Option<f64>);
    let ratios: [Ratio; 3] = [
        ("IPC", |s| s.ipc),
        ("Misses\nper 1,000", |s| s.misses_per_kilo_instruction),
        ("In kernel", |s| s.kernel_share),
    ];
    let ratios: Vec<_> = ratios.into_iter().filter(|&(_, of)| any(of)).collect();
    headers.extend(ratios.iter().map(|&(header, _)| header));
    headers.push("Why");
    let rows = shown.iter().map(|s| {
        let symbol = s.symbol.as_deref().unwrap_or(UNKNOWN);
        let mut row = vec![clip(symbol, SYMBOL), clip(&s.label, NAME), count(s.sections), percent(s.hold_share)];
        row.extend(c.events.iter().map(|e| each(s, &e.name)));
        row.extend(ratios.iter().map(|&(header, of)| match of(s) {
            Some(share) if header == "In kernel" => percent(share),
            n => ratio(n),
        }));
        row.push(why(s));
        row
    });
    let last = headers.len() - 1;
    let rest = c.sites.len() - shown.len();
    let more = if rest > 0 { format!("\nand {} more", count(rest as u64)) } else { String::new() };
    format!("{}{more}", table(&headers, &[0, 1, last], rows.collect(), width))
}

/// `preempted 93 %`, `compute`.
fn why(s: &CountedEntry) -> String {
    match s.why.as_str() {
        "preempted" => format!("preempted {}", percent(s.preempted_ns.share_of(s.hold_ns))),
        "asleep" => {
            let off = s.hold_ns - s.on_cpu_ns;
            format!("asleep {}", percent(off.share_of(s.hold_ns)))
        }
        why => why.to_owned(),
    }
}
