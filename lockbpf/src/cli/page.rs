//! What a page asks of a recording beside its report: what changes would gain.

use super::script;
use super::source::Input;
use crate::render::WhatIf;

/// Acquisitions beyond which a page does not wait for what-if: each answer replays all of them several times.
const MAX_ACQUISITIONS: u64 = 200_000;

/// Asks what changes would gain, as far as the recording tells.
pub(super) fn what_if(input: &Input) -> WhatIf {
    let recorded = match script::read_input(input) {
        Ok(recorded) => recorded,
        Err(error) => return WhatIf::NotAsked(format!("What changes would gain cannot be told: {error:#}.")),
    };
    match recorded.script.acquisitions() {
        0 => WhatIf::NotAsked("What changes would gain cannot be told: no section has a beginning.".to_owned()),
        1..=MAX_ACQUISITIONS => {
            let mut sliders = recorded.oracle(None).sliders(&recorded.locks, &recorded.sites);
            sliders.common.violations.extend(recorded.remarks);
            WhatIf::Asked(sliders)
        }
        _ => WhatIf::NotAsked(
            "The recording is too long for what-if in a page: `lockbpf what-if --from FILE --auto` tells what changes would gain."
                .to_owned(),
        ),
    }
}
