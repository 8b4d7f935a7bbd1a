//! A server to which something is posted: keeps what it was sent, and answers as it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A request, and the status that answered it.
#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub(crate) path: String,
    /// The lines of its head, in small letters but for values.
    pub(crate) head: Vec<String>,
    pub(crate) body: Vec<u8>,
    pub(crate) status: u16,
}

impl Posted {
    /// The value of a line of its head.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A running server.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    posted: Arc<Mutex<Vec<Posted>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// An address at which nobody listens.
pub(crate) fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port")
}

impl Collector {
    /// Takes all that comes.
    pub(crate) fn start(address: SocketAddr) -> Self {
        Self::answering(address, |_| (200, ""))
    }

    /// Answers each request with a status and further lines of a head.
    pub(crate) fn answering(
        address: SocketAddr,
        answer: impl Fn(&Posted) -> (u16, &'static str) + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("the address is free");
        let address = listener.local_addr().expect("an address");
        let (posted, ended) = (Arc::<Mutex<Vec<Posted>>>::default(), Arc::<AtomicBool>::default());
        let (kept, end) = (posted.clone(), ended.clone());
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if end.load(Ordering::Relaxed) {
                    break;
                }
                // Whoever hangs up in the middle has sent nothing.
                if let Some(posted) = converse(&stream, &answer) {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(posted);
                }
            }
        });
        Self { address, posted, ended, thread: Some(thread) }
    }

    /// What was taken so far, in order.
    pub(crate) fn taken(&self) -> Vec<Posted> {
        let posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        posted.iter().filter(|posted| posted.status == 200).cloned().collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // It looks when somebody comes.
        let _ = TcpStream::connect(self.address);
        self.thread.take().into_iter().for_each(|thread| thread.join().expect("the collector works"));
    }
}

fn converse(mut stream: &TcpStream, answer: &impl Fn(&Posted) -> (u16, &'static str)) -> Option<Posted> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let path = lines.first()?.strip_prefix("POST ")?.split(' ').next()?.to_owned();
    let small = |line: &String| {
        line.split_once(": ").map_or_else(|| line.clone(), |(name, value)| format!("{}: {value}", name.to_lowercase()))
    };
    let mut posted = Posted { path, head: lines.iter().skip(1).map(small).collect(), body: Vec::new(), status: 0 };
    posted.body = vec![0; posted.header("content-length")?.parse().ok()?];
    reader.read_exact(&mut posted.body).ok()?;
    let (status, more) = answer(&posted);
    posted.status = status;
    write!(stream, "HTTP/1.1 {status} As told\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n").ok()?;
    Some(posted)
}
