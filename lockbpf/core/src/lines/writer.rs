//! Steps to lines.

use super::labels::AFTER;
use super::time;
use crate::event::ProcessSeen;
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::names::{self, Names};
use crate::op::{Action, Arrival, Attempt, Failure, LockKind, OffReason, Op, Released, Round};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::io::{self, Write};

/// Stacks by number: return addresses, innermost first.
pub type Stacks = HashMap<StackId, Vec<u64>>;

/// Names kept as they are written, of each sort; when there are more, the memory begins anew.
const MAX_KNOWN: usize = 1 << 18;

type Map<K, V> = HashMap<K, V, RandomState>;

/// Writes steps as event lines: reading them gives the same steps.
///
/// Locks and sites whose source has no names of its own for them are written as `PID:0xADDRESS`. What a lock or site is
/// called for people (`name`, `symbol`) stands on the first line that mentions it.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    ticks_per_ns: u64,
    line: Vec<u8>,
    images: HashMap<u32, u32>,
    processes: Map<Process, Image>,
    locks: Map<Lock, Text>,
    /// Locks of which the name of their kind was written.
    kinds: Map<Lock, ()>,
    sites: Map<Site, Text>,
    threads: Map<Tid, Text>,
    comms: Map<Tid, String>,
    stacks: Map<StackId, Text>,
}

/// A JSON value.
type Text = Box<[u8]>;

/// A process image.
#[derive(Debug)]
struct Image {
    pid: u32,
    /// How its locks are told from another image's.
    id: String,
}

impl<W: Write> Writer<W> {
    /// A writer of steps whose times are in `ticks_per_ns` ticks per nanosecond: 1 or 1,000.
    pub fn new(out: W, ticks_per_ns: u64) -> Self {
        Self {
            out,
            ticks_per_ns,
            line: Vec::new(),
            images: HashMap::new(),
            processes: Map::default(),
            locks: Map::default(),
            kinds: Map::default(),
            sites: Map::default(),
            threads: Map::default(),
            comms: Map::default(),
            stacks: Map::default(),
        }
    }

    /// Learns a process: the steps of its threads will carry its pid.
    pub fn process(&mut self, seen: &ProcessSeen) {
        let image = self.images.entry(seen.pid).or_default();
        *image += 1;
        // A later image of the same pid (exec, or a pid used again) is another process.
        let id = if *image == 1 { seen.pid.to_string() } else { format!("{}#{image}", seen.pid) };
        self.processes.insert(seen.process, Image { pid: seen.pid, id });
    }

    /// Writes one step.
    ///
    /// # Errors
    /// The output cannot be written to.
    pub fn op(&mut self, op: &Op, names: &mut dyn Names, stacks: &Stacks) -> io::Result<()> {
        if matches!(op.action, Action::Holds(_)) {
            // Lines have no word for it: they tell of locks whose holders are seen.
            return Ok(());
        }
        self.line.clear();
        self.line.extend_from_slice(br#"{"t":"#);
        time::write(&mut self.line, op.time.0, self.ticks_per_ns)?;
        self.thread("tid", op.tid, names)?;
        if let Some(image) = self.processes.get(&op.process) {
            write!(self.line, r#","pid":{}"#, image.pid)?;
        }
        self.comm(op.tid, names)?;
        self.action(op, names, stacks)?;
        self.line.extend_from_slice(b"}\n");
        self.out.write_all(&self.line)
    }

    /// Gives the output back, with everything handed on to it.
    ///
    /// # Errors
    /// The output cannot be flushed.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn action(&mut self, op: &Op, names: &mut dyn Names, stacks: &Stacks) -> io::Result<()> {
        match op.action {
            Action::Attempt(attempt) => self.attempt(&attempt, names, stacks),
            Action::Acquire { lock, waker } => {
                self.word("op", "acquire");
                self.lock(lock, names)?;
                self.optional_thread("waker", waker, names)
            }
            Action::Release { lock, how } => {
                self.word("op", "release");
                self.lock(lock, names)?;
                match how {
                    Released::Unlock => {}
                    Released::CondWait => self.word("how", "cond_wait"),
                    Released::ExitedHolding => self.word("how", "exit"),
                    Released::Unseen => self.word("how", "unseen"),
                }
                Ok(())
            }
            Action::Fail { lock, how } => {
                self.word(
                    "op",
                    match how {
                        Failure::TryFailed => "try_fail",
                        Failure::TimedOut => "timeout",
                        Failure::Error => "error",
                    },
                );
                self.lock(lock, names)
            }
            Action::Barrier(arrival) => self.barrier(&arrival, names),
            Action::CondWait { condition, site } => {
                self.word("op", "cond_wait");
                self.lock(condition, names)?;
                self.site("site", site, names)
            }
            Action::CondWake { condition } => {
                self.word("op", "cond_wake");
                self.lock(condition, names)
            }
            Action::Off { reason, stack } => {
                self.word("op", "off");
                self.word(
                    "reason",
                    match reason {
                        OffReason::Runnable => "runnable",
                        OffReason::Blocked => "blocked",
                        OffReason::Sleeping => "sleeping",
                        OffReason::Futex => "futex",
                    },
                );
                self.stack(stack, None, op.process, names, stacks)
            }
            Action::Holds(_) => Ok(()),
            Action::On => {
                self.word("op", "on");
                Ok(())
            }
            Action::Join { thread, wait } => {
                self.word("op", "join");
                self.optional_thread("thread", Some(thread), names)?;
                self.field("wait");
                time::write(&mut self.line, wait.0, self.ticks_per_ns)
            }
            Action::Exit { ends } => {
                self.word("op", "exit");
                if ends {
                    self.line.extend_from_slice(br#","ends_process":true"#);
                }
                Ok(())
            }
        }
    }

    fn attempt(&mut self, a: &Attempt, names: &mut dyn Names, stacks: &Stacks) -> io::Result<()> {
        self.word("op", "attempt");
        self.lock(a.lock, names)?;
        match a.kind {
            kind if a.lock.is_kernel() => self.word("kind", &format!("kernel {}", kind.name())),
            LockKind::Mutex => {}
            LockKind::Other => {
                let kind = names.kind(a.lock).unwrap_or_else(|| a.kind.name().to_owned());
                self.field("kind");
                self.line.extend_from_slice(&json(&kind)?);
            }
            kind => self.word("kind", kind.name()),
        }
        if a.kind != LockKind::Other && !a.lock.is_kernel() && !self.kinds.contains_key(&a.lock) {
            if let Some(kind) = names.kind(a.lock) {
                self.field("kind_name");
                self.line.extend_from_slice(&json(&kind)?);
            }
            keep(&mut self.kinds, a.lock, ());
        }
        if a.shared {
            self.word("mode", "shared");
        }
        self.site("site", a.site, names)?;
        self.optional_thread("owner", a.owner, names)?;
        if let Some(contended) = a.contended {
            write!(self.line, r#","contended":{contended}"#)?;
        }
        self.stack(a.stack, Some(a.site), a.lock.process, names, stacks)
    }

    fn barrier(&mut self, a: &Arrival, names: &mut dyn Names) -> io::Result<()> {
        self.word("op", "barrier");
        self.lock(a.barrier, names)?;
        write!(self.line, r#","n":{}"#, a.participants)?;
        if a.round != Round::Unknown {
            write!(self.line, r#","round":{}"#, a.round.code())?;
        }
        self.site("site", a.site, names)?;
        let ids = names.site_id(a.site).zip(names.site_id(a.post));
        if ids.is_some_and(|(site, post)| post.strip_suffix(AFTER) == Some(&site)) {
            return Ok(());
        }
        self.site("post", a.post, names)
    }

    fn field(&mut self, name: &str) {
        self.line.extend_from_slice(b",\"");
        self.line.extend_from_slice(name.as_bytes());
        self.line.extend_from_slice(b"\":");
    }

    /// A field whose value is a word that needs no escaping.
    fn word(&mut self, name: &str, word: &str) {
        self.field(name);
        self.line.push(b'"');
        self.line.extend_from_slice(word.as_bytes());
        self.line.push(b'"');
    }

    fn lock(&mut self, lock: Lock, names: &mut dyn Names) -> io::Result<()> {
        self.field("lock");
        if let Some(known) = self.locks.get(&lock) {
            self.line.extend_from_slice(known);
            return Ok(());
        }
        let id = names.lock_id(lock).unwrap_or_else(|| self.address(lock.process, lock.addr));
        let text = json(&id)?;
        self.line.extend_from_slice(&text);
        if let Some(name) = names.global(lock).filter(|name| *name != id) {
            self.field("name");
            self.line.extend_from_slice(&json(&name)?);
        }
        keep(&mut self.locks, lock, text);
        Ok(())
    }

    /// `field` is `post` for the second site of a line; only the first can have a symbol.
    fn site(&mut self, field: &str, site: Site, names: &mut dyn Names) -> io::Result<()> {
        self.field(field);
        if let Some(known) = self.sites.get(&site) {
            self.line.extend_from_slice(known);
            return Ok(());
        }
        let id = names.site_id(site).unwrap_or_else(|| self.address(site.process, site.addr));
        let text = json(&id)?;
        self.line.extend_from_slice(&text);
        if field == "post" {
            return Ok(());
        }
        let symbol = names::place(&names.frames(site.process, site.addr)).map(names::Frame::symbol);
        if let Some(symbol) = symbol.filter(|symbol| *symbol != id && site.addr != 0) {
            self.field("symbol");
            self.line.extend_from_slice(&json(&symbol)?);
        }
        keep(&mut self.sites, site, text);
        Ok(())
    }

    fn thread(&mut self, field: &str, tid: Tid, names: &mut dyn Names) -> io::Result<()> {
        self.field(field);
        if let Some(known) = self.threads.get(&tid) {
            self.line.extend_from_slice(known);
            return Ok(());
        }
        let text = match (names.thread_number(tid), names.thread_id(tid)) {
            (Some(number), _) => number.to_string().into_bytes().into(),
            (None, Some(id)) => json(&id)?,
            (None, None) => tid.0.to_string().into_bytes().into(),
        };
        self.line.extend_from_slice(&text);
        keep(&mut self.threads, tid, text);
        Ok(())
    }

    fn optional_thread(&mut self, field: &str, tid: Option<Tid>, names: &mut dyn Names) -> io::Result<()> {
        tid.map_or(Ok(()), |tid| self.thread(field, tid, names))
    }

    /// The thread's name, if it is not the one that its lines before had.
    fn comm(&mut self, tid: Tid, names: &mut dyn Names) -> io::Result<()> {
        let Some(comm) = names.comm(tid) else { return Ok(()) };
        if self.comms.get(&tid) != Some(&comm) {
            self.field("comm");
            self.line.extend_from_slice(&json(&comm)?);
            keep(&mut self.comms, tid, comm);
        }
        Ok(())
    }

    /// The functions of a stack, innermost first, if it was kept.
    fn stack(
        &mut self,
        stack: Option<StackId>,
        site: Option<Site>,
        process: Process,
        names: &mut dyn Names,
        stacks: &Stacks,
    ) -> io::Result<()> {
        let Some((id, raw)) = stack.and_then(|id| Some((id, stacks.get(&id)?))) else { return Ok(()) };
        self.field("stack");
        if let Some(known) = self.stacks.get(&id) {
            self.line.extend_from_slice(known);
            return Ok(());
        }
        let mut functions = Vec::new();
        for addr in names.section_stack(process, raw, site.map(|site| site.addr)) {
            functions.extend(names.frames(process, addr).iter().map(names::Frame::symbol));
        }
        let text = serde_json::to_vec(&functions)?.into_boxed_slice();
        self.line.extend_from_slice(&text);
        keep(&mut self.stacks, id, text);
        Ok(())
    }

    fn address(&self, process: Process, addr: u64) -> String {
        match self.processes.get(&process) {
            Some(image) => format!("{}:{addr:#x}", image.id),
            None if process == Process::KERNEL => format!("kernel:{addr:#x}"),
            None => format!("process-{}:{addr:#x}", process.0),
        }
    }
}

fn json(text: &str) -> io::Result<Text> {
    Ok(serde_json::to_vec(text)?.into_boxed_slice())
}

/// Remembers, within bounds.
fn keep<K: std::hash::Hash + Eq, V>(map: &mut Map<K, V>, key: K, value: V) {
    if map.len() >= MAX_KNOWN {
        map.clear();
    }
    map.insert(key, value);
}
