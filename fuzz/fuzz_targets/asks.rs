//! Arbitrary bytes as what the process that reads files is asked.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockbpf::symbol::fuzz;
use std::fs::File;
use std::io::Write;
use std::sync::LazyLock;

/// What all questions are about.
static FILE: LazyLock<File> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("lockbpf-fuzz-{}", std::process::id()));
    let mut file = File::create_new(&path).expect("a file");
    std::fs::remove_file(&path).expect("it is there");
    file.write_all(include_bytes!("../corpus/elf/c.elf")).expect("it is written");
    File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file))).expect("it is there")
});

fuzz_target!(|bytes: &[u8]| fuzz::asks(bytes, &FILE));
