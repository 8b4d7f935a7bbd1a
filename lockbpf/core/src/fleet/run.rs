//! What a recording says of itself.

use crate::report::Report;
use crate::report::schema::Ns;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Where and when a recording was made, and of which version of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Name of the machine; empty if it is not known.
    pub host: String,
    /// Release of its kernel; empty if it is not known.
    pub kernel: String,
    /// Its architecture; empty if it is not known.
    pub arch: String,
    /// What the user calls the version of the observed program.
    pub version: Option<String>,
    /// Paths of the observed processes' cgroups, by process id, as far as they are known.
    pub cgroups: BTreeMap<u32, String>,
}

impl Run {
    /// A key that no other recording has, and the same one each time that this recording is turned into tables. It is made of the report, of
    /// the times at which the recording began and ended by its own clock, and of `started_ns`, its beginning in ns since 1970, if known.
    #[must_use]
    pub fn id(&self, report: &Report, (start, end): (Ns, Ns), started_ns: Option<u64>) -> String {
        let quality = &report.quality;
        let mut digest = Sha256::new();
        for text in [&self.host, &self.kernel, &self.arch, &quality.target] {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        }
        let numbers = [started_ns.unwrap_or(0), start.whole(), end.whole(), quality.events];
        for number in numbers.into_iter().chain([report.totals.harm_ns.whole()]) {
            digest.update(number.to_le_bytes());
        }
        digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}
