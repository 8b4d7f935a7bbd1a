//! Calls of the C library, by category, function and thread.

use super::place::Places;
use super::schema::{CallsEntry, FunctionsEntry, LeftOutEntry, Ns, ThreadCallsEntry};
use crate::id::{Process, Tid};
use crate::measures::counted::{CLOCK, add, scaled};
use crate::measures::library::{Category, add_calls};
use crate::measures::why::{Ratios, unit};
use crate::observation::Observation;
use lockbpf_common::counts::Counts;
use lockbpf_common::library::CallSums;
use std::collections::BTreeMap;

/// The entries, if such calls were asked for.
pub(super) fn functions(observation: &Observation, places: &mut Places<'_>) -> Option<FunctionsEntry> {
    let library = &observation.library;
    if library.categories.is_empty() {
        return None;
    }
    let events = &observation.counted.events;
    let mut execution = Counts::NONE;
    observation.counted.threads.iter().for_each(|thread| add(&mut execution, &thread.execution));
    let whole = Whole { events, clock: scaled(&execution, CLOCK).unwrap_or(0.0) };
    let mut by_category: BTreeMap<Category, CallSums> =
        library.categories.iter().map(|&category| (category, CallSums::default())).collect();
    let mut by_function: BTreeMap<&str, (Category, CallSums)> = BTreeMap::new();
    let mut by_thread: BTreeMap<(Process, Tid, Category), CallSums> = BTreeMap::new();
    for of in &library.calls {
        let category = of.function.category;
        let (_, function) = by_function.entry(of.function.symbol).or_insert((category, CallSums::default()));
        let thread = by_thread.entry((of.process, of.tid, category)).or_default();
        for sums in [function, thread, by_category.entry(category).or_default()] {
            add_calls(sums, &of.sums);
        }
    }
    let mut functions: Vec<_> =
        by_function.iter().map(|(symbol, (category, sums))| whole.entry(Some(symbol), *category, sums)).collect();
    functions.sort_by(|a, b| (b.calls, b.nested, &a.function).cmp(&(a.calls, a.nested, &b.function)));
    let mut threads = Vec::with_capacity(by_thread.len());
    for ((process, tid, category), sums) in &by_thread {
        threads.push(ThreadCallsEntry {
            tid: places.thread(*tid),
            pid: places.process(*process).0,
            calls: whole.entry(None, *category, sums),
        });
    }
    threads.sort_by_key(|thread| std::cmp::Reverse(thread.calls.time_ns));
    let categories: Vec<_> = by_category.iter().map(|(category, sums)| whole.entry(None, *category, sums)).collect();
    let library_share = categories.iter().map(|entry| entry.share).sum::<f64>().min(1.0);
    Some(FunctionsEntry {
        events: events.clone(),
        unit: unit(events).to_owned(),
        execution: whole.clock,
        library_share,
        program_share: 1.0 - library_share,
        kernel_share: Ratios::of(events, &execution, 0.0).kernel_share,
        categories,
        functions,
        threads,
        endless: library.endless.iter().map(|&symbol| symbol.to_owned()).collect(),
        left_out: library.left_out.iter().map(left_out).collect(),
        shared: library.shared.iter().map(|&(name, known)| (name.to_owned(), known.to_owned())).collect(),
    })
}

fn left_out((function, reason): &(String, &'static str)) -> LeftOutEntry {
    LeftOutEntry { function: function.clone(), reason: (*reason).to_owned() }
}

/// What shares are of.
struct Whole<'a> {
    events: &'a [String],
    clock: f64,
}

impl Whole<'_> {
    fn entry(&self, function: Option<&str>, category: Category, sums: &CallSums) -> CallsEntry {
        let ratios = Ratios::of(self.events, &sums.counts, 0.0);
        let clock = scaled(&sums.counts, CLOCK).unwrap_or(0.0);
        let share = if self.clock > 0.0 { clock / self.clock } else { 0.0 };
        let inverse = |ipc: Option<f64>| ipc.filter(|&ipc| ipc > 0.0).map(|ipc| 1.0 / ipc);
        let counts = self.events.iter().enumerate();
        CallsEntry {
            function: function.map(str::to_owned),
            category: category.name().to_owned(),
            calls: sums.calls,
            nested: sums.nested,
            ended: sums.ended,
            uncounted: sums.uncounted,
            time_ns: Ns::new(sums.wall_ns),
            on_cpu_ns: Ns::new(sums.counts.on_cpu_ns),
            counts: counts.filter_map(|(n, name)| Some((name.clone(), scaled(&sums.counts, n)?))).collect(),
            share,
            share_user: ratios.kernel_share.map(|kernel| share * (1.0 - kernel)),
            share_kernel: ratios.kernel_share.map(|kernel| share * kernel),
            cpi: inverse(ratios.ipc),
            cpi_user: inverse(ratios.ipc_user),
            cpi_kernel: inverse(ratios.ipc_kernel),
            misses_per_kilo_instruction: ratios.mpki,
            misses_per_kilo_instruction_user: ratios.mpki_user,
            misses_per_kilo_instruction_kernel: ratios.mpki_kernel,
        }
    }
}
