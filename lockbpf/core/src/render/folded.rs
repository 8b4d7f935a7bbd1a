//! Folded stacks: a line `outer;inner;[lock] ns` for each stack. Flame graph scripts, speedscope, Pyroscope and the Firefox Profiler read it.

use super::{Format, Renderer, name};
use crate::report::profile::{Profile, Sample};
use std::collections::BTreeMap;
use std::io::{self, Write};

const LEAVES_OUT: &str = "folded stacks have places for stacks, locks and ns only: how many waits there were, causes, lines and times are left out";

/// By stack of those who waited.
pub(super) const WAITERS: Format = Format {
    name: "folded",
    suffixes: &[".folded", ".collapsed"],
    about: "Folded stacks of those who waited, for flame graphs",
    leaves_out: LEAVES_OUT,
    renderer: Renderer::Profile(|profile, out| write(&profile.waiters, out)),
};

/// By stack of those to blame.
pub(super) const CULPRITS: Format = Format {
    name: "folded-culprits",
    suffixes: &["culprits.folded", "culprits.collapsed"],
    about: "Folded stacks of those who made others wait, for flame graphs",
    leaves_out: LEAVES_OUT,
    renderer: Renderer::Profile(|profile: &Profile, out| write(&profile.culprits, out)),
};

fn write(samples: &[Sample], out: &mut dyn Write) -> io::Result<()> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for sample in samples {
        let outwards = sample.frames.iter().map(name).rev();
        let parts: Vec<String> = outwards.chain([format!("[{}]", sample.lock)]).map(|part| plain(&part)).collect();
        *lines.entry(parts.join(";")).or_default() += sample.wait_ns.whole();
    }
    for (stack, ns) in lines.iter().filter(|&(_, &ns)| ns > 0) {
        writeln!(out, "{stack} {ns}")?;
    }
    Ok(())
}

/// A name without what separates frames and lines.
fn plain(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c == ';' {
                ':'
            } else if c.is_control() {
                ' '
            } else {
                c
            }
        })
        .collect()
}
