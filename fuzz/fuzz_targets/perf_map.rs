//! Arbitrary bytes as a perf map: functions never overlap, and are the same if the map is read while it grows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockbpf::symbol::fuzz;

fuzz_target!(|bytes: &[u8]| fuzz::perf_map(bytes));
