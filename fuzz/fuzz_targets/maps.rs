//! Arbitrary bytes as what `/proc` says of a process: its mappings and its status.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockbpf::{capture, symbol};

fuzz_target!(|bytes: &[u8]| {
    symbol::fuzz::maps(bytes);
    capture::target::fuzz::proc(bytes);
});
