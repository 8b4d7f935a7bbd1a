//! What optimistic execution would gain (PinCS), from conflicts in records and waits in a recording.

use super::records::Records;
use super::schema::{Occ, OccEntry};
use super::traced::{Time, Traced};
use crate::model::occ::{Overhead, Saved, Shares, Speedup, benefit, best_case, efficiency, speedup};
use crate::report::text::counted;
use std::collections::BTreeMap;

/// Speed-ups of all threads in all sections whose conflict probability is known. `operation_ns` is what recording an
/// operation cost, and `w_c` that of each section.
pub(super) fn occ(
    records: &Records,
    traced: &Traced,
    w_c: &BTreeMap<(u32, u32), f64>,
    p_conflict: &BTreeMap<(u32, u32), f64>,
    operation_ns: Option<f64>,
) -> Occ {
    let operation_ns = operation_ns.unwrap_or_default();
    let mut all = Occ { overhead_ns: operation_ns, ..Occ::default() };
    let cost = |key: &(u32, u32), time: &Time| {
        let w_c = w_c.get(key).copied().unwrap_or_default();
        Overhead { acquisitions: time.acquisitions, w_c, operation_ns }.ns()
    };
    let (mut saved, mut clipped, mut consumed) = (Vec::new(), 0, 0);
    for thread in &traced.threads {
        let costs: f64 = thread.sections.iter().map(|(key, time)| cost(key, time)).sum();
        let left = thread.time_ns - costs;
        if left <= 0.0 {
            consumed += u64::from(thread.time_ns > 0.0);
            continue;
        }
        let mut gains = 0.0;
        for (key, time) in &thread.sections {
            let Some(&p) = p_conflict.get(key) else { continue };
            let wait = time.wait_ns - cost(key, time);
            clipped += u64::from(wait < 0.0);
            let share = |ns: f64| (ns / left).clamp(0.0, 1.0);
            let shares = Shares { wait: share(wait), exec: share(time.hold_ns) };
            let speedup = speedup(shares, p).ok();
            let gain = benefit(shares, p).unwrap_or_default();
            gains += gain;
            all.threads.push(OccEntry {
                tid: thread.tid.clone(),
                site: records.sites.text(key.0).to_owned(),
                lock: records.locks.text(key.1).to_owned(),
                f_wait: shares.wait,
                f_exec: shares.exec,
                speedup: speedup.map(Speedup::factor),
                benefit: gain,
                conflicts_always: speedup == Some(Speedup::ConflictsAlways),
            });
        }
        saved.push(Saved { time: left, benefit: gains });
    }
    all.threads.sort_by(|a, b| (&a.tid, &a.site, &a.lock).cmp(&(&b.tid, &b.site, &b.lock)));
    all.efficiency = efficiency(&saved).unwrap_or_default();
    all.best_case_speedup = best_case(all.efficiency).ok();
    if clipped > 0 {
        all.notes.push(format!(
            "Observing would have cost more than was waited by {}: those waits count as 0.",
            counted(clipped, "thread in a section").replace("thread in a sections", "threads in a section")
        ));
    }
    if consumed > 0 {
        all.notes.push(format!(
            "Observing would have cost more than all of their time of {}, which are left out: calibrate on the machine of the recording.",
            counted(consumed, "thread")
        ));
    }
    all
}
