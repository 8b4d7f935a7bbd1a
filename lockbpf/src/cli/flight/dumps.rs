//! Recordings that are made of what is kept: when, after what, and where they go. A thread of its own makes them, one at a time, behind everybody
//! else.

use super::socket::{self, ACCEPTED, REFUSED};
use crate::alert::SoFar;
use crate::capture::be_patient;
use crate::cli::destination::Whole;
use crate::cli::flight_args::{DumpOn, FlightArgs};
use crate::cli::segments::{Held, is_dir};
use crate::flight::{Joined, join};
use crate::trace::Compression;
use crate::units::{Nanos, Time};
use crate::untrusted::shown_lines;
use anyhow::{Context, Result, bail};
use std::io::{BufWriter, IntoInnerError, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::SystemTime;

/// So long after an alert: what came of it is in the recording, too.
const AFTER: Nanos = Nanos(2_000_000_000);
/// Alerts cause no more than one recording in this time.
const PAUSE: Nanos = Nanos(60_000_000_000);
/// What stands for the time in a file's name.
const TIME: &str = "{time}";

/// Why a recording is made.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    Wait(String),
    Hold(String),
    Deadlock,
    Signal,
    Asked,
}

impl Cause {
    /// As part of a file's name.
    fn name(&self) -> &'static str {
        match self {
            Self::Wait(_) => "wait",
            Self::Hold(_) => "hold",
            Self::Deadlock => "deadlock",
            Self::Signal => "signal",
            Self::Asked => "asked",
        }
    }

    fn remark(&self) -> String {
        match self {
            Self::Wait(alert) | Self::Hold(alert) => format!("It was made after this alert: {alert}."),
            Self::Deadlock => "It was made after a deadlock was found.".to_owned(),
            Self::Signal => "It was made since SIGUSR1 asked for it.".to_owned(),
            Self::Asked => "It was made since `lockbpf dump` asked for it.".to_owned(),
        }
    }
}

/// One that is wanted.
struct Wanted {
    cause: Cause,
    due: Time,
    /// Who asks and waits; else it becomes a file.
    stream: Option<UnixStream>,
}

/// Recordings, made and to be made.
pub(super) struct Dumps {
    on: Vec<DumpOn>,
    /// How many more alerts may cause one.
    left: u32,
    to: PathBuf,
    listener: Option<UnixListener>,
    seen: SoFar,
    deadlocks: usize,
    /// At most one after an alert, one after a signal, and one that somebody waits for.
    wanted: Vec<Wanted>,
    /// When an alert caused one last.
    last: Option<Time>,
    making: Option<JoinHandle<String>>,
    /// Alerts that caused none.
    left_out: u64,
}

impl Dumps {
    /// As the user asks for them.
    ///
    /// # Errors
    /// When there is no such place.
    pub(super) fn prepare(args: &FlightArgs) -> Result<Self> {
        let to = args.dump_to.clone().unwrap_or_else(|| PathBuf::from("."));
        if !is_pattern(&to) && !is_dir(&to) {
            bail!(
                "--dump-to {} is neither a directory nor a file in whose name {TIME} stands for the time: no recording may replace another",
                to.display()
            );
        }
        Ok(Self {
            on: args.dump_on.clone(),
            left: args.dumps(),
            to,
            listener: None,
            seen: SoFar::default(),
            deadlocks: 0,
            wanted: Vec::new(),
            last: None,
            making: None,
            left_out: 0,
        })
    }

    /// From now on it can be asked for one.
    pub(super) fn begin(&mut self) {
        // Whoever cannot ask this way can by a signal.
        self.listener = socket::listen().map_err(|error| log::info!("`lockbpf dump` cannot ask: {error}")).ok();
    }

    /// Looks whether one is wanted: asked for by a signal, over the socket, or after alerts and deadlocks so far. Returns what has become of
    /// the last.
    pub(super) fn poll(&mut self, now: Time, alerts: &SoFar, deadlocks: usize, asked: bool) -> String {
        let made = self.making.take_if(|making| making.is_finished()).map(became);
        let last = || alerts.last.clone();
        for (is_new, on, cause) in [
            (deadlocks > self.deadlocks, DumpOn::Deadlock, Cause::Deadlock),
            (alerts.waits > self.seen.waits, DumpOn::Wait, Cause::Wait(last())),
            (alerts.holds > self.seen.holds, DumpOn::Hold, Cause::Hold(last())),
        ] {
            if is_new && self.on.contains(&on) {
                self.after_alert(cause, now);
            }
        }
        self.seen.clone_from(alerts);
        self.deadlocks = deadlocks;
        if asked && !self.wanted.iter().any(|wanted| wanted.cause == Cause::Signal) {
            self.wanted.push(Wanted { cause: Cause::Signal, due: now, stream: None });
        }
        // The next one who asks waits in the kernel's queue.
        if !self.wanted.iter().any(|wanted| wanted.cause == Cause::Asked)
            && let Some(stream) = self.listener.as_ref().and_then(socket::accept)
        {
            self.wanted.push(Wanted { cause: Cause::Asked, due: now, stream: Some(stream) });
        }
        made.unwrap_or_default()
    }

    fn after_alert(&mut self, cause: Cause, now: Time) {
        if self.left == 0 || self.last.is_some_and(|last| now.since(last) < PAUSE) {
            self.left_out += 1;
            return;
        }
        self.left -= 1;
        self.last = Some(now);
        self.wanted.push(Wanted { cause, due: now + AFTER, stream: None });
    }

    /// Whether one is to be made now.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.making.is_none() && self.wanted.iter().any(|wanted| wanted.due <= now)
    }

    /// Whether one is wanted, now or later.
    pub(super) fn is_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Makes one, of these segments, if it is due by then; one that is being made is waited for. Returns what is to be told.
    pub(super) fn make(&mut self, segments: Vec<Held>, by: Time) -> String {
        let mut text = self.making.take().map(became).unwrap_or_default();
        let Some(at) = self.wanted.iter().position(|wanted| wanted.due <= by) else { return text };
        let Wanted { cause, stream, .. } = self.wanted.remove(at);
        let to = self.to.clone();
        let make = move || {
            be_patient();
            match stream {
                None => to_file(&segments, &cause, &to),
                Some(stream) => to_stream(&segments, &cause, stream),
            }
            .unwrap_or_else(|error| format!("lockbpf: no recording was made: {error:#}\n"))
        };
        match std::thread::Builder::new().name("recording".to_owned()).spawn(make) {
            Ok(making) => self.making = Some(making),
            Err(error) => text += &format!("lockbpf: no recording was made: {error}\n"),
        }
        text
    }

    /// Nothing is kept any more. Returns what is to be told to who has asked by a signal.
    pub(super) fn refuse(&mut self) -> String {
        let mut text = String::new();
        for Wanted { stream, .. } in self.wanted.drain(..) {
            match stream {
                // Who has gone does not want to know.
                Some(mut stream) => _ = stream.write_all(format!("{REFUSED}it has stopped").as_bytes()),
                None => text += "lockbpf: no recording was made: the flight recorder has stopped\n",
            }
        }
        text
    }

    /// The end. Returns what has become of the last, and what there was no recording of.
    pub(super) fn end(mut self) -> String {
        let mut text = self.making.take().map(became).unwrap_or_default();
        if self.left_out > 0 {
            let s = if self.left_out == 1 { "" } else { "s" };
            text += &format!(
                "lockbpf: {} further alert{s} caused no recording: at most one a minute does (--dump-max: so many in all)\n",
                self.left_out
            );
        }
        text
    }
}

/// What a thread has made.
fn became(making: JoinHandle<String>) -> String {
    shown_lines(making.join().unwrap_or_default().trim_end()) + "\n"
}

fn to_file(segments: &[Held], cause: &Cause, to: &Path) -> Result<String> {
    let path = place(to, cause, SystemTime::now());
    let out = Whole::create(&path)?;
    let (out, joined) = join(segments, &[cause.remark()], out, Compression::None)?;
    out.finish()?;
    let Joined { start, end, written, .. } = joined;
    let path = path.display();
    Ok(format!(
        "lockbpf: the last {} are in {path} ({} events, {} bytes): lockbpf report --from {path}\n",
        end.since(start),
        written.events,
        written.bytes
    ))
}

fn to_stream(segments: &[Held], cause: &Cause, mut stream: UnixStream) -> Result<String> {
    stream.write_all(&[ACCEPTED]).context("who has asked has gone")?;
    let (out, Joined { start, end, .. }) =
        join(segments, &[cause.remark()], BufWriter::with_capacity(256 << 10, stream), Compression::None)?;
    out.into_inner().map_err(IntoInnerError::into_error)?;
    Ok(format!("lockbpf: the last {} were given to `lockbpf dump`\n", end.since(start)))
}

/// The file of a recording.
fn place(to: &Path, cause: &Cause, now: SystemTime) -> PathBuf {
    let time = humantime::format_rfc3339_seconds(now).to_string().replace(['-', ':'], "");
    match to.file_name().and_then(|name| name.to_str()).filter(|_| is_pattern(to)) {
        Some(name) => to.with_file_name(name.replace(TIME, &time)),
        None => to.join(format!("lockbpf-{time}-{}.bin", cause.name())),
    }
}

fn is_pattern(to: &Path) -> bool {
    to.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.contains(TIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flight: FlightArgs,
    }

    fn dumps(line: &str) -> Result<Dumps> {
        let words = ["lockbpf", "--keep", "1m"].into_iter().chain(line.split_whitespace());
        Dumps::prepare(&Line::try_parse_from(words).expect("a line").flight)
    }

    fn second(n: u64) -> Time {
        Time(n * 1_000_000_000)
    }

    #[test]
    fn recordings_have_names_of_their_own() {
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_764_126_665);
        let wait = Cause::Wait(String::new());
        let name = |to: &str| place(Path::new(to), &wait, now).display().to_string();
        assert_eq!(name("/var/tmp"), "/var/tmp/lockbpf-20251126T031105Z-wait.bin");
        assert_eq!(name("."), "./lockbpf-20251126T031105Z-wait.bin");
        assert_eq!(name("/var/tmp/db-{time}.trace"), "/var/tmp/db-20251126T031105Z.trace");
        assert!(dumps("--dump-to /var/tmp/db.bin").err().unwrap().to_string().contains("neither a directory"));
        assert!(dumps("--dump-to /var/tmp/db-{time}.bin").is_ok() && dumps("").is_ok());
    }

    #[test]
    fn alerts_cause_few_recordings() {
        let mut dumps = dumps("--dump-on wait,deadlock --dump-max 2").unwrap();
        let mut told = SoFar::default();
        let mut due = Vec::new();
        for now in 0..300 {
            told.waits += 1;
            told.holds += 1;
            dumps.poll(second(now), &told, 0, false);
            if dumps.is_due(second(now)) {
                due.push(now);
                dumps.wanted.clear();
            }
        }
        // The first 2 s after the first alert, the second a minute later, and no third.
        assert_eq!((due, dumps.left_out), (vec![2, 62], 298));
    }

    #[test]
    fn only_what_is_named_causes_one() {
        let mut dumps = dumps("--dump-on deadlock").unwrap();
        let told = SoFar { waits: 1, holds: 1, last: String::new() };
        dumps.poll(second(1), &told, 0, false);
        assert!(!dumps.is_wanted());
        dumps.poll(second(2), &told, 1, false);
        assert!(!dumps.is_due(second(3)) && dumps.is_due(second(4)));
        // Twice asked is once made.
        dumps.poll(second(4), &told, 1, true);
        dumps.poll(second(4), &told, 1, true);
        assert_eq!(dumps.wanted.len(), 2);
        assert!(dumps.refuse().contains("has stopped") && !dumps.is_wanted());
    }
}
