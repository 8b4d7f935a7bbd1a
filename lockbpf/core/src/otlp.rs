//! What all signals of OpenTelemetry have: attributes, a resource, and who tells.
//! `open-telemetry/opentelemetry-proto:opentelemetry/proto/{common,resource}/v1`.

use crate::protobuf::Message;

/// A text by its name (`KeyValue`).
pub(crate) fn attribute(key: &str, value: &str) -> Message {
    let mut message = Message::default();
    message.bytes(1, key.as_bytes()).message(2, &text(value));
    message
}

/// A text as a value (`AnyValue`).
pub(crate) fn text(value: &str) -> Message {
    let mut message = Message::default();
    message.bytes(1, value.as_bytes());
    message
}

/// Whose data it is (`Resource`).
pub(crate) fn resource<'a>(attributes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Message {
    let mut message = Message::default();
    for (key, value) in attributes {
        message.message(1, &attribute(key, value));
    }
    message
}

/// Who tells: lockbpf (`InstrumentationScope`).
pub(crate) fn scope() -> Message {
    let mut message = Message::default();
    message.bytes(1, b"lockbpf").bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
    message
}
