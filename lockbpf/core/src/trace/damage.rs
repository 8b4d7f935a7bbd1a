//! What of a recording could not be read, and what that means to a reader.

use crate::quality::Quality;

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With its end mark: everything was written.
    Clean,
    /// Without: the recorder was killed, or the rest of the file is missing.
    Torn {
        /// Where the last readable frame ends.
        at: u64,
        /// Whether the file ends in the middle of a frame.
        within_frame: bool,
    },
}

/// What could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Frames that do not match their checksums, or whose contents make no sense.
    pub frames: u64,
    /// Frames that are not there.
    pub missing: u64,
    /// Event frames that are whole, but build upon a lost one.
    pub orphaned: u64,
    /// Bytes that are no part of any frame.
    pub bytes: u64,
    /// Events that were written and not read, as far as that is known.
    pub events: u64,
    /// Lines of access records that were written and not read, as far as that is known.
    pub accesses: u64,
    /// Frames of a kind that this version does not know.
    pub foreign: u64,
    /// Whether sums may be older than the last snapshot.
    pub stale_sums: bool,
    /// Whether names may be missing.
    pub names: bool,
    /// Whether the header is missing.
    pub header: bool,
}

impl Damage {
    /// Whether anything is missing.
    #[must_use]
    pub fn any(&self) -> bool {
        let counts = [self.frames, self.missing, self.orphaned, self.bytes, self.events, self.accesses, self.foreign];
        counts.iter().any(|&n| n > 0) || self.stale_sums || self.names || self.header
    }

    /// Enters it into the account of losses: as counts, which make an observation incomplete, and as sentences.
    pub(super) fn report(&self, ended: Ended, quality: &mut Quality) {
        quality.undecodable.extend(self.counts(ended));
        quality.notes.extend(self.sentences(ended));
    }

    /// What is missing, in counts that are not 0, by name.
    pub fn counts(&self, ended: Ended) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = [
            ("trace_torn", u64::from(matches!(ended, Ended::Torn { .. }))),
            ("trace_frames_damaged", self.frames),
            ("trace_frames_missing", self.missing),
            ("trace_frames_orphaned", self.orphaned),
            ("trace_frames_foreign", self.foreign),
            ("trace_bytes_passed_over", self.bytes),
            ("trace_events_lost", self.events),
            ("trace_access_records_lost", self.accesses),
        ];
        counts.into_iter().filter(|&(_, count)| count > 0)
    }

    /// What is missing, in words; nothing if nothing is.
    #[must_use]
    pub fn sentences(&self, ended: Ended) -> Vec<String> {
        let mut sentences = Vec::new();
        if let Ended::Torn { at, within_frame } = ended {
            let how = if within_frame { "in the middle of a frame" } else { "without its end mark" };
            sentences.push(format!(
                "the trace breaks off {how}, after {at} readable bytes: what came later, usually less than a second, \
                 is missing."
            ));
        }
        if self.any() {
            sentences.push(self.sentence());
        }
        sentences
    }

    fn sentence(&self) -> String {
        let mut parts = Vec::new();
        let mut count = |n: u64, one: &str, many: &str| {
            if n > 0 {
                parts.push(format!("{n} {}", if n == 1 { one } else { many }));
            }
        };
        count(self.frames, "damaged frame", "damaged frames");
        count(self.missing, "frame that is not there", "frames that are not there");
        count(self.orphaned, "frame that builds upon a lost one", "frames that build upon a lost one");
        count(self.foreign, "frame of an unknown kind", "frames of an unknown kind");
        count(self.bytes, "byte that is no frame", "bytes that are no frame");
        let mut text = format!("parts of the trace could not be read ({})", parts.join(", "));
        if self.events > 0 {
            text += &format!("; at least {} events are missing", self.events);
        }
        if self.accesses > 0 {
            text += &format!("; at least {} access records are missing", self.accesses);
        }
        for (missing, what) in [
            (self.header, "it is not known what was observed and how"),
            (self.stale_sums, "sums may be older than the end"),
            (self.names, "names may be missing"),
        ] {
            if missing {
                text = text + "; " + what;
            }
        }
        text + "."
    }
}
