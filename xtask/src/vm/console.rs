//! What a machine's console tells of a failure.

use std::{fs, path::Path};

/// Where the kernel begins to tell what went wrong.
const BEGINNINGS: [&str; 3] = ["BUG: ", "Oops: ", "Kernel panic"];
/// How many lines of it are repeated.
const LINES: usize = 15;
/// How wide they are.
const WIDTH: usize = 160;

/// The lines of the console `file` that tell of a crash, or its last ones.
pub(crate) fn excerpt(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    lines(&String::from_utf8_lossy(&text))
}

/// A long message with its middle left out: verifiers say a lot.
pub(crate) fn shortened(message: &str) -> String {
    let lines: Vec<&str> = message.lines().collect();
    match lines.len().checked_sub(2 * LINES) {
        None | Some(0) => cut(&lines),
        Some(left_out) => {
            let (head, rest) = lines.split_at(LINES);
            format!("{}\n… {left_out} lines …\n{}", cut(head), cut(rest.split_at(left_out).1))
        }
    }
}

fn lines(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    let crash = lines.iter().position(|line| BEGINNINGS.iter().any(|beginning| line.contains(beginning)));
    let first = crash.unwrap_or(lines.len().saturating_sub(LINES));
    let end = lines.len().min(first + LINES);
    cut(lines.get(first..end).unwrap_or_default())
}

fn cut(lines: &[&str]) -> String {
    let cut = |line: &&str| line.chars().take(WIDTH).collect::<String>();
    lines.iter().map(cut).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: usize) -> String {
        (0..count).map(|n| format!("line {n}\n")).collect()
    }

    #[test]
    fn a_crash_is_shown_from_its_beginning() {
        let console = format!("{}[ 12.5] BUG: unable to handle page fault\n{}", numbered(50), numbered(50));
        let shown = lines(&console);
        assert!(shown.starts_with("[ 12.5] BUG: ") && shown.ends_with("line 13"), "{shown}");
    }

    #[test]
    fn otherwise_the_end_is_shown() {
        assert!(lines(&numbered(50)).starts_with("line 35\n"));
        assert_eq!(lines("one\r\ntwo\r\n"), "one\ntwo");
        assert_eq!(lines(""), "");
    }

    #[test]
    fn only_long_messages_are_shortened() {
        assert_eq!(shortened("one\ntwo"), "one\ntwo");
        assert_eq!(shortened(&numbered(30)), numbered(30).trim_end());
        let short = shortened(&numbered(31));
        assert!(short.contains("line 14\n… 1 lines …\nline 16") && short.ends_with("line 30"), "{short}");
    }
}
