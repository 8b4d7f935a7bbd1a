//! Patterns for names: `*` stands for any text, `?` for any character.

use std::fmt;
use std::path::Path;
use wildmatch::WildMatch;

/// A pattern for names of functions or files.
#[derive(Clone, PartialEq)]
pub struct Pattern {
    text: String,
    pattern: WildMatch,
}

impl Pattern {
    /// The pattern that a text is.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), pattern: WildMatch::new(text) }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it stands for one name only.
    #[must_use]
    pub fn is_one(&self) -> bool {
        !self.text.contains(['*', '?'])
    }

    /// Whether a name is such a one.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.pattern.matches(name)
    }

    /// Whether a file is such a one: by its name, or by its path if the pattern has a `/`.
    #[must_use]
    pub fn matches_file(&self, file: &Path) -> bool {
        let name = if self.text.contains('/') { Some(file.as_os_str()) } else { file.file_name() };
        name.and_then(|name| name.to_str()).is_some_and(|name| self.matches(name.trim_end_matches(" (deleted)")))
    }

    /// A part that each name has also while it is mangled: an identifier. Empty if there is none.
    #[must_use]
    pub fn identifier(&self) -> &str {
        let last = self.text.rsplit("::").next().unwrap_or_default();
        let end = last.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(last.len());
        last.get(..end).unwrap_or_default()
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_by_name_or_path() {
        for (pattern, file, matches) in [
            ("postgres", "/usr/lib/postgresql/15/bin/postgres", true),
            ("postgres", "/usr/lib/postgresql/15/bin/postgres (deleted)", true),
            ("libx.so*", "/opt/libx.so.1.2", true),
            ("*/postgresql/15/*", "/usr/lib/postgresql/15/bin/postgres", true),
            ("*/postgresql/16/*", "/usr/lib/postgresql/15/bin/postgres", false),
            ("postgres", "/usr/bin/postgres-client", false),
            ("*", "/", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches_file(Path::new(file)), matches, "{pattern} {file}");
        }
    }

    #[test]
    fn an_identifier_is_in_the_mangled_name_too() {
        for (pattern, identifier) in [
            ("db::Latch::lock*", "lock"),
            ("*", ""),
            ("lock", "lock"),
            ("a::b<c>::operator()", "operator"),
            ("a::*", ""),
        ] {
            assert_eq!(Pattern::new(pattern).identifier(), identifier);
        }
    }
}
