//! Damaged files in which functions to be probed are looked for: each place that is found is in the file.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use lockbpf::capture::target::fuzz;
use lockbpf_fuzz::damage;

fuzz_target!(|bytes: &[u8]| fuzz::probes(bytes));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { damage(data, size, max_size, seed) });
