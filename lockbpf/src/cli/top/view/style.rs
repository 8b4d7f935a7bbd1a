//! How things look: with colours or without, in characters that the terminal has.

use ratatui::style::{Color, Modifier, Style as Look};

/// What is less than this is no high bar, however little the rest is.
const LEAST_HIGH: f64 = 0.05;

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Whether there are colours.
    pub color: bool,
    /// Whether there are characters beyond ASCII.
    pub unicode: bool,
}

impl Style {
    /// As the environment says: `NO_COLOR`, and the locale's characters.
    pub fn of_environment() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let unicode = locale.contains("utf-8") || locale.contains("utf8");
        let color = set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb");
        Self { color, unicode }
    }

    /// Ordinary text.
    pub(super) fn plain(self) -> Look {
        Look::new()
    }

    /// What is read first.
    pub(super) fn strong(self) -> Look {
        Look::new().add_modifier(Modifier::BOLD)
    }

    /// What is read last.
    pub(super) fn faint(self) -> Look {
        if self.color { Look::new().fg(Color::DarkGray) } else { Look::new() }
    }

    /// What is chosen.
    pub(super) fn chosen(self) -> Look {
        Look::new().add_modifier(Modifier::REVERSED)
    }

    /// What is wrong.
    pub(super) fn alarm(self) -> Look {
        let bold = self.strong();
        if self.color { bold.fg(Color::Red) } else { bold }
    }

    /// Measures.
    pub(super) fn bar(self) -> Look {
        if self.color { Look::new().fg(Color::Cyan) } else { Look::new() }
    }

    /// Text in characters that the terminal has.
    pub(super) fn text(self, text: &str) -> String {
        if self.unicode || text.is_ascii() {
            return text.to_owned();
        }
        text.chars().map(ascii).collect()
    }

    /// Values as a line of bars, each as high as its part of the greatest one, the last `width` of them.
    pub(super) fn spark(self, values: &[f64], width: usize) -> String {
        let shown = values.get(values.len().saturating_sub(width)..).unwrap_or_default();
        let most = shown.iter().copied().fold(LEAST_HIGH, f64::max);
        let heights: &[char] = if self.unicode {
            &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
        } else {
            &['.', ':', '-', '=', '+', '*', '%', '#']
        };
        let bar = |&value: &f64| {
            if value.is_nan() || value <= 0.0 {
                return ' ';
            }
            // The cast saturates.
            let height = (value / most * heights.len() as f64).ceil() as usize;
            heights.get(height.clamp(1, heights.len()) - 1).copied().unwrap_or(' ')
        };
        let bars: String = shown.iter().map(bar).collect();
        format!("{bars:>width$}")
    }

    /// A horizontal bar for a part of 1.
    pub(super) fn part(self, part: f64, width: usize) -> String {
        let full = if self.unicode { '█' } else { '#' };
        // The cast saturates.
        let length = (part.clamp(0.0, 1.0) * width as f64).ceil() as usize;
        std::iter::repeat_n(full, length.min(width)).collect()
    }
}

/// What stands for a character where there is only ASCII.
fn ascii(c: char) -> char {
    match c {
        _ if c.is_ascii() => c,
        'µ' => 'u',
        '…' | '·' => '.',
        '–' | '─' => '-',
        '→' => '>',
        '←' => '<',
        '≥' => '>',
        '↑' => '^',
        '↓' => 'v',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparks_are_as_high_as_what_they_tell() {
        let [rich, plain] = [true, false].map(|unicode| Style { color: false, unicode });
        assert_eq!(rich.spark(&[0.0, 1.0, 4.0, 8.0], 6), "   ▁▄█");
        assert_eq!(plain.spark(&[0.0, 1.0, 4.0, 8.0], 3), ".=#");
        assert_eq!(rich.spark(&[], 2), "  ");
        assert_eq!(rich.spark(&[f64::NAN, 0.0, 0.001], 3), "  ▁", "next to nothing is low");
        assert_eq!(
            (rich.part(0.5, 4), plain.part(9.0, 2), rich.part(0.0, 5)),
            ("██".into(), "##".into(), String::new())
        );
        assert_eq!(plain.text("12 µs → a…"), "12 us > a.");
    }
}
