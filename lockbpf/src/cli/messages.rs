//! Messages to the user, which go to stderr; while a screen is drawn on the terminal they are kept, for the screen to show and for
//! stderr afterwards.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// What was said since the screen was opened; `None` while there is none.
static KEPT: Mutex<Option<Vec<String>>> = Mutex::new(None);
/// Messages kept: those that came first, since what comes later says the same again.
const MAX_KEPT: usize = 1_000;

/// Says something: to stderr, unless a screen is open.
pub(super) fn write(text: &str) {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *kept {
        Some(messages) if messages.len() < MAX_KEPT => messages.push(text.trim_end().to_owned()),
        Some(_) => {}
        // Whoever has closed it does not want to know.
        None => _ = io::stderr().lock().write_all(text.as_bytes()),
    }
}

/// Keeps what is said from now on, until [`release`].
pub(super) fn keep() {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
}

/// The last thing that was said since [`keep`], and how many there were.
pub(super) fn last() -> Option<(usize, String)> {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.as_ref().and_then(|messages| Some((messages.len(), messages.last()?.clone())))
}

/// Says on stderr what was kept.
pub(super) fn release() {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).take();
    for message in kept.unwrap_or_default() {
        write(&(message + "\n"));
    }
}

/// The log's way to the user.
pub(super) struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_while_a_screen_is_open_is_kept() {
        assert_eq!(last(), None);
        keep();
        write("one\n");
        write("two\nlines\n");
        assert_eq!(last(), Some((2, "two\nlines".to_owned())));
        release();
        assert_eq!(last(), None);
    }
}
