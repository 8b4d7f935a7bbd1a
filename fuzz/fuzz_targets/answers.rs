//! Arbitrary bytes as what the process that reads files answers: it may have been taken over by what it read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockbpf::symbol::fuzz;
use std::fs::File;
use std::sync::LazyLock;

static FILE: LazyLock<File> = LazyLock::new(|| File::open("/dev/null").expect("it is there"));

fuzz_target!(|bytes: &[u8]| fuzz::answers(bytes, &FILE));
