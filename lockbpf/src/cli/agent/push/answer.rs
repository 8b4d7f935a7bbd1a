//! What an answer means for the batch that was pushed: as OTLP/HTTP's specification has it
//! (`open-telemetry/opentelemetry-proto:docs/specification.md`), and one step beyond.

use super::super::super::http::Reply;
use crate::untrusted::shown_bytes;
use hyper::StatusCode;
use std::time::Duration;

/// Characters of an answer that are told.
const TOLD: usize = 200;

/// What becomes of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was taken, but for so many of its data points or profiles; and what was said of these.
    Taken { rejected: u64, why: String },
    /// It stays, and is tried again: after this time, if one was named.
    Again { after: Option<Duration>, why: String },
    /// Nobody will ever take it.
    Refused { why: String },
}

impl Verdict {
    /// That of an answer to a batch in OpenTelemetry's protocol, or in another one.
    pub(super) fn of(reply: &Reply, is_otlp: bool) -> Self {
        let Reply { status, retry_after, body } = reply;
        if status.is_success() {
            let (rejected, why) = if is_otlp { partial(body).unwrap_or_default() } else { (0, b"".as_slice()) };
            return Self::Taken { rejected, why: told(why) };
        }
        let why = format!("{status} {}", told(body)).trim_end().to_owned();
        match *status {
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Self::Again { after: *retry_after, why },
            // The specification would have it dropped. But a token that is renewed is no fault of the batch's.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::Again { after: *retry_after, why },
            _ => Self::Refused { why },
        }
    }
}

/// The beginning of what was said.
fn told(said: &[u8]) -> String {
    shown_bytes(said).chars().take(TOLD).collect()
}

/// What an `Export…ServiceResponse` says of what was not accepted: how many, and why. `None` if all was, or it is none.
fn partial(body: &[u8]) -> Option<(u64, &[u8])> {
    // `partial_success`, with `rejected_…` and `error_message`.
    let Field::Bytes(partial) = field(body, 1)? else { return None };
    let rejected = match field(partial, 1) {
        Some(Field::Number(rejected)) => rejected,
        _ => 0,
    };
    let why = match field(partial, 2) {
        Some(Field::Bytes(why)) => why,
        _ => &[],
    };
    Some((rejected, why))
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// A field of a protobuf message by its number; `None` if it is not there or the message is none.
fn field(mut message: &[u8], wanted: u64) -> Option<Field<'_>> {
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let value = match key & 7 {
            0 => Field::Number(varint(&mut message)?),
            wire @ (1 | 2 | 5) => {
                let length = match wire {
                    1 => 8,
                    5 => 4,
                    _ => usize::try_from(varint(&mut message)?).ok()?,
                };
                let (value, rest) = message.split_at_checked(length)?;
                message = rest;
                Field::Bytes(value)
            }
            _ => return None,
        };
        if key >> 3 == wanted {
            return Some(value);
        }
    }
    None
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn reply(status: u16, body: &[u8]) -> Reply {
        let retry_after = (status == 429).then_some(Duration::from_secs(3));
        Reply { status: StatusCode::from_u16(status).unwrap(), retry_after, body: Bytes::copy_from_slice(body) }
    }

    #[test]
    fn answers_are_sorted() {
        let taken = Verdict::Taken { rejected: 0, why: String::new() };
        for (body, is_otlp) in [(&b""[..], true), (b"{}", false), (b"\n\0", true)] {
            assert_eq!(Verdict::of(&reply(200, body), is_otlp), taken);
        }
        let partly = b"\x0a\x08\x08\x96\x01\x12\x03no\n";
        let told = Verdict::Taken { rejected: 150, why: "no\\u{a}".to_owned() };
        assert_eq!(Verdict::of(&reply(200, partly), true), told);
        assert_eq!(Verdict::of(&reply(200, partly), false), taken);
        for status in [401, 403, 408, 429, 502, 503, 504] {
            let Verdict::Again { after, why } = Verdict::of(&reply(status, b"later"), true) else { panic!("{status}") };
            assert_eq!(after.is_some(), status == 429);
            assert!(why.ends_with(" later"), "{why}");
        }
        for status in [301, 400, 404, 413, 500] {
            assert!(matches!(Verdict::of(&reply(status, b""), false), Verdict::Refused { .. }), "{status}");
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_read(body in prop::collection::vec(any::<u8>(), 0..64), status in 200u16..600) {
            Verdict::of(&reply(status, &body), true);
        }
    }
}
