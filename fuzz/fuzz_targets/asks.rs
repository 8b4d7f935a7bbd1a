//! Arbitrary bytes as what the process that reads files is asked.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockbpf::symbol::fuzz;
use lockbpf_fuzz::FILE;

fuzz_target!(|bytes: &[u8]| fuzz::asks(bytes, &FILE));
