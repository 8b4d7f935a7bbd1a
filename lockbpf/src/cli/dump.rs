//! `lockbpf dump`: what a flight recorder has kept, as a recording.

use super::destination::{self, Whole};
use super::flight::socket::{self, ACCEPTED, REFUSED};
use super::segments;
use crate::trace;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bytes of a reason at most.
const REASON: u64 = 4_096;

/// Whose recording, and where it goes.
#[derive(Clone, Debug, Args)]
pub(super) struct DumpArgs {
    /// Write the recording to this file; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// The process of the lockbpf that is asked. Without it: the only one that has a flight recorder.
    #[arg(long, value_name = "PID", conflicts_with = "from")]
    pub of: Option<u32>,
    /// Ask nobody: read what a lockbpf with --keep-dir has left in this directory, even if it was killed.
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
}

/// Gets the recording.
///
/// # Errors
/// When nobody can be asked, nothing is kept, or it cannot be written.
pub(super) fn run(args: &DumpArgs) -> Result<ExitCode> {
    let out = Whole::create(&args.to)?;
    let (out, what) = match &args.from {
        Some(dir) => {
            let (out, joined) = segments::joined(dir, out)?;
            (out, joined.stretch)
        }
        None => {
            let pid = args.of.map_or_else(only_one, Ok)?;
            let (out, bytes) = receive(socket::ask(pid)?, out, &args.to)?;
            (out, format!("{bytes} bytes of process {pid}'s flight recorder."))
        }
    };
    out.finish()?;
    let to = destination::told(&args.to);
    let next = if args.to == Path::new("-") { String::new() } else { format!(" lockbpf report --from {to}") };
    say!("lockbpf: written to {to}: {what}{next}");
    Ok(ExitCode::SUCCESS)
}

/// The only lockbpf that can be asked.
fn only_one() -> Result<u32> {
    match socket::all().as_slice() {
        [pid] => Ok(*pid),
        [] => bail!("no lockbpf with a flight recorder runs here: start one with --keep TIME"),
        all => {
            let all: Vec<String> = all.iter().map(u32::to_string).collect();
            bail!("several lockbpf have a flight recorder: name one of {} with --of", all.join(", "))
        }
    }
}

/// Copies an answer; returns its bytes.
fn receive<W: Write>(mut from: UnixStream, mut out: W, to: &Path) -> Result<(W, u64)> {
    let asked = "failed to read the flight recorder's answer";
    let mut first = [0];
    from.read_exact(&mut first).context(asked)?;
    if first != [ACCEPTED] {
        let mut why = String::new();
        if first == [REFUSED as u8] {
            from.take(REASON).read_to_string(&mut why).context(asked)?;
        }
        bail!("the flight recorder gives nothing: {why}");
    }
    let mut buffer = vec![0; 256 << 10];
    let (mut last, mut bytes) = (Vec::new(), 0);
    loop {
        let got = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => buffer.get(..got).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context(asked),
        };
        out.write_all(got).with_context(|| format!("failed to write {}", destination::told(to)))?;
        bytes += got.len() as u64;
        last.extend_from_slice(got);
        last.drain(..last.len().saturating_sub(trace::END_BYTES));
    }
    if !trace::is_end(&last) {
        bail!("{asked}: it broke off after {bytes} bytes");
    }
    Ok((out, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;
    use crate::observation::Harvest;
    use crate::trace::{Compression, Header, Writer};
    use crate::units::Time;

    struct Nobody;

    impl Names for Nobody {
        fn frames(&mut self, _: crate::id::Process, addr: u64) -> Vec<crate::names::Frame> {
            vec![crate::names::Frame { addr, ..Default::default() }]
        }
        fn global(&mut self, _: crate::id::Lock) -> Option<String> {
            None
        }
        fn call_stack(&mut self, _: crate::id::Process, raw: &[u64], _: Option<u64>) -> Vec<u64> {
            raw.to_vec()
        }
    }

    fn answered(answer: &[u8]) -> Result<Vec<u8>> {
        let (asking, mut answering) = UnixStream::pair().unwrap();
        answering.write_all(answer).unwrap();
        drop(answering);
        Ok(receive(asking, Vec::new(), Path::new("-"))?.0)
    }

    #[test]
    fn only_a_whole_answer_counts() {
        let writer = Writer::new(Vec::new(), &Header::default(), Compression::None).unwrap();
        let (trace, _) = writer.finish(&Harvest::default(), &mut Nobody, Time(1)).unwrap();
        let answer = [&[ACCEPTED][..], &trace].concat();
        assert_eq!(answered(&answer).unwrap(), trace);
        for cut in 0..answer.len() {
            assert!(answered(&answer[..cut]).is_err(), "{cut}");
        }
        assert!(answered(b"-it has stopped").unwrap_err().to_string().contains("it has stopped"));
        assert!(answered(b"GET").is_err());
    }
}
