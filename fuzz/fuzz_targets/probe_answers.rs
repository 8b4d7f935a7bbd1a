//! Arbitrary bytes as what the process that looks for functions in files answers: it may have been taken over by what it read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockbpf::capture::target::fuzz;
use lockbpf_fuzz::FILE;

fuzz_target!(|bytes: &[u8]| fuzz::answers(bytes, &FILE));
