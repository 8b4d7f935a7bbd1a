//! The terminal: taken over while the screen is shown, and given back however this process ends, unless it is killed by SIGKILL.

use crate::cli::messages;
use anyhow::{Context, Result, bail};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use std::io::{self, BufWriter, IsTerminal, Stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the terminal is taken over.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal, taken over. Dropped, it is given back.
pub(super) struct Screen {
    /// To draw on.
    pub terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

/// Makes sure that there is a terminal to draw on and to read keys from.
///
/// # Errors
/// When there is none.
pub(super) fn check() -> Result<()> {
    for (what, is_terminal) in
        [("standard output", io::stdout().is_terminal()), ("standard input", io::stdin().is_terminal())]
    {
        if !is_terminal {
            bail!(
                "lockbpf top draws on a terminal and reads keys from it, but {what} is none: `lockbpf --every 1s …` tells on stderr what was found so far"
            );
        }
    }
    Ok(())
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// When the terminal does not let it.
    pub(super) fn open() -> Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        take()?;
        let terminal = Terminal::new(CrosstermBackend::new(BufWriter::new(io::stdout())));
        Ok(Self { terminal: terminal.context("failed to draw on the terminal")? })
    }

    /// Takes the terminal over again after [`restore`].
    ///
    /// # Errors
    /// When the terminal does not let it.
    pub(super) fn reopen(&mut self) -> Result<()> {
        take()?;
        self.terminal.clear().context("failed to draw on the terminal")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn take() -> Result<()> {
    let failed = "failed to take over the terminal";
    messages::keep();
    TAKEN.store(true, Ordering::SeqCst);
    enable_raw_mode().and_then(|()| execute!(io::stdout(), EnterAlternateScreen)).context(failed)
}

/// Gives the terminal back, if it is taken over, and says what was kept back meanwhile. May be called at any time, by any thread.
pub(super) fn restore() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // Who has closed the terminal does not want it back.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        messages::release();
    }
}
