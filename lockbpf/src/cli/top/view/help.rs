//! The keys and what the figures mean.

use super::Style;
use crate::cli::top::keys::KEYS;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

const FIGURES: [&str; 5] = [
    "Figures are numbers of threads that waited on average, as load averages are: 2.50 is two or three threads at each moment. \"1 s\" and \"10 s\" \
     are the last seconds, \"all\" is since the start.",
    "waited: the time in sum. now: threads that wait at this moment. ~ marks estimates.",
    "Culprits: the waiting of all threads that a critical section caused.",
    "What is said of now is of the moment of the snapshot, once a second.",
    "Any key: back.",
];

/// Draws the help.
pub(super) fn draw(style: &Style, frame: &mut Frame<'_>, area: Rect) {
    // Two columns of keys where one does not fit.
    let half = KEYS.len().div_ceil(2);
    let one_column = usize::from(area.height) >= KEYS.len() + FIGURES.len() + 2;
    let mut lines = Vec::new();
    if one_column {
        lines.extend(KEYS.iter().map(|key| {
            Line::from(vec![
                Span::styled(format!("{:>9}  ", style.text(key.shown)), style.strong()),
                Span::raw(style.text(key.does)),
            ])
        }));
    } else {
        let width = usize::from(area.width / 2).saturating_sub(11);
        let cell = |key: &super::super::keys::Key| {
            let does: String = style.text(key.does).chars().take(width).collect();
            [
                Span::styled(format!("{:>9} ", style.text(key.shown)), style.strong()),
                Span::raw(format!("{does:width$}")),
            ]
        };
        for (i, left) in KEYS.iter().take(half).enumerate() {
            let right = KEYS.get(i + half).map(cell);
            lines.push(Line::from_iter(cell(left).into_iter().chain(right.into_iter().flatten())));
        }
    }
    lines.push(Line::default());
    lines.extend(FIGURES.iter().map(|line| Line::styled(*line, style.faint())));
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

/// The keys in one line.
pub(super) fn brief(style: &Style) -> Line<'static> {
    let brief = KEYS.iter().filter(|key| !key.brief.is_empty());
    let mut spans = Vec::new();
    for key in brief {
        let first = key.shown.split(' ').next().unwrap_or_default();
        spans.push(Span::styled(style.text(first), style.strong()));
        spans.push(Span::styled(format!(" {}  ", key.brief), style.faint()));
    }
    Line::from(spans)
}
