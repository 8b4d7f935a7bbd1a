//! Pages as a browser shows them.

use super::privilege::installed;
use super::python;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPT: &str = include_str!("browser.py");

/// A headless browser, driven by the DevTools protocol.
pub(crate) struct Browser {
    chromium: PathBuf,
    python: PathBuf,
}

/// How a page is looked at.
#[derive(Clone, Copy)]
pub(crate) struct View {
    /// Pixels.
    pub(crate) width: u32,
    /// `light` or `dark`.
    pub(crate) scheme: &'static str,
    /// `screen` or `print`.
    pub(crate) media: &'static str,
}

/// A computer's screen.
pub(crate) const WIDE: View = View { width: 1280, scheme: "light", media: "screen" };
/// A telephone's, by night.
pub(crate) const NARROW: View = View { width: 400, scheme: "dark", media: "screen" };

/// Paper, printed from a dark screen.
pub(crate) const PAPER: View = View { width: 718, scheme: "dark", media: "print" };

impl Browser {
    /// Debian's Chromium; `None`, with the proof printed, where that is not installed.
    pub(crate) fn find() -> Option<Self> {
        Some(Self { chromium: installed("chromium")?, python: python::with(&["websocket-client==1.9.0"])? })
    }

    /// What a script's promise resolves to in a page. The page may neither ask for anything else nor complain.
    pub(crate) fn look(&self, page: &Path, view: View, script: &str) -> Value {
        self.draw(page, view, script, None)
    }

    /// As [`Self::look`], and what the page then looks like goes to a file: a PNG, or a PDF as its name ends.
    pub(crate) fn draw(&self, page: &Path, view: View, script: &str, picture: Option<&Path>) -> Value {
        let mut command = Command::new(&self.python);
        command.args(["-c", SCRIPT]).arg(&self.chromium).arg(page).args([script, &view.width.to_string()]);
        command.args([view.scheme, view.media]).args(picture);
        let output = command.output().expect("python runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut seen: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let none = Value::Array(Vec::new());
        assert_eq!((&seen["errors"], &seen["requests"]), (&none, &none), "{}", page.display());
        seen["result"].take()
    }
}
