//! One lock closely: who holds it now and who waits, what is behind that, and how it was since the start.

use super::Style;
use crate::alert::HeldFor;
use crate::cli::top::frame::{Detail, HolderNow, HolderThread, LinkNow, Part, Row, WaiterNow};
use crate::cli::top::model::Model;
use crate::report::histograms::Bar;
use crate::report::text::{clip, count, percent, wrap};
use crate::units::Nanos;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;

/// Columns of a histogram's bars.
const BARS: usize = 16;
/// Bars of a histogram.
const MAX_BARS: u32 = 12;
/// The same where there are fewer lines than [`ROOMY`].
const FEW_BARS: u32 = 6;
/// Parts of its waiting that are named, who is to blame and where it was waited.
const PARTS: [usize; 2] = [5, 5];
/// The same where there are fewer lines.
const FEW_PARTS: [usize; 2] = [3, 2];
/// From so many lines on, there is room for everything.
const ROOMY: u16 = 24;

/// Draws what is known of the chosen lock.
pub(super) fn draw(model: &Model, style: &Style, frame: &mut Frame<'_>, area: Rect) {
    let Some((detail, row)) = model.detail() else {
        let text = match model.lock() {
            Some(_) => "This lock is not among those that matter in this snapshot.",
            None => "",
        };
        frame.render_widget(Paragraph::new(Line::styled(text, style.faint())), area);
        return;
    };
    let width = usize::from(area.width).max(1);
    let mut now = title(detail, row, style, width);
    now.extend(holder(detail, style, width));
    now.extend(chain(detail, style, width));
    // Figures since the start take as many lines as they have, the waiters what is left.
    let half = usize::from(area.width / 2);
    let (bars, named) = if area.height < ROOMY { (FEW_BARS, FEW_PARTS) } else { (MAX_BARS, PARTS) };
    let (left, right) = (histogram(&grouped(&detail.waits, bars), style), parts(detail, named, style, half));
    let past = left.len().max(right.len()) as u16;
    let room = usize::from(area.height.saturating_sub(past)).saturating_sub(now.len());
    now.extend(waiters(detail, style, width, room.max(3)));
    let [above, below] = Layout::vertical([Constraint::Length(now.len() as u16), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(Text::from(now)), above);
    let [one, other] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(below);
    frame.render_widget(Paragraph::new(Text::from(left)), one);
    frame.render_widget(Paragraph::new(Text::from(right)), other);
}

fn title(detail: &Detail, row: Option<&Row>, style: &Style, width: usize) -> Vec<Line<'static>> {
    let process = if detail.process.is_empty() { String::new() } else { format!(" in {}", detail.process) };
    let about = format!(" ({}){process}", detail.kind);
    let figures = row.map_or_else(String::new, |row| {
        let [second, ten, all] = row.waiting;
        format!("{second:.2} / {ten:.2} / {all:.2} threads waiting (1 s / 10 s / all), {} in sum", Nanos(row.wait_ns))
    });
    let room = width.saturating_sub(about.chars().count()).max(8);
    let name = Span::styled(style.text(&clip(&detail.name, room)), style.strong());
    let first = vec![name, Span::raw(style.text(&about))];
    let length = detail.name.chars().count() + about.chars().count() + figures.chars().count();
    if length + 2 <= width {
        let figures = Span::raw(style.text(&format!(": {figures}")));
        return vec![Line::from_iter(first.into_iter().chain([figures]))];
    }
    vec![Line::from(first), Line::raw(style.text(&figures))]
}

/// Lines under a word that is set off.
fn labelled(label: &str, text: &str, style: &Style, width: usize) -> Vec<Line<'static>> {
    let indent = 9;
    let wrapped = wrap(&style.text(text), width.saturating_sub(indent).max(10));
    let lines = wrapped.lines().enumerate().map(|(i, line)| {
        let head = if i == 0 { format!("{label:<indent$}") } else { " ".repeat(indent) };
        Line::from(vec![Span::styled(head, style.strong()), Span::raw(line.to_owned())])
    });
    lines.collect()
}

fn holder(detail: &Detail, style: &Style, width: usize) -> Vec<Line<'static>> {
    labelled("Holder", &holder_in_words(&detail.holder), style, width)
}

/// Who holds a lock, what it does, for how long, and since where; what is not known is said to be.
fn holder_in_words(holder: &HolderNow) -> String {
    let thread = match holder {
        HolderNow::Unknown(why) => return format!("not known ({why})"),
        HolderNow::Thread(thread) => thread,
    };
    let HolderThread { doing, off_ns, held, taken_at, is_in, waits_for, .. } = &**thread;
    let how = if waits_for.is_some() { "in" } else { "called from" };
    let place = is_in.as_ref().map(|place| format!(", {how} {place}")).unwrap_or_default();
    let off = off_ns.map(|ns| format!(" for {}", Nanos(ns))).unwrap_or_default();
    let since = taken_at.as_ref().map(|place| format!(", taken in {place}")).unwrap_or_default();
    let held = match *held {
        Some(HeldFor::Exactly(ns)) => format!("holds it for {ns}{since}"),
        Some(HeldFor::AtLeast(ns)) => format!("holds it for at least {ns}{since}"),
        Some(HeldFor::AtMost(ns)) => format!("holds it for {ns} at most{since}"),
        None => "since when is not known (not every lock operation is observed at this moment)".to_owned(),
    };
    format!("{}: {doing}{off}{place}; {held}", called(&thread.tid, &thread.comm))
}

fn called(tid: &str, comm: &str) -> String {
    if comm.is_empty() { tid.to_owned() } else { format!("thread {tid} ({comm})") }
}

fn chain(detail: &Detail, style: &Style, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for LinkNow { lock, holder } in &detail.chain {
        let who = match holder {
            HolderNow::Unknown(why) => format!("whose holder is not known ({why})"),
            HolderNow::Thread(thread) => format!("held by {}, {}", called(&thread.tid, &thread.comm), thread.doing),
        };
        lines.extend(labelled("Behind", &format!("it waits for {lock}, {who}"), style, width));
    }
    for Part { what, share, .. } in detail.chains.iter().take(if lines.is_empty() { 2 } else { 1 }) {
        lines.extend(labelled(
            "Chains",
            &format!("{} of its waiting since the start: {what}", percent(*share)),
            style,
            width,
        ));
    }
    lines
}

fn waiters(detail: &Detail, style: &Style, width: usize, room: usize) -> Vec<Line<'static>> {
    let all = detail.waiters.len() as u64 + detail.more_waiters;
    if all == 0 {
        return vec![
            Line::from(vec![Span::styled("Waiting  ", style.strong()), Span::raw("nobody at this moment")]),
            Line::default(),
        ];
    }
    let title = format!("Waiting  {} now, longest first", count(all));
    let mut lines = vec![Line::styled(title, style.strong())];
    let shown = room.saturating_sub(3).max(1).min(detail.waiters.len());
    for WaiterNow { tid, comm, waited_ns, at_least, place } in detail.waiters.iter().take(shown) {
        let mark = if *at_least { "≥" } else { "" };
        let waited = format!("{mark}{}", Nanos(*waited_ns));
        let place = place.as_ref().map_or("a function that is not known", String::as_str);
        let who = called(tid, comm);
        let room = width.saturating_sub(13 + who.chars().count() + 4);
        lines.push(Line::raw(style.text(&format!("{waited:>11}  {who} in {}", clip(place, room.max(8))))));
    }
    let rest = all - shown as u64;
    if rest > 0 {
        lines.push(Line::styled(format!("{:>11}  and {} more", "", count(rest)), style.faint()));
    }
    lines.push(Line::default());
    lines
}

/// At most so many bars, from the first that counts anything: neighbouring powers of two are put together where there are more.
fn grouped(bars: &[Bar], most: u32) -> Vec<Bar> {
    let exponent = |bar: &Bar| bar.from_ns.max(1).ilog2();
    let counting = || bars.iter().filter(|bar| bar.count > 0);
    let (Some(first), Some(last)) = (counting().map(exponent).min(), counting().map(exponent).max()) else {
        return Vec::new();
    };
    let together = (last - first + 1).div_ceil(most);
    let mut groups: Vec<Bar> = Vec::new();
    for bar in counting() {
        let from_ns = match first + (exponent(bar) - first) / together * together {
            0 => 0,
            from => 1u64 << from.min(63),
        };
        match groups.last_mut() {
            Some(group) if group.from_ns == from_ns => group.count = group.count.saturating_add(bar.count),
            _ => groups.push(Bar { from_ns, count: bar.count }),
        }
    }
    groups
}

fn histogram(bars: &[Bar], style: &Style) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("Waits since the start, by length", style.strong())];
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or(0).max(1);
    for bar in bars {
        let from = format!("≥ {}", Nanos(bar.from_ns));
        let drawn = style.part(bar.count as f64 / most as f64, BARS);
        lines.push(Line::from(vec![
            Span::raw(style.text(&format!("{from:>11} "))),
            Span::styled(format!("{drawn:<BARS$}"), style.bar()),
            Span::raw(format!(" {}", count(bar.count))),
        ]));
    }
    if lines.len() == 1 {
        lines.push(Line::styled("none that was measured", style.faint()));
    }
    lines
}

fn parts(detail: &Detail, most: [usize; 2], style: &Style, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let lists = [("Held meanwhile by (to blame)", &detail.blamed), ("Waited for in", &detail.waited_at)];
    for ((title, parts), most) in lists.into_iter().zip(most) {
        lines.push(Line::styled(title, style.strong()));
        for Part { what, share, inferred } in parts.iter().take(most) {
            let mark = if *inferred { " ~" } else { "" };
            let text =
                format!("{:>6}{mark} {}", percent(*share), clip(what, width.saturating_sub(8 + mark.len()).max(8)));
            lines.push(Line::raw(style.text(&text)));
        }
        if parts.is_empty() {
            lines.push(Line::styled("  not known", style.faint()));
        }
    }
    if let Some(acquisitions) = detail.acquisitions {
        let text = format!("{} of {} acquisitions contended", count(detail.contended), count(acquisitions));
        lines.push(Line::styled(text, style.faint()));
    }
    lines
}
