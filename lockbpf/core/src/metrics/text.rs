//! Prometheus' text format 0.0.4 and OpenMetrics 1.0. `prometheus-client` writes the latter only, and `promtool check metrics` and scrapers that
//! ask for nothing read the former.

use super::family::{Families, Kind, Label, Value, unit};
use std::fmt::{Display, Write};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Prometheus' text format, version 0.0.4.
    Plain,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Dialect {
    /// The one that a scraper asks for by its `Accept` header: OpenMetrics, if it names it.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Plain }
    }

    /// The `Content-Type`.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writes families of metrics.
pub(super) struct Text {
    out: String,
    dialect: Dialect,
    family: &'static str,
    kind: Kind,
}

impl Text {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { out: String::new(), dialect, family: "", kind: Kind::Gauge }
    }

    /// The whole text.
    pub(super) fn finish(mut self) -> String {
        if self.dialect == Dialect::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    fn line<'a>(&mut self, suffix: &str, labels: impl IntoIterator<Item = Label<'a>>, value: impl Display) {
        let out = &mut self.out;
        out.push_str(self.family);
        out.push_str(suffix);
        let mut before = '{';
        for (name, value) in labels {
            out.push(before);
            before = ',';
            out.push_str(name);
            out.push_str("=\"");
            for c in value.chars() {
                match c {
                    '\\' => out.push_str("\\\\"),
                    '"' => out.push_str("\\\""),
                    '\n' => out.push_str("\\n"),
                    c => out.push(c),
                }
            }
            out.push('"');
        }
        if before == ',' {
            out.push('}');
        }
        _ = writeln!(out, " {value}");
    }
}

impl Families for Text {
    fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) {
        (self.family, self.kind) = (name, kind);
        let plain = self.dialect == Dialect::Plain;
        let (suffix, word) = match kind {
            Kind::Counter if plain => ("_total", "counter"),
            Kind::Counter => ("", "counter"),
            Kind::Info if plain => ("_info", "gauge"),
            Kind::Info => ("", "info"),
            Kind::Gauge => ("", "gauge"),
            Kind::Histogram => ("", "histogram"),
        };
        _ = writeln!(self.out, "# TYPE {name}{suffix} {word}");
        if let (false, (_, Some(unit))) = (plain, unit(name)) {
            _ = writeln!(self.out, "# UNIT {name} {unit}");
        }
        _ = writeln!(self.out, "# HELP {name}{suffix} {help}");
    }

    fn sample(&mut self, labels: &[Label<'_>], value: Value) {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        self.line(suffix, labels.iter().copied(), value);
    }

    fn histogram(&mut self, labels: &[Label<'_>], bounds_ns: &[u64], cumulative: &[u64], sum_ns: u64) {
        let ends = bounds_ns.iter().map(|&ns| float(ns as f64 / 1e9)).chain(["+Inf".to_owned()]);
        for (end, count) in ends.zip(cumulative) {
            self.line("_bucket", labels.iter().copied().chain([("le", end.as_str())]), count);
        }
        self.line("_sum", labels.iter().copied(), Value::Seconds(sum_ns));
        self.line("_count", labels.iter().copied(), cumulative.last().copied().unwrap_or(0));
    }
}

/// A number as Prometheus' own programs write it: `1.024e-06`, `0.001`, `68.719476736`.
fn float(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-4 {
        let text = format!("{value:e}");
        if let Some((digits, exponent)) = text.split_once("e-") {
            return format!("{digits}e-{exponent:0>2}");
        }
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_dialects_are_as_specified() {
        let write = |dialect| {
            let mut text = Text::new(dialect);
            text.family("x_wait_seconds", Kind::Histogram, "Waits.");
            text.histogram(&[("lock", "a")], &[1_024, 4_096], &[1, 2, 4], 1_500_000_001);
            text.family("x_events", Kind::Counter, "Events.");
            text.sample(&[], Value::Whole(7));
            text.family("x_build", Kind::Info, "Version.");
            text.sample(&[("version", "1")], Value::Whole(1));
            text.finish()
        };
        let buckets = "x_wait_seconds_bucket{lock=\"a\",le=\"1.024e-06\"} 1\nx_wait_seconds_bucket{lock=\"a\",le=\"4.096e-06\"} 2\n\
                       x_wait_seconds_bucket{lock=\"a\",le=\"+Inf\"} 4\nx_wait_seconds_sum{lock=\"a\"} 1.500000001\n\
                       x_wait_seconds_count{lock=\"a\"} 4\n";
        assert_eq!(
            write(Dialect::Plain),
            format!(
                "# TYPE x_wait_seconds histogram\n# HELP x_wait_seconds Waits.\n{buckets}# TYPE x_events_total counter\n\
                 # HELP x_events_total Events.\nx_events_total 7\n# TYPE x_build_info gauge\n# HELP x_build_info Version.\n\
                 x_build_info{{version=\"1\"}} 1\n"
            )
        );
        assert_eq!(
            write(Dialect::OpenMetrics),
            format!(
                "# TYPE x_wait_seconds histogram\n# UNIT x_wait_seconds seconds\n# HELP x_wait_seconds Waits.\n{buckets}\
                 # TYPE x_events counter\n# HELP x_events Events.\nx_events_total 7\n# TYPE x_build info\n# HELP x_build Version.\n\
                 x_build_info{{version=\"1\"}} 1\n# EOF\n"
            )
        );
    }

    #[test]
    fn numbers_are_written_as_elsewhere() {
        for (value, text) in
            [(1.024e-6, "1.024e-06"), (0.000_262_144, "0.000262144"), (68.719_476_736, "68.719476736"), (0.0, "0")]
        {
            assert_eq!(float(value), text);
        }
        assert_eq!(Value::Seconds(u64::MAX).to_string(), "18446744073.709551615");
    }

    #[test]
    fn a_scraper_gets_what_it_asks_for() {
        let asks = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2";
        assert_eq!(Dialect::accepted(asks), Dialect::OpenMetrics);
        for other in ["", "*/*", "text/plain"] {
            assert_eq!(Dialect::accepted(other), Dialect::Plain);
        }
    }

    /// The label value of the one sample in a text, unescaped by the format's rules.
    fn read(line: &str) -> String {
        let value = line.strip_prefix("x{lock=\"").unwrap();
        let (mut out, mut chars) = (String::new(), value.chars());
        loop {
            match chars.next().unwrap() {
                '\\' => out.push(match chars.next().unwrap() {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("no escape: {c}"),
                }),
                '"' => break,
                c => out.push(c),
            }
        }
        assert_eq!(chars.as_str(), "} 1");
        out
    }

    proptest! {
        #[test]
        fn any_name_stays_in_its_quotes(name in "[\\PC\"\\\\\n{}]{0,40}") {
            let mut text = Text::new(Dialect::Plain);
            text.family("x", Kind::Gauge, "X.");
            text.sample(&[("lock", name.as_str())], Value::Whole(1));
            let text = text.finish();
            let lines: Vec<&str> = text.lines().collect();
            prop_assert_eq!(lines.len(), 3);
            prop_assert_eq!(read(lines[2]), name);
        }
    }
}
