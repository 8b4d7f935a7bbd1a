//! Live capture without a command line: the events themselves, as they come out of the kernel.

use super::build::Variant;
use super::workload::{Truth, Workload};
use lockbpf::capture::attach::ProbeSite;
use lockbpf::capture::btf::Btf;
use lockbpf::capture::feature;
use lockbpf::capture::session::{Options, Scope, Session};
use lockbpf::capture::target;
use lockbpf::event::Event;
use lockbpf::observation::Harvest;
use lockbpf::symbol::Symbols;

/// What was captured of a workload.
pub(crate) struct Captured {
    pub(crate) truth: Truth,
    /// In the order in which they were read: CPU by CPU.
    pub(crate) events: Vec<Event>,
    pub(crate) harvest: Harvest,
}

/// Captures a workload from before its work until after it.
pub(crate) fn capture(line: &str, plain_uprobes: bool) -> Captured {
    let mut workload = Workload::start_as(line, Variant::Plain);
    let pid = workload.pid();
    let types = Btf::kernel().expect("no kernel types");
    let task_offsets = types.task_offsets().expect("a kernel without task_struct");
    let mut options = Options::new(Scope::Pids(vec![pid]), types, task_offsets, feature::ensure_tracefs().is_ok());
    options.plain_uprobes |= plain_uprobes;
    let mut session = Session::start(&options, &sites(pid)).expect("failed to start a capture");
    session.activate().expect("failed to activate");
    workload.go();
    let truth = workload.finish();
    let end = session.deactivate().expect("failed to deactivate");
    let mut events = Vec::new();
    session.drain(|(event, _)| events.push(event));
    let harvest = session.harvest(end, &mut Symbols::new()).expect("failed to harvest");
    assert!(!harvest.quality.incomplete(), "incomplete: {:?}", harvest.quality);
    Captured { truth, events, harvest }
}

fn sites(pid: u32) -> Vec<ProbeSite> {
    let targets = target::of_pids(&[pid]).expect("failed to look at the workload");
    targets.libraries.iter().flat_map(|library| library.probe_sites(false)).collect()
}

impl Captured {
    /// How often the kernel side counted something.
    pub(crate) fn counted(&self, counter: &str) -> u64 {
        self.harvest.quality.counters.get(counter).copied().unwrap_or(0)
    }
}
