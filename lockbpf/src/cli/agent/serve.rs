//! What the service answers, from what was shown to it.

use super::super::flight::socket;
use super::super::http::{Answer, Listen, Server, not_allowed, respond, text};
use super::shared::{Shared, Side};
use crate::metrics::Dialect;
use anyhow::Result;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, StatusCode};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What is served, told to whoever asks for nothing in particular.
const INDEX: &str = "lockbpf agent\n\n/metrics\n/debug/pprof/block  stacks of those who waited\n\
                     /debug/pprof/mutex  stacks of those who made others wait\n/dump  a recording of what the flight recorder has kept\n/healthz\n";

/// A recording is in memory as a whole: one at a time.
static DUMPING: Semaphore = Semaphore::const_new(1);

/// Serves from now on.
///
/// # Errors
/// When the address cannot be had.
pub(super) fn start(listen: &Listen, shared: Arc<Shared>) -> Result<Server> {
    Server::start(listen, move |request| {
        let shared = shared.clone();
        async move {
            let mut response = answer(&request, &shared);
            if response.status() == StatusCode::ACCEPTED {
                response = dump().await;
            }
            shared.answered(response.status().as_u16());
            response
        }
    })
}

fn answer(request: &Request<Incoming>, shared: &Shared) -> Answer {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return not_allowed("GET, HEAD");
    }
    let path = request.uri().path();
    // Whether it lives is no secret.
    if path == "/healthz" {
        return match shared.health() {
            Ok(()) => text(StatusCode::OK, "ok\n".to_owned()),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, why + "\n"),
        };
    }
    let header = |name| request.headers().get(name).map(HeaderValue::as_bytes);
    if !shared.admits(header(AUTHORIZATION)) {
        let mut response = text(StatusCode::UNAUTHORIZED, "a bearer token is wanted\n".to_owned());
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
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
async fn dump() -> Answer {
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

fn profile(gzipped: Bytes) -> Answer {
    respond(StatusCode::OK, "application/octet-stream", gzipped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    fn start(token: Option<&str>) -> (Server, SocketAddr) {
        let shared = Shared::new(token.map(str::to_owned), Duration::from_secs(10));
        let server = super::start(&"127.0.0.1:0".parse().unwrap(), Arc::new(shared)).unwrap();
        let Listen::Tcp(address) = *server.address() else { panic!("it is TCP") };
        (server, address)
    }

    fn get(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(format!("{request}\r\n\r\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
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
    }

    #[test]
    fn a_token_is_wanted_where_there_is_one() {
        let (_server, address) = start(Some("0123456789abcdef"));
        assert!(get(address, "GET /metrics HTTP/1.1\r\nHost: a").starts_with("HTTP/1.1 401"));
        let with = "GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer 0123456789abcdef";
        assert!(get(address, with).starts_with("HTTP/1.1 200"));
        assert!(get(address, "GET /healthz HTTP/1.1\r\nHost: a").starts_with("HTTP/1.1 503"));
    }
}
