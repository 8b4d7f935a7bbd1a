//! Drawing: from the model to the cells of a terminal, and nothing else. It fits any size, and says the same without colours.

mod detail;
mod head;
mod help;
mod list;
mod style;

pub(super) use style::Style;

use super::model::{Model, Page};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;

/// From so many lines on, the chosen lock is shown below the list.
const TALL: u16 = 36;

/// Draws the screen.
pub(super) fn draw(model: &Model, style: &Style, frame: &mut Frame<'_>) {
    let area = frame.area();
    let mut top = head::lines(model, style, area);
    match model.page {
        Page::Help(_) => top.truncate(1),
        // There is much to tell of one lock: the verdict is in the list.
        Page::Lock(_) if area.height < TALL => top = head::brief(model, style, area),
        Page::Lock(_) | Page::List => {}
    }
    let [head, body, bottom] =
        Layout::vertical([Constraint::Length(top.len() as u16), Constraint::Min(0), Constraint::Length(1)]).areas(area);
    frame.render_widget(Paragraph::new(Text::from(top)), head);
    match &model.page {
        Page::List if area.height >= TALL => {
            let [list, closely] = Layout::vertical([Constraint::Fill(2), Constraint::Fill(3)]).areas(body);
            list::draw(model, style, frame, list);
            let shown = Rect { y: closely.y.saturating_add(1), height: closely.height.saturating_sub(1), ..closely };
            detail::draw(model, style, frame, shown);
        }
        Page::List => list::draw(model, style, frame, body),
        Page::Lock(_) => detail::draw(model, style, frame, body),
        Page::Help(_) => help::draw(style, frame, body),
    }
    frame.render_widget(Paragraph::new(bottom_line(model, style)), bottom);
}

/// What is typed, or told, or which keys there are.
fn bottom_line(model: &Model, style: &Style) -> Line<'static> {
    if model.is_typing() {
        return Line::styled(format!("filter: {}_   (Enter: keep, Esc: as before)", model.filter), style.strong());
    }
    if let Some(message) = &model.message {
        return Line::styled(message.clone(), style.strong());
    }
    help::brief(style)
}

#[cfg(test)]
mod tests;
