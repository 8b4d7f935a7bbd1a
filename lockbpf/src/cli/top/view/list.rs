//! A list: locks, culprits, threads or processes, by how many threads waited.

use super::Style;
use crate::cli::top::frame::{Row, View};
use crate::cli::top::model::Model;
use crate::report::text::clip;
use crate::units::Nanos;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row as Cells, Table, TableState};

/// From so many columns on, there is one for what else there is to know.
const WIDE: u16 = 100;
/// Columns of a spark line, by width.
const SPARKS: (u16, u16) = (12, 40);
/// A number of threads below which it is nothing.
const NOTHING: f64 = 0.005;

/// Draws the list.
pub(super) fn draw(model: &Model, style: &Style, frame: &mut Frame<'_>, area: Rect) {
    let rows = model.rows();
    let Some(shown) = model.frame() else { return };
    if rows.is_empty() {
        let text =
            if model.filter.is_empty() { nothing(model.view) } else { "Nothing has that in its name: Esc shows all." };
        frame.render_widget(Paragraph::new(Line::styled(text, style.faint())), area);
        return;
    }
    let wide = area.width >= WIDE;
    let spark = if wide { (area.width / 4).min(SPARKS.1) } else { SPARKS.0 };
    // The mark, spaces between columns, figures.
    let fixed = 2 + 3 * 7 + 9 + 5 + spark + 1;
    let room = area.width.saturating_sub(fixed);
    // Names are longer than what else there is to know.
    let about = if wide { room / 3 } else { 0 };
    let name = if wide { room.saturating_sub(about + 1) } else { room }.max(8);
    let number = |text: String| Cell::from(Text::from(text).alignment(Alignment::Right));
    let cells = rows.iter().map(|row| {
        let mut cells = vec![Cell::from(style.text(&clip(&row.name, name.into())))];
        if wide {
            cells.push(Cell::from(style.text(&clip(&row.about, about.into()))));
        }
        cells.extend(row.waiting.map(|threads| number(figure(threads, row.estimated))));
        cells.push(number(style.text(&waited(row))));
        let now = row.waiting_now.filter(|&n| n > 0);
        cells.push(number(now.map_or_else(String::new, |n| n.to_string())));
        cells.push(Cell::from(style.spark(&row.spark, spark.into())).style(style.bar()));
        Cells::new(cells)
    });
    let [second, ten] = shown.spans_ns.map(span);
    // Who is waited for is no matter of now.
    let now = if model.view == View::Culprits { String::new() } else { "now".to_owned() };
    let figures = [second, ten, "all".to_owned(), "waited".to_owned(), now];
    let mut titles = vec![Cell::from(title(model.view))];
    if wide {
        titles.push(Cell::from(about_title(model.view)));
    }
    titles.extend(figures.into_iter().map(number));
    titles.push(Cell::from(format!(
        "{:>1$}",
        if wide { "threads waiting, last minute" } else { "last minute" },
        spark.into()
    )));
    let mut widths = vec![Constraint::Length(name)];
    if wide {
        widths.push(Constraint::Length(about));
    }
    widths.extend([6, 6, 6, 8, 4, spark].map(Constraint::Length));
    let table = Table::new(cells, widths)
        .header(Cells::new(titles).style(style.strong()))
        .column_spacing(1)
        .highlight_symbol("> ")
        .row_highlight_style(style.chosen());
    let mut state = TableState::new().with_selected(Some(model.position()));
    frame.render_stateful_widget(table, area, &mut state);
}

fn title(view: View) -> &'static str {
    match view {
        View::Locks => "Lock (threads waiting)",
        View::Culprits => "Critical section (it caused)",
        View::Threads => "Thread (waiting)",
        View::Processes => "Process (threads waiting)",
    }
}

fn about_title(view: View) -> &'static str {
    match view {
        View::Locks => "Kind",
        View::Culprits => "Lock",
        View::Threads => "Process",
        View::Processes => "Lock",
    }
}

fn nothing(view: View) -> &'static str {
    match view {
        View::Locks => "No lock was seen in use so far.",
        View::Culprits => "No critical section was seen so far.",
        View::Threads => "No thread was seen to lock anything so far.",
        View::Processes => "No process was seen to lock anything so far.",
    }
}

/// What a span is called, which is as long as snapshots are apart at least.
fn span(ns: u64) -> String {
    let seconds = (ns as f64 / 1e9).round();
    format!("{seconds:.0} s")
}

/// A number of threads, of which those that are nothing are left out.
fn figure(threads: f64, estimated: bool) -> String {
    let mark = if estimated { "~" } else { "" };
    match threads {
        t if t < NOTHING => String::new(),
        t if t < 10.0 => format!("{mark}{t:.2}"),
        t if t < 1_000.0 => format!("{mark}{t:.0}"),
        _ => format!("{mark}>999"),
    }
}

fn waited(row: &Row) -> String {
    match row.wait_ns {
        0 => String::new(),
        ns => format!("{}{}", if row.estimated { "~" } else { "" }, Nanos(ns)),
    }
}
