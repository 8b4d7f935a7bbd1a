//! Calls of the C library.

use super::super::schema::{CallsEntry, FunctionsEntry, LeftOutEntry, ThreadCallsEntry};
use super::Check;
use super::counted::{CLOCKS, EACH, events, ratios};

pub(super) fn check(f: &FunctionsEntry, check: &mut Check) {
    let FunctionsEntry {
        events: counted,
        unit,
        execution,
        library_share,
        program_share,
        kernel_share,
        categories,
        functions,
        threads,
        endless,
        left_out,
        shared: _,
    } = f;
    check.demand(["cycles", "ns"].contains(&unit.as_str()), || format!("a clock of {unit}"));
    check.demand(*execution >= 0.0, || format!("an execution of {execution}"));
    let both = library_share + program_share;
    check
        .demand((both - 1.0).abs() <= CLOCKS || *execution <= 0.0, || format!("library and program are {both} of all"));
    for share in [Some(*library_share), Some(*program_share), *kernel_share].into_iter().flatten() {
        check.share(share, || "calls of the C library".to_owned());
    }
    let parts: f64 = categories.iter().map(|c| c.share).sum();
    check.demand((parts.min(1.0) - library_share).abs() <= 1e-6, || {
        format!("categories are {parts} of all, the library {library_share}")
    });
    let of_threads = || threads.iter().map(|ThreadCallsEntry { tid: _, pid: _, calls }| calls);
    for c in categories.iter().chain(functions).chain(of_threads()) {
        calls(c, counted, check);
    }
    check.longest_first(threads, |t| t.calls.time_ns, || "threads that call the library".to_owned());
    type Sum = fn(&CallsEntry) -> u64;
    let sums: [(Sum, &str); 4] =
        [(|c| c.calls, "calls"), (|c| c.nested, "nested calls"), (|c| c.ended, "ends"), (|c| c.uncounted, "uncounted")];
    for (of, what) in sums {
        let all = categories.iter().map(of).sum::<u64>();
        let (by_function, by_thread) = (functions.iter().map(of).sum::<u64>(), of_threads().map(of).sum::<u64>());
        check.demand(by_function == all && by_thread == all, || {
            format!("{by_function} {what} by function, {by_thread} by thread, {all} by category")
        });
    }
    // One call may have any number of others inside; there is none without that one.
    let any = |of: Sum| categories.iter().map(of).any(|n| n > 0);
    check.demand(any(|c| c.calls) || !any(|c| c.nested), || "calls inside of none".to_owned());
    for c in functions {
        let name = c.function.as_deref().unwrap_or_default();
        check.demand(c.ended == 0 || !endless.iter().any(|e| e == name), || format!("{name} has ends, and none"));
        let out = left_out.iter().any(|LeftOutEntry { function, reason: _ }| function == name);
        check.demand(!out || c.calls + c.nested == 0, || format!("{name} was left out, and called"));
    }
}

fn calls(c: &CallsEntry, counted: &[String], check: &mut Check) {
    let CallsEntry {
        function,
        category,
        calls,
        ended,
        uncounted,
        time_ns,
        on_cpu_ns,
        counts,
        share,
        share_user,
        share_kernel,
        cpi,
        cpi_user,
        cpi_kernel,
        misses_per_kilo_instruction,
        misses_per_kilo_instruction_user,
        misses_per_kilo_instruction_kernel,
        // Calls inside of others are charged to these.
        nested: _,
    } = c;
    let name = || format!("calls of {}", function.as_deref().unwrap_or(category));
    let fits = ended <= calls && uncounted <= ended;
    check.demand(fits, || format!("{}: {uncounted} of {ended} of {calls}", name()));
    check.happened(*ended, *time_ns, name);
    let whole = time_ns.as_f64() * (1.0 + CLOCKS) + EACH * *ended as f64;
    check.demand(on_cpu_ns.as_f64() <= whole, || format!("{}: {on_cpu_ns} of {time_ns}", name()));
    events(counts, counted, check, &name);
    check.demand(*share >= 0.0 && share.is_finite(), || format!("{} take {share}", name()));
    if let Some((user, kernel)) = share_user.zip(*share_kernel) {
        let fits = user >= -1e-6 && kernel >= 0.0 && (user + kernel - share).abs() <= 1e-6 * share.max(1.0);
        check.demand(fits, || format!("{} take {share}: {user} and {kernel} in the kernel", name()));
    }
    let misses = [misses_per_kilo_instruction, misses_per_kilo_instruction_user, misses_per_kilo_instruction_kernel];
    ratios([cpi, cpi_user, cpi_kernel].into_iter().chain(misses), check, &name);
    let known = counts.get("cycles").zip(counts.get("instructions")).filter(|(_, n)| **n > 0.0);
    if let Some(((cycles, instructions), cpi)) = known.zip(*cpi) {
        let fits = (cpi * instructions - cycles).abs() <= 1e-6 * cycles;
        check.demand(fits, || format!("{}: {cycles} cycles for {instructions} are not {cpi}", name()));
    }
}
