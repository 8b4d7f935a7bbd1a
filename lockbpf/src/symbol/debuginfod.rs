//! Debug files from servers, by `debuginfod-find`, elfutils' client: only if the user named servers (`DEBUGINFOD_URLS`).
//! The client keeps what it fetched in its own cache.

use crate::door::open_named;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The client.
const CLIENT: &str = "debuginfod-find";
/// What names the servers.
const SERVERS: &str = "DEBUGINFOD_URLS";
/// How long one file may take; the client's own limit is lower as a rule (`DEBUGINFOD_TIMEOUT`).
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long all files of one run may take together.
const TIMEOUT_IN_ALL: Duration = Duration::from_secs(180);

/// Why no file came.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// No client.
    #[error(
        "DEBUGINFOD_URLS is set, but {CLIENT} cannot be run ({0}); install it (Debian: debuginfod) to have debug files fetched"
    )]
    NoClient(std::io::Error),
    /// It takes too long.
    #[error("debug files were not all fetched: {CLIENT} took more than {} s", .0.as_secs())]
    TooLong(Duration),
}

/// Fetches files.
#[derive(Debug)]
pub(super) struct Debuginfod {
    client: PathBuf,
    on: bool,
    left: Duration,
}

impl Default for Debuginfod {
    /// On if the user named servers.
    fn default() -> Self {
        let on = std::env::var_os(SERVERS).is_some_and(|servers| !servers.is_empty());
        Self { client: CLIENT.into(), on, left: TIMEOUT_IN_ALL }
    }
}

impl Debuginfod {
    /// The debug file of a build id; `Ok(None)` if no server has it, or none is asked.
    ///
    /// # Errors
    /// Once, and then nothing more is asked for.
    pub(super) fn fetch(&mut self, build_id: &[u8]) -> Result<Option<File>, FetchError> {
        if !self.on || build_id.is_empty() {
            return Ok(None);
        }
        let id = build_id.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let began = Instant::now();
        let limit = TIMEOUT.min(self.left);
        let answer = self.ask(&id, limit);
        self.left = self.left.saturating_sub(began.elapsed());
        self.on &= answer.is_ok();
        let path = answer?;
        Ok(path.and_then(|path| open_named(&path).ok()))
    }

    fn ask(&self, id: &str, limit: Duration) -> Result<Option<PathBuf>, FetchError> {
        let mut command = Command::new(&self.client);
        command.args(["debuginfo", id]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(FetchError::NoClient)?;
        let (done, answer) = mpsc::channel();
        if let Some(mut out) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut path = String::new();
                let read = out.read_to_string(&mut path);
                let _ = done.send(read.map(|_| path).unwrap_or_default());
            });
        }
        let answer = answer.recv_timeout(limit);
        if answer.is_err() {
            // An error means that it has ended by itself.
            let _ = child.kill();
        }
        let found = child.wait().is_ok_and(|status| status.success());
        let path = answer.map_err(|_| FetchError::TooLong(limit))?;
        let path = path.trim();
        Ok((found && !path.is_empty()).then(|| PathBuf::from(path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn client(dir: &Path, script: &str) -> Debuginfod {
        let client = dir.join("client");
        fs::write(&client, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
        Debuginfod { client, on: true, left: TIMEOUT_IN_ALL }
    }

    #[test]
    fn what_the_client_answers() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("found");
        fs::write(&file, "debug").unwrap();
        let path = file.display();
        let mut found = client(dir.path(), &format!("[ \"$1 $2\" = 'debuginfo 0aff' ] && echo {path}"));
        let mut text = String::new();
        found.fetch(&[0x0a, 0xff]).unwrap().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "debug");
        assert!(found.fetch(&[1]).unwrap().is_none());
        assert!(client(dir.path(), "echo nothing here >&2; exit 1").fetch(&[1]).unwrap().is_none());
        assert!(client(dir.path(), "echo /no/such/file").fetch(&[1]).unwrap().is_none());
    }

    #[test]
    fn a_failure_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut slow = Debuginfod { left: Duration::from_millis(20), ..client(dir.path(), "exec sleep 60") };
        assert!(matches!(slow.fetch(&[1]), Err(FetchError::TooLong(_))));
        assert!(slow.fetch(&[1]).unwrap().is_none());
        let mut none = Debuginfod { client: "/no/such/client".into(), on: true, left: TIMEOUT };
        assert!(matches!(none.fetch(&[1]), Err(FetchError::NoClient(_))));
        assert!(none.fetch(&[1]).unwrap().is_none());
        let mut off = Debuginfod { on: false, ..Debuginfod::default() };
        assert!(off.fetch(&[1]).unwrap().is_none());
    }
}
