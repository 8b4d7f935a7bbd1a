//! The HTTP side: a thread of its own that answers from what was shown to it. Connections are bounded in number, time and size, so whoever asks
//! and hangs, or asks for too much, costs a place among them and nothing else.

use super::super::flight::socket;
use super::listen::Listen;
use super::shared::{Shared, Side};
use crate::capture::lent;
use crate::metrics::Dialect;
use anyhow::{Context, Result};
use bytes::Bytes;
use caps::CapSet;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

/// Connections at one time. Further ones wait in the kernel's queue.
const CONNECTIONS: usize = 16;
/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(5);
/// How long a connection may take in all, the reader's taking of the answer included.
const WHOLE: Duration = Duration::from_secs(30);
/// Bytes of a request's head.
const HEAD_BYTES: usize = 16 << 10;
/// How long after a failure to accept the next one is tried.
const PAUSE: Duration = Duration::from_millis(100);
/// Who may use a Unix socket, beside whoever may enter its folder.
const SOCKET_MODE: u32 = 0o660;

/// What is served, told to whoever asks for nothing in particular.
const INDEX: &str = "lockbpf agent\n\n/metrics\n/debug/pprof/block  stacks of those who waited\n\
                     /debug/pprof/mutex  stacks of those who made others wait\n/dump  a recording of what the flight recorder has kept\n/healthz\n";

/// A recording is in memory as a whole: one at a time.
static DUMPING: Semaphore = Semaphore::const_new(1);

/// Serves until it is dropped.
pub(super) struct Server {
    listen: Listen,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves from now on.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub(super) fn start(listen: &Listen, shared: Arc<Shared>) -> Result<Self> {
        let failed = || format!("failed to listen at {listen}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().with_context(failed)?;
        let entered = runtime.enter();
        let (listener, listen) = lent::as_user(|| Listener::bind(listen)).with_context(failed)?;
        drop(entered);
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            // It needs none of the rights by which the others observe. Where they cannot be laid down there are none.
            for set in [CapSet::Effective, CapSet::Permitted] {
                let _ = caps::clear(None, set);
            }
            runtime.block_on(async {
                tokio::select! {
                    () = serve(&listener, &shared) => {}
                    _ = stopped => {}
                }
            });
            // Whoever still reads is left alone.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(run).with_context(failed)?;
        Ok(Self { listen, stop: Some(stop), thread: Some(thread) })
    }

    /// Where.
    pub(super) fn address(&self) -> &Listen {
        &self.listen
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        // It may have failed; there is nothing to be done about that any more.
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
        if let Listen::Unix(path) = &self.listen {
            let _ = lent::as_user(|| fs::remove_file(path));
        }
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Listener {
    /// Binds; returns where it is, which the kernel decides of port 0.
    fn bind(listen: &Listen) -> io::Result<(Self, Listen)> {
        Ok(match listen {
            Listen::Tcp(address) => {
                let listener = std::net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?;
                (Self::Tcp(TcpListener::from_std(listener)?), Listen::Tcp(address))
            }
            Listen::Unix(path) => {
                remove_stale(path)?;
                let listener = UnixListener::bind(path)?;
                fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
                (Self::Unix(listener), listen.clone())
            }
        })
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// Removes a socket that nobody listens at any more: it outlives whoever was killed.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
            _ => Err(io::Error::new(ErrorKind::AddrInUse, "somebody listens there already")),
        },
        Ok(_) => Err(io::Error::new(ErrorKind::AlreadyExists, "there is a file of that name, which is no socket")),
        Err(_) => Ok(()),
    }
}

async fn serve(listener: &Listener, shared: &Arc<Shared>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // Never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok(stream) => {
                let shared = shared.clone();
                tokio::spawn(async move {
                    // Whatever goes wrong is the other side's business.
                    let _ = timeout(WHOLE, converse(stream, shared)).await;
                    drop(place);
                });
            }
            // No descriptors left, for one.
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn converse(stream: Box<dyn Stream>, shared: Arc<Shared>) -> hyper::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = shared.clone();
        async move {
            let mut response = answer(&request, &shared);
            if response.status() == StatusCode::ACCEPTED {
                response = dump().await;
            }
            shared.answered(response.status().as_u16());
            Ok::<_, Infallible>(response)
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn answer(request: &Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let path = request.uri().path();
    // Whether it lives is no secret.
    if path == "/healthz" {
        return match shared.health() {
            Ok(()) => text(StatusCode::OK, "ok\n".to_owned()),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, why + "\n"),
        };
    }
    let header = |name| request.headers().get(name).map(hyper::header::HeaderValue::as_bytes);
    if !shared.admits(header(AUTHORIZATION)) {
        let mut response = text(StatusCode::UNAUTHORIZED, "a bearer token is wanted\n".to_owned());
        response.headers_mut().insert(WWW_AUTHENTICATE, hyper::header::HeaderValue::from_static("Bearer"));
        return response;
    }
    match path {
        "/metrics" => {
            let dialect = Dialect::accepted(&String::from_utf8_lossy(header(ACCEPT).unwrap_or_default()));
            respond(StatusCode::OK, dialect.content_type(), shared.metrics(dialect))
        }
        "/debug/pprof/block" => profile(shared.profile(Side::Block)),
        "/debug/pprof/mutex" => profile(shared.profile(Side::Mutex)),
        // It takes its time: a request for the size alone gets none.
        "/dump" if *request.method() == Method::HEAD => text(StatusCode::OK, String::new()),
        "/dump" => text(StatusCode::ACCEPTED, String::new()),
        "/" => text(StatusCode::OK, INDEX.to_owned()),
        _ => text(StatusCode::NOT_FOUND, "no such thing here: see /\n".to_owned()),
    }
}

/// What the flight recorder has kept. It is asked as anybody asks it.
async fn dump() -> Response<Full<Bytes>> {
    let Ok(_one) = DUMPING.try_acquire() else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "a recording is being made for somebody else\n".to_owned());
    };
    let get = || socket::receive(socket::ask(std::process::id())?, Vec::new());
    match tokio::task::spawn_blocking(get).await {
        Ok(Ok((recording, _))) => respond(StatusCode::OK, "application/octet-stream", Bytes::from(recording)),
        Ok(Err(error)) => {
            text(StatusCode::SERVICE_UNAVAILABLE, format!("{error:#}; nothing is kept unless keep is set\n"))
        }
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "no recording was made\n".to_owned()),
    }
}

fn profile(gzipped: Bytes) -> Response<Full<Bytes>> {
    respond(StatusCode::OK, "application/octet-stream", gzipped)
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", Bytes::from(text))
}

fn respond(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, hyper::header::HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    fn start(token: Option<&str>) -> (Server, SocketAddr) {
        let shared = Shared::new(token.map(str::to_owned), Duration::from_secs(10));
        let server = Server::start(&"127.0.0.1:0".parse().unwrap(), Arc::new(shared)).unwrap();
        let Listen::Tcp(address) = *server.address() else { panic!("it is TCP") };
        (server, address)
    }

    fn ask(stream: &mut (impl Read + Write), request: &str) -> String {
        stream.write_all(format!("{request}\r\n\r\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(address: SocketAddr, request: &str) -> String {
        ask(&mut TcpStream::connect(address).unwrap(), request)
    }

    #[test]
    fn each_path_has_its_answer() {
        let (_server, address) = start(None);
        for (request, expected) in [
            ("GET / HTTP/1.1\r\nHost: a", "HTTP/1.1 200"),
            ("GET /metrics HTTP/1.1\r\nHost: a", "HTTP/1.1 200"),
            ("HEAD /metrics HTTP/1.0", "HTTP/1.0 200"),
            ("GET /debug/pprof/mutex HTTP/1.1\r\nHost: a", "HTTP/1.1 200"),
            ("GET /healthz HTTP/1.1\r\nHost: a", "HTTP/1.1 503"),
            ("GET /other HTTP/1.1\r\nHost: a", "HTTP/1.1 404"),
            ("POST /metrics HTTP/1.1\r\nHost: a", "HTTP/1.1 405"),
            ("nonsense", "HTTP/1.1 400"),
        ] {
            let answer = get(address, request);
            assert!(answer.starts_with(expected), "{request}: {answer}");
        }
        let open =
            get(address, "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0\r\nHost: a");
        assert!(
            open.contains("content-type: application/openmetrics-text; version=1.0.0") && open.ends_with("# EOF\n"),
            "{open}"
        );
        assert!(open.contains("lockbpf_http_requests_total{code=\"405\"} 1\n"), "{open}");
        let long = format!("GET /{} HTTP/1.1\r\nHost: a", "x".repeat(HEAD_BYTES));
        assert!(!get(address, &long).starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn a_token_is_wanted_where_there_is_one() {
        let (_server, address) = start(Some("0123456789abcdef"));
        assert!(get(address, "GET /metrics HTTP/1.1\r\nHost: a").starts_with("HTTP/1.1 401"));
        let with = "GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer 0123456789abcdef";
        assert!(get(address, with).starts_with("HTTP/1.1 200"));
        assert!(get(address, "GET /healthz HTTP/1.1\r\nHost: a").starts_with("HTTP/1.1 503"));
    }

    #[test]
    fn whoever_hangs_holds_up_nobody() {
        let (server, address) = start(None);
        let mut hung: Vec<_> = (0..CONNECTIONS - 1).map(|_| TcpStream::connect(address).unwrap()).collect();
        hung.iter_mut().for_each(|stream| stream.write_all(b"GET /metr").unwrap());
        assert!(get(address, "GET /metrics HTTP/1.1\r\nHost: a").starts_with("HTTP/1.1 200"));
        // More than there is room for: they make room when their heads take too long.
        hung.extend((0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()));
        assert!(get(address, "GET /metrics HTTP/1.1\r\nHost: a").starts_with("HTTP/1.1 200"));
        // The end does not wait for them either.
        drop(server);
    }

    #[test]
    fn a_socket_is_made_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let listen = Listen::Unix(path.clone());
        let shared = || Arc::new(Shared::new(None, Duration::from_secs(10)));
        // Left behind by one that was killed.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let server = Server::start(&listen, shared()).unwrap();
        assert!(Server::start(&listen, shared()).is_err());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, SOCKET_MODE);
        let answer = ask(&mut UnixStream::connect(&path).unwrap(), "GET / HTTP/1.1\r\nHost: a");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        drop(server);
        assert!(!path.exists());
        fs::write(&path, "").unwrap();
        assert!(Server::start(&listen, shared()).is_err() && path.exists());
    }
}
