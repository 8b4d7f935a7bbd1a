//! `lockbpf doctor`: where probes would go and what they would cost, what the kernel offers, and which rights are held.
//! Looks only, but for a child of its own on which it measures, and keeps what came of that; works without privileges as far as it can.

use super::output::{right, table};
use super::probing::ProbingReport;
use crate::capture::elf::Libc;
use crate::capture::feature::{self, Feature, Setting, Support};
use crate::capture::privilege::{self, Need, Privilege};
use crate::capture::prologue::{Cost, Reason};
use crate::capture::seccomp;
use crate::capture::target::{self, Library, Skipped, TargetError, Targets};
use crate::report::text::listed;
use crate::rights;
use crate::units::Nanos;
use comfy_table::Table;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// How many pids are named before the rest is counted.
const PIDS_SHOWN: usize = 8;

/// Everything that `lockbpf doctor` found out.
#[derive(Debug, Serialize)]
pub struct Doctor {
    /// Name and number of this format.
    pub schema: &'static str,
    /// The kernel's full name.
    pub kernel: Option<String>,
    /// Files with lock functions.
    pub libraries: Vec<LibraryReport>,
    /// Processes whose lock functions cannot be probed.
    pub unusable: Vec<UnusableReport>,
    /// Processes that could not be looked at.
    pub skipped: Skipped,
    /// What the kernel offers.
    pub features: Vec<Feature>,
    /// Settings that explain refusals.
    pub settings: Vec<Setting>,
    /// Rights.
    pub capabilities: Vec<Privilege>,
    /// Whose processes this user may observe.
    pub whose: String,
    /// Remarks, each a sentence.
    pub notes: Vec<String>,
    /// How programs are attached here, and at which price; left out where there are obstacles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probing: Option<ProbingReport>,
    /// What keeps lockbpf from observing; empty if nothing does.
    pub obstacles: Vec<String>,
}

/// A file with lock functions.
#[derive(Debug, Serialize)]
pub struct LibraryReport {
    /// Path as its users see it.
    pub path: String,
    /// Whose C library it is, with its release where that is known.
    pub libc: Option<String>,
    /// Build id, in hexadecimal.
    pub build_id: Option<String>,
    /// Processes that use it.
    pub pids: Vec<u32>,
    /// Why nothing in it can be probed, if so.
    pub unusable: Option<String>,
    /// Where its probes go.
    pub probes: Vec<ProbeReport>,
    /// Functions that cannot be probed, with the reason.
    pub missing: BTreeMap<&'static str, &'static str>,
}

/// A probe's place.
#[derive(Debug, Serialize)]
pub struct ProbeReport {
    /// Function.
    pub function: &'static str,
    /// Bytes from its entry.
    pub offset: u64,
    /// Bytes from the beginning of the file.
    pub file_offset: u64,
    /// The probed instruction.
    pub instruction: String,
    /// How the kernel gets past it.
    pub cost: Cost,
    /// Expected time per hit, ns.
    pub expected_ns: u64,
    /// Why there.
    pub reason: Reason,
}

/// A process whose lock functions cannot be probed.
#[derive(Debug, Serialize)]
pub struct UnusableReport {
    /// Process.
    pub pid: Option<u32>,
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// Looks at the given processes, or without any at every process that can be read, lockbpf's own among them.
///
/// # Errors
/// If a process does not exist or is no program. What this user may not do is not an error but a finding.
pub fn run(pids: &[u32]) -> anyhow::Result<Doctor> {
    let mut obstacles = Vec::new();
    let own = [std::process::id()];
    let targets = match pids {
        [] if rights::covers_others() => target::system_wide(0)?,
        [] => permitted(&own, &mut obstacles)?,
        pids => permitted(pids, &mut obstacles)?,
    };
    let mut features = feature::survey();
    features.push(seccomp::feature());
    let capabilities = privilege::survey()?;
    for feature in features.iter().filter(|f| f.essential) {
        match &feature.support {
            Support::Supported => {}
            Support::NotSupported(reason) => obstacles.push(format!("{}: {reason}", feature.name)),
            Support::NotPermitted(right) => obstacles.push(format!("{}: not permitted: {right}", feature.name)),
        }
    }
    obstacles.extend(privilege::require().err().map(|error| error.to_string()));
    let probing = obstacles.is_empty().then(|| ProbingReport::measure(&features));
    Ok(Doctor {
        schema: "lockbpf.doctor/1",
        kernel: feature::release(),
        libraries: targets.libraries.iter().map(LibraryReport::new).collect(),
        unusable: targets.processes.into_iter().filter_map(UnusableReport::new).collect(),
        skipped: targets.skipped,
        features,
        settings: feature::settings(),
        capabilities,
        whose: whose(),
        notes: targets.notes,
        probing,
        obstacles,
    })
}

fn whose() -> String {
    if rights::covers_others() {
        return "You may observe everybody's processes, as far as these capabilities reach".to_owned();
    }
    let who = match rights::group() {
        Some(group) => format!("members of group {group}, which lockbpf's file belongs to,"),
        None => "root".to_owned(),
    };
    format!("You may observe your own processes; only {who} may observe others'")
}

/// Those of the processes that this user may look at; the others become obstacles. Failing all, lockbpf's own.
fn permitted(pids: &[u32], obstacles: &mut Vec<String>) -> Result<Targets, TargetError> {
    let mut allowed = Vec::new();
    for &pid in pids {
        match target::of_pids(&[pid]) {
            Ok(_) => allowed.push(pid),
            Err(error @ TargetError::NotPermitted { .. }) => obstacles.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    if !allowed.is_empty() {
        return target::of_pids(&allowed);
    }
    let mut own = target::of_pids(&[std::process::id()])?;
    own.notes.push("none of these processes may be read, so the C library of lockbpf itself is shown".to_owned());
    Ok(own)
}

impl LibraryReport {
    fn new(library: &Library) -> Self {
        let probes = library.sites.iter().map(|site| ProbeReport {
            function: site.function.symbol,
            offset: site.placement.offset,
            file_offset: site.file_offset,
            instruction: site.placement.instruction.clone(),
            cost: site.placement.cost,
            expected_ns: site.placement.cost.expected_ns(),
            reason: site.placement.reason,
        });
        Self {
            path: library.display.clone(),
            libc: library.libc.and_then(libc),
            build_id: library.build_id.as_deref().map(hex),
            pids: library.pids.clone(),
            unusable: library.unusable.as_ref().map(ToString::to_string),
            probes: probes.collect(),
            missing: library.missing.iter().map(|m| (m.function.symbol, m.reason.as_str())).collect(),
        }
    }
}

impl UnusableReport {
    fn new(process: target::Process) -> Option<Self> {
        Some(Self { pid: process.pid, name: process.name, reason: process.unusable?.to_string() })
    }
}

fn libc(libc: Libc) -> Option<String> {
    match libc {
        Libc::Glibc(Some(version)) => Some(format!("glibc {version}")),
        Libc::Glibc(None) => Some("glibc".to_owned()),
        Libc::Musl => Some("musl".to_owned()),
        Libc::Unknown => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl fmt::Display for Doctor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for library in &self.libraries {
            writeln!(f, "{library}")?;
        }
        self.fmt_processes(f)?;
        writeln!(f, "Kernel {}", self.kernel.as_deref().unwrap_or("of an unknown release"))?;
        writeln!(f, "{}\n", features(&self.features))?;
        for Setting { name, value, meaning } in &self.settings {
            writeln!(f, "  {name} = {}: {meaning}", value.as_deref().unwrap_or("(not shown)"))?;
        }
        writeln!(f, "\nCapabilities\n{}\n", capabilities(&self.capabilities))?;
        writeln!(f, "{}.\n", self.whose)?;
        if let Some(probing) = &self.probing {
            writeln!(f, "{probing}\n")?;
        }
        for note in &self.notes {
            writeln!(f, "Note: {note}.")?;
        }
        if self.obstacles.is_empty() {
            return write!(f, "Ready to observe.");
        }
        write!(f, "Not ready:")?;
        self.obstacles.iter().try_for_each(|obstacle| write!(f, "\n- {obstacle}"))
    }
}

impl Doctor {
    /// The processes that cannot be probed, those with the same reason together, and those not looked at.
    fn fmt_processes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let told = |process: &&UnusableReport| {
            let same = |library: &&LibraryReport| library.unusable.as_ref() == Some(&process.reason);
            self.libraries.iter().filter(same).any(|library| process.pid.is_some_and(|pid| library.pids.contains(&pid)))
        };
        for UnusableReport { pid, name, reason } in self.unusable.iter().filter(|process| !told(process)) {
            let process = pid.map_or_else(|| name.clone(), |pid| format!("{name} ({pid})"));
            by_reason.entry(reason).or_default().push(process);
        }
        for (reason, names) in &by_reason {
            writeln!(f, "No probes in {}: {reason}.", listed(names, PIDS_SHOWN))?;
        }
        let Skipped { vanished, unreadable } = self.skipped;
        if unreadable > 0 {
            writeln!(
                f,
                "Not looked at: {unreadable} processes that may not be read (CAP_SYS_PTRACE would permit it)."
            )?;
        }
        if vanished > 0 {
            writeln!(f, "Not looked at: {}, gone meanwhile.", processes(vanished))?;
        }
        if by_reason.is_empty() && unreadable + vanished == 0 { Ok(()) } else { writeln!(f) }
    }
}

impl fmt::Display for LibraryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        if let Some(libc) = &self.libc {
            write!(f, " ({libc})")?;
        }
        let pids: Vec<_> = self.pids.iter().map(ToString::to_string).collect();
        writeln!(f, ", used by {}: {}", processes(pids.len()), listed(&pids, PIDS_SHOWN))?;
        if let Some(reason) = &self.unusable {
            return writeln!(f, "  no probes: {reason}");
        }
        let mut table = table(["function", "at", "instruction", "passed", "per hit", "why there"]);
        for probe in &self.probes {
            table.add_row([
                probe.function.to_owned(),
                format!("+{}", probe.offset),
                probe.instruction.clone(),
                probe.cost.to_string(),
                format!("~{}", Nanos(probe.expected_ns)),
                probe.reason.to_string(),
            ]);
        }
        right(&mut table, &[1, 4]);
        writeln!(f, "{table}")?;
        self.missing.iter().try_for_each(|(function, reason)| writeln!(f, "  {function}: {reason}"))
    }
}

fn features(features: &[Feature]) -> Table {
    let mut table = table(["feature", "state", "advice"]);
    for Feature { name, essential, support, advice } in features {
        let state = match support {
            Support::Supported => "ok".to_owned(),
            Support::NotSupported(reason) if *essential => format!("MISSING: {reason}"),
            Support::NotSupported(reason) => format!("missing: {reason}"),
            Support::NotPermitted(right) => format!("not permitted: {right}"),
        };
        table.add_row([(*name).to_owned(), state, (*advice).to_owned()]);
    }
    table
}

fn capabilities(privileges: &[Privilege]) -> Table {
    let mut table = table(["capability", "state", "needed to"]);
    for Privilege { capability, purpose, need, held } in privileges {
        let state = match (held, need) {
            (true, _) => "held",
            (false, Need::Always) => "MISSING",
            (false, Need::Sometimes) => "missing (not always needed)",
        };
        table.add_row([capability.as_str(), state, purpose]);
    }
    table
}

fn processes(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::probe_table::{FUNCTIONS, Runtime};
    use std::collections::HashSet;

    #[test]
    fn this_process_is_examined_in_full() {
        let doctor = run(&[std::process::id()]).unwrap();
        // The program itself has the locks of Rust's standard library.
        let [library, _] = doctor.libraries.as_slice() else { panic!("{:?}", doctor.libraries) };
        let functions = || FUNCTIONS.iter().filter(|f| f.runtime == Runtime::Glibc);
        // Some functions are probed at more than one place.
        let probed: HashSet<_> = library.probes.iter().map(|probe| probe.function).collect();
        assert_eq!(probed.len(), functions().count());
        assert!(library.libc.as_deref().is_some_and(|libc| libc.starts_with("glibc 2.")));

        let text = doctor.to_string();
        for function in functions() {
            assert!(text.contains(function.symbol), "{text}");
        }
        assert_eq!(text.ends_with("Ready to observe."), doctor.obstacles.is_empty());

        let json = serde_json::to_value(&doctor).unwrap();
        assert_eq!(json["schema"], "lockbpf.doctor/1");
        let probe = &json["libraries"][0]["probes"][0];
        assert_eq!(probe["function"], "pthread_mutex_lock");
        assert_eq!(probe["expected_ns"], if probe["cost"] == "emulated" { 510 } else { 10_000 });
        assert!(json["features"].as_array().unwrap().iter().all(|feature| feature["state"].is_string()));
    }

    #[test]
    fn no_such_process_is_an_error() {
        assert_eq!(run(&[u32::MAX]).unwrap_err().to_string(), "failed to attach to pid 4294967295: no such process");
    }

    #[test]
    fn what_is_missing_is_told() {
        let feature = |essential| Feature {
            name: "tea",
            essential,
            support: Support::NotSupported("no kettle".to_owned()),
            advice: "boil water",
        };
        let text = features(&[feature(true), feature(false)]).to_string();
        assert!(text.contains("MISSING: no kettle") && text.contains("missing: no kettle"), "{text}");
        let privilege =
            Privilege { capability: "CAP_TEA".to_owned(), purpose: "pour", need: Need::Always, held: false };
        assert!(capabilities(&[privilege]).to_string().contains("MISSING"));
    }
}
