//! Advice as JSON. Names of the fields are those that other programs rely on; others may be added.

use super::patterns::Pattern;
use super::usydg::EdgeSource;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name and number of what [`Advice`] is.
pub const SCHEMA: &str = "lockbpf.advice/1";

/// All that is told of a file of access records.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Advice {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What was sampled.
    pub sampled: Sampled,
    /// The critical sections.
    pub sections: Vec<SectionEntry>,
    /// The universal graph.
    pub usydg: Graph,
    /// Pairs of sites that wait for each other, with what they have in common.
    pub patterns: Vec<PatternEntry>,
    /// What could be done.
    pub suggestions: Suggested,
    /// Locations of one cache line that different threads write.
    pub false_sharing: Vec<FalseSharing>,
    /// The same for people: what to do about which lock, and on what evidence.
    pub advice: Vec<Item>,
    /// What optimistic execution would gain; not without a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occ: Option<Occ>,
    /// What could make all of this wrong.
    pub cautions: Vec<String>,
}

/// What the records are of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sampled {
    /// Executions of critical sections.
    pub executions: u64,
    /// How many of these were not followed to their end.
    pub cut: u64,
    /// Runs of the program.
    pub runs: u64,
    /// Threads.
    pub threads: u64,
    /// Different locations.
    pub locations: u64,
}

/// A critical section: a site and its lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SectionEntry {
    /// The site.
    pub site: String,
    /// The lock.
    pub lock: String,
    /// Executions that were sampled.
    pub instances: u64,
    /// Threads that executed it.
    pub threads: u64,
    /// Different ways through the code; `None` where the records do not tell.
    pub paths: Option<u64>,
    /// Conditional branches that its executions came to; `None` where the records tell of none.
    pub branches: Option<u64>,
    /// Those of them that always went the same way: what lies the other way was not seen.
    pub branches_one_sided: Option<u64>,
    /// How often two executions at the same time would conflict.
    pub p_c: f64,
    /// Other threads' holds that an acquisition waits for, on average.
    pub w_c: Option<f64>,
    /// How often an optimistic execution would conflict.
    pub p_conflict: Option<f64>,
    /// `p_c` against executions of any section of the lock, and not only of this one.
    pub p_c_lock: f64,
    /// `p_c` where locations of one cache line count as one.
    pub p_c_line: f64,
    /// `p_conflict` where locations of one cache line count as one.
    pub p_conflict_line: Option<f64>,
    /// Locations read, on average.
    pub reads: f64,
    /// Locations written, on average.
    pub writes: f64,
    /// What it conflicts about: the locations that most of its executions access.
    pub conflicting: Vec<ConflictEntry>,
}

/// A location that one thread writes and another one accesses.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ConflictEntry {
    /// Its name.
    pub location: String,
    /// What a reader calls it.
    pub name: String,
    /// The share of the section's executions that access it.
    pub share: f64,
    /// The share that write it.
    pub written: f64,
    /// Other sites of the lock that access it, too.
    pub others: Vec<String>,
}

/// The universal graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Graph {
    /// Static critical sections by thread.
    pub nodes: Vec<NodeEntry>,
    /// Who waits for whom: the one waited for first.
    pub edges: Vec<[String; 2]>,
    /// Those between nodes that need no lock.
    pub removed_edges: Vec<[String; 2]>,
    /// By lock: where its edges come from.
    pub edges_from: BTreeMap<String, EdgeSource>,
}

/// A location's name, kept once for all nodes that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocationName(pub Arc<str>);

impl Serialize for LocationName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeEntry {
    /// `TID:SITE`.
    pub id: String,
    /// Locations read.
    pub reads: Vec<LocationName>,
    /// Locations written.
    pub writes: Vec<LocationName>,
}

/// A pair of sites that wait for each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PatternEntry {
    /// The sites.
    pub pair: [String; 2],
    /// What they have in common.
    pub pattern: Pattern,
    /// The share of adjacent executions without a conflict; of a long section, that of the accesses that need no lock.
    pub value: f64,
    /// Adjacent executions by different threads that were compared.
    pub adjacent: u64,
}

/// What could be done.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Suggested {
    /// Sites that need no lock.
    pub remove: Vec<String>,
    /// The new locks of each site that waits for others. Only what [`Suggested::splits`] lists is a change.
    pub split: BTreeMap<String, Vec<String>>,
    /// Pairs of sites that conflict, but would end without a common lock.
    pub unsafe_split: Vec<[String; 2]>,
    /// Sites of `remove` that are in such a pair.
    pub unsafe_remove: Vec<String>,
    /// By site that writes: the sites that only read what it writes.
    pub readers_of: BTreeMap<String, Vec<String>>,
    /// Sections longer than what conflicts in them.
    pub shorten: Vec<ShortenEntry>,
    /// Locks that come apart into several by `split`, and into which.
    pub splits: BTreeMap<String, Vec<String>>,
    /// Locks whose sites come apart into groups that never conflict: what is safe to split, as far as was seen.
    pub independent: Vec<IndependentEntry>,
}

/// A section that could be shorter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ShortenEntry {
    /// The site.
    pub site: String,
    /// The first conflicting access, counted from 0, in any execution.
    pub from: u32,
    /// The last one.
    pub to: u32,
    /// The share of the accesses that would need no lock, over all executions.
    pub saved_share: f64,
    /// The location of the first conflicting access.
    pub from_at: String,
    /// That of the last one.
    pub to_at: String,
    /// The place in the code of the first one, if the records tell.
    pub from_code: Option<String>,
    /// That of the last one.
    pub to_code: Option<String>,
    /// Executions with a conflicting access, of those whose order of accesses is known.
    pub conflicting: u64,
    /// Executions whose order of accesses is known.
    pub known: u64,
}

/// A lock whose sites come apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IndependentEntry {
    /// The lock.
    pub lock: String,
    /// Groups of sites that conflict within themselves only.
    pub groups: Vec<Vec<String>>,
    /// Sites that conflict with nothing.
    pub free: Vec<String>,
}

/// Locations of one cache line that different threads write, though not the same ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FalseSharing {
    /// The line: where it begins, as far as that is known.
    pub line: String,
    /// The locations, with the threads that write them.
    pub locations: Vec<LineLocation>,
    /// The sites that write them.
    pub sites: Vec<String>,
    /// The locks that these take.
    pub locks: Vec<String>,
    /// Executions that write one of them.
    pub instances: u64,
}

/// A location on a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LineLocation {
    /// Its name.
    pub location: String,
    /// What a reader calls it.
    pub name: String,
    /// Threads that write it.
    pub written_by: Vec<String>,
}

/// What kind of advice it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Sections need no lock.
    Remove,
    /// The lock can be several.
    Split,
    /// Readers can let each other in.
    ReaderWriter,
    /// The lock can be taken later and given back earlier.
    Shorten,
    /// Conflicts are rare: a lock by data, or none at first.
    RareConflicts,
    /// Sections nearly always conflict.
    Conflicting,
    /// Threads write different locations of one cache line.
    FalseSharing,
}

/// A piece of advice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Item {
    /// Which.
    pub kind: Kind,
    /// The lock that it is about; empty where it is about several.
    pub lock: String,
    /// The sites.
    pub sites: Vec<String>,
    /// What to do.
    pub advice: String,
    /// What was seen that speaks for it.
    pub evidence: Vec<String>,
    /// What could make it wrong.
    pub cautions: Vec<String>,
    /// What it would gain, if a trace was given and it can be predicted.
    pub predicted: Option<Gain>,
    /// Why there is no prediction, where a trace was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpredictable: Option<String>,
}

/// A predicted gain: see [`crate::model::what_if`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// What was replayed.
    pub change: String,
    /// The share of the run time saved.
    pub gain: f64,
    /// Where that is expected.
    pub gain_interval: [f64; 2],
    /// How much of the waiting would be left, ns.
    pub wait_ns: f64,
    /// What of the prediction's assumptions does not hold.
    pub violations: Vec<String>,
}

/// What optimistic execution would gain.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Occ {
    /// By thread and section.
    pub threads: Vec<OccEntry>,
    /// The share of all threads' time that would be saved.
    pub efficiency: f64,
    /// How many times as fast the program would be at best; `None` where all of its time would be saved.
    pub best_case_speedup: Option<f64>,
    /// O: what recording an operation cost, ns, taken from waits and run times; 0 where that is not known.
    pub overhead_ns: f64,
    /// What is to be said about that.
    pub notes: Vec<String>,
}

/// A thread in a section.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OccEntry {
    /// The thread.
    pub tid: String,
    /// The site.
    pub site: String,
    /// The lock.
    pub lock: String,
    /// The share of its time that it waits for the section.
    pub f_wait: f64,
    /// The share that it is inside.
    pub f_exec: f64,
    /// How many times as fast it would be; 0 where it would conflict always.
    pub speedup: Option<f64>,
    /// The share of its time that would be saved.
    pub benefit: f64,
    /// Whether each execution would conflict.
    pub conflicts_always: bool,
}
