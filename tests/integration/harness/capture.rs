//! Live capture without a command line: the events themselves, as they come out of the kernel.

use super::build::Variant;
use super::workload::{Truth, Workload};
use lockbpf::capture::attach::ProbeSite;
use lockbpf::capture::btf::Btf;
use lockbpf::capture::feature;
use lockbpf::capture::inflight::Snapshot;
use lockbpf::capture::session::{Options, Scope, Session};
use lockbpf::capture::target;
use lockbpf::event::{Event, ProcessSeen};
use lockbpf::id::Process;
use lockbpf::observation::Harvest;
use lockbpf::symbol::Symbols;
use lockbpf::units::Time;

/// The number that a workload's process is given.
pub(crate) const PROCESS: Process = Process(1);

/// What was captured of a workload.
pub(crate) struct Captured {
    pub(crate) truth: Truth,
    /// In the order in which they were read: CPU by CPU.
    pub(crate) events: Vec<Event>,
    pub(crate) harvest: Harvest,
}

/// Captures a workload from before its work until after it.
pub(crate) fn capture(line: &str, plain_uprobes: bool) -> Captured {
    let captured = capture_as(line, |options| options.plain_uprobes |= plain_uprobes, |_| {});
    let quality = &captured.harvest.quality;
    assert!(!quality.incomplete(), "incomplete: {quality:?}");
    captured
}

/// The same in another way: with these options, and what is done before anything is observed. The process has the number 1.
pub(crate) fn capture_as(
    line: &str,
    choose: impl FnOnce(&mut Options),
    prepare: impl FnOnce(&mut Session),
) -> Captured {
    let mut workload = Workload::start_as(line, Variant::Plain);
    let pid = workload.pid();
    let types = Btf::kernel().expect("no kernel types");
    let task_offsets = types.task_offsets().expect("a kernel without task_struct");
    let mut options = Options::new(Scope::Pids(vec![pid]), types, task_offsets, feature::ensure_tracefs().is_ok());
    let (time, start, comm) = (Time(0), Time(0), "workload".to_owned());
    options.known = vec![ProcessSeen { time, process: PROCESS, pid, start, comm }];
    choose(&mut options);
    let mut session = Session::start(&options, &sites(pid)).expect("failed to start a capture");
    prepare(&mut session);
    session.activate(&Snapshot::default()).expect("failed to activate");
    workload.go();
    let truth = workload.finish();
    let end = session.deactivate().expect("failed to deactivate");
    let mut events = Vec::new();
    session.drain(|(event, _)| events.push(event));
    let harvest = session.harvest(end, &mut Symbols::new()).expect("failed to harvest");
    Captured { truth, events, harvest }
}

fn sites(pid: u32) -> Vec<ProbeSite> {
    // What parses files is lockbpf, not the tests.
    lockbpf::helper::set_program(env!("CARGO_BIN_EXE_lockbpf").into());
    let targets = target::of_pids(&[pid]).expect("failed to look at the workload");
    targets.libraries.iter().flat_map(|library| library.probe_sites(false)).collect()
}

impl Captured {
    /// How often the kernel side counted something.
    pub(crate) fn counted(&self, counter: &str) -> u64 {
        self.harvest.quality.counters.get(counter).copied().unwrap_or(0)
    }
}
