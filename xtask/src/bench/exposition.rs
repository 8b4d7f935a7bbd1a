//! Metrics as text: what a server tells, and what its lines say.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The names of series that can only grow.
pub(super) fn counted(text: &str) -> BTreeSet<&str> {
    let counting: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .filter(|&(_, kind)| matches!(kind, "counter" | "histogram"))
        .map(|(name, _)| name)
        .collect();
    let ends = ["_bucket", "_sum", "_count", "_total"];
    let counts = |name: &&str| {
        let plain = ends.iter().find_map(|end| name.strip_suffix(end));
        counting.contains(name) || plain.is_some_and(|plain| counting.contains(plain))
    };
    series(text).map(|(key, _)| family(key)).filter(counts).collect()
}

/// Series, with their labels, and their values.
pub(super) fn series(text: &str) -> impl Iterator<Item = (&str, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let (key, value) = line.rsplit_once(' ')?;
        Some((key, value.parse().ok()?))
    })
}

/// The name of a series without its labels.
pub(super) fn family(key: &str) -> &str {
    key.split_once('{').map_or(key, |(name, _)| name)
}

/// What a server of this machine answers.
///
/// # Errors
/// It does not answer, or with an error.
pub(super) fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("failed to connect to {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // HTTP/1.0 has no answers in pieces.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).with_context(|| format!("failed to read what {address} answers"))?;
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("{address} answers nothing"))?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.split(' ').nth(1) == Some("200"), "{address} answers {path}: {status}");
    Ok(body.to_owned())
}
