//! Damaged Go programs: their release, their table of functions, and where their locks would be probed.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use lockbpf::capture::target::fuzz;
use lockbpf::golang::pclntab::Pclntab;
use lockbpf::golang::{Program, buildinfo};
use lockbpf_fuzz::damage;

fuzz_target!(|bytes: &[u8]| {
    fuzz::probes(bytes);
    let Some(program) = Program::read(bytes) else { return };
    let _ = buildinfo::release(&program);
    let Some(table) = Pclntab::read(&program) else { return };
    for function in table.functions().take(64) {
        let places = table.places(function.entry);
        assert!(places.len() <= 65 && places.iter().filter(|place| !place.inlined).count() <= 1);
        let _ = table.find(function.entry.wrapping_add(function.size / 2));
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { damage(data, size, max_size, seed) });
