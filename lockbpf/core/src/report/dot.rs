//! The wait graph in the language of Graphviz. Up to [`MAX_NODES`] dynamic critical sections are drawn one by one, in a
//! box per thread; more are put together by site and lock. An edge leads from the one to blame to the one that waits.

use super::schema::{EdgeEntry, GraphEntry, NodeEntry, Ns, Report, ThreadId};
use super::text::{clip, count, counted};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

/// Dynamic critical sections drawn one by one at most.
pub const MAX_NODES: usize = 300;
/// Characters of a name.
const NAME: usize = 48;
/// Colours of edges by kind.
const COLOURS: [(&str, &str); 4] =
    [("direct", "#c0392b"), ("indirect", "#e08e0b"), ("nested", "#7d3c98"), ("barrier", "#2471a3")];
const HEAD: &str = "\
// An edge leads from the one to blame to the one that waits; its label is the waiting.
// direct: red, indirect: orange, nested: purple, barrier: blue; dashed: inferred.
digraph lockbpf {
  graph [rankdir=LR, fontname=\"sans-serif\", labelloc=t];
  node [shape=box, style=\"rounded,filled\", fillcolor=\"#f4f6f7\", fontname=\"sans-serif\", fontsize=11];
  edge [fontname=\"sans-serif\", fontsize=10];
";

/// Draws a graph of a report.
#[must_use]
pub fn render(graph: &GraphEntry, report: &Report) -> String {
    let names = Names::of(report);
    let sections = counted(graph.nodes.len() as u64, "critical section");
    let (comment, title, body) = if graph.nodes.len() <= MAX_NODES {
        ("each critical section by itself, a box per thread", sections, one_by_one(graph, &names))
    } else {
        let title = format!("{sections}, put together by site and lock");
        ("sections put together by site and lock, larger the more waiting they caused", title, by_site(graph, &names))
    };
    format!("// Wait graph: {comment}.\n{HEAD}  label={};\n{body}}}\n", quoted(&[format!("Wait graph of {title}")]))
}

/// What a report calls sites and locks.
struct Names<'a> {
    sites: HashMap<&'a str, &'a str>,
    locks: HashMap<&'a str, &'a str>,
}

impl<'a> Names<'a> {
    fn of(report: &'a Report) -> Self {
        Self {
            sites: report.sites.iter().map(|s| (s.site.as_str(), s.symbol.as_str())).collect(),
            locks: report.locks.iter().map(|l| (l.lock.as_str(), l.label.as_str())).collect(),
        }
    }

    fn site(&self, site: Option<&str>) -> String {
        let Some(site) = site else { return "unknown site".to_owned() };
        clip(self.sites.get(site).unwrap_or(&site), NAME)
    }

    fn lock(&self, lock: &str) -> String {
        clip(self.locks.get(lock).unwrap_or(&lock), NAME)
    }
}

/// A string in quotes, of several lines. What Graphviz would take for a character of its own is none.
fn quoted(lines: &[String]) -> String {
    let mut text = String::from("\"");
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            text.push_str("\\n");
        }
        for c in line.chars() {
            match c {
                '"' | '\\' => text.extend(['\\', c]),
                c if c.is_control() => text.push(' '),
                c => text.push(c),
            }
        }
    }
    text.push('"');
    text
}

fn colour(kind: &str) -> &'static str {
    COLOURS.iter().find(|&&(name, _)| name == kind).map_or("#000000", |&(_, colour)| colour)
}

/// An edge to be drawn: the identities of its ends as they stand in the text, its label.
struct Arrow<'a> {
    from: String,
    to: String,
    kind: &'a str,
    cost: Ns,
    label: String,
    inferred: bool,
}

impl Arrow<'_> {
    /// Its line; the widest for the whole of `most`.
    fn draw(&self, most: Ns, text: &mut String) {
        let Self { from, to, kind, cost, label, inferred } = self;
        let width = 1.0 + 4.0 * cost.share_of(most);
        let dashed = if *inferred { ", style=dashed" } else { "" };
        let (label, colour) = (quoted(std::slice::from_ref(label)), colour(kind));
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {from} -> {to} [label={label}, color=\"{colour}\", penwidth={width:.1}{dashed}];");
    }
}

fn one_by_one(graph: &GraphEntry, names: &Names<'_>) -> String {
    let critical: BTreeSet<&str> = graph.critical_components.iter().flatten().map(String::as_str).collect();
    let mut threads: BTreeMap<&ThreadId, Vec<&NodeEntry>> = BTreeMap::new();
    for node in &graph.nodes {
        threads.entry(&node.tid).or_default().push(node);
    }
    let mut text = String::new();
    for (i, (tid, nodes)) in threads.into_iter().enumerate() {
        let _ = writeln!(text, "  subgraph cluster_{i} {{\n    label={};", quoted(&[tid.to_string()]));
        for node in nodes {
            let times = match (node.attempt_ns, node.acquire_ns, node.release_ns) {
                (Some(attempt), Some(acquire), Some(release)) => {
                    format!("waited {}, held {}", acquire - attempt, release - acquire)
                }
                (Some(attempt), Some(acquire), None) => format!("waited {}", acquire - attempt),
                _ => String::new(),
            };
            let mut lines = vec![node.id.clone(), names.site(node.site.as_deref()), names.lock(&node.lock), times];
            lines.retain(|line| !line.is_empty());
            let bold = if critical.contains(node.id.as_str()) { ", penwidth=2.5" } else { "" };
            let id = quoted(std::slice::from_ref(&node.id));
            let _ = writeln!(text, "    {id} [label={}{bold}];", quoted(&lines));
        }
        text.push_str("  }\n");
    }
    let most = graph.edges.iter().map(|e| e.cost_ns).max().unwrap_or_default();
    for EdgeEntry { from, to, kind, cost_ns, inferred } in &graph.edges {
        let (from, to) = (quoted(std::slice::from_ref(from)), quoted(std::slice::from_ref(to)));
        Arrow { from, to, kind, cost: *cost_ns, label: cost_ns.to_string(), inferred: *inferred }.draw(most, &mut text);
    }
    text
}

/// Static critical section: site and lock.
type Section<'a> = (Option<&'a str>, &'a str);

/// Edges of one kind between two static critical sections.
#[derive(Default)]
struct Bundle {
    cost: Ns,
    edges: u64,
    /// Those that are not inferred.
    certain: u64,
}

fn by_site(graph: &GraphEntry, names: &Names<'_>) -> String {
    let of: HashMap<&str, Section<'_>> =
        graph.nodes.iter().map(|n| (n.id.as_str(), (n.site.as_deref(), n.lock.as_str()))).collect();
    let mut sections: BTreeMap<Section<'_>, (u64, Ns)> = BTreeMap::new();
    for section in of.values() {
        sections.entry(*section).or_default().0 += 1;
    }
    let mut bundles: BTreeMap<(Section<'_>, Section<'_>, &str), Bundle> = BTreeMap::new();
    for e in &graph.edges {
        let (Some(&from), Some(&to)) = (of.get(e.from.as_str()), of.get(e.to.as_str())) else { continue };
        sections.entry(from).or_default().1 += e.cost_ns;
        let bundle = bundles.entry((from, to, e.kind.as_str())).or_default();
        bundle.cost += e.cost_ns;
        bundle.edges += 1;
        bundle.certain += u64::from(!e.inferred);
    }
    let numbers: BTreeMap<Section<'_>, usize> = sections.keys().copied().zip(1..).collect();
    let most = sections.values().map(|&(_, apwt)| apwt).max().unwrap_or_default();
    let mut text = String::new();
    for ((site, lock), (instances, apwt)) in &sections {
        let number = numbers.get(&(*site, lock)).copied().unwrap_or_default();
        let figures = format!("{}, caused {apwt}", counted(*instances, "section"));
        let label = quoted(&[names.site(*site), names.lock(lock), figures]);
        let size = 9.0 + 11.0 * apwt.share_of(most).sqrt();
        let _ = writeln!(text, "  s{number} [label={label}, fontsize={size:.0}];");
    }
    let most = bundles.values().map(|b| b.cost).max().unwrap_or_default();
    for ((from, to, kind), bundle) in &bundles {
        let id = |section| format!("s{}", numbers.get(section).copied().unwrap_or_default());
        let label = format!("{} ({}×)", bundle.cost, count(bundle.edges));
        let (cost, inferred) = (bundle.cost, bundle.certain == 0);
        Arrow { from: id(from), to: id(to), kind, cost, label, inferred }.draw(most, &mut text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::schema::{LockEntry, SiteEntry};
    use super::*;
    use proptest::prelude::*;

    fn node(n: u64, tid: u64, site: &str, times: [u64; 3]) -> NodeEntry {
        let [attempt, acquire, release] = times.map(|t| Some(Ns::new(t)));
        let (tid, site) = (ThreadId::Number(tid), Some(site.to_owned()));
        let times = (attempt, acquire, release);
        NodeEntry {
            id: format!("d{n}"),
            site,
            tid,
            lock: "L".into(),
            attempt_ns: times.0,
            acquire_ns: times.1,
            release_ns: times.2,
        }
    }

    fn edge(from: u64, to: u64, kind: &str, cost: u64, inferred: bool) -> EdgeEntry {
        let (from, to) = (format!("d{from}"), format!("d{to}"));
        EdgeEntry { from, to, kind: kind.into(), cost_ns: Ns::new(cost), inferred }
    }

    fn report(symbol: &str, label: &str) -> Report {
        let site = SiteEntry { site: "1".into(), symbol: symbol.into(), ..SiteEntry::default() };
        let lock = LockEntry { lock: "L".into(), label: label.into(), ..LockEntry::default() };
        Report { sites: vec![site], locks: vec![lock], ..Report::default() }
    }

    /// Sections of two threads that alternate.
    fn graph(n: u64) -> GraphEntry {
        let nodes = (1..=n).map(|i| node(i, 1 + i % 2, if i % 2 == 1 { "1" } else { "2" }, [i, i + 5, i + 9]));
        let edges = (1..n).map(|i| edge(i, i + 1, if i % 2 == 1 { "direct" } else { "nested" }, i, i % 2 == 1));
        GraphEntry {
            nodes: nodes.collect(),
            edges: edges.collect(),
            critical_components: vec![vec!["d1".into()]],
            ..GraphEntry::default()
        }
    }

    #[test]
    fn a_small_graph_is_drawn_section_by_section() {
        let expected = r##"// Wait graph: each critical section by itself, a box per thread.
// An edge leads from the one to blame to the one that waits; its label is the waiting.
// direct: red, indirect: orange, nested: purple, barrier: blue; dashed: inferred.
digraph lockbpf {
  graph [rankdir=LR, fontname="sans-serif", labelloc=t];
  node [shape=box, style="rounded,filled", fillcolor="#f4f6f7", fontname="sans-serif", fontsize=11];
  edge [fontname="sans-serif", fontsize=10];
  label="Wait graph of 3 critical sections";
  subgraph cluster_0 {
    label="1";
    "d2" [label="d2\n2\nlog_lock\nwaited 5 ns, held 4 ns"];
  }
  subgraph cluster_1 {
    label="2";
    "d1" [label="d1\nflush\nlog_lock\nwaited 5 ns, held 4 ns", penwidth=2.5];
    "d3" [label="d3\nflush\nlog_lock\nwaited 5 ns, held 4 ns"];
  }
  "d1" -> "d2" [label="1 ns", color="#c0392b", penwidth=3.0, style=dashed];
  "d2" -> "d3" [label="2 ns", color="#7d3c98", penwidth=5.0];
}
"##;
        assert_eq!(render(&graph(3), &report("flush", "log_lock")), expected);
    }

    #[test]
    fn a_large_graph_is_put_together_by_site_and_lock() {
        let text = render(&graph(1_001), &report("flush", "log_lock"));
        let body = text.split_once("fontsize=10];\n").map(|(_, body)| body);
        let expected = r##"  label="Wait graph of 1,001 critical sections, put together by site and lock";
  s1 [label="flush\nlog_lock\n501 sections, caused 250 µs", fontsize=20];
  s2 [label="2\nlog_lock\n500 sections, caused 250 µs", fontsize=20];
  s1 -> s2 [label="250 µs (500×)", color="#c0392b", penwidth=5.0, style=dashed];
  s2 -> s1 [label="250 µs (500×)", color="#7d3c98", penwidth=5.0];
}
"##;
        assert_eq!(body, Some(expected));
    }

    /// What is outside quotes, and the strings inside.
    fn parse(text: &str) -> (String, Vec<String>) {
        let (mut outside, mut strings) = (String::new(), Vec::new());
        let mut inside: Option<String> = None;
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match (&mut inside, c) {
                (None, '"') => inside = Some(String::new()),
                (None, c) => outside.push(c),
                (Some(string), '"') => {
                    strings.push(std::mem::take(string));
                    inside = None;
                }
                (Some(string), '\\') => match chars.next() {
                    Some('n') => string.push('\n'),
                    Some(c @ ('"' | '\\')) => string.push(c),
                    other => panic!("\\{other:?}"),
                },
                (Some(string), c) => string.push(c),
            }
        }
        assert_eq!(inside, None);
        (outside, strings)
    }

    proptest! {
        #[test]
        fn names_stay_in_their_quotes(symbol in "[ -~äß\"\\\\\n]{0,40}", label in ".{0,40}", n in 2u64..320) {
            let text = render(&graph(n), &report(&symbol, &label));
            let (outside, strings) = parse(&text);
            let (plain, _) = parse(&render(&graph(n), &report("", "")));
            prop_assert_eq!(outside, plain);
            let clean = |s: &str| s.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
            let names = format!("{}\n{}", clean(&symbol), clean(&label));
            prop_assert!(strings.iter().any(|s| s.contains(&names)), "{names:?} {strings:?}");
        }
    }
}
