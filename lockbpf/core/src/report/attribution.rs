//! How much of the waiting is charged to somebody, and how surely.

use super::schema::{AttributionEntry, Ns, Report};
use super::text::percent;

/// Divides all waiting (`harm`). Of the recorded part nobody is charged with `unattributed`, and somebody by inference with `inferred`;
/// whatever was not recorded is charged to nobody. The parts add up.
pub(super) fn of(harm: Ns, recorded: Ns, unattributed: Ns, inferred: Ns) -> AttributionEntry {
    // Records that stand for others may add up to more than all.
    let known = recorded - unattributed;
    let scale = if recorded > harm { harm.share_of(recorded) } else { 1.0 };
    let scaled = |ns: Ns| if scale < 1.0 { Ns::from_f64(ns.as_f64() * scale) } else { ns };
    let known_ns = scaled(known).min(harm);
    let inferred_ns = scaled(inferred).min(known_ns);
    AttributionEntry { exact_ns: known_ns - inferred_ns, inferred_ns, unknown_ns: harm - known_ns }
}

/// In a sentence; nothing where nobody waited.
pub(super) fn sentence(report: &Report) -> Option<String> {
    let all = report.totals.harm_ns;
    let AttributionEntry { exact_ns, inferred_ns, unknown_ns } = report.totals.attribution;
    let [exact, inferred, unknown] = [exact_ns, inferred_ns, unknown_ns].map(|part| percent(part.share_of(all)));
    (all > Ns::default())
        .then(|| format!("Blame for {all} of waiting: {exact} exact, {inferred} inferred, {unknown} unknown."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ns(parts: [u64; 4]) -> (u64, u64, u64) {
        let [harm, recorded, unattributed, inferred] = parts.map(Ns::new);
        let a = of(harm, recorded, unattributed, inferred);
        (a.exact_ns.whole(), a.inferred_ns.whole(), a.unknown_ns.whole())
    }

    #[test]
    fn what_was_not_recorded_is_not_known() {
        assert_eq!(ns([100, 100, 0, 0]), (100, 0, 0));
        assert_eq!(ns([100, 60, 10, 20]), (30, 20, 50));
        assert_eq!(ns([100, 0, 0, 0]), (0, 0, 100));
    }

    #[test]
    fn records_that_stand_for_more_than_all_are_shares_of_it() {
        assert_eq!(ns([100, 200, 100, 50]), (25, 25, 50));
        assert_eq!(ns([0, 200, 100, 50]), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn the_parts_add_up(harm in 0u64..1 << 50, recorded in 0u64..1 << 50, unattributed in 0u64..1 << 50, inferred in 0u64..1 << 50) {
            let (exact, inferred, unknown) = ns([harm, recorded, unattributed, inferred]);
            // Each may have lost the part of a ns.
            prop_assert!((exact + inferred + unknown).abs_diff(harm) <= 2);
        }
    }
}
