//! What a person sees on a terminal while an observation runs.

use super::messages;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A line on stderr that moves; nothing where stderr is no terminal.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Begins; `duration` is how long it is to last, if known. `hidden`: somebody else shows that.
    pub(super) fn start(duration: Option<Duration>, hidden: bool) -> Self {
        let bar = if std::io::stderr().is_terminal() && !hidden {
            ProgressBar::with_draw_target(duration.map(|d| d.as_millis() as u64), ProgressDrawTarget::stderr_with_hz(4))
        } else {
            ProgressBar::hidden()
        };
        let template = match duration {
            Some(_) => "{elapsed} {wide_bar} {msg}",
            None => "{spinner} {elapsed} {msg} (Ctrl-C ends with the report)",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Prints on stderr what cannot wait for the end.
    pub(super) fn tell(&self, text: &str) {
        self.bar.suspend(|| messages::write(text));
    }

    /// Shows how far it is.
    pub(super) fn update(&self, elapsed: Duration, events: u64) {
        self.bar.set_position(elapsed.as_millis() as u64);
        self.bar.set_message(format!("{events} events"));
        self.bar.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
