//! Lines to events.

use super::error::{LineError, Problem};
use super::fields::{Fields, Mode, Operation, RawTime, Reason, Stamp, Text, ThreadId};
use super::labels::Labels;
use super::plain;
use super::time::{self, Ticks};
use crate::event::{Event, ProcessSeen};
use crate::id::{Lock, Site, StackId, Tid};
use crate::json::Own;
use crate::op::{Action, Arrival, Attempt, Failure, LockKind, Op, Released, Round};
use crate::units::{Nanos, Time};
use crate::untrusted::shown;
use std::io::{BufRead, ErrorKind};

/// Longest line that is read, in bytes.
pub const MAX_LINE: usize = 1 << 20;

/// Reads event lines. After an error nothing more comes.
///
/// Times are in ticks: nanoseconds, or thousandths of them. Which of the two the input needs shows at its first decimal
/// ([`LineError::Decimal`]), upon which it is to be read again.
///
/// ```
/// use lockbpf_core::lines::Reader;
///
/// let lines = r#"{"t":10,"tid":"T3","op":"attempt","lock":"L1","site":"3"}"#;
/// let mut reader = Reader::new(lines.as_bytes(), 1);
/// assert!(matches!(reader.next(), Some(Ok(lockbpf_core::event::Event::Op(_)))));
/// assert!(reader.next().is_none());
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    /// The beginning of a line of which the rest is not in the input's buffer yet.
    partial: Vec<u8>,
    parser: Parser,
    ended: bool,
    is_torn: bool,
}

impl<R: BufRead> Reader<R> {
    /// A reader that counts `ticks_per_ns` ticks in a nanosecond: 1, or 1,000 for input with decimals.
    pub fn new(input: R, ticks_per_ns: u64) -> Self {
        let ticks_per_ns = if ticks_per_ns <= 1 { 1 } else { 1_000 };
        let parser = Parser { ticks_per_ns, line: 0, queued: None, labels: Labels::default() };
        Self { input, partial: Vec::new(), parser, ended: false, is_torn: false }
    }

    /// The names that the lines so far use.
    pub fn labels(&mut self) -> &mut Labels {
        &mut self.parser.labels
    }

    /// Whether the last line breaks off, and was left out: whoever wrote it was killed, or the rest of the file is missing.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// The names that the lines use, at the end.
    #[must_use]
    pub fn into_labels(self) -> Labels {
        self.parser.labels
    }

    fn read(&mut self) -> Result<Option<Event>, LineError> {
        if let Some(event) = self.parser.queued.take() {
            return Ok(Some(event));
        }
        loop {
            let buffer = match self.input.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(source) => return Err(LineError::Read { line: self.parser.line + 1, source }),
            };
            if buffer.is_empty() {
                let rest = std::mem::take(&mut self.partial);
                return match self.parser.line(&rest) {
                    Err(LineError::Invalid { line, problem: Problem::Json { is_cut: true, .. } }) if line > 1 => {
                        self.is_torn = true;
                        Ok(None)
                    }
                    last => last,
                };
            }
            let (event, used) = match memchr::memchr(b'\n', buffer) {
                Some(end) if self.partial.is_empty() => {
                    (self.parser.line(buffer.get(..end).unwrap_or(buffer))?, end + 1)
                }
                Some(end) => {
                    self.partial.extend_from_slice(buffer.get(..end).unwrap_or(buffer));
                    let event = self.parser.line(&self.partial)?;
                    self.partial.clear();
                    (event, end + 1)
                }
                None => {
                    self.partial.extend_from_slice(buffer);
                    (None, buffer.len())
                }
            };
            self.input.consume(used);
            if event.is_some() {
                return Ok(event);
            }
            if self.partial.len() > MAX_LINE {
                return Err(LineError::Invalid { line: self.parser.line + 1, problem: Problem::TooLong });
            }
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Event, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.read().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Everything but the input.
#[derive(Debug)]
struct Parser {
    ticks_per_ns: u64,
    /// Lines so far.
    line: u64,
    /// An event that comes after the one just given.
    queued: Option<Event>,
    labels: Labels,
}

/// Why a line gives no event.
enum Refusal {
    Decimal,
    Because(Problem),
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Because(problem)
    }
}

impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        Self::Because(error.into())
    }
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        let text = error.to_string();
        // The parser counts lines, too, but sees only one.
        let what = text.split_once(" at line ").map_or(text.as_str(), |(what, _)| what).to_owned();
        Self::Json { what, column: error.column(), is_cut: error.is_eof() }
    }
}

impl Parser {
    /// The event of the next line; `None` for a blank one.
    fn line(&mut self, line: &[u8]) -> Result<Option<Event>, LineError> {
        self.line += 1;
        self.event(line).map_err(|refusal| match refusal {
            Refusal::Decimal => LineError::Decimal { line: self.line },
            Refusal::Because(problem) => LineError::Invalid { line: self.line, problem },
        })
    }

    fn event(&mut self, line: &[u8]) -> Result<Option<Event>, Refusal> {
        if line.len() > MAX_LINE {
            return Err(Problem::TooLong.into());
        }
        match line.iter().find(|b| !b" \t\r".contains(b)) {
            None => return Ok(None),
            Some(b'{') => {}
            // Arrays could pass for fields without names.
            Some(_) => return Err(Problem::NotAnObject.into()),
        }
        let fields = match plain::parse(line) {
            Some(fields) => fields,
            None => serde_json::from_slice(line)?,
        };
        let time = self.time(fields.t.ok_or(Problem::Missing("t"))?, line)?;
        let tid = self.labels.thread(fields.tid.as_ref().ok_or(Problem::Missing("tid"))?)?;
        let pid = fields.pid.as_ref().map(|pid| pid.0);
        let (process, new) = self.labels.process(tid, pid)?;
        if let Some(comm) = &fields.comm {
            self.labels.set_comm(tid, &comm.0);
        }
        let action = self.action(&fields)?;
        let op = Event::Op(Op { time, tid, process, action });
        match pid {
            Some(pid) if new => {
                self.queued = Some(op);
                let comm = fields.comm.map(|comm| shown(&comm.0).into_owned()).unwrap_or_default();
                Ok(Some(Event::Process(ProcessSeen { time, process, pid, start: Time(0), comm })))
            }
            _ => Ok(Some(op)),
        }
    }

    fn time(&mut self, stamp: Stamp, line: &[u8]) -> Result<Time, Refusal> {
        Ok(Time(match stamp {
            Stamp::Whole(ns) => ns.checked_mul(self.ticks_per_ns).ok_or(Problem::TooLarge)?,
            Stamp::Negative => return Err(Problem::NegativeTime.into()),
            Stamp::Number => {
                match time::parse(serde_json::from_slice::<RawTime<'_>>(line)?.t.get(), self.ticks_per_ns)? {
                    Ticks::Are(ticks) => ticks,
                    Ticks::HaveDecimals => return Err(Refusal::Decimal),
                }
            }
        }))
    }

    fn action(&mut self, f: &Fields<'_>) -> Result<Action, Problem> {
        Ok(match f.op.ok_or(Problem::Missing("op"))? {
            Operation::Attempt => {
                let lock = self.lock(f)?;
                Action::Attempt(Attempt {
                    lock,
                    site: self.site(f)?,
                    shared: f.mode == Some(Mode::Shared),
                    kind: f.kind.as_ref().map_or(LockKind::Mutex, |kind| self.labels.kind_of(lock, &kind.0)),
                    owner: self.thread(f.owner.as_ref())?,
                    stack: self.stack(f)?,
                    contended: own(f.contended.as_ref()).copied(),
                })
            }
            Operation::Acquire => Action::Acquire { lock: self.lock(f)?, waker: self.thread(f.waker.as_ref())? },
            Operation::Release => Action::Release {
                lock: self.lock(f)?,
                how: own(f.how.as_ref()).map_or(Released::Unlock, |&how| how.into()),
            },
            Operation::TryFail => Action::Fail { lock: self.lock(f)?, how: Failure::TryFailed },
            Operation::Timeout => Action::Fail { lock: self.lock(f)?, how: Failure::TimedOut },
            Operation::Error => Action::Fail { lock: self.lock(f)?, how: Failure::Error },
            Operation::Barrier => {
                let barrier = self.lock(f)?;
                let participants = f.n.ok_or(Problem::Missing("n"))?;
                if participants == 0 {
                    return Err(Problem::NoParticipants);
                }
                let site = self.site(f)?;
                let post = match (&f.post, &f.site) {
                    (Some(post), _) => self.labels.site(&post.0)?,
                    (None, Some(site)) => self.labels.site_after(&site.0)?,
                    (None, None) => return Err(Problem::Missing("site")),
                };
                let round = own(f.round.as_ref()).map_or(Round::Unknown, |&code| Round::of_code(code));
                Action::Barrier(Arrival { barrier, participants, round, site, post })
            }
            Operation::CondWait => Action::CondWait { condition: self.lock(f)?, site: self.site(f)? },
            Operation::CondWake => Action::CondWake { condition: self.lock(f)? },
            Operation::Off => {
                let reason: Reason = serde_json::from_str(f.reason.ok_or(Problem::Missing("reason"))?.get())?;
                Action::Off { reason: reason.into(), stack: self.stack(f)? }
            }
            Operation::On => Action::On,
            Operation::Join => {
                let wait = own(f.wait.as_ref()).copied().ok_or(Problem::Missing("wait"))?;
                Action::Join {
                    thread: self.thread(f.thread.as_ref())?.ok_or(Problem::Missing("thread"))?,
                    wait: Nanos((wait.max(0.0) * self.ticks_per_ns as f64).round() as u64),
                }
            }
            Operation::Exit => Action::Exit { ends: own(f.ends_process.as_ref()).copied().unwrap_or(false) },
        })
    }

    fn lock(&mut self, f: &Fields<'_>) -> Result<Lock, Problem> {
        let lock = self.labels.lock(text(f.lock.as_ref(), "lock")?)?;
        if let Some(name) = own(f.name.as_ref()) {
            self.labels.set_lock_name(lock, &name.0);
        }
        if let Some(kind) = own(f.kind_name.as_ref()) {
            self.labels.set_kind_name(lock, &kind.0);
        }
        Ok(lock)
    }

    fn site(&mut self, f: &Fields<'_>) -> Result<Site, Problem> {
        let site = self.labels.site(text(f.site.as_ref(), "site")?)?;
        if let Some(symbol) = own(f.symbol.as_ref()) {
            self.labels.set_symbol(site, &symbol.0);
        }
        Ok(site)
    }

    fn thread(&mut self, id: Option<&Own<ThreadId<'_>>>) -> Result<Option<Tid>, Problem> {
        own(id).map(|id| self.labels.thread(id)).transpose()
    }

    fn stack(&mut self, f: &Fields<'_>) -> Result<Option<StackId>, Problem> {
        own(f.stack.as_ref()).map(|stack| self.labels.stack(stack.iter().map(|text| &*text.0))).transpose()
    }
}

fn text<'f>(field: Option<&'f Text<'_>>, name: &'static str) -> Result<&'f str, Problem> {
    field.map(|text| &*text.0).ok_or(Problem::Missing(name))
}

fn own<T>(field: Option<&Own<T>>) -> Option<&T> {
    field.and_then(|own| own.0.as_ref())
}
