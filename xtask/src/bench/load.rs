//! A closed load on memcached: connections that each ask again as soon as they are answered.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, TcpStream},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// One of so many requests sets, the others get.
const SET_EVERY: u64 = 10;
/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A running load. Stopped when dropped.
pub(super) struct Load {
    shared: Arc<Shared>,
    connections: Vec<JoinHandle<Result<()>>>,
}

#[derive(Default)]
struct Shared {
    answered: AtomicU64,
    /// Whether connections are to go on; looked at without the lock.
    flowing: AtomicBool,
    stop: Mutex<bool>,
    changed: Condvar,
}

impl Shared {
    fn set(&self, flowing: bool, stop: bool) {
        let mut stopped = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        *stopped = stop;
        self.flowing.store(flowing, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Waits while the load rests. Returns whether to go on at all.
    fn may_go_on(&self) -> bool {
        if self.flowing.load(Ordering::Relaxed) {
            return true;
        }
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        let resting = |stop: &mut bool| !*stop && !self.flowing.load(Ordering::Relaxed);
        !*self.changed.wait_while(stop, resting).unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// Fills the server with so many keys and opens so many connections, which share them and rest at first.
    ///
    /// # Errors
    /// The server cannot be connected to, or does not store.
    pub(super) fn start(port: u16, connections: u64, keys: u64) -> Result<Self> {
        let mut client = Client::connect(port)?;
        (0..keys).try_for_each(|key| client.set(key))?;
        let shared = Arc::new(Shared::default());
        let mut load = Self { shared, connections: Vec::new() };
        for seed in 1..=connections {
            let (client, shared) = (Client::connect(port)?, Arc::clone(&load.shared));
            load.connections.push(thread::spawn(move || client.work(seed, keys, &shared)));
        }
        Ok(load)
    }

    /// Begins, or goes on.
    pub(super) fn resume(&self) {
        self.shared.set(true, false);
    }

    /// Rests, once what was asked is answered.
    pub(super) fn pause(&self) {
        self.shared.set(false, false);
    }

    /// Requests answered so far.
    ///
    /// # Errors
    /// A connection has failed.
    pub(super) fn answered(&mut self) -> Result<u64> {
        if let Some(failed) = self.connections.iter().position(JoinHandle::is_finished) {
            match self.connections.swap_remove(failed).join() {
                Ok(Err(error)) => return Err(error.context("a connection to memcached failed")),
                Ok(Ok(())) | Err(_) => bail!("a connection to memcached ended"),
            }
        }
        Ok(self.shared.answered.load(Ordering::Relaxed))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.set(false, true);
        for connection in self.connections.drain(..) {
            // Whatever went wrong in it was told before, or does not matter any more.
            let _ = connection.join();
        }
    }
}

/// One connection that speaks memcached's text protocol.
struct Client {
    stream: BufReader<TcpStream>,
    line: String,
    value: String,
}

impl Client {
    fn connect(port: u16) -> Result<Self> {
        let stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("failed to connect to the server's port")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        Ok(Self { stream: BufReader::new(stream), line: String::new(), value: "v".repeat(VALUE_BYTES) })
    }

    fn work(mut self, seed: u64, keys: u64, shared: &Shared) -> Result<()> {
        let mut random = Random(seed);
        while shared.may_go_on() {
            let key = random.next() % keys;
            if random.next().is_multiple_of(SET_EVERY) {
                self.set(key)?
            } else {
                self.get(key)?
            }
            shared.answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn set(&mut self, key: u64) -> Result<()> {
        let request = format!("set key{key} 0 0 {VALUE_BYTES}\r\n{}\r\n", self.value);
        self.stream.get_mut().write_all(request.as_bytes())?;
        let answer = self.answer()?;
        ensure!(answer == "STORED", "it answered {answer:?} to a set");
        Ok(())
    }

    fn get(&mut self, key: u64) -> Result<()> {
        self.stream.get_mut().write_all(format!("get key{key}\r\n").as_bytes())?;
        let answer = self.answer()?;
        ensure!(answer.starts_with("VALUE key"), "it answered {answer:?} to a get");
        ensure!(self.answer()?.len() == VALUE_BYTES, "it answered with a value of another length");
        let end = self.answer()?;
        ensure!(end == "END", "it answered {end:?} after a value");
        Ok(())
    }

    fn answer(&mut self) -> Result<&str> {
        self.line.clear();
        ensure!(self.stream.read_line(&mut self.line)? > 0, "it closed the connection");
        Ok(self.line.trim_end())
    }
}

/// Xorshift: numbers that need be neither good nor secret, only cheap. The seed must not be 0.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn random_keys_differ() {
        let mut random = Random(1);
        let keys: std::collections::BTreeSet<u64> = (0..1000).map(|_| random.next() % 10_000).collect();
        assert!(keys.len() > 900, "{}", keys.len());
    }

    #[test]
    fn a_server_that_does_not_store_is_an_error_with_its_answer() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"SERVER_ERROR out of memory\r\n").unwrap();
            // Until the client goes away.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        let error = Load::start(port, 1, 1).err().unwrap();
        assert!(error.to_string().contains("out of memory"), "{error}");
        server.join().unwrap();
    }
}
