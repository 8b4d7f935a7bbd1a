//! A small HTTP server: a thread of its own, and connections bounded in number, time and size, so whoever asks and hangs, or asks for too much, costs
//! a place among them and nothing else. And a client that posts.

mod client;
mod listen;

use anyhow::{Context, Result};
use bytes::Bytes;
use caps::CapSet;
pub(super) use client::{Reply, Url};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
pub(super) use listen::Listen;
use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::future::Future;
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

/// What is answered.
pub(super) type Answer = Response<Full<Bytes>>;

/// Serves until it is dropped.
pub(super) struct Server {
    listen: Listen,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves from now on, what `answer` makes of each request.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub(super) fn start<A, F>(listen: &Listen, answer: A) -> Result<Self>
    where
        A: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Answer> + Send + 'static,
    {
        let failed = || format!("failed to listen at {listen}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().with_context(failed)?;
        let entered = runtime.enter();
        let (listener, listen) = Listener::bind(listen).with_context(failed)?;
        drop(entered);
        let (stop, stopped) = oneshot::channel();
        let answer = Arc::new(answer);
        let run = move || {
            // It needs none of the rights by which the others observe. Where they cannot be laid down there are none.
            for set in [CapSet::Effective, CapSet::Permitted] {
                let _ = caps::clear(None, set);
            }
            runtime.block_on(async {
                tokio::select! {
                    () = serve(&listener, &answer) => {}
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
            let _ = fs::remove_file(path);
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

async fn serve<A, F>(listener: &Listener, answer: &Arc<A>)
where
    A: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // Never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok(stream) => {
                let answer = answer.clone();
                tokio::spawn(async move {
                    // Whatever goes wrong is the other side's business.
                    let _ = timeout(WHOLE, converse(stream, answer)).await;
                    drop(place);
                });
            }
            // No descriptors left, for one.
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn converse<A, F>(stream: Box<dyn Stream>, answer: Arc<A>) -> hyper::Result<()>
where
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Answer>,
{
    let service = service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

/// Whether it is the secret. How long it takes does not tell how much of it is right.
pub(super) fn is_secret(given: &[u8], secret: &[u8]) -> bool {
    given.len() == secret.len() && given.iter().zip(secret).fold(0, |wrong, (a, b)| wrong | (a ^ b)) == 0
}

/// An answer to methods other than these.
pub(super) fn not_allowed(allowed: &'static str) -> Answer {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format!("only {allowed}\n"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// An answer in words.
pub(super) fn text(status: StatusCode, text: String) -> Answer {
    respond(status, "text/plain; charset=utf-8", Bytes::from(text))
}

/// An answer, which nobody is to keep.
pub(super) fn respond(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    fn start(listen: &Listen) -> Result<Server> {
        Server::start(listen, |_| ready(text(StatusCode::OK, "here\n".to_owned())))
    }

    fn start_tcp() -> (Server, SocketAddr) {
        let server = start(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let Listen::Tcp(address) = *server.address() else { panic!("it is TCP") };
        (server, address)
    }

    fn ask(stream: &mut (impl Read + Write), path: &str) -> String {
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn whoever_hangs_holds_up_nobody() {
        let (server, address) = start_tcp();
        let connect = || TcpStream::connect(address).unwrap();
        let mut hung: Vec<_> = (0..CONNECTIONS - 1).map(|_| connect()).collect();
        hung.iter_mut().for_each(|stream| stream.write_all(b"GET /metr").unwrap());
        assert!(ask(&mut connect(), "/").starts_with("HTTP/1.1 200"));
        // More than there is room for: they make room when their heads take too long.
        hung.extend((0..CONNECTIONS).map(|_| connect()));
        assert!(ask(&mut connect(), "/").starts_with("HTTP/1.1 200"));
        // The end does not wait for them either.
        drop(server);
    }

    #[test]
    fn heads_are_bounded() {
        let (_server, address) = start_tcp();
        let long = format!("/{}", "x".repeat(HEAD_BYTES));
        assert!(!ask(&mut TcpStream::connect(address).unwrap(), &long).starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn a_socket_is_made_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let listen = Listen::Unix(path.clone());
        // Left behind by one that was killed.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let server = start(&listen).unwrap();
        assert!(start(&listen).is_err());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, SOCKET_MODE);
        let answer = ask(&mut UnixStream::connect(&path).unwrap(), "/");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        drop(server);
        assert!(!path.exists());
        fs::write(&path, "").unwrap();
        assert!(start(&listen).is_err() && path.exists());
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(is_secret(b"abc", b"abc") && !is_secret(b"abd", b"abc"));
        assert!(!is_secret(b"ab", b"abc") && !is_secret(b"", b"abc"));
    }
}
