//! The architectures whose registers the eBPF programs can read; each has a committed object of its own.

use std::path::PathBuf;

use crate::workspace;

/// A machine architecture the objects are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    X86_64,
    Aarch64,
}

impl Arch {
    /// Every architecture, in the order they are built.
    pub(crate) const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The name rustc gives it (`bpf_target_arch`).
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The committed object's path from the workspace root.
    pub(crate) fn object(self) -> String {
        format!("lockbpf/ebpf/lockbpf.{}.o", self.name())
    }

    /// The committed object's full path.
    pub(crate) fn object_path(self) -> PathBuf {
        workspace::root().join(self.object())
    }
}
