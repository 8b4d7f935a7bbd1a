//! The formulas against simulations.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::{Errors, list, number, percent, predict};
use crate::bench::build::Lockbpf;

/// Locks as (share of the visits, hold in ns).
const LOCKS: [&[(f64, f64)]; 3] =
    [&[(1.0, 1_000.0)], &[(0.4, 1_000.0), (0.6, 700.0)], &[(0.1, 300.0), (0.1, 2_000.0), (0.3, 500.0), (0.5, 100.0)]];
/// Local work in ns, and threads.
const LOADS: [(f64, u32); 4] = [(1_000.0, 2), (1_000.0, 8), (10_000.0, 4), (10_000.0, 16)];
/// Distributions of sections: name and coefficient of variation. The last is that of sections measured in programs: many
/// short ones and a few long ones.
const SECTIONS: [(&str, f64); 3] = [("exponential", 1.0), ("constant", 0.0), ("as measured", 1.4)];

fn model(locks: &[(f64, f64)], local: f64, threads: u32, cv: f64) -> Value {
    let row: Vec<f64> = locks.iter().map(|(share, _)| *share).collect();
    let lock = |(i, (_, hold)): (usize, &(f64, f64))| json!({"name": format!("L{i}"), "hold_ns": hold, "hold_cv": cv});
    json!({
        "model": "mutex", "threads": [threads], "solver": "auto",
        "locks": locks.iter().enumerate().map(lock).collect::<Vec<_>>(),
        "routing": vec![row; locks.len()], "local_ns": vec![vec![local; locks.len()]; locks.len()],
        "lock_overhead_ns": 172, "delegation_overhead_ns": [172, 190, 250, 350, 500],
    })
}

/// Compares 12 networks with three kinds of sections each, as mutexes and as QD locks.
///
/// # Errors
/// A prediction fails.
pub(super) fn compare(lockbpf: &Lockbpf, dir: &Path) -> Result<()> {
    println!("\n(a) against simulations: throughput and time at the locks, model against simulation");
    println!(
        "{:<42} {:<12} {:>12} {:>14} {:>14}",
        "network", "sections", "throughput", "time at locks", "QD delegation"
    );
    let (mut qd, mut qd_by) = (Errors::default(), Vec::new());
    for (name, cv) in SECTIONS {
        let (mut throughput, mut times, mut delegations, mut outside) =
            (Errors::default(), Errors::default(), Errors::default(), 0);
        for locks in LOCKS {
            for (local, threads) in LOADS {
                let mut input = model(locks, local, threads, cv);
                let solved = predict(lockbpf, dir, &input)?["points"][0].take();
                input["solver"] = json!("simulation");
                let played = predict(lockbpf, dir, &input)?["points"][0].take();
                let truth = number(&played["throughput_per_ns"])?;
                let off = throughput.add(number(&solved["throughput_per_ns"])?, truth);
                let interval = list(&solved["throughput_interval_per_ns"])?;
                if let [low, high] = interval {
                    // A simulation has an interval, too.
                    outside += u32::from(truth < number(low)? * 0.98 || truth > number(high)? * 1.02);
                }
                let at_locks = times.add(time(&solved, "lock_ns")?, time(&played, "lock_ns")?);
                input["model"] = json!("qd-wait");
                let played = predict(lockbpf, dir, &input)?["points"][0].take();
                input["solver"] = json!("auto");
                let solved = predict(lockbpf, dir, &input)?["points"][0].take();
                let (model, truth) = (time(&solved, "delegation_ns")?, time(&played, "lock_ns")?);
                let delegation = delegations.add(model, truth);
                qd.add(model, truth);
                let network = format!("{} locks, {local} ns local, {threads} threads", locks.len());
                let cells = [off, at_locks, delegation].map(percent);
                println!("{network:<42} {name:<12} {:>12} {:>14} {:>14}", cells[0], cells[1], cells[2]);
            }
        }
        println!(
            "{name}: throughput {:.1} % off on average, {:.1} % at worst; time at locks {:.1} %, {:.1} %; {outside} of {} outside \
             of the interval",
            throughput.mean(),
            throughput.worst(),
            times.mean(),
            times.worst(),
            throughput.0.len()
        );
        qd_by.push(format!("{name} {:.1} %", delegations.mean()));
    }
    println!(
        "QD locks: {:.1} % off on average ({}); the model's authors report 24 % on machines",
        qd.mean(),
        qd_by.join(", ")
    );
    Ok(())
}

/// Time at the locks per operation: weighted with the visits.
fn time(point: &Value, field: &str) -> Result<f64> {
    let (mut sum, mut visits) = (0.0, 0.0);
    for lock in list(&point["locks"])? {
        // Little's law: threads there, by the time that each is there.
        let rate = number(&lock["queue"])? / number(&lock["lock_ns"])?.max(f64::MIN_POSITIVE);
        sum += rate * number(&lock[field])?;
        visits += rate;
    }
    Ok(if visits > 0.0 { sum / visits } else { 0.0 })
}
