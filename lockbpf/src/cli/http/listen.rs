//! Where the service listens.

use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// What a Unix socket's path begins with.
const UNIX: &str = "unix:";

/// Where the service listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Default for Listen {
    fn default() -> Self {
        Self::Tcp(SocketAddr::from(([127, 0, 0, 1], 9_948)))
    }
}

impl Listen {
    /// Whether other machines may reach it.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().is_loopback())
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix(UNIX) {
            Some(path) if path.starts_with('/') => Ok(Self::Unix(PathBuf::from(path))),
            Some(_) => Err("the path of a Unix socket begins with /".to_owned()),
            None => text.parse().map(Self::Tcp).map_err(|_| {
                format!(
                    "{text:?} is no address: 127.0.0.1:9948, [::1]:9948 or unix:/run/lockbpf/agent.sock is expected"
                )
            }),
        }
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, open) in
            [("127.0.0.1:9948", false), ("[::1]:80", false), ("0.0.0.0:9948", true), ("unix:/run/a", false)]
        {
            let listen: Listen = text.parse().unwrap();
            assert_eq!((listen.to_string().as_str(), listen.is_open()), (text, open));
        }
        for text in ["", "9948", "localhost:9948", "unix:a", "127.0.0.1", "127.0.0.1:99999"] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }
}
