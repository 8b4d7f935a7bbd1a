//! A server that answers for all hosts: `/metrics/7` is what the seventh's agent would serve now.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result};

use super::host::Template;

/// Agents that answer.
pub(super) struct Farm {
    /// Where.
    pub(super) address: SocketAddr,
    served: Arc<AtomicU64>,
}

impl Farm {
    /// Starts a server that answers until the program ends. Its figures grow each `step_s` seconds.
    ///
    /// # Errors
    /// There is no port.
    pub(super) fn start(template: Arc<Template>, step_s: f64) -> Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("failed to bind to the loopback interface")?;
        let address = listener.local_addr()?;
        let served = Arc::new(AtomicU64::new(0));
        let (counting, begun) = (Arc::clone(&served), Instant::now());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (template, served) = (Arc::clone(&template), Arc::clone(&counting));
                let step = move || (begun.elapsed().as_secs_f64() / step_s) as u64;
                // Who asks keeps connections, and may close them.
                thread::spawn(move || answer(&stream, |host| template.text(host, step(), step_s), &served));
            }
        });
        Ok(Self { address, served })
    }

    /// Answers given so far.
    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

/// Answers the requests of a connection. `None`: it was closed, or what it asks is not known here.
fn answer(stream: &TcpStream, text: impl Fn(u64) -> String, served: &AtomicU64) -> Option<()> {
    let mut requests = BufReader::new(stream).lines();
    loop {
        let request = requests.next()?.ok()?;
        while !requests.next()?.ok()?.is_empty() {}
        let host = request.strip_prefix("GET /metrics/")?.split(' ').next()?.parse().ok()?;
        let body = text(host);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length:";
        let mut stream = stream;
        stream.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).ok()?;
        served.fetch_add(1, Ordering::Relaxed);
        if request.ends_with("HTTP/1.0") {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::exposition::get;

    #[test]
    fn each_host_is_answered_for() {
        let template = Arc::new(Template::new("# TYPE a counter\na_total 1000\n", 1.0));
        let farm = Farm::start(template, 3_600.0).unwrap();
        let [one, two] = ["/metrics/1", "/metrics/2"].map(|path| get(farm.address, path).unwrap());
        assert!(one.contains("a_total ") && one != two, "{one} {two}");
        assert!(get(farm.address, "/else").is_err());
        assert_eq!(farm.served(), 2);
    }
}
