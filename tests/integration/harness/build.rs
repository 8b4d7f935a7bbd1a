//! Compiles the workloads, each variant once for a run of the tests.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};

/// How a workload is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Variant {
    /// As a distribution does it: position-independent, dynamic, with symbols and debug information.
    Plain,
    /// At a fixed address: its locks are at the same place in every process and after every exec.
    Fixed,
    /// With frame pointers.
    FramePointers,
    /// With unwind information in the debug information only.
    DebugFrame,
    /// Without symbols.
    Stripped,
    /// With unwind tables and clean-up handlers that need them, as C++ has.
    Exceptions,
    /// The C library inside, with symbols.
    Static,
    /// The C library inside, without symbols.
    StaticStripped,
    /// No C library at all.
    Bare,
    /// musl instead of glibc.
    Musl,
    /// musl inside.
    MuslStatic,
}

impl Variant {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["-pthread"],
            Self::Fixed => &["-pthread", "-no-pie", "-fno-pie"],
            Self::FramePointers => &["-pthread", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"],
            Self::DebugFrame => &["-pthread", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
            Self::Stripped => &["-pthread", "-s"],
            Self::Exceptions => &["-pthread", "-fexceptions"],
            Self::Static => &["-pthread", "-static"],
            Self::StaticStripped => &["-pthread", "-static", "-s"],
            Self::Bare => &["-nostdlib", "-static"],
            Self::Musl => &["-pthread"],
            Self::MuslStatic => &["-pthread", "-static"],
        }
    }
}

/// Workloads that use more than the C library, and what.
const LIBRARIES: [(&str, &str); 4] = [
    ("abseil", "-labsl_synchronization"),
    ("openmp", "-fopenmp"),
    ("toolkits", "-l:libglib-2.0.so.0"),
    ("toolkits", "-l:libQt6Core.so.6"),
];

static BUILT: LazyLock<Mutex<HashMap<(String, Variant), PathBuf>>> = LazyLock::new(Mutex::default);

/// The compiled workload `tests/workloads/NAME.c`, else `.cc`, else `.rs` (as Rust links it, whatever the variant).
pub(crate) fn compile(name: &str, variant: Variant) -> PathBuf {
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    built.entry((name.to_owned(), variant)).or_insert_with(|| compile_now(name, variant)).clone()
}

fn compile_now(name: &str, variant: Variant) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/workloads").join(name);
    let musl = matches!(variant, Variant::Musl | Variant::MuslStatic);
    let c = ["-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror"];
    let cpp = ["-std=c++20", "-O2", "-g", "-Wall", "-Wextra", "-Werror"];
    let languages: [(&str, &str, &[&str], &[&str]); 3] = [
        ("c", if musl { "musl-gcc" } else { "cc" }, &c, variant.flags()),
        ("cc", "c++", &cpp, variant.flags()),
        ("rs", "rustc", &["--edition=2024", "-O", "-g"], &[]),
    ];
    let language = languages.into_iter().find(|(extension, ..)| source.with_extension(extension).exists());
    let (extension, compiler, options, linking) = language.unwrap_or_else(|| panic!("there is no workload {name}"));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("workloads-{variant:?}"));
    std::fs::create_dir_all(&dir).expect("failed to create a directory for the workloads");
    let (program, fresh) = (dir.join(name), dir.join(format!("{name}.{}", std::process::id())));
    let output = Command::new(compiler)
        .args(options)
        .arg(source.with_extension(extension))
        .args(linking)
        .args(LIBRARIES.iter().filter(|(user, _)| *user == name).map(|(_, library)| library))
        .arg("-o")
        .arg(&fresh)
        .output()
        .unwrap_or_else(|error| panic!("failed to run {compiler}: {error}"));
    assert!(output.status.success(), "failed to compile {name}: {}", String::from_utf8_lossy(&output.stderr));
    // Renamed into place: another run of the tests may be executing the old file.
    std::fs::rename(&fresh, &program).expect("failed to move a workload into place");
    program
}
