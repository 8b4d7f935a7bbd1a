//! What several modules' tests need: compiled C, and damage to files.

use proptest::prelude::*;
use proptest::sample::Index;
use std::process::Command;

/// What becomes of a C source with these options for the compiler.
pub(crate) fn compiled(options: &[&str], source: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (c, out) = (dir.path().join("t.c"), dir.path().join("t"));
    std::fs::write(&c, source).unwrap();
    let status = Command::new("cc").args(options).arg("-o").arg(&out).arg(&c).status().expect("a C compiler");
    assert!(status.success());
    std::fs::read(out).unwrap()
}

/// Prints why a test did not run. Where the tests are the gate (`CI=true`), that is a failure.
pub(crate) fn skipped(proof: &str) {
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
    assert!(!ci, "nothing may be skipped under CI: {proof}");
    eprintln!("skipped: {proof}");
}

/// Bytes changed anywhere, and perhaps all cut off behind some place.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    changes: Vec<(Index, u8)>,
    keep: Option<Index>,
}

impl Damage {
    /// Any, with fewer changes than this.
    pub(crate) fn any(changes: usize) -> impl Strategy<Value = Self> {
        (prop::collection::vec(any::<(Index, u8)>(), 0..changes), any::<Option<Index>>())
            .prop_map(|(changes, keep)| Self { changes, keep })
    }

    /// The data, damaged.
    pub(crate) fn of(self, mut data: Vec<u8>) -> Vec<u8> {
        for (at, byte) in self.changes {
            let at = at.index(data.len());
            data[at] = byte;
        }
        if let Some(keep) = self.keep {
            data.truncate(keep.index(data.len()));
        }
        data
    }
}
