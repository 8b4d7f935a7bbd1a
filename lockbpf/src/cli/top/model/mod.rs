//! What is shown, and how keys change it. Pure: fed with frames and actions, asked for what to draw.

use crate::cli::top::frame::{Detail, Frame, Row, View};
use crate::cli::top::keys::Action;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;

/// For how long frames are kept.
const KEPT_NS: u64 = 600_000_000_000;
/// Lines that a page key moves.
const PAGE: isize = 10;
/// The most that a filter can be.
const MAX_FILTER: usize = 80;
/// Spans by which rows are sorted.
pub(super) const SORTS: [&str; 3] = ["last second", "last 10 s", "since the start"];

/// What is drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Page {
    /// A list.
    #[default]
    List,
    /// One lock closely.
    Lock(String),
    /// The keys.
    Help(Box<Page>),
}

/// What an action asks for beyond the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    None,
    /// A file with this in it.
    Export(String),
    /// To stop this process.
    Suspend,
    /// The end.
    Quit,
}

/// The state of the screen.
#[derive(Debug, Default)]
pub(super) struct Model {
    frames: VecDeque<Arc<Frame>>,
    /// The frame that is shown, if not the last.
    stopped: Option<Arc<Frame>>,
    /// What is drawn.
    pub page: Page,
    /// By what.
    pub view: View,
    /// The span by which rows are sorted, of [`SORTS`].
    pub sort: usize,
    /// The chosen line of each view.
    chosen: [Option<String>; View::ALL.len()],
    /// Only lines with this.
    pub filter: String,
    /// The filter before, while another is typed.
    typing: Option<String>,
    /// What is to be told for a moment.
    pub message: Option<String>,
    /// Whether the observation is ending.
    pub ending: bool,
}

/// What is exported.
#[derive(Serialize)]
struct Export<'a> {
    schema: &'static str,
    view: View,
    sorted_by: &'static str,
    filter: &'a str,
    /// What is chosen in the view.
    chosen: Option<&'a str>,
    /// The lines of the view, as they are shown.
    rows: Vec<&'a Row>,
    frame: &'a Frame,
}

impl Model {
    /// Takes the next frame.
    pub(super) fn take(&mut self, frame: Frame) {
        let at = frame.at_ns;
        self.frames.push_back(Arc::new(frame));
        while self.frames.front().is_some_and(|first| first.at_ns + KEPT_NS < at) {
            self.frames.pop_front();
        }
    }

    /// The frame that is shown; `None` before the first.
    pub(super) fn frame(&self) -> Option<&Frame> {
        self.stopped.as_deref().or(self.frames.back().map(Arc::as_ref))
    }

    /// By how much the frame that is shown is older than the last; `None` while the screen goes on.
    pub(super) fn behind_ns(&self) -> Option<u64> {
        let stopped = self.stopped.as_ref()?;
        Some(self.frames.back().map_or(0, |last| last.at_ns.saturating_sub(stopped.at_ns)))
    }

    /// Whether a filter is being typed.
    pub(super) fn is_typing(&self) -> bool {
        self.typing.is_some()
    }

    /// The lines of the view, sorted and filtered.
    pub(super) fn rows(&self) -> Vec<&Row> {
        let Some(frame) = self.frame() else { return Vec::new() };
        let mut rows: Vec<&Row> = frame.rows(self.view).iter().filter(|row| matches(row, &self.filter)).collect();
        let by = |row: &Row| row.waiting.get(self.sort).copied().unwrap_or(0.0);
        rows.sort_by(|a, b| by(b).total_cmp(&by(a)).then_with(|| a.name.cmp(&b.name)));
        rows
    }

    /// The number of the chosen line among [`Self::rows`].
    pub(super) fn position(&self) -> usize {
        let chosen = self.chosen.get(self.view as usize).and_then(Option::as_deref);
        chosen.and_then(|id| self.rows().iter().position(|row| row.id == id)).unwrap_or(0)
    }

    /// The lock to look at closely: the one whose page is open, else the one that the chosen line leads to.
    pub(super) fn lock(&self) -> Option<String> {
        match &self.page {
            Page::Lock(id) => Some(id.clone()),
            _ => self.rows().get(self.position()).and_then(|row| row.lock.clone()),
        }
    }

    /// That lock, and how it is listed.
    pub(super) fn detail(&self) -> Option<(&Detail, Option<&Row>)> {
        let (frame, id) = (self.frame()?, self.lock()?);
        Some((frame.details.get(&id)?, frame.locks.iter().find(|row| row.id == id)))
    }

    /// Does what a key asks for.
    pub(super) fn act(&mut self, action: Action) -> Effect {
        self.message = None;
        if let (Page::Help(below), false) = (&mut self.page, action == Action::Quit) {
            self.page = std::mem::take(below);
            return Effect::None;
        }
        match action {
            Action::Next => self.step(1),
            Action::Previous => self.step(-1),
            Action::PageDown => self.step(PAGE),
            Action::PageUp => self.step(-PAGE),
            Action::First => self.step(isize::MIN),
            Action::Last => self.step(isize::MAX),
            Action::Enter => self.enter(),
            Action::Back => self.back(),
            Action::View(view) => self.show(view),
            Action::NextView => {
                let next = (self.view as usize + 1) % View::ALL.len();
                self.show(View::ALL.get(next).copied().unwrap_or_default());
            }
            Action::Sort => self.sort = (self.sort + 1) % SORTS.len(),
            Action::Filter => {
                self.page = Page::List;
                self.typing = Some(std::mem::take(&mut self.filter));
            }
            Action::Pause => {
                let last = self.frames.back().cloned();
                self.stopped = if self.stopped.is_some() { None } else { last };
            }
            Action::Earlier => self.go(-1),
            Action::Later => self.go(1),
            Action::Export => {
                return self.export().map_or(Effect::None, Effect::Export);
            }
            Action::Help => self.page = Page::Help(Box::new(std::mem::take(&mut self.page))),
            Action::Suspend => return Effect::Suspend,
            Action::Quit => {
                self.ending = true;
                return Effect::Quit;
            }
        }
        Effect::None
    }

    /// Types a character of a filter.
    pub(super) fn type_in(&mut self, c: char) {
        if self.filter.len() < MAX_FILTER {
            self.filter.push(c);
        }
    }

    /// Takes back the last one.
    pub(super) fn erase(&mut self) {
        self.filter.pop();
    }

    /// Ends typing: with the filter, or the one before.
    pub(super) fn end_typing(&mut self, accepted: bool) {
        if let (Some(before), false) = (self.typing.take(), accepted) {
            self.filter = before;
        }
    }

    fn step(&mut self, by: isize) {
        if matches!(self.page, Page::Lock(_)) {
            // The next lock of the list, closely.
            self.page = Page::List;
            self.step(by);
            self.enter();
            return;
        }
        let rows = self.rows();
        let to = self.position().saturating_add_signed(by).min(rows.len().saturating_sub(1));
        let id = rows.get(to).map(|row| row.id.clone());
        if let Some(chosen) = self.chosen.get_mut(self.view as usize) {
            *chosen = id;
        }
    }

    fn enter(&mut self) {
        if self.page != Page::List {
            return;
        }
        let row = self.rows().get(self.position()).map(|&row| row.clone());
        match row {
            Some(Row { pid: Some(pid), .. }) if self.view == View::Processes => {
                self.show(View::Locks);
                self.filter = format!("pid:{pid}");
            }
            Some(Row { lock: Some(lock), .. }) => self.page = Page::Lock(lock),
            Some(_) => self.message = Some("this thread waits for no lock now".to_owned()),
            None => {}
        }
    }

    fn back(&mut self) {
        if self.page != Page::List {
            self.page = Page::List;
        } else if !self.filter.is_empty() {
            self.filter.clear();
        } else {
            self.stopped = None;
        }
    }

    fn show(&mut self, view: View) {
        (self.view, self.page) = (view, Page::List);
    }

    /// Shows the frame before, or after; the first step back stops the screen.
    fn go(&mut self, by: isize) {
        let Some(last) = self.frames.back() else { return };
        let shown = self.stopped.as_ref().unwrap_or(last).at_ns;
        // One that is not kept any more is before all that are.
        let at = self.frames.partition_point(|frame| frame.at_ns < shown);
        let is_kept = self.frames.get(at).is_some_and(|frame| frame.at_ns == shown);
        let to = if by > 0 && !is_kept { Some(at) } else { at.checked_add_signed(by) };
        match to.and_then(|to| self.frames.get(to)) {
            Some(frame) => self.stopped = Some(frame.clone()),
            None if by < 0 => self.message = Some("that is the oldest snapshot kept".to_owned()),
            None => self.message = Some("that is the last snapshot; Space: live again".to_owned()),
        }
    }

    fn export(&self) -> Option<String> {
        let frame = self.frame()?;
        let lock = self.lock();
        let export = Export {
            schema: "lockbpf.top/1",
            view: self.view,
            sorted_by: SORTS.get(self.sort).copied().unwrap_or_default(),
            filter: &self.filter,
            chosen: lock.as_deref(),
            rows: self.rows(),
            frame,
        };
        serde_json::to_string_pretty(&export).ok()
    }
}

/// Whether a line passes the filter: `pid:123`, or a part of what is written in it.
fn matches(row: &Row, filter: &str) -> bool {
    if let Some(pid) = filter.strip_prefix("pid:") {
        return row.pid.is_some_and(|own| own.to_string() == pid);
    }
    filter.is_empty() || row.name.contains(filter) || row.about.contains(filter)
}

#[cfg(test)]
pub(super) mod tests;
