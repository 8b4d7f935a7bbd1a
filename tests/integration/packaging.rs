//! What distributions ship beside the program: manual pages, completions, a Debian package.

use crate::containers::may_contain;
use crate::harness::privilege::installed;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The program.
const LOCKBPF: &str = env!("CARGO_BIN_EXE_lockbpf");
/// Sections that every page has.
const SECTIONS: [&str; 7] = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\"", "FILES", "\"SEE ALSO\""];
/// What bash offers for words of a command line, the last of which is not complete: as its own completion calls the function.
const COMPLETE: &str = r#"
source "$1"; shift
function=$(complete -p lockbpf | sed 's/.* -F \([^ ]*\) .*/\1/')
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
"$function" lockbpf "${@: -1}" "${@: -2:1}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// The life of a package on this machine as it is, but for a file system of its own above the machine's: nothing of it stays.
const LIFE: &str = r#"
work=$1 package=$2 version=$3
mount -t tmpfs tmp "$work"
for dir in etc usr var; do
    mkdir -p "$work/upper/$dir" "$work/work/$dir"
    mount -t overlay overlay -o "lowerdir=/$dir,upperdir=$work/upper/$dir,workdir=$work/work/$dir" "/$dir"
done
# Where this machine has had lockbpf before.
rm -rf /var/cache/lockbpf /var/lib/lockbpf

: installed
dpkg -i "$package"
test "$(lockbpf --version)" = "$version"
lockbpf agent --config /etc/lockbpf/agent.toml --check
test ! -e /etc/systemd/system/multi-user.target.wants/lockbpf.service
if command -v systemd-analyze; then systemd-analyze verify /usr/lib/systemd/system/lockbpf.service; fi
if command -v systemctl; then systemctl enable lockbpf.service; fi
# Names are not stripped.
lockbpf demo --duration 2s | grep flush_log

: installed once more, over a configuration that was changed
echo '# ours' >> /etc/lockbpf/agent.toml
dpkg -i "$package"
grep '# ours' /etc/lockbpf/agent.toml
mkdir -p /var/cache/lockbpf && echo kept > /var/cache/lockbpf/costs.json
mkdir -p /var/lib/lockbpf/push/parca && echo kept > /var/lib/lockbpf/push/parca/1.batch

: removed
dpkg -r lockbpf
test ! -e /usr/bin/lockbpf -a ! -e /usr/share/doc/lockbpf
test -e /etc/lockbpf/agent.toml -a -e /var/cache/lockbpf/costs.json -a -e /var/lib/lockbpf/push/parca/1.batch

: purged
dpkg -P lockbpf
cd "$work/upper"
# What is deleted of the machine's own files is a character device there. Records of dpkg and of man are not ours.
test -z "$(find . -name '*lockbpf*' ! -type c ! -path './var/cache/man/*')"
test -z "$(find . '(' -type f -o -type l ')' ! -path './var/lib/dpkg/*' ! -path './var/cache/man/*' ! -path './var/log/*')"
"#;

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn lockbpf(arguments: &[&str]) -> String {
    let output = Command::new(LOCKBPF).args(arguments).output().expect("lockbpf runs");
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// The commands that the help of `lockbpf` lists.
fn commands() -> BTreeSet<String> {
    let help = lockbpf(&["--help"]);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let named = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = named.filter_map(|line| line.split_whitespace().next().map(str::to_owned));
    names.filter(|name| name != "help").collect()
}

#[test]
fn mandoc_accepts_the_manual_pages() {
    let Some(mandoc) = installed("mandoc") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    // It is made.
    let pages = dir.path().join("man1");
    lockbpf(&["man", pages.to_str().expect("text")]);
    let files: Vec<_> = fs::read_dir(&pages).expect("pages").map(|file| file.expect("a page").path()).collect();
    let output = Command::new(mandoc).args(["-Tlint", "-Wwarning"]).args(&files).output().expect("mandoc runs");
    assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    for file in &files {
        let text = fs::read_to_string(file).expect("a page");
        for section in SECTIONS {
            assert!(text.contains(&format!(".SH {section}\n")), "{} has no {section}", file.display());
        }
    }
    let commands = commands();
    assert!(commands.contains("report") && commands.len() > 10, "{commands:?}");
    for command in commands {
        let page = fs::read_to_string(pages.join(format!("lockbpf-{command}.1"))).expect("a page of each command");
        assert!(page.contains(".SH EXAMPLES\n"), "{page}");
    }
    let main = fs::read_to_string(pages.join("lockbpf.1")).expect("the first page");
    assert!(main.contains(".SH EXAMPLES\n") && main.contains("\\fBlockbpf \\-\\-pid 1234"), "{main}");
}

#[test]
fn bash_completes_commands_and_options() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("lockbpf");
    fs::write(&script, lockbpf(&["completions", "bash"])).expect("a script");
    let complete = |words: &[&str]| {
        let mut bash = Command::new("bash");
        let output = bash.args(["-uc", COMPLETE, "bash"]).arg(&script).args(words).output().expect("bash runs");
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(complete(&["lockbpf", "re"]), "report\n");
    assert_eq!(complete(&["lockbpf", "report", "--fo"]), "--format\n");
    assert_eq!(complete(&["lockbpf", "report", "--format", "j"]), "json\n");
    // What users are not shown is not offered, either.
    assert_eq!(complete(&["lockbpf", "gua"]), "\n");
}

#[test]
fn lintian_accepts_the_debian_package_and_dpkg_installs_and_purges_it() {
    let (Some(_turn), Some(lintian), Some(_)) = (may_contain(), installed("lintian"), installed("dpkg-shlibdeps"))
    else {
        return;
    };
    let dir = tempfile::tempdir_in("/tmp").expect("a directory");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut task = Command::new(env!("CARGO"));
    task.current_dir(root).args([
        "run",
        "--quiet",
        "--locked",
        "--package",
        "xtask",
        "--",
        "deb",
        "--program",
        LOCKBPF,
    ]);
    let output = task.arg("--to").arg(dir.path()).env("SOURCE_DATE_EPOCH", "1795674250").output().expect("cargo runs");
    assert!(output.status.success(), "{}", said(&output));
    let package = String::from_utf8(output.stdout).expect("a path").trim().to_owned();

    let output = Command::new(lintian).args(["--fail-on", "error,warning", &package]).output().expect("lintian runs");
    assert!(output.status.success(), "{}", said(&output));

    let work = tempfile::tempdir_in("/tmp").expect("a directory");
    let version = lockbpf(&["--version"]);
    let mut life = Command::new("unshare");
    life.args(["--mount", "sh", "-euxc", LIFE, "life"]).arg(work.path()).args([package.as_str(), version.trim()]);
    let path = format!("{}:/usr/local/sbin:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = life.env("PATH", path).env("DEBIAN_FRONTEND", "noninteractive").output().expect("unshare runs");
    assert!(output.status.success(), "{}", said(&output));
}
