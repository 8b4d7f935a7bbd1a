//! Files that the user names: what is no recording is refused at once, what is written stays whole, private, and where the user wants it.

use crate::harness::observer::{Outcome, lockbpf, run};
use crate::harness::privilege::{is_root, skipped};
use crate::harness::process::Running;
use crate::outputs::{golden, text};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;

const GOOD: &str = "{\"t\":1,\"tid\":1,\"op\":\"exit\"}\n";

fn dir() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Every way to read a file: with its name in the place of `{}`.
pub(crate) const READ: &[&str] = &[
    "report --from {}",
    "export --from {} --to - --as jsonl",
    "export --from {} --to - --as html",
    "diff {} {}",
    "predict --from {}",
    "predict --model {}",
    "what-if --from {} --auto",
    "advise --from {}",
    "access --from {} --to -",
    "locks check {}",
    "agent --check --config {}",
    "--locks {} -- true",
];

/// The words of a command line that names this file.
pub(crate) fn words<'a>(line: &'a str, file: &'a str) -> Vec<&'a str> {
    line.split(' ').map(|word| if word == "{}" { file } else { word }).collect()
}

/// None has an end, or one that comes: each is refused before the test's patience ends.
#[test]
fn what_is_no_file_is_refused_at_once() {
    let dir = dir();
    let [fifo, socket] = ["fifo", "socket"].map(|name| dir.path().join(name));
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).expect("a pipe");
    let _listener = UnixListener::bind(&socket).expect("a socket");
    for (path, why) in [
        (Path::new("/dev/zero"), "device"),
        (dir.path(), "directory"),
        (socket.as_path(), "socket"),
        (fifo.as_path(), "pipe"),
    ] {
        for line in READ {
            run(&words(line, text(path))).assert_error(&[text(path), why]);
        }
    }
}

#[test]
fn what_has_hardly_begun_is_an_error() {
    let dir = dir();
    let path = dir.path().join("begun");
    let whole = fs::read(golden("nested.bin")).expect("a recording");
    let blank: [&[u8]; 4] = [b"", b"\n \n", b"{", b"{\"t\":1,\"tid\":1,\"op\":\"ex"];
    for start in blank.into_iter().chain([1, 4, 7, 8, 9, 12, 16, 20].map(|length| &whole[..length])) {
        fs::write(&path, start).expect("a file");
        for line in ["report --from {}", "export --from {} --to - --as jsonl", "diff {} {}", "predict --from {}"] {
            run(&words(line, text(&path))).assert_error(&[text(&path)]);
        }
    }
}

/// Bytes of an unfinished output in which there are sections for certain: a header comes first.
const BEGUN: u64 = 100_000;

/// The name under which the documentation says that an unfinished output lies: `.NAME.XXXXXX.part`.
fn part_of(to: &Path) -> Option<PathBuf> {
    let start = format!(".{}.", to.file_name()?.to_str()?);
    let mut names = fs::read_dir(to.parent()?).expect("a directory").flatten().map(|entry| entry.path());
    names.find(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(&start) && name.ends_with(".part") && fs::metadata(path).is_ok_and(|about| about.len() > BEGUN)
    })
}

/// Writes event lines of one thread that has a lock this often.
fn many(sections: u64, to: &Path) {
    let mut lines = String::new();
    for t in (0..sections).map(|n| 10 * n) {
        for (t, op, rest) in [(t, "attempt", ",\"site\":\"S\""), (t + 1, "acquire", ""), (t + 3, "release", "")] {
            writeln!(lines, "{{\"t\":{t},\"tid\":1,\"op\":\"{op}\",\"lock\":\"L\"{rest}}}").expect("a text");
        }
    }
    fs::write(to, lines).expect("a file");
}

/// Kills a writer while it writes to this place; what it leaves beside. One that was too fast is given twice as much.
fn killed_while_it_writes(dir: &Path, to: &Path) -> PathBuf {
    let from = dir.join("from.jsonl");
    for sections in (16..22).map(|n| 1 << n) {
        many(sections, &from);
        let mut writer = Running::start(lockbpf().args(["export", "--from", text(&from), "--to", text(to)]));
        while part_of(to).is_none() && writer.is_alive() {
            sleep(Duration::from_millis(1));
        }
        if writer.is_alive() {
            writer.signal(Signal::SIGKILL);
            if writer.wait().signal() == Some(libc::SIGKILL) {
                return part_of(to).expect("what it has written");
            }
        }
        let _ = fs::remove_file(to);
    }
    panic!("nobody could be killed while writing {}", to.display());
}

#[test]
fn what_a_killed_writer_leaves_is_read_as_far_as_it_goes() {
    let dir = dir();
    for name in ["a.bin", "a.jsonl"] {
        let to = dir.path().join(name);
        let part = killed_while_it_writes(dir.path(), &to);
        assert!(!to.exists(), "nobody takes it for the whole");
        assert_eq!(fs::metadata(&part).expect("a file").mode() & 0o777, 0o600);
        let Outcome { code, stdout, stderr } = run(&["report", "--from", text(&part), "--format", "json", "--strict"]);
        assert_eq!(code, Some(1), "{stderr}");
        let report: Value = serde_json::from_str(&stdout).expect("the report is JSON");
        assert_eq!(report["quality"]["incomplete"], true, "{}", report["quality"]);
        let locks = report["locks"].as_array().expect("locks");
        assert!(locks.len() == 1 && locks[0]["acquisitions"].as_u64() > Some(100), "{locks:?}");
        let table = run(&["report", "--from", text(&part)]);
        assert!(table.code == Some(0) && table.stdout.contains("missing"), "{}{}", table.stdout, table.stderr);
    }
}

#[test]
fn nobody_else_says_where_an_output_goes() {
    if !is_root() {
        return skipped("only root can make links of another user");
    }
    let (dir, own) = (dir(), dir());
    fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).expect("a mode");
    let [good, victim] = ["good.jsonl", "victim"].map(|name| own.path().join(name));
    fs::write(&good, GOOD).expect("a file");
    fs::write(&victim, "kept").expect("a file");
    for name in ["a.bin", "a.jsonl", "a.html", "a.folded"] {
        let link = dir.path().join(name);
        symlink(&victim, &link).expect("a link");
        std::os::unix::fs::lchown(&link, Some(65_534), Some(65_534)).expect("an owner");
        let outcome = run(&["export", "--from", text(&good), "--to", text(&link)]);
        outcome.assert_error(&[text(&link), "link of another user"]);
        // A recording that grows in place.
        let outcome = run(&["export", "--to", text(&link), "--", "true"]);
        outcome.assert_error(&[text(&link), "link of another user"]);
    }
    assert_eq!(fs::read_to_string(&victim).expect("a file"), "kept");
    assert_eq!(fs::read_dir(own.path()).expect("a directory").count(), 2);
    assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 4, "nothing else is left");
}
