//! The keys: one table, from which actions and the help are made.

use super::frame::View;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a user can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// To the next line.
    Next,
    /// To the line before.
    Previous,
    /// Ten lines on.
    PageDown,
    /// Ten lines back.
    PageUp,
    /// To the first line.
    First,
    /// To the last line.
    Last,
    /// Looks closer.
    Enter,
    /// Back from there.
    Back,
    /// Shows a view.
    View(View),
    /// Shows the next view.
    NextView,
    /// Sorts by the next span of time.
    Sort,
    /// Begins to type a filter.
    Filter,
    /// Stops the screen, or lets it go on.
    Pause,
    /// One frame back.
    Earlier,
    /// One frame on.
    Later,
    /// Writes what is shown to a file.
    Export,
    /// Shows the keys.
    Help,
    /// Stops this process, as Ctrl-Z does everywhere.
    Suspend,
    /// Ends the observation.
    Quit,
}

/// Keys with one meaning.
pub(super) struct Key {
    codes: &'static [KeyCode],
    ctrl: &'static [char],
    action: Action,
    /// What the help calls them.
    pub shown: &'static str,
    /// What they do.
    pub does: &'static str,
    /// What they do, for the bottom line; empty for those that are not worth the room.
    pub brief: &'static str,
}

const fn key(
    codes: &'static [KeyCode],
    action: Action,
    shown: &'static str,
    brief: &'static str,
    does: &'static str,
) -> Key {
    Key { codes, ctrl: &[], action, shown, does, brief }
}

/// All of them, the most useful first.
pub(super) const KEYS: &[Key] = &[
    key(&[KeyCode::Char('j'), KeyCode::Down], Action::Next, "j ↓", "", "next line"),
    key(&[KeyCode::Char('k'), KeyCode::Up], Action::Previous, "k ↑", "", "line before"),
    key(&[KeyCode::PageDown], Action::PageDown, "PgDn", "", "ten lines on"),
    key(&[KeyCode::PageUp], Action::PageUp, "PgUp", "", "ten lines back"),
    key(&[KeyCode::Char('g'), KeyCode::Home], Action::First, "g Home", "", "first line"),
    key(&[KeyCode::Char('G'), KeyCode::End], Action::Last, "G End", "", "last line"),
    key(&[KeyCode::Enter], Action::Enter, "Enter", "closer", "closer: a lock, its holder …"),
    key(&[KeyCode::Esc, KeyCode::Backspace], Action::Back, "Esc", "", "back; filter off; live again"),
    key(&[KeyCode::Char('/')], Action::Filter, "/", "filter", "filter by name, or pid:123"),
    key(&[KeyCode::Char('s')], Action::Sort, "s", "sort", "sort by 1 s, 10 s, all"),
    key(&[KeyCode::Char(' ')], Action::Pause, "Space", "pause", "pause the screen, or go on"),
    key(&[KeyCode::Left, KeyCode::Char('h')], Action::Earlier, "← h", "", "back in time (10 minutes)"),
    key(&[KeyCode::Right, KeyCode::Char('l')], Action::Later, "→ l", "", "on in time"),
    key(&[KeyCode::Char('1')], Action::View(View::Locks), "1", "", "by lock"),
    key(&[KeyCode::Char('2')], Action::View(View::Culprits), "2", "", "by critical section to blame"),
    key(&[KeyCode::Char('3')], Action::View(View::Threads), "3", "", "by waiting thread"),
    key(&[KeyCode::Char('4')], Action::View(View::Processes), "4", "", "by process"),
    key(&[KeyCode::Tab], Action::NextView, "Tab", "view", "next view"),
    key(&[KeyCode::Char('e')], Action::Export, "e", "export", "export what is shown as JSON"),
    key(&[KeyCode::Char('?'), KeyCode::F(1)], Action::Help, "?", "help", "this help"),
    Key {
        codes: &[],
        ctrl: &['z'],
        action: Action::Suspend,
        shown: "Ctrl-Z",
        does: "stop lockbpf (fg: go on)",
        brief: "",
    },
    Key {
        codes: &[KeyCode::Char('q')],
        ctrl: &['c'],
        action: Action::Quit,
        shown: "q Ctrl-C",
        does: "end, with a summary",
        brief: "quit",
    },
];

/// What a key does; `None` for one without a meaning.
pub(super) fn action(event: KeyEvent) -> Option<Action> {
    let ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
    let means = |key: &&Key| match event.code {
        KeyCode::Char(c) if ctrl => key.ctrl.contains(&c),
        code => key.codes.contains(&code),
    };
    KEYS.iter().find(means).map(|key| key.action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn pressed(code: KeyCode, modifiers: KeyModifiers) -> Option<Action> {
        action(KeyEvent::new(code, modifiers))
    }

    #[test]
    fn each_key_has_one_meaning() {
        let codes: Vec<_> = KEYS.iter().flat_map(|key| key.codes).collect();
        assert_eq!(codes.iter().collect::<HashSet<_>>().len(), codes.len());
        for key in KEYS {
            assert!(!key.shown.is_empty() && !key.does.is_empty());
            for &code in key.codes {
                assert_eq!(pressed(code, KeyModifiers::NONE), Some(key.action));
            }
        }
    }

    #[test]
    fn control_is_told_from_the_letter() {
        let ctrl = |c| pressed(KeyCode::Char(c), KeyModifiers::CONTROL);
        assert_eq!([ctrl('c'), ctrl('z'), ctrl('e')], [Some(Action::Quit), Some(Action::Suspend), None]);
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(pressed(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(Action::Last));
    }
}
