//! Who waited and who is to blame.

use super::super::schema::{
    BlameEntry, CallerEntry, CallersEntry, CausesEntry, ChainEntry, CulpritEntry, HolderEntry, LinkEntry, Ns,
    OffStackEntry, Place, Report, StackFrame, WaiterEntry,
};
use super::Check;

/// What those to blame were doing; who holds a kernel lock has a stack whatever it does.
const CAUSES: [&str; 8] = ["running", "runnable", "blocked", "sleeping", "lock", "kernel_lock", "handoff", "unknown"];

pub(super) fn waiter(w: &WaiterEntry, check: &mut Check, name: &dyn Fn() -> String) {
    let WaiterEntry { place, process: _, count, wait_ns, max_ns, share, unattributed_ns, blamed, stack } = w;
    check.place(place, name);
    check.stack(stack, name);
    check.share(*share, name);
    // Over several runs the sum is a rounded mean, and the longest wait is that of one run.
    let fits = check.at_most(max_ns.as_f64() / check.runs, wait_ns.as_f64(), 1);
    check.demand(fits, || format!("longest of {}: {max_ns} of {wait_ns}", name()));
    let longest = max_ns.as_f64() * (*count as f64 + if check.runs > 1.0 { 1.0 } else { 0.0 });
    check.demand(check.at_most(wait_ns.as_f64(), longest, *count), || {
        format!("{}: {wait_ns} of waits up to {max_ns}", name())
    });
    check.within(*unattributed_ns, *wait_ns, || format!("blame of nobody for {}", name()));
    let all = blamed.iter().map(|b| b.wait_ns).chain([*unattributed_ns]);
    check.parts(all, *wait_ns, || format!("those to blame for {}", name()));
    check.shares(blamed.iter().map(|b| b.share), || format!("those to blame for {}", name()));
    check.longest_first(blamed, |b| b.wait_ns, || format!("those to blame for {}", name()));
    for BlameEntry { place, tid: _, process: _, wait_ns: _, share: _ } in blamed {
        check.place(place, name);
    }
}

pub(super) fn holder(h: &HolderEntry, check: &mut Check, name: &dyn Fn() -> String) {
    let HolderEntry {
        place,
        lock,
        lock_name,
        wait_ns,
        nested_ns,
        handoff_ns,
        share,
        victims,
        inferred,
        inferred_ns,
        causes,
        off_stacks,
        callers,
        stack,
        // Who it is, and sections, of which fewer may be recorded than waits.
        tid: _,
        released: _,
        sections: _,
    } = h;
    let wait = *wait_ns;
    check.place(place, name);
    check.stack(stack, name);
    check.share(*share, name);
    check.demand(lock.is_some() == lock_name.is_some(), || format!("a lock without a name, or a name, of {}", name()));
    check.within(*nested_ns, wait, || format!("through nesting, {}", name()));
    check.within(*handoff_ns, wait, || format!("in hand-offs, {}", name()));
    check.within(*inferred_ns, wait, || format!("by inference, {}", name()));
    check.demand(*inferred || *inferred_ns == Ns::default(), || format!("by inference and not, {}", name()));
    check.happened(*victims, wait, || format!("victims of {}", name()));
    check.causes(causes.as_ref(), wait, name);
    check.off_stacks(off_stacks, wait, name);
    check.callers(callers.as_ref(), wait, name);
}

pub(super) fn culprit(c: &CulpritEntry, report: &Report, check: &mut Check) {
    let CulpritEntry {
        place,
        name,
        locks,
        wait_ns,
        share,
        share_of_all,
        inferred_ns,
        nested_ns,
        causes,
        off_stacks,
        callers,
        waiter: _,
        chain,
        // Who it is.
        tid: _,
        released: _,
        lock: _,
        kind: _,
    } = c;
    let (who, wait) = (|| format!("{} holding `{name}`", place.symbol), *wait_ns);
    check.place(place, &who);
    check.within(wait, report.totals.recorded_wait_ns, || format!("caused by {}", who()));
    check.within(*nested_ns, wait, || format!("through nesting, by {}", who()));
    check.within(*inferred_ns, wait, || format!("by inference, {}", who()));
    check.share(*share, who);
    check.demand(*locks > 0, || format!("no lock, {}", who()));
    check.demand(*share_of_all <= share + 1e-6, || format!("{}: more of all than of what was recorded", who()));
    check.causes(causes.as_ref(), wait, &who);
    check.off_stacks(off_stacks, wait, &who);
    check.callers(callers.as_ref(), wait, &who);
    if let Some(chain) = chain {
        self::chain(chain, report.totals.recorded_wait_ns, check, &|| format!("the chain to {}", who()));
    }
}

pub(super) fn chain(c: &ChainEntry, all: Ns, check: &mut Check, name: &dyn Fn() -> String) {
    let ChainEntry { links, wait_ns, share } = c;
    check.within(*wait_ns, all, name);
    check.share(*share, name);
    check.demand(links.len() > 1, || format!("{} has one link only", name()));
    for LinkEntry { site, symbol, lock: _, name: _, tid: _, released: _ } in links {
        check.demand(site.is_none() || symbol.is_some(), || format!("{}: a place without a name", name()));
    }
}

impl Check {
    /// A place in the code.
    pub(super) fn place(&mut self, place: &Place, name: &dyn Fn() -> String) {
        let Place { site: _, symbol: _, function: _, file, line } = place;
        self.demand(line.is_none() || file.is_some(), || format!("a line of no file, of {}", name()));
    }

    /// A stack.
    pub(super) fn stack(&mut self, stack: &[StackFrame], name: &dyn Fn() -> String) {
        for StackFrame { function, file, line, module, offset, address: _, inlined } in stack {
            self.demand(line.is_none() || file.is_some(), || format!("a line of no file, on the stack of {}", name()));
            self.demand(offset.is_none() || module.is_some(), || format!("an offset in nothing, of {}", name()));
            self.demand(!inlined || function.is_some(), || format!("nothing that is inlined, of {}", name()));
        }
    }

    /// What those were doing who made others wait so long; `None` if that is not known.
    pub(super) fn causes(&mut self, causes: Option<&CausesEntry>, wait: Ns, what: &dyn Fn() -> String) {
        let Some(causes) = causes else { return };
        let CausesEntry { running, runnable, blocked, sleeping, lock, kernel_lock, handoff, unknown } = *causes;
        let all = [running, runnable, blocked, sleeping, lock, kernel_lock, handoff, unknown];
        self.parts(all, wait, || format!("causes of {}", what()));
    }

    /// Where those were off the CPU who made others wait so long.
    fn off_stacks(&mut self, stacks: &[OffStackEntry], wait: Ns, name: &dyn Fn() -> String) {
        self.parts(stacks.iter().map(|o| o.wait_ns), wait, || format!("stacks of {}", name()));
        self.longest_first(stacks, |o| o.wait_ns, || format!("stacks of {}", name()));
        for OffStackEntry { cause, function: _, wait_ns: _, stack } in stacks {
            let known = CAUSES.contains(&cause.as_str());
            self.demand(known, || format!("a cause {cause}, {}", name()));
            self.stack(stack, name);
        }
    }

    /// Demands that callers are parts of what their section has caused.
    pub(super) fn callers(&mut self, callers: Option<&CallersEntry>, whole: Ns, name: &dyn Fn() -> String) {
        let Some(CallersEntry { functions, known_ns, most }) = callers else { return };
        self.within(*known_ns, whole, || format!("by known callers of {}", name()));
        self.parts(most.iter().map(|c| c.wait_ns), *known_ns, || format!("callers of {}", name()));
        self.shares(most.iter().map(|c| c.share), || format!("callers of {}", name()));
        self.longest_first(most, |c| c.wait_ns, || format!("callers of {}", name()));
        let told = most.len() as u64;
        self.demand(*functions >= told, || format!("{told} of {functions} callers of {}", name()));
        for CallerEntry { place, wait_ns: _, share: _ } in most {
            self.place(place, name);
        }
    }
}
