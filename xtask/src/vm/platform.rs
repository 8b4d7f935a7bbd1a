//! The architectures that machines are emulated of: what QEMU, Debian and the kernel call things.

use crate::arch::Arch;

/// An architecture's machines.
pub(crate) struct Platform {
    /// QEMU's program.
    pub(crate) qemu: &'static str,
    /// Debian's package of it, and how much has to be downloaded for it, MB.
    pub(crate) package: (&'static str, u32),
    /// The machine and its processor.
    pub(crate) options: &'static [&'static str],
    /// Where the kernel finds the first serial port.
    pub(crate) console: &'static str,
    /// Debian's name.
    pub(crate) debian: &'static str,
}

const X86_64: Platform = Platform {
    qemu: "qemu-system-x86_64",
    package: ("qemu-system-x86", 40),
    // Emulated in software: that /dev/kvm opens does not mean that it can run these kernels.
    options: &["-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1024"],
    console: "ttyS0",
    debian: "amd64",
};

const AARCH64: Platform = Platform {
    qemu: "qemu-system-aarch64",
    package: ("qemu-system-arm", 40),
    // A processor whose counters the kernel knows.
    options: &["-M", "virt,gic-version=3", "-accel", "tcg", "-cpu", "neoverse-n1", "-m", "1536"],
    console: "ttyAMA0",
    debian: "arm64",
};

impl Platform {
    /// That of an architecture.
    pub(crate) fn of(arch: Arch) -> &'static Self {
        match arch {
            Arch::X86_64 => &X86_64,
            Arch::Aarch64 => &AARCH64,
        }
    }
}
