//! Links between the documents lead somewhere.

use crate::workspace;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What other documents may refer to: headings as GitHub calls them, and anchors.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter_map(|line| line.strip_prefix('#')).map(|line| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
    });
    let named = text.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned);
    headings.chain(named).collect()
}

/// The targets of a document's links that are not addresses in the network.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|link| !link.contains("://"))
}

fn documents(root: &Path) -> Vec<PathBuf> {
    let docs = std::fs::read_dir(root.join("docs")).expect("there are documents").flatten().map(|entry| entry.path());
    let markdown = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    markdown.chain([root.join("README.md"), root.join("CHANGELOG.md")]).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let mut broken = Vec::new();
    for document in documents(&workspace::root()) {
        let text = read(&document).expect("it is text");
        for link in links(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { document.clone() } else { document.with_file_name("").join(path) };
            let leads = if anchor.is_empty() {
                target.exists()
            } else {
                read(&target).is_some_and(|text| anchors(&text).contains(anchor))
            };
            if !leads {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn headings_are_called_as_github_calls_them() {
    let anchors = anchors("# The gate\n## Event lines (`.jsonl`)\n## <a id=\"rights\"></a>Rights\n");
    assert!(["the-gate", "event-lines-jsonl", "rights"].iter().all(|name| anchors.contains(*name)), "{anchors:?}");
}
