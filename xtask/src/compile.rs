//! Compiles the eBPF programs with a stable rustc: `core` from its source, linked by bpf-linker.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    arch::Arch,
    bpf_linker, process, provenance,
    rust_src::{self, RustSrc},
    rustc_wrapper, strip, workspace,
};

/// The target the programs are compiled for.
pub(crate) const TARGET: &str = "bpfel-unknown-none";
/// rustc's flags for every crate of the programs, beside `--cfg bpf_target_arch` and what the profile `bpf` says.
/// Version 3 of the instruction set has 32-bit arithmetic and atomics that return a value.
pub(crate) const RUSTFLAGS: [&str; 2] = ["-Ctarget-cpu=v3", "-Clink-arg=--btf"];

/// How long compiling for one architecture may take.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// Separates flags in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\x1f";

/// The programs and sources that compile an object.
pub(crate) struct Toolchain {
    /// rustc's version: `1.95.0 (59807616e 2026-04-14)`.
    pub(crate) rustc: String,
    linker: PathBuf,
    /// The standard library's source.
    pub(crate) rust_src: RustSrc,
    /// xtask's own program, kept where a rebuild of xtask does not replace it.
    wrapper: PathBuf,
}

impl Toolchain {
    /// Finds or gets everything.
    ///
    /// # Errors
    /// rustc does not run, bpf-linker cannot be installed, or no way leads to the standard library's source.
    pub(crate) fn find() -> Result<Self> {
        let rustc = workspace::rustc_version()?;
        let linker = bpf_linker::find_or_install()?;
        let rust_src = rust_src::find(&rustc)?;
        let wrapper = workspace::bpf_dir()?.join("rustc-wrapper");
        fs::copy("/proc/self/exe", &wrapper).with_context(|| format!("failed to write {}", wrapper.display()))?;
        Ok(Self { rustc, linker, rust_src, wrapper })
    }

    /// Compiles the programs for `arch`; returns the object.
    ///
    /// # Errors
    /// The programs do not compile (cargo has said why), or the compiler cannot be run.
    pub(crate) fn compile(&self, arch: Arch) -> Result<Vec<u8>> {
        let target_dir = workspace::bpf_dir()?.join(arch.name());
        self.discard_other_builds(&target_dir)?;
        let arch_flag = format!("--cfg=bpf_target_arch=\"{}\"", arch.name());
        let flags: Vec<&str> = [arch_flag.as_str()].into_iter().chain(RUSTFLAGS).collect();

        let mut cargo = workspace::cargo();
        cargo.args(["build", "--quiet", "--locked", "--package", "lockbpf-ebpf", "--bin", "lockbpf"]);
        cargo.args(["--profile", "bpf", "--target", TARGET, "-Z", "build-std=core", "--target-dir"]).arg(&target_dir);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join(SEPARATOR));
        cargo.env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &self.linker);
        cargo.env("RUSTC_BOOTSTRAP", "1").env("__CARGO_TESTS_ONLY_SRC_ROOT", &self.rust_src.library);
        cargo.env("RUSTC_WRAPPER", &self.wrapper).env(rustc_wrapper::ROOT_VAR, workspace::root());
        cargo.env_remove("RUSTC_WORKSPACE_WRAPPER");
        // It divides the code otherwise, and so gives other objects.
        cargo.env("CARGO_INCREMENTAL", "0");
        let status = process::status(&mut cargo, LIMIT)?;
        if !status.success() {
            bail!("failed to compile the eBPF programs for {}: cargo ended with {status}", arch.name());
        }
        let linked = target_dir.join(TARGET).join("bpf/lockbpf");
        let linked = fs::read(&linked).with_context(|| format!("failed to read {}", linked.display()))?;
        strip::without_debug_sections(&linked)
    }

    /// Removes a target directory filled by other tools: cargo sees neither a new bpf-linker nor a new wrapper.
    fn discard_other_builds(&self, target_dir: &Path) -> Result<()> {
        let stamp = target_dir.join("built-with");
        let wrapper = provenance::hash_file(&self.wrapper)?;
        let tools = format!("{} {} {wrapper}", self.rust_src.sha256, bpf_linker::VERSION);
        if fs::read_to_string(&stamp).is_ok_and(|built_with| built_with == tools) {
            return Ok(());
        }
        if target_dir.exists() {
            fs::remove_dir_all(target_dir).with_context(|| format!("failed to remove {}", target_dir.display()))?;
        }
        fs::create_dir_all(target_dir)?;
        fs::write(&stamp, tools).with_context(|| format!("failed to write {}", stamp.display()))
    }
}
