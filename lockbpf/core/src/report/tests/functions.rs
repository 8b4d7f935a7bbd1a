//! Calls of the C library, in JSON and in the table.

use super::*;
use crate::id::{Process, Tid};
use crate::measures::counted::Counted;
use crate::measures::library::{CallsOf, Category, FUNCTIONS, LibraryCalls};
use crate::report::schema::FunctionsEntry;
use lockbpf_common::counts::{Counts, ThreadCounts};
use lockbpf_common::library::CallSums;

fn counts(cycles: [u64; 2], instructions: [u64; 2], misses: u64) -> Counts {
    let mut made = Counts { on_cpu_ns: cycles[0], counted_ns: [cycles[0]; 5], ..Counts::NONE };
    made.counts = [cycles[0], cycles[1], instructions[0], instructions[1], misses];
    made
}

fn calls(tid: u32, symbol: &str, numbers: [u64; 3], counts: Counts) -> CallsOf {
    let function = *FUNCTIONS.iter().find(|f| f.symbol == symbol).unwrap();
    let [calls, nested, ended] = numbers;
    let sums = CallSums { calls, nested, ended, uncounted: 0, wall_ns: ended * 2_000, counts };
    CallsOf { process: Process(1), tid: Tid(tid), function, sums }
}

fn observed() -> Run {
    let mut o = observation();
    let execution = counts([100_000, 30_000], [50_000, 10_000], 500);
    o.counted = Counted {
        events: ["cycles", "cycles:k", "instructions", "instructions:k", "cache-misses"].map(str::to_owned).to_vec(),
        sites: Vec::new(),
        threads: vec![ThreadCounts { tid: 1, threads: 1, execution, ..ThreadCounts::default() }],
    };
    o.library = LibraryCalls {
        categories: vec![Category::Io, Category::Memory],
        calls: vec![
            calls(1, "write", [10, 5, 9], counts([20_000, 15_000], [10_000, 5_000], 100)),
            calls(2, "write", [2, 0, 2], counts([4_000, 1_000], [2_000, 1_000], 0)),
            calls(1, "malloc", [40, 0, 40], counts([6_000, 0], [6_000, 0], 0)),
            calls(1, "putc", [7, 0, 0], Counts::NONE),
        ],
        endless: vec!["putc", "vfprintf"],
        left_out: vec![("memset".to_owned(), "a reason")],
        shared: vec![("pread64", "pread")],
    };
    o
}

fn functions(o: &Run) -> FunctionsEntry {
    report(o).functions.unwrap()
}

#[test]
fn calls_add_up_by_function_category_and_thread() {
    let f = functions(&observed());
    let rows = |of: &[crate::report::schema::CallsEntry]| -> Vec<_> {
        of.iter()
            .map(|c| (c.function.clone().unwrap_or_else(|| c.category.clone()), c.calls, c.nested, c.ended))
            .collect()
    };
    let row = |name: &str, calls, nested, ended| (name.to_owned(), calls, nested, ended);
    assert_eq!(rows(&f.categories), [row("io", 19, 5, 11), row("memory", 40, 0, 40)]);
    assert_eq!(rows(&f.functions), [row("malloc", 40, 0, 40), row("write", 12, 5, 11), row("putc", 7, 0, 0)]);
    let threads: Vec<_> =
        f.threads.iter().map(|t| (t.tid.to_string(), t.calls.category.as_str(), t.calls.calls)).collect();
    assert_eq!(threads, [("1".to_owned(), "memory", 40), ("1".to_owned(), "io", 17), ("2".to_owned(), "io", 2)]);
    assert_eq!((f.execution, f.library_share, f.program_share, f.kernel_share), (1e5, 0.3, 0.7, Some(0.3)));
}

#[test]
fn user_and_kernel_apart() {
    let f = functions(&observed());
    let write = &f.functions[1];
    let near = |a: Option<f64>, b: f64| assert!(a.is_some_and(|a| (a - b).abs() < 1e-9), "{a:?} {b}: {write:?}");
    near(Some(write.share), 0.24);
    near(write.share_kernel, 0.16);
    near(write.share_user, 0.08);
    near(write.cpi, 2.0);
    near(write.cpi_kernel, 16.0 / 6.0);
    near(write.misses_per_kilo_instruction, 100.0 / 12.0);
    assert_eq!(write.misses_per_kilo_instruction_kernel, None, "its misses were counted together");
}

#[test]
fn the_table_tells_what_is_missing() {
    let text = text(&report(&observed())).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "59 calls (5 more inside of others). 30 % of the execution in them, 70 % in the program; 30 % of all in the kernel.",
        "write io 12 5 22.0 µs 2.00 µs 24 % 8.0 % 16 %",
        "putc io 7 0 – – –",
        "Only counted, since their ends cannot be seen: putc.",
        "Left out: memset (a reason).",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let mut none = observed();
    none.library = LibraryCalls::default();
    assert_eq!(report(&none).functions, None);
}
