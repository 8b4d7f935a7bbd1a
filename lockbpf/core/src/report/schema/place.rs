//! Places in the code.

use serde::{Deserialize, Serialize};

/// A place in the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// `PID:0xaddress` of the requesting call's return; left out where there is no one address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// For reading: `function (file:line)`, or the best that is known instead.
    pub symbol: String,
    /// Demangled function; an inlined function that only wraps the lock call is passed over, and so is a template that runs its
    /// callers' functions under the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// One function on a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StackFrame {
    /// Demangled function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Object file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Offset in it. Of a function without a name it is where the function begins, if the file's unwind information tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<String>,
    /// Return address, hexadecimal.
    pub address: String,
    /// Whether it was inlined into the next frame.
    pub inlined: bool,
}
