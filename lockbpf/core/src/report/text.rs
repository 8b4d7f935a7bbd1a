//! Numbers as people read them.

/// `1,234,567`.
#[must_use]
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 thread`, `1,000 threads`.
#[must_use]
pub fn counted(n: u64, what: &str) -> String {
    let ending = if n == 1 { "" } else { "s" };
    format!("{} {what}{ending}", count(n))
}

/// The first names of a list, and how many more there are: `a, b and 3 more`.
#[must_use]
pub fn listed<T: AsRef<str>>(names: &[T], most: usize) -> String {
    let shown: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    let more = names.len().saturating_sub(most);
    let more = if more > 0 { format!(" and {} more", count(more as u64)) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// A share of 1 as `83 %`; small ones with a decimal, and never rounded to nothing or to everything.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        p if p <= 0.0 => "0 %".to_owned(),
        p if p < 0.05 => "<0.1 %".to_owned(),
        p if p < 9.95 => format!("{p:.1} %"),
        p if (99.5..100.0).contains(&p) => ">99 %".to_owned(),
        p => format!("{p:.0} %"),
    }
}

/// So many per ns as so many per s: `1.25 M`, `12.5 k`, `125`.
#[must_use]
pub fn rate(per_ns: f64) -> String {
    match per_ns * 1e9 {
        r if r >= 1e6 => format!("{:.2} M", r / 1e6),
        r if r >= 1e4 => format!("{:.1} k", r / 1e3),
        r => format!("{r:.0}"),
    }
}

/// `part` of `whole`; 0 of nothing.
#[must_use]
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A name in at most `max` characters: template arguments go first, then its beginning.
#[must_use]
pub fn clip(name: &str, max: usize) -> String {
    let length = |text: &str| text.chars().count();
    if length(name) <= max {
        return name.to_owned();
    }
    let name = without_arguments(name);
    let surplus = length(&name).saturating_sub(max);
    if surplus == 0 { name } else { std::iter::once('…').chain(name.chars().skip(surplus + 1)).collect() }
}

/// `map<int, string>::at` as `map<…>::at`; unchanged where angle brackets do not pair up (`operator<`).
fn without_arguments(name: &str) -> String {
    let mut depth = 0_usize;
    let mut short = String::new();
    for c in name.chars() {
        if c == '>' {
            let Some(outer) = depth.checked_sub(1) else { return name.to_owned() };
            depth = outer;
        }
        if depth == 0 {
            short.push(c);
        }
        if c == '<' {
            if depth == 0 {
                short.push('…');
            }
            depth += 1;
        }
    }
    if depth == 0 { short } else { name.to_owned() }
}

/// Breaks lines at spaces so that they fit `width` columns where words allow; continuation lines keep the indent.
#[must_use]
pub fn wrap(text: &str, width: usize) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut current = indent.to_owned();
        for word in line.split_whitespace() {
            let empty = current.len() == indent.len();
            if !empty && current.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::replace(&mut current, format!("{indent}{word}")));
            } else {
                current += if empty { "" } else { " " };
                current += word;
            }
        }
        lines.push(current);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let items: Vec<_> = (1..=10).map(|n| n.to_string()).collect();
        assert_eq!(listed(&items, 8), "1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
        assert_eq!(listed(&items[..2], 8), "1, 2");
        assert_eq!(listed::<&str>(&[], 8), "");
    }

    #[test]
    fn numbers_read_at_a_glance() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1, 2].map(|n| counted(n, "wait")), ["1 wait", "2 waits"]);
        let shares = [0.0, 0.0001, 0.004, 0.0996, 0.834, 0.9999, 1.0];
        assert_eq!(shares.map(percent), ["0 %", "<0.1 %", "0.4 %", "10 %", "83 %", ">99 %", "100 %"]);
        assert_eq!((share(1, 4), share(1, 0)), (0.25, 0.0));
        assert_eq!([1.25e-3, 1.25e-5, 1.25e-7].map(rate), ["1.25 M", "12.5 k", "125"]);
    }

    #[test]
    fn long_names_are_clipped() {
        assert_eq!(clip("short", 5), "short");
        assert_eq!(clip("std::map<int, std::vector<int>>::at", 20), "std::map<…>::at");
        assert_eq!(clip("abcdefghij", 4), "…hij");
        assert_eq!(clip("operator<<(x, y)", 10), "…r<<(x, y)");
    }

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrap("aa bb cc\n  dd ee", 5), "aa bb\ncc\n  dd\n  ee");
        assert_eq!(wrap("unbreakable word", 4), "unbreakable\nword");
        assert_eq!(wrap("", 4), "");
    }
}
