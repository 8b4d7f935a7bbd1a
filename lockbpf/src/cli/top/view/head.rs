//! The head: what is observed, the verdict so far, how sure that is, what it costs, what is wrong.

use super::Style;
use crate::cli::top::frame::View;
use crate::cli::top::model::{Model, SORTS};
use crate::report::text::wrap;
use crate::units::Nanos;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// From so many lines on, more of the verdict is shown.
const ROOMY: u16 = 30;

/// The lines of the head.
pub(super) fn lines(model: &Model, style: &Style, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width).max(1);
    let Some(frame) = model.frame() else {
        return vec![
            Line::styled("lockbpf top", style.strong()),
            Line::raw(if model.ending { "ending …" } else { "observing; the first look comes in a second …" }),
        ];
    };
    let mut lines = vec![title(model, style, width)];
    let most = if area.height >= ROOMY { 4 } else { 2 };
    lines.extend(clipped(&frame.verdict.join(" "), width, most).into_iter().map(|line| styled(style, line, true)));
    let seen = format!("Seen: {}. Cost: {}.", frame.coverage, frame.cost);
    lines.extend(clipped(&seen, width, 2).into_iter().map(|line| styled(style, line, false)));
    lines.extend(warnings(&frame.warnings, style, width, if area.height >= ROOMY { 3 } else { 1 }));
    lines.push(views(model, style));
    lines
}

/// The same without what does not change by the second.
pub(super) fn brief(model: &Model, style: &Style, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width).max(1);
    let mut lines = vec![title(model, style, width)];
    lines.extend(model.frame().iter().flat_map(|frame| warnings(&frame.warnings, style, width, 1)));
    lines
}

/// What is observed, for how long, and whether the screen goes on.
fn title(model: &Model, style: &Style, width: usize) -> Line<'static> {
    let Some(frame) = model.frame() else { return Line::default() };
    let state = match model.behind_ns() {
        _ if model.ending => "ENDING".to_owned(),
        Some(0) => "PAUSED".to_owned(),
        Some(behind) => format!("PAUSED, {} ago", seconds(behind)),
        None => "LIVE".to_owned(),
    };
    let text = format!("lockbpf top: {} for {}", frame.target, seconds(frame.at_ns));
    let room = width.saturating_sub(state.chars().count() + 2);
    let text: String = style.text(&text).chars().take(room).collect();
    let gap = " ".repeat(width.saturating_sub(text.chars().count() + state.chars().count()));
    Line::from(vec![Span::styled(text, style.strong()), Span::raw(gap), Span::styled(state, style.strong())])
}

/// A time in seconds, or minutes and seconds.
pub(super) fn seconds(ns: u64) -> String {
    let seconds = Nanos(ns).0 / 1_000_000_000;
    if seconds < 60 { format!("{seconds} s") } else { format!("{}:{:02}", seconds / 60, seconds % 60) }
}

/// Text in at most so many lines; what is left out is marked.
pub(super) fn clipped(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = wrap(text, width).lines().map(str::to_owned).collect();
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            let kept: String = last.chars().take(width.saturating_sub(2)).collect();
            *last = kept + " …";
        }
    }
    lines
}

fn styled(style: &Style, line: String, strong: bool) -> Line<'static> {
    Line::styled(style.text(&line), if strong { style.plain() } else { style.faint() })
}

fn warnings(warnings: &[String], style: &Style, width: usize, most: usize) -> Vec<Line<'static>> {
    if warnings.is_empty() {
        return vec![Line::styled("No warnings.", style.faint())];
    }
    let shown = most.min(warnings.len());
    let more = warnings.len() - shown;
    let told = warnings.iter().take(shown).enumerate().map(|(i, warning)| {
        let more = if more > 0 && i + 1 == shown { format!(" (and {more} more)") } else { String::new() };
        let room = width.saturating_sub(2 + more.chars().count());
        let text: String = warning.chars().take(room).collect();
        Line::styled(style.text(&format!("! {text}{more}")), style.alarm())
    });
    told.collect()
}

/// The views, the one that is shown in brackets, and the order.
fn views(model: &Model, style: &Style) -> Line<'static> {
    let mut spans = Vec::new();
    for (i, view) in View::ALL.into_iter().enumerate() {
        let (text, look) = if view == model.view {
            (format!("[{} {}]", i + 1, view.name()), style.strong())
        } else {
            (format!(" {} {} ", i + 1, view.name()), style.plain())
        };
        spans.push(Span::styled(text, look));
    }
    let order = SORTS.get(model.sort).copied().unwrap_or_default();
    spans.push(Span::styled(format!("  by the {}", order.trim_start_matches("since the ")), style.faint()));
    if !model.filter.is_empty() && !model.is_typing() {
        spans.push(Span::styled(style.text(&format!("  only \"{}\"", model.filter)), style.strong()));
    }
    Line::from(spans)
}
