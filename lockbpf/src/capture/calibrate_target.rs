//! The private child on which costs are calibrated: on demand it does a number of operations of one kind and answers with
//! the CPU time that they took. It ends with its parent, with its input, or by itself after a few seconds.

use super::pthread::Mutex;
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, alarm, gettid, read};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// Its longest life, s: nobody calibrates for so long.
const LIFE_S: u32 = 30;
/// Locks for batches of pairs: each batch takes one of its own, so that the sums of batches stay apart.
pub(super) const LOCKS: usize = 64;

static PAIR_LOCKS: [Mutex; LOCKS] = [const { Mutex::new() }; LOCKS];
static WAITED_LOCK: Mutex = Mutex::new();
static PARTNER_LOCK: Mutex = Mutex::new();
/// A futex word that nobody waits for.
static IDLE_WORD: AtomicU32 = AtomicU32::new(0);
static PARTNER_TID: AtomicI32 = AtomicI32::new(0);

/// What a batch does. A line on standard input is the name of one, a count, and a batch's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// A lock/unlock pair of an uncontended lock.
    Pair,
    /// The same of one that seems to be waited for when it is released.
    Waited,
    /// A futex call that wakes nobody.
    Wake,
    /// A switch to the other thread.
    Switch,
}

impl Operation {
    /// Every one.
    pub(super) const ALL: [Self; 4] = [Self::Pair, Self::Waited, Self::Wake, Self::Switch];

    /// Its name in the protocol.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Waited => "waited",
            Self::Wake => "wake",
            Self::Switch => "switch",
        }
    }
}

/// Serves until its input ends. The exit status tells whether all went well.
#[must_use]
pub fn run() -> std::process::ExitCode {
    // Not before exec: the kernel forgets it when it executes a file that has capabilities.
    let _ = set_pdeathsig(Signal::SIGKILL);
    alarm::set(LIFE_S);
    match serve() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(_) => std::process::ExitCode::FAILURE,
    }
}

fn serve() -> io::Result<()> {
    let mut partner = Partner::start()?;
    let mut output = io::stdout();
    writeln!(output, "ready")?;
    output.flush()?;
    let mut input = Lines::default();
    while let Some(line) = input.next()? {
        let (ns, lock) = batch(&line, &mut partner)?;
        writeln!(output, "{ns} {lock}")?;
        output.flush()?;
    }
    Ok(())
}

/// Does what a line says: the CPU time of all its operations, ns, and the lock used.
fn batch(line: &str, partner: &mut Partner) -> io::Result<(u64, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[name, count, number] = words.as_slice() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let wrong = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let (count, number): (u32, usize) = (count.parse().map_err(wrong)?, number.parse().map_err(wrong)?);
    let operation = Operation::ALL.into_iter().find(|operation| operation.name() == name);
    match operation.ok_or(io::ErrorKind::InvalidInput)? {
        Operation::Pair => {
            let lock = &PAIR_LOCKS[number % LOCKS];
            Ok((timed(ClockId::CLOCK_THREAD_CPUTIME_ID, || (0..count).for_each(|_| lock.with(|| ())))?, lock.addr()))
        }
        Operation::Waited => {
            let pair = |_| WAITED_LOCK.with(|| WAITED_LOCK.pretend_waited_for());
            Ok((timed(ClockId::CLOCK_THREAD_CPUTIME_ID, || (0..count).for_each(pair))?, WAITED_LOCK.addr()))
        }
        Operation::Wake => Ok((timed(ClockId::CLOCK_THREAD_CPUTIME_ID, || (0..count).for_each(|_| wake()))?, 0)),
        Operation::Switch => Ok((partner.play(count)?, 0)),
    }
}

fn timed(clock: ClockId, work: impl FnOnce()) -> io::Result<u64> {
    let begin = cpu_time(clock)?;
    work();
    Ok(cpu_time(clock)? - begin)
}

fn cpu_time(clock: ClockId) -> io::Result<u64> {
    Ok(Duration::from(clock_gettime(clock)?).as_nanos() as u64)
}

fn wake() {
    // SAFETY: a futex call that wakes one thread waiting for a word which lives as long as the program; nobody does.
    unsafe { libc::syscall(libc::SYS_futex, IDLE_WORD.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}

/// A second thread, without which glibc would leave out the locks' atomic operations, and to switch to and fro with.
struct Partner {
    to: PipeWriter,
    from: PipeReader,
}

impl Partner {
    fn start() -> io::Result<Self> {
        let (mut heard, to) = io::pipe()?;
        let (from, mut answer) = io::pipe()?;
        thread::Builder::new().spawn(move || {
            PARTNER_TID.store(gettid().as_raw(), Ordering::Release);
            let mut byte = [0];
            while heard.read_exact(&mut byte).is_ok() {
                if byte == *b"l" {
                    // From now on the observer knows this thread.
                    PARTNER_LOCK.with(|| ());
                }
                if answer.write_all(&byte).is_err() {
                    break;
                }
            }
        })?;
        let mut partner = Self { to, from };
        partner.turn(*b"l")?;
        Ok(partner)
    }

    fn turn(&mut self, mut byte: [u8; 1]) -> io::Result<()> {
        self.to.write_all(&byte)?;
        self.from.read_exact(&mut byte)
    }

    /// Switches `count` times, there and back, both threads on one CPU. Returns the CPU time of both, ns.
    fn play(&mut self, count: u32) -> io::Result<u64> {
        let threads = [Pid::from_raw(0), Pid::from_raw(PARTNER_TID.load(Ordering::Acquire))];
        let before = sched_getaffinity(threads[0])?;
        let mut one = CpuSet::new();
        one.set(sched_getcpu()?)?;
        threads.iter().try_for_each(|&thread| sched_setaffinity(thread, &one))?;
        self.turn(*b"l")?;
        let begin = cpu_time(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
        (0..count / 2).try_for_each(|_| self.turn(*b"s"))?;
        let ns = cpu_time(ClockId::CLOCK_PROCESS_CPUTIME_ID)? - begin;
        threads.iter().try_for_each(|&thread| sched_setaffinity(thread, &before))?;
        Ok(ns)
    }
}

/// Lines of standard input, without the standard library's own lock and buffer.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn next(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.0.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.0.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            let mut chunk = [0; 64];
            match read(io::stdin(), &mut chunk)? {
                0 => return Ok(None),
                n => self.0.extend_from_slice(&chunk[..n]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_takes_time() {
        let mut partner = Partner::start().unwrap();
        for operation in Operation::ALL {
            let (ns, lock) = batch(&format!("{} 200 3", operation.name()), &mut partner).unwrap();
            assert!(ns > 0, "{operation:?}");
            assert_eq!(lock != 0, matches!(operation, Operation::Pair | Operation::Waited));
        }
        assert_eq!(WAITED_LOCK.word().load(Ordering::Relaxed), 0, "it is free again");
        assert!(batch("pair", &mut partner).is_err() && batch("tea 1 1", &mut partner).is_err());
    }
}
