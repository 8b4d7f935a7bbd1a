//! The program made by hand, whole and damaged.

use super::fixture::{SIZE, TEXT, program};
use super::pclntab::{Pclntab, Place};
use super::{Program, buildinfo};
use crate::fixture::Damage;
use proptest::prelude::*;

fn place(function: &str, file: &str, line: u32, inlined: bool) -> Place {
    Place { function: function.to_owned(), location: Some((file.to_owned(), line)), inlined }
}

#[test]
fn functions_lines_and_what_is_inlined() {
    for old in [true, false] {
        let data = program(old);
        let program = Program::read(&data[..]).unwrap();
        let release = buildinfo::release(&program).unwrap();
        assert_eq!(release.version, Some((1, if old { 19 } else { 22 })));
        let table = Pclntab::read(&program).unwrap();
        let functions: Vec<_> = table.functions().map(|f| (f.name, f.entry - TEXT, f.size)).collect();
        let size = SIZE as u64;
        assert_eq!(functions, [("sync.(*Mutex).lockSlow", 0, size), ("main.work", size, size)]);
        assert_eq!(table.find(TEXT + 70).unwrap().name, "main.work");
        assert!(table.find(TEXT - 1).is_none() && table.find(TEXT + 2 * size).is_none());
        assert_eq!(table.places(TEXT + 3), [place("sync.(*Mutex).lockSlow", "/src/a.go", 7, false)]);
        assert_eq!(table.places(TEXT + size), [place("main.work", "/src/a.go", 7, false)]);
        let inlined = [place("main.inlined", "/src/b.go", 9, true), place("main.work", "/src/a.go", 7, false)];
        assert_eq!(table.places(TEXT + size + 4), inlined);
        assert!(table.places(0).is_empty());
    }
}

#[test]
fn other_programs_are_none_of_go() {
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let own = Program::read(&own[..]).unwrap();
    assert!(buildinfo::release(&own).is_none() && Pclntab::read(&own).is_none());
    assert!(Program::read(&b"#!/bin/sh"[..]).is_none());
}

proptest! {
    #[test]
    fn damage_never_panics(damage in Damage::any(8), old: bool, addr in 0..2 * SIZE as u64) {
        let data = damage.of(program(old));
        if let Some(program) = Program::read(&data[..]) {
            let _ = buildinfo::release(&program);
            if let Some(table) = Pclntab::read(&program) {
                table.functions().for_each(drop);
                let _ = table.places(TEXT + addr);
            }
        }
    }
}
