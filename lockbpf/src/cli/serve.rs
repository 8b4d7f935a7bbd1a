//! `--serve`: hands a profile to profiler.firefox.com, which runs in the user's browser and fetches it from here. To whoever knows the address: that
//! has a secret in it, only this machine can reach it, and there is nothing else to be had.

use super::ends::Ends;
use super::http::{Answer, Listen, Server, is_secret, not_allowed, respond, text};
use super::output;
use crate::input;
use crate::render::Format;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use std::fmt::Write as _;
use std::fs::File;
use std::future::ready;
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

/// The viewer.
const VIEWER: &str = "https://profiler.firefox.com";
/// The format that it reads.
const FORMAT: &str = "firefox";
/// Bytes of the secret: nobody can try so many.
const SECRET_BYTES: usize = 16;
/// What some browsers ask before a public page may reach this machine.
const ALLOW_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// Makes sure that a format can be served.
///
/// # Errors
/// When it is not the viewer's.
pub(super) fn check(format: Option<&Format>) -> Result<()> {
    match format {
        Some(format) if format.name == FORMAT => Ok(()),
        _ => bail!("--serve is for the Firefox Profiler: name its format, {FORMAT}"),
    }
}

/// Serves a file until the user ends it.
///
/// # Errors
/// When it cannot be read, or the port not be had.
pub(super) fn file(path: &Path, port: u16) -> Result<()> {
    let (input::Input::File(mut file) | input::Input::Pipe(mut file)) = input::open(path)?;
    let mut profile = Vec::new();
    file.read_to_end(&mut profile).with_context(|| format!("failed to read {}", path.display()))?;
    self::profile(profile, port)
}

/// Serves a profile until the user ends it; port 0 leaves the choice to the kernel.
///
/// # Errors
/// When the port cannot be had.
pub(super) fn profile(profile: Vec<u8>, port: u16) -> Result<()> {
    let mut ends = Ends::listen()?;
    let path: Arc<str> = format!("/{}/lockbpf.profile.json", secret()?).into();
    let served = Bytes::from(profile);
    let server = start(port, path.clone(), served)?;
    output::write(viewer_url(&format!("http://{}{path}", server.address())) + "\n")?;
    say!(
        "lockbpf: open this in a browser on this machine; Ctrl-C ends it. Whoever knows the address can read the profile"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().build().context("failed to wait for Ctrl-C")?;
    runtime.block_on(ends.asked());
    Ok(())
}

fn start(port: u16, path: Arc<str>, profile: Bytes) -> Result<Server> {
    let listen = Listen::Tcp((Ipv4Addr::LOCALHOST, port).into());
    Server::start(&listen, move |request| ready(answer(&request, &path, &profile)))
}

fn answer(request: &Request<Incoming>, path: &str, profile: &Bytes) -> Answer {
    if !is_secret(request.uri().path().as_bytes(), path.as_bytes()) {
        return text(StatusCode::NOT_FOUND, "no such thing here\n".to_owned());
    }
    let mut answer = match *request.method() {
        // Hyper leaves out the body where only the head is asked for.
        Method::GET | Method::HEAD => respond(StatusCode::OK, "application/json", profile.clone()),
        Method::OPTIONS => respond(StatusCode::NO_CONTENT, "text/plain", Bytes::new()),
        _ => return not_allowed("GET, HEAD, OPTIONS"),
    };
    let headers = answer.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static(VIEWER));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET"));
    headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    answer
}

/// Something that nobody can guess.
fn secret() -> Result<String> {
    let mut bytes = [0; SECRET_BYTES];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.context("failed to read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Where the viewer opens what is served at a URL.
fn viewer_url(profile: &str) -> String {
    let mut url = format!("{VIEWER}/from-url/");
    for byte in profile.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            url.push(char::from(byte));
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpStream;

    #[test]
    fn urls_are_escaped() {
        let url = viewer_url("http://127.0.0.1:3000/0a/lockbpf.profile.json");
        let expected =
            "https://profiler.firefox.com/from-url/http%3A%2F%2F127.0.0.1%3A3000%2F0a%2Flockbpf.profile.json";
        assert_eq!(url, expected);
        assert_ne!(secret().unwrap(), secret().unwrap());
    }

    #[test]
    fn one_file_is_served_to_the_viewer() {
        let path: Arc<str> = "/secret/lockbpf.profile.json".into();
        let server = start(0, path, Bytes::from_static(b"{}")).unwrap();
        let Listen::Tcp(address) = *server.address() else { panic!("it is TCP") };
        assert!(address.ip().is_loopback());
        let ask = |request: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "{request} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.to_ascii_lowercase()
        };
        let allowed = "access-control-allow-origin: https://profiler.firefox.com\r\n";
        for (request, status, is_open) in [
            ("GET /secret/lockbpf.profile.json", "200", true),
            ("HEAD /secret/lockbpf.profile.json", "200", true),
            ("OPTIONS /secret/lockbpf.profile.json", "204", true),
            ("POST /secret/lockbpf.profile.json", "405", false),
            ("GET /secres/lockbpf.profile.json", "404", false),
            ("GET /secret/", "404", false),
            ("GET /", "404", false),
        ] {
            let answer = ask(request);
            assert!(answer.starts_with(&format!("http/1.1 {status}")), "{request}: {answer}");
            assert_eq!(answer.contains(allowed), is_open, "{request}: {answer}");
            assert_eq!(answer.ends_with("\r\n\r\n{}"), request.starts_with("GET /secret/l"), "{request}: {answer}");
        }
    }
}
