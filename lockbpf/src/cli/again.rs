//! A recording that is read once more, since its names are known only at its end, and all that happened is more than memory has room for.

use super::source::Input;
use crate::analysis::{Analyst, Closing, Options};
use crate::report::Rows;
use anyhow::Result;

/// Events after which it is looked what has come to be complete.
const LOOK: u64 = 1_024;

/// How to analyse it again.
pub(super) struct Again {
    how: Options,
    ticks: u64,
    closing: Closing,
}

impl Again {
    /// As it was analysed before.
    pub(super) fn new(how: Options, ticks: u64, closing: Closing) -> Self {
        Self { how: Options { detail: false, totals: false, told: true, ..how }, ticks, closing }
    }

    /// Gives its waits and holds to rows. `taken` is called when there are more of them.
    ///
    /// # Errors
    /// When it cannot be read, or `taken` fails.
    pub(super) fn read(
        self,
        input: &Input,
        rows: &mut Rows<'_, '_>,
        mut taken: impl FnMut(&mut Rows<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let mut analyst = Analyst::new(self.how);
        for event in input.source(self.ticks)? {
            analyst.take(event?);
            if analyst.events().is_multiple_of(LOOK) {
                for told in analyst.told() {
                    rows.take(told);
                }
                taken(rows)?;
            }
        }
        for told in analyst.told() {
            rows.take(told);
            taken(rows)?;
        }
        for told in analyst.finish(self.closing).findings.told {
            rows.take(told);
            taken(rows)?;
        }
        Ok(())
    }
}
