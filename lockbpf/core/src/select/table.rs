//! The selection as text.

use super::{Selection, Size, Step};
use crate::report::table::{UNKNOWN, table};
use crate::report::text::{percent, wrap};
use crate::units::Nanos;

/// Renders the selection, with a newline at its end.
#[must_use]
pub fn render(selection: &Selection, width: u16) -> String {
    let headers =
        ["Size", "Runs", "Time\nmedian", "Time\nmean", "± sd", "p\nlonger", "CPU use\nmean", "p\nlarger", "Selected"];
    let rows = selection.sizes.iter().map(|size| row(size, selection)).collect();
    let criteria = &selection.criteria;
    let rule = format!(
        "A size is selected if it runs longer than the one before and CPU use is not larger (Mann-Whitney U, one-sided, \
         p <= {}), and mean CPU use is below {} of {} CPU{}.",
        criteria.alpha,
        percent(criteria.max_cpu_use),
        criteria.cores,
        if criteria.cores == 1.0 { "" } else { "s" },
    );
    format!(
        "{}\n\n{}\n\n{}\n",
        wrap(&verdict(selection), width.into()),
        table(&headers, &[0, 8], rows, width),
        wrap(&rule, width.into())
    )
}

/// What was found, in a sentence.
fn verdict(selection: &Selection) -> String {
    let command = selection.command.join(" ");
    let Some(first) = selection.selected.first() else {
        return format!("No size of `{command}` exposes a synchronization bottleneck.");
    };
    let noun = if selection.selected.len() == 1 { "size" } else { "sizes" };
    let listed = selection.selected.join(", ");
    let example = selection.sizes.windows(2).find_map(|pair| match pair {
        [before, size] if size.size == *first => Some((before, size)),
        _ => None,
    });
    let example = example.map_or_else(String::new, |(before, size)| {
        format!(
            " Size {} runs {:.2}x as long as size {}, with CPU use at {} (before: {}).",
            size.size,
            size.wall_ns.median / before.wall_ns.median.max(1.0),
            before.size,
            percent(size.cpu_use.mean),
            percent(before.cpu_use.mean)
        )
    });
    format!("`{command}` exposes a synchronization bottleneck at {noun} {listed}.{example}")
}

fn row(size: &Size, selection: &Selection) -> Vec<String> {
    let time = |ns: f64| Nanos(ns as u64).to_string();
    let p = |of: fn(&Step) -> f64| size.step.as_ref().map_or_else(|| UNKNOWN.to_owned(), |step| probability(of(step)));
    let runs = match size.failed_runs {
        0 => size.runs.to_string(),
        failed => format!("{} ({failed} failed)", size.runs),
    };
    vec![
        size.size.clone(),
        runs,
        time(size.wall_ns.median),
        time(size.wall_ns.mean),
        time(size.wall_ns.sd),
        p(|step| step.longer_p),
        percent(size.cpu_use.mean),
        p(|step| step.cpu_larger_p),
        why(size, selection),
    ]
}

fn probability(p: f64) -> String {
    if p < 0.0001 { "<0.0001".to_owned() } else { format!("{p:.4}") }
}

/// `yes`, or everything that excludes the size.
fn why(size: &Size, selection: &Selection) -> String {
    let Some(step) = size.step else { return "no: none before it".to_owned() };
    let mut against = Vec::new();
    if !step.longer {
        against.push("not longer".to_owned());
    }
    if step.cpu_larger {
        against.push("more CPU use".to_owned());
    }
    if !size.cpu_idle {
        against.push(format!("CPU use not below {}", percent(selection.criteria.max_cpu_use)));
    }
    if against.is_empty() { "yes".to_owned() } else { format!("no: {}", against.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::runs;
    use super::super::{Criteria, select};
    use super::*;

    fn rendered(all: &[super::super::Runs]) -> String {
        let criteria = Criteria { alpha: 0.05, max_cpu_use: 0.9, cores: 4.0 };
        render(&select(vec!["work".to_owned(), "{size}".to_owned()], all, criteria), 140)
    }

    #[test]
    fn the_selection_and_its_reasons() {
        let text = rendered(&[runs("1", 100, 50), runs("2", 200, 50), runs("3", 200, 50), runs("4", 400, 95)]);
        assert!(text.starts_with("`work {size}` exposes a synchronization bottleneck at size 2."), "{text}");
        assert!(text.contains("Size 2 runs 2.00x as long as size 1, with CPU use at 50 % (before: 50 %)."), "{text}");
        let line = |size: &str| text.lines().find(|line| line.starts_with(size)).unwrap().trim_end().to_owned();
        assert!(line("1 ").ends_with("no: none before it"), "{text}");
        assert!(line("2 ").ends_with("yes"), "{text}");
        assert!(line("3 ").ends_with("no: not longer"), "{text}");
        assert!(line("4 ").ends_with("no: more CPU use, CPU use not below 90 %"), "{text}");
        assert!(text.contains("p <= 0.05") && text.contains("below 90 % of 4 CPUs"), "{text}");
    }

    #[test]
    fn nothing_selected() {
        let text = rendered(&[runs("1", 100, 50), runs("2", 100, 50)]);
        assert!(text.starts_with("No size of `work {size}` exposes"), "{text}");
    }
}
