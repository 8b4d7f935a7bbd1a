//! Where locations lie: on which cache line, as far as their names tell.

use super::names::Names;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Bytes of a cache line.
pub const LINE: u64 = 64;

/// The cache line of each location.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    of: Vec<u32>,
    count: u32,
}

/// What a location's name says: an address, or a distance from something that is called so.
fn parse(text: &str) -> (&str, u64) {
    let number = |text: &str| match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let hex = text.starts_with("0x") || text.starts_with("0X");
    if let Some(address) = number(text).filter(|_| hex) {
        return ("", address);
    }
    match text.rsplit_once('+').and_then(|(base, offset)| Some((base, number(offset)?))) {
        Some((base, offset)) if !base.is_empty() => (base, offset),
        _ => (text, 0),
    }
}

impl Lines {
    /// Places all locations. Symbols are taken to begin with a cache line.
    #[must_use]
    pub fn new(locations: &Names) -> Self {
        let mut numbers: HashMap<(&str, u64), u32, RandomState> = HashMap::default();
        let mut of = Vec::with_capacity(locations.len());
        for text in locations.iter() {
            let (base, offset) = parse(text);
            let next = numbers.len() as u32;
            of.push(*numbers.entry((base, offset / LINE)).or_insert(next));
        }
        Self { of, count: numbers.len() as u32 }
    }

    /// The number of a location's line.
    #[must_use]
    pub fn of(&self, location: u32) -> u32 {
        self.of.get(location as usize).copied().unwrap_or(u32::MAX)
    }

    /// How many lines there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Whether locations share lines at all.
    #[must_use]
    pub fn coarser(&self) -> bool {
        (self.count as usize) < self.of.len()
    }
}

/// What a line is called, after one of its locations.
#[must_use]
pub fn line_name(location: &str) -> String {
    let (base, offset) = parse(location);
    let start = offset / LINE * LINE;
    match (base, start) {
        ("", start) => format!("{start:#x}"),
        (base, 0) => base.to_owned(),
        (base, start) => format!("{base}+{start:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_lines() {
        let mut names = Names::default();
        for text in ["0x1000", "0x103f", "0x1040", "stats", "stats+0x8", "stats+64", "a+b", "+5", "0xzz", "12"] {
            names.number(text, "locations").unwrap();
        }
        let lines = Lines::new(&names);
        let same = |a: &str, b: &str| lines.of(names.find(a).unwrap()) == lines.of(names.find(b).unwrap());
        assert!(same("0x1000", "0x103f") && !same("0x103f", "0x1040"));
        assert!(same("stats", "stats+0x8") && !same("stats", "stats+64"));
        assert!(!same("a+b", "+5") && !same("0xzz", "12"));
        assert!(lines.coarser());
        assert_eq!(["0x107f", "stats+72", "stats+8", "x"].map(line_name), ["0x1040", "stats+0x40", "stats", "x"]);
    }
}
