//! Predictions as text: one row for each number of threads, and how throughput and waits go with it.

use super::check;
use super::schema::{Point, Prediction, Solver};
use crate::report::table::table;
use crate::report::text::{clip, percent, rate, wrap};
use crate::units::Nanos;
use textplots::{Chart, Plot, Shape};

/// Locks with columns of their own: those waited for longest.
const LOCKS: usize = 3;
/// Characters of a lock's name.
const NAME: usize = 24;
/// Size of a plot in dots: two a column, four a line.
const PLOT: (u32, u32) = (120, 48);

/// Renders a prediction, with a newline at its end.
#[must_use]
pub fn render(prediction: &Prediction, width: u16) -> String {
    let check = prediction.check.as_ref().map(|check| wrap(&check::sentence(check), width.into()));
    let mut paragraphs: Vec<String> = check.into_iter().collect();
    paragraphs.push(points(prediction, width));
    paragraphs.extend(plots(prediction));
    let list = |head: &str, lines: &[String]| {
        let lines: Vec<String> = lines.iter().map(|line| format!("  {line}")).collect();
        wrap(&format!("{head}\n{}", lines.join("\n")), width.into())
    };
    if !prediction.violations.is_empty() {
        paragraphs.push(list("What of this does not hold in the recording:", &prediction.violations));
    }
    paragraphs.push(list("Assumptions:", &prediction.assumptions));
    paragraphs.join("\n\n") + "\n"
}

fn points(prediction: &Prediction, width: u16) -> String {
    let shown = shown(prediction);
    let mut headers = vec!["Threads".to_owned(), "Lock operations\nper s".to_owned(), "from – to".to_owned()];
    let fractions = prediction.points.iter().any(|p| p.contention_fraction.is_some());
    if fractions {
        headers.push("Time\nwaiting".to_owned());
    }
    for (_, name) in &shown {
        let name = clip(name, NAME);
        headers.extend([format!("{name}\nwait"), "from – to".to_owned(), "held".to_owned()]);
    }
    headers.push("Solved".to_owned());
    let row = |point: &Point| {
        let [low, high] = point.throughput_interval_per_ns.map(rate);
        let mut row = vec![point.threads.to_string(), rate(point.throughput_per_ns), format!("{low} – {high}")];
        if fractions {
            row.push(point.contention_fraction.map_or_else(String::new, percent));
        }
        for &(i, _) in &shown {
            let Some(lock) = point.locks.get(i) else { continue };
            let [low, high] = lock.wait_interval_ns.map(time);
            row.extend([time(lock.wait_ns), format!("{low} – {high}"), percent(lock.utilisation)]);
        }
        row.push(match point.solver {
            Solver::Schweitzer => "approximately".to_owned(),
            Solver::Simulation => "simulated".to_owned(),
            Solver::Exact | Solver::Auto => "exactly".to_owned(),
        });
        row
    };
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let text = table(&headers, &[], prediction.points.iter().map(row).collect(), width);
    let hidden = prediction.points.first().map_or(0, |p| p.locks.len()) - shown.len();
    if hidden > 0 { format!("{text}\nand {hidden} more locks, in the JSON") } else { text }
}

/// The locks waited for longest with most threads.
fn shown(prediction: &Prediction) -> Vec<(usize, String)> {
    let Some(most) = prediction.points.iter().max_by_key(|point| point.threads) else { return Vec::new() };
    let mut locks: Vec<(usize, &super::schema::LockPoint)> = most.locks.iter().enumerate().collect();
    locks.sort_by(|a, b| b.1.queue.total_cmp(&a.1.queue));
    locks.truncate(LOCKS);
    locks.into_iter().map(|(i, lock)| (i, lock.name.clone())).collect()
}

fn plots(prediction: &Prediction) -> Vec<String> {
    let mut points: Vec<&Point> = prediction.points.iter().collect();
    points.sort_unstable_by_key(|point| point.threads);
    points.dedup_by_key(|point| point.threads);
    if points.len() < 3 {
        return Vec::new();
    }
    let plot = |title: String, value: &dyn Fn(&Point) -> f64| {
        let line: Vec<(f32, f32)> = points.iter().map(|p| (p.threads as f32, value(p) as f32)).collect();
        let [from, to] = [0, line.len() - 1].map(|i| line[i].0);
        let most = line.iter().map(|(_, y)| *y).fold(0.0, f32::max);
        if most <= 0.0 {
            return None;
        }
        let shape = Shape::Lines(&line);
        let mut chart = Chart::new_with_y_range(PLOT.0, PLOT.1, from, to, 0.0, most);
        let chart = chart.lineplot(&shape);
        chart.axis();
        chart.figures();
        Some(format!("{title}\n{}", chart.to_string().trim_end()))
    };
    let throughput = plot("Million lock operations per s, by threads:".to_owned(), &|p| p.throughput_per_ns * 1e3);
    let wait = shown(prediction).into_iter().next().and_then(|(i, name)| {
        plot(format!("Wait for `{name}` in µs, by threads:"), &|p| p.locks.get(i).map_or(0.0, |l| l.wait_ns / 1e3))
    });
    throughput.into_iter().chain(wait).collect()
}

fn time(ns: f64) -> String {
    Nanos(ns.round() as u64).to_string()
}
