//! One page: what `clap_mangen` makes of a command's options, and around it the sections that people look for in manuals.

use super::files::{FILES, Known, VARIABLES};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::collections::BTreeSet;

/// The manual that the pages belong to.
const MANUAL: &str = "lockbpf's Manual";
/// Who else looks at locks, or at what else there is to look at.
const OTHERS: [&str; 3] = ["perf(1)", "bpftrace(8)", "capabilities(7)"];
/// How the paragraph of a help begins that tells exit statuses.
const STATUSES: &str = "Exit status: ";
/// How those begin that have examples.
const EXAMPLES: [&str; 2] = ["Examples:\n", "Example:\n"];
/// What is said of a status that only commands have that know this option.
const STRICT: &str = "(with --strict)";

/// The pages of a command and all below it that is not hidden: their names, and their text.
pub(super) fn all(cli: Command, date: &str) -> Vec<(String, Vec<u8>)> {
    let mut cli = cli.disable_help_subcommand(true);
    cli.build();
    let mut pages = Vec::new();
    add(&cli, &cli, date, &mut pages);
    pages
}

fn add(root: &Command, command: &Command, date: &str, pages: &mut Vec<(String, Vec<u8>)>) {
    pages.push((name(command), page(root, command, date)));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add(root, below, date, pages);
    }
}

/// The name of a command's page: `lockbpf-locks-check`.
fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn page(root: &Command, command: &Command, date: &str) -> Vec<u8> {
    let version = format!("lockbpf {}", root.get_version().unwrap_or_default());
    let remarks = remarks(command);
    let man = Man::new(command.clone()).section("1");

    let mut head = Roff::new();
    head.control("TH", [name(command).to_uppercase().as_str(), "1", date, &version, MANUAL]);
    section(&mut head, "NAME").text([roman(format!("{} - {}", name(command), summary(command)))]);
    synopsis(section(&mut head, "SYNOPSIS"), command);
    let mut more = Roff::new();
    for remark in remarks.iter().filter(|remark| !is_special(remark)) {
        more.control("PP", []).text([roman(remark.replace('\n', " "))]);
    }

    let mut tail = Roff::new();
    let own = remarks.iter().find_map(|remark| remark.strip_prefix(STATUSES)).map(str::to_owned);
    listed(&mut tail, "EXIT STATUS", statuses(&own.unwrap_or_else(|| inherited(root, command))));
    let known = |known: &'static [Known]| {
        let of = known.iter().filter(|known| known.is_of(command.get_name()));
        of.map(|known| (known.name.to_owned(), known.what.to_owned())).collect()
    };
    listed(&mut tail, "ENVIRONMENT", known(VARIABLES));
    listed(&mut tail, "FILES", known(FILES));
    let examples = remarks.iter().find_map(|remark| EXAMPLES.iter().find_map(|heading| remark.strip_prefix(heading)));
    listed(&mut tail, "EXAMPLES", examples.map(shown).unwrap_or_default());
    see_also(&mut tail, root, command);

    let description = written(|to| man.render_description_section(to));
    let options = written(|to| man.render_options_section(to));
    let commands =
        if command.has_subcommands() { written(|to| man.render_subcommands_section(to)) } else { String::new() };
    joined(&[head.render(), description, more.render(), options, commands, tail.render()]).into_bytes()
}

/// Parts of a page as one: each begins with the same definitions, which one page needs once.
fn joined(parts: &[String]) -> String {
    let definitions = Roff::new().render();
    let text: String = parts.iter().map(|part| part.strip_prefix(&definitions).unwrap_or(part)).collect();
    // Two breaks around an empty line are one break too many for mandoc.
    let text = text.replace(".br\n\n.br\n", ".sp\n");
    let lines = text.lines().map(typed);
    lines.fold(definitions, |page, line| page + &line + "\n")
}

/// A line in which what stands between back quotes, to be typed as it is, is bold.
fn typed(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts.map(|(number, part)| if number % 2 == 0 { part.to_owned() } else { format!("\\fB{part}\\fR") }).collect()
}

fn section<'a>(roff: &'a mut Roff, heading: &str) -> &'a mut Roff {
    roff.control("SH", [heading])
}

/// What a part of `clap_mangen`'s page says.
fn written(render: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut text = Vec::new();
    // Memory takes all.
    render(&mut text).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

/// What a command is for: the first sentence of its help.
fn summary(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let sentence = about.split(". ").next().unwrap_or_default();
    sentence.trim_end_matches('.').to_owned()
}

/// How a command is called: a line for each way.
fn synopsis(roff: &mut Roff, command: &Command) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:");
    for (number, line) in usage.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        if number > 0 {
            roff.control("br", []);
        }
        let called = command.get_bin_name().unwrap_or_default();
        match line.strip_prefix(called) {
            Some(arguments) => roff.text([bold(called), roman(arguments)]),
            None => roff.text([roman(line)]),
        };
    }
}

/// The paragraphs that follow a command's options in its help.
fn remarks(command: &Command) -> Vec<String> {
    let remarks = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    remarks.split("\n\n").map(str::to_owned).filter(|remark| !remark.is_empty()).collect()
}

/// Whether a paragraph has a section of its own.
fn is_special(remark: &str) -> bool {
    remark.starts_with(STATUSES) || EXAMPLES.iter().any(|heading| remark.starts_with(heading))
}

/// What the help of `lockbpf` itself tells of statuses, as far as it is so of this command.
fn inherited(root: &Command, command: &Command) -> String {
    let is_strict = command.get_arguments().any(|argument| argument.get_long() == Some("strict"));
    let all =
        remarks(root).iter().find_map(|remark| remark.strip_prefix(STATUSES).map(str::to_owned)).unwrap_or_default();
    all.split("; ").filter(|status| is_strict || !status.contains(STRICT)).collect::<Vec<_>>().join("; ")
}

/// Each status and its meaning, of `0 done; 2 error.`
fn statuses(told: &str) -> Vec<(String, String)> {
    let split = |status: &str| status.split_once(' ').map(|(status, meaning)| (status.to_owned(), meaning.to_owned()));
    told.trim_end_matches('.').split("; ").filter_map(split).collect()
}

/// Each example and what it does, of lines in two columns.
fn shown(examples: &str) -> Vec<(String, String)> {
    let mut shown: Vec<(String, String)> = Vec::new();
    for line in examples.lines() {
        let goes_on = line.starts_with("   ");
        match (shown.last_mut(), line.trim().split_once("  ")) {
            (Some((_, meaning)), _) if goes_on => *meaning = format!("{meaning} {}", line.trim()).trim().to_owned(),
            (_, Some((example, meaning))) => shown.push((example.to_owned(), meaning.trim().to_owned())),
            (_, None) => shown.push((line.trim().to_owned(), String::new())),
        }
    }
    shown
}

/// A section of names, each with what is told of it; none if there are none.
fn listed(roff: &mut Roff, heading: &str, items: Vec<(String, String)>) {
    if items.is_empty() {
        return;
    }
    section(roff, heading);
    for (number, (name, what)) in items.into_iter().enumerate() {
        match (number, what.is_empty()) {
            (_, false) => roff.control("TP", []).text([bold(name)]).text([roman(what)]),
            (0, true) => roff.text([bold(name)]),
            (_, true) => roff.control("PP", []).text([bold(name)]),
        };
    }
}

/// The other commands that a command's help speaks of, and where to begin.
fn see_also(roff: &mut Roff, root: &Command, command: &Command) {
    let help = command.clone().render_long_help().to_string();
    let own = name(command);
    let mut named: BTreeSet<String> = BTreeSet::new();
    for other in root.get_subcommands().filter(|other| !other.is_hide_set()) {
        let called = format!("lockbpf {}", other.get_name());
        let is_named = help
            .match_indices(&called)
            .any(|(at, _)| !help[at + called.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '-'));
        if is_named || own == "lockbpf" {
            named.insert(name(other));
        }
    }
    named.insert("lockbpf".to_owned());
    named.remove(&own);
    let mut pages: Vec<String> = named.iter().map(|name| format!("{name}(1)")).collect();
    if own == "lockbpf" {
        pages.extend(OTHERS.map(str::to_owned));
    }
    let last = pages.len().saturating_sub(1);
    // Names are not to be divided.
    section(roff, "SEE ALSO").control("nh", []);
    for (number, page) in pages.iter().enumerate() {
        let (name, rest) = page.split_once('(').unwrap_or((page, ""));
        let comma = if number < last { "," } else { "" };
        roff.text([bold(name), roman(format!("({rest}{comma}"))]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, ArgAction};

    fn example() -> Command {
        let strict = Arg::new("strict").long("strict").action(ArgAction::SetTrue).help("Be strict");
        let look = Command::new("look").about("Looks. At all there is").arg(strict).after_help(
            "What it sees, `lockbpf tell` tells.\n\nExamples:\n  lockbpf look      looks\n  lockbpf look --strict\n                    looks twice",
        );
        let tell = Command::new("tell").about("Tells").after_help("Exit status: 0 told; 7 has nothing to tell.");
        let telling = Command::new("telling").about("Is named by nobody");
        let hidden = Command::new("hidden").hide(true);
        let main =
            Command::new("lockbpf").version("1.2.3").about("Observes").subcommands([look, tell, telling, hidden]);
        main.after_help("Exit status: 0 done; 1 incomplete (with --strict); 2 error.")
    }

    fn text(name: &str) -> String {
        let pages = all(example(), "2026-11-26");
        let page = pages.iter().find(|(named, _)| named == name).unwrap_or_else(|| panic!("no page {name}"));
        String::from_utf8(page.1.clone()).unwrap()
    }

    #[test]
    fn each_command_that_is_shown_has_a_page() {
        let names: Vec<_> = all(example(), "2026-11-26").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["lockbpf", "lockbpf-look", "lockbpf-tell", "lockbpf-telling"]);
    }

    #[test]
    fn a_page_says_what_the_help_says() {
        let page = text("lockbpf-look");
        for told in [
            ".TH LOCKBPF-LOOK 1 2026-11-26 \"lockbpf 1.2.3\" \"lockbpf's Manual\"\n",
            "lockbpf\\-look \\- Looks\n",
            "\\fBlockbpf look\\fR [OPTIONS]\n",
            ".PP\nWhat it sees, \\fBlockbpf tell\\fR tells.\n",
            ".TP\n\\fBlockbpf look\\fR\nlooks\n.TP\n\\fBlockbpf look \\-\\-strict\\fR\nlooks twice\n",
            ".SH \"SEE ALSO\"\n.nh\n\\fBlockbpf\\fR(1),\n\\fBlockbpf\\-tell\\fR(1)\n",
        ] {
            assert!(page.contains(told), "no {told:?} in:\n{page}");
        }
        assert!(!page.contains("telling"), "{page}");
    }

    #[test]
    fn statuses_are_those_that_a_command_can_end_with() {
        let [strict, own, plain] = ["lockbpf-look", "lockbpf-tell", "lockbpf-telling"].map(text);
        assert!(strict.contains("\\fB1\\fR\nincomplete") && strict.contains("\\fB2\\fR\nerror\n"), "{strict}");
        assert!(own.contains("\\fB7\\fR\nhas nothing to tell\n") && !own.contains("\\fB2\\fR"), "{own}");
        assert!(!plain.contains("incomplete") && plain.contains("\\fB2\\fR\nerror\n"), "{plain}");
    }
}
