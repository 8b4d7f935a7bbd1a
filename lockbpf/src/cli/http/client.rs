//! Posts to another's HTTP server: bounded in time, and in what is read of the answer.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a request may take in all.
const WHOLE: Duration = Duration::from_secs(30);
/// Bytes of an answer that are read.
const ANSWER_BYTES: usize = 64 << 10;
/// What a URL begins with.
const HTTP: &str = "http://";

/// Where to post: `http://HOST[:PORT][/PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    host: String,
    port: u16,
    /// With its query; empty where none was named.
    path: String,
}

/// What came back.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// When another request is welcome, if that was said.
    pub retry_after: Option<Duration>,
    /// Empty if it was too long.
    pub body: Bytes,
}

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoReply {
    /// Nobody is there, or the name means nobody.
    #[error("failed to connect: {0}")]
    NotConnected(#[from] std::io::Error),
    /// The other side hung up, or does not speak HTTP.
    #[error("no answer: {0}")]
    NotAnswered(#[from] hyper::Error),
    /// It took too long.
    #[error("no answer within {} s", WHOLE.as_secs())]
    TooLate,
}

impl Url {
    /// The same server, at this path unless one was named.
    pub fn or_path(&self, path: &str) -> Self {
        match self.path.as_str() {
            "" => Self { path: path.to_owned(), ..self.clone() },
            _ => self.clone(),
        }
    }

    /// Whether what is posted leaves this machine.
    pub fn is_remote(&self) -> bool {
        let is_loopback = |host: &str| host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
        self.host != "localhost" && !is_loopback(&self.host)
    }

    fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Posts.
    ///
    /// # Errors
    /// When no answer came.
    pub async fn post(&self, headers: HeaderMap, body: Bytes) -> Result<Reply, NoReply> {
        timeout(WHOLE, self.exchange(headers, body)).await.unwrap_or(Err(NoReply::TooLate))
    }

    async fn exchange(&self, headers: HeaderMap, body: Bytes) -> Result<Reply, NoReply> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the request, which tells what has gone wrong.
        let connection = tokio::spawn(connection);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        // Both were looked at when they were read.
        *request.uri_mut() = self.path.parse().unwrap_or_default();
        *request.headers_mut() = headers;
        if let Ok(host) = HeaderValue::from_str(&self.authority()) {
            request.headers_mut().insert(HOST, host);
        }
        let answered = sender.send_request(request).await;
        let reply = match answered {
            Ok(response) => {
                let status = response.status();
                let after = response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
                // The status of an answer counts, even if the answer breaks off.
                let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
                let body = body.map_or_else(|_| Bytes::new(), |body| body.to_bytes());
                Ok(Reply { status, retry_after: after.map(Duration::from_secs), body })
            }
            Err(error) => Err(error.into()),
        };
        connection.abort();
        reply
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("https://") {
            return Err(format!(
                "{text:?}: lockbpf speaks no TLS: name a collector or a proxy on this machine, which does"
            ));
        }
        let expected = || format!("{text:?} is no URL: {HTTP}HOST[:PORT][/PATH] is expected");
        let uri: Uri = text.parse().map_err(|_| expected())?;
        let authority = uri.authority().filter(|_| text.starts_with(HTTP)).ok_or_else(expected)?;
        let named = text[HTTP.len()..].contains('/');
        let path = uri.path_and_query().filter(|path| named && path.as_str() != "/").map(ToString::to_string);
        // What stands before the host is for whom it is, which a token says here.
        let port = authority.as_str().strip_prefix(authority.host()).ok_or_else(expected)?;
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| expected())?,
            None => 80,
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(expected());
        }
        Ok(Self { host, port, path: path.unwrap_or_default() })
    }
}

impl<'de> Deserialize<'de> for Url {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HTTP}{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn urls_are_read() {
        for (text, expected, remote) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/metrics", false),
            ("http://localhost/", "http://localhost:80/v1/metrics", false),
            ("http://[::1]:4318/otlp/v1/metrics?a=b", "http://[::1]:4318/otlp/v1/metrics?a=b", false),
            ("http://collector.example", "http://collector.example:80/v1/metrics", true),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.or_path("/v1/metrics").to_string().as_str(), url.is_remote()), (expected, remote));
        }
        for text in
            ["", "127.0.0.1:4318", "http://", "http:///a", "http://u:p@a", "http://a:99999", "http://a:b", "ftp://a"]
        {
            assert!(text.parse::<Url>().unwrap_err().contains("is no URL"), "{text}");
        }
        assert!("https://a".parse::<Url>().unwrap_err().contains("no TLS"));
    }

    /// Answers one request; returns it.
    fn answer(listener: &TcpListener, answer: &str) -> String {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"body") {
            let mut some = [0; 512];
            let length = stream.read(&mut some).unwrap();
            request.extend_from_slice(&some[..length]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    }

    #[test]
    fn what_is_posted_arrives_and_what_is_answered_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url: Url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let other = std::thread::spawn(move || {
            let long = "x".repeat(2 * ANSWER_BYTES);
            let request = answer(&listener, "HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 3\r\n\r\nlot");
            answer(&listener, &format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{long}", long.len()));
            answer(&listener, "nonsense");
            request
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let post = || runtime.block_on(url.or_path("/a").post(HeaderMap::new(), Bytes::from_static(b"body")));
        let reply = post().unwrap();
        assert_eq!((reply.status.as_u16(), reply.retry_after), (429, Some(Duration::from_secs(7))));
        assert_eq!(&reply.body[..], b"lot");
        let reply = post().unwrap();
        assert!(reply.status.is_success() && reply.body.is_empty());
        assert!(matches!(post(), Err(NoReply::NotAnswered(_))));
        let request = other.join().unwrap();
        assert!(request.starts_with("POST /a HTTP/1.1\r\n") && request.contains("content-length: 4\r\n"), "{request}");
        // Nobody is there any more.
        assert!(matches!(post(), Err(NoReply::NotConnected(_))));
    }
}
