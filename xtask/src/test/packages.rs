//! The Debian packages that the tests use, named before they are installed.

use anyhow::Result;

use super::step::Outcome;
use crate::{install, workspace};

/// A package that the tests use.
struct Need {
    package: &'static str,
    /// A program of the package, by which it is recognised however it was installed; or the whole path of another file.
    program: &'static str,
    why: &'static str,
    /// Tests whose names contain this cannot run without the package.
    tests: &'static str,
}

const NEEDS: [Need; 32] = [
    Need { package: "memcached", program: "memcached", why: "a real server to observe", tests: "memcached" },
    Need { package: "libmemcached-tools", program: "memcslap", why: "puts load on memcached", tests: "memcached" },
    Need { package: "mariadb-server", program: "mariadbd", why: "a real server to observe", tests: "mariadb" },
    Need { package: "sysbench", program: "sysbench", why: "puts load on mariadb", tests: "mariadb" },
    Need { package: "postgresql", program: "pg_ctlcluster", why: "a real server to observe", tests: "postgresql" },
    Need { package: "bpftrace", program: "bpftrace", why: "the observer to compare costs with", tests: "bpftrace" },
    Need { package: "valgrind", program: "valgrind", why: "tells what instructions access", tests: "lackey" },
    Need { package: "graphviz", program: "dot", why: "reads the wait graphs that lockbpf draws", tests: "graphviz" },
    Need { package: "golang-go", program: "go", why: "compiles the workloads in Go", tests: "go::go_" },
    Need { package: "golang-go", program: "go", why: "reads pprof's profiles", tests: "go_tool_pprof" },
    Need {
        package: "openjdk-17-jdk-headless",
        program: "javac",
        why: "compiles and runs the workload in Java",
        tests: "java",
    },
    Need {
        package: "openjdk-17-jdk-headless",
        program: "java",
        why: "runs Spark, which reads tables of many recordings",
        tests: "python_spark",
    },
    Need { package: "python3", program: "python3", why: "runs the workloads in Python", tests: "python" },
    Need {
        package: "python3-venv",
        program: "/usr/share/doc/python3-venv/copyright",
        why: "installs what reads the formats of other viewers",
        tests: "own_definitions",
    },
    Need {
        package: "python3-venv",
        program: "/usr/share/doc/python3-venv/copyright",
        why: "drives a browser",
        tests: "browser",
    },
    Need { package: "chromium", program: "chromium", why: "shows the report as a page", tests: "browser" },
    Need { package: "tmux", program: "tmux", why: "a terminal for the live view", tests: "tmux" },
    Need { package: "binutils", program: "strip", why: "makes a program without symbols", tests: "stripped" },
    Need { package: "g++", program: "c++", why: "compiles libFuzzer", tests: "fuzz" },
    Need { package: "g++", program: "c++", why: "compiles the workloads in C++", tests: "cpp" },
    Need {
        package: "libabsl-dev",
        program: "/usr/include/absl/synchronization/mutex.h",
        why: "locks of a library's own to observe",
        tests: "abseil",
    },
    Need {
        package: "libglib2.0-0",
        program: "/usr/share/doc/libglib2.0-0/copyright",
        why: "locks of a library's own to observe",
        tests: "toolkits",
    },
    Need {
        package: "libqt6core6",
        program: "/usr/share/doc/libqt6core6/copyright",
        why: "locks of a library's own to observe",
        tests: "toolkits",
    },
    Need { package: "ruby", program: "ruby", why: "runs a workload in Ruby", tests: "toolkits_of_ruby" },
    Need {
        package: "musl-tools",
        program: "musl-gcc",
        why: "compiles workloads with another C library",
        tests: "musl",
    },
    Need { package: "clang", program: "clang", why: "compiles a workload for LLVM's OpenMP", tests: "of_llvm" },
    Need {
        package: "libomp-dev",
        program: "/usr/share/doc/libomp-dev/copyright",
        why: "locks of LLVM's OpenMP to observe",
        tests: "of_llvm",
    },
    Need { package: "prometheus", program: "prometheus", why: "scrapes the agent", tests: "prometheus" },
    Need { package: "prometheus", program: "promtool", why: "checks metrics and rules", tests: "promtool" },
    Need { package: "mandoc", program: "mandoc", why: "checks manual pages", tests: "mandoc" },
    Need { package: "lintian", program: "lintian", why: "checks the Debian package", tests: "lintian" },
    Need { package: "dpkg-dev", program: "dpkg-shlibdeps", why: "finds what the package depends on", tests: "lintian" },
];

/// Installs what is missing, unless `quick`.
///
/// # Errors
/// The system's folders cannot be written to.
pub(super) fn install(quick: bool) -> Result<Outcome> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(Outcome::passed("all installed"));
    }
    let names: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let by_hand = format!("missing: {}", names.join(" "));
    if quick {
        return Ok(Outcome::skipped(format!("--quick; {by_hand}")));
    }
    if let Some(reason) = install::impossible() {
        return Ok(Outcome::unavailable(format!("{reason}; {by_hand}")));
    }
    eprintln!("installing, without starting services:");
    for need in &missing {
        eprintln!("  {:<20} {}", need.package, need.why);
    }
    match install::packages(&names) {
        Ok(()) => Ok(Outcome::passed(format!("installed {}", names.join(" ")))),
        Err(reason) => Ok(Outcome::unavailable(format!("{reason:#}; {by_hand}"))),
    }
}

/// The substrings of the names of tests that cannot run for lack of a package; under continuous integration they fail.
pub(super) fn tests_not_possible() -> Vec<&'static str> {
    if workspace::is_ci() {
        return Vec::new();
    }
    let mut tests: Vec<&str> = missing().iter().map(|need| need.tests).collect();
    tests.dedup();
    tests
}

/// Which tests cannot run for lack of which package.
pub(super) fn missing_reasons() -> Vec<String> {
    let missing = missing();
    let reason =
        |need: &&Need| format!("tests named *{}*: {} is not installed ({})", need.tests, need.package, need.why);
    missing.iter().map(reason).collect()
}

fn missing() -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| workspace::find_program(need.program).is_none()).collect()
}
