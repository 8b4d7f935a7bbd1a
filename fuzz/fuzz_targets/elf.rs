//! Damaged files: their headers, checksums and symbols are read within bounds, or refused.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use lockbpf::symbol::fuzz;
use lockbpf_fuzz::damage;

fuzz_target!(|bytes: &[u8]| fuzz::elf(bytes));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { damage(data, size, max_size, seed) });
