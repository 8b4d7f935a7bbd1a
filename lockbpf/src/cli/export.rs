//! `lockbpf export`: record to a file, or convert a recording.

use super::args::{CaptureArgs, ExportArgs, Plan, TablesArgs};
use super::convert::{self, Converted};
use super::destination::{self, Growing, Whole};
use super::formats::{self, ExportFormat};
use super::source::{Format, Input};
use super::{live, serve, tables};
use crate::observe::Recorder;
use crate::quality::Quality;
use crate::render;
use crate::report::Selection;
use crate::rights;
use crate::trace::{Compression, Written};
use anyhow::{Context, Result, bail};
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Records or converts.
///
/// # Errors
/// When the source cannot be observed or read, or the file not be written.
pub(super) fn run(args: ExportArgs) -> Result<ExitCode> {
    let format = if args.to == Path::new("-") && args.format.is_none() {
        bail!("standard output has no suffix that tells a format: name it with --as bin, --as jsonl, …");
    } else {
        destination::format(&args.to, args.format)?
    };
    let compression = if args.zstd && !args.no_zstd { Compression::Zstd } else { Compression::None };
    if args.serve.is_some() {
        serve::check(if let ExportFormat::View(format) = format { Some(format) } else { None })?;
        if args.to == Path::new("-") {
            bail!("--serve serves the file that was written: name one with --to");
        }
    }
    let (to, serve) = (args.to.clone(), args.serve);
    let done = if args.from.is_empty() {
        capture(args, format, compression)
    } else {
        convert(&to, format, compression, &args)
    };
    let code = match done {
        Err(error) if had_enough(&error, &to) => return Ok(ExitCode::SUCCESS),
        done => done?,
    };
    if let Some(port) = serve {
        serve::file(&to, port)?;
    }
    Ok(code)
}

fn convert(to: &Path, format: ExportFormat, compression: Compression, args: &ExportArgs) -> Result<ExitCode> {
    args.from.iter().try_for_each(|from| destination::differ(from, to))?;
    formats::check_takes(format, args.from.len())?;
    let inputs = args.from.iter().map(|from| Input::open(from)).collect::<Result<Vec<_>>>()?;
    let incomplete = translate(&inputs, to, Out::create(to, format, &args.tables)?, compression)?;
    Ok(ExitCode::from(u8::from(args.capture.strict && incomplete)))
}

/// What a whole recording is made into, and where. It is created before an observation: what could not be written is said then,
/// not instead of a result.
enum Out<'a> {
    Trace(Whole),
    Lines(Whole),
    View(&'static render::Format, Whole),
    Tables(&'a TablesArgs),
}

impl<'a> Out<'a> {
    fn create(to: &Path, format: ExportFormat, how: &'a TablesArgs) -> Result<Self> {
        Ok(match format {
            ExportFormat::Bin => Self::Trace(Whole::create(to)?),
            ExportFormat::Jsonl => Self::Lines(Whole::create(to)?),
            ExportFormat::View(format) => Self::View(format, Whole::create(to)?),
            ExportFormat::Tables => {
                tables::make(to)?;
                Self::Tables(how)
            }
        })
    }
}

/// Converts, and tells what became of it. Returns whether a recording is incomplete.
fn translate(inputs: &[Input], to: &Path, out: Out<'_>, compression: Compression) -> Result<bool> {
    let failed = |input: &Input| format!("failed to convert {} to {}", input.name(), to.display());
    let (done, out) = match (out, inputs) {
        (Out::View(format, mut out), _) => {
            let analysed = inputs.iter().map(|input| formats::analyse(input, format));
            let mut recordings = analysed.collect::<Result<Vec<_>>>()?;
            let incomplete = formats::view(format, &mut recordings, &Selection::default(), to, &mut out)?;
            (Converted { incomplete, ..Converted::default() }, out)
        }
        (Out::Lines(mut out), [input]) => {
            let done = convert::to_lines(input, &mut out).with_context(|| failed(input))?;
            say!("lockbpf: {} events, {} lines to {}", done.events, done.lines, to.display());
            tell_left_out(&done, input.format());
            (done, out)
        }
        (Out::Trace(mut out), [input]) => {
            let (done, written) =
                convert::to_trace(input, &mut out, compression, &[]).with_context(|| failed(input))?;
            tell_written(&written, to);
            (done, out)
        }
        (Out::Tables(how), [input]) => return tables::write(input, to, how),
        (_, several) => bail!("{} holds one recording, not {}", to.display(), several.len()),
    };
    for loss in &done.losses {
        say!("lockbpf: {loss}");
    }
    out.finish()?;
    Ok(done.incomplete)
}

/// A reader of standard output that has gone away has had enough: that is no error.
fn had_enough(error: &anyhow::Error, to: &Path) -> bool {
    let broken = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    to == Path::new("-") && error.chain().any(|cause| cause.downcast_ref().is_some_and(broken))
}

fn tell_left_out(done: &Converted, format: Format) {
    if format == Format::Trace {
        say!("lockbpf: event lines have no place for sums: what the trace tells only in sums is left out");
    }
    if done.access_records > 0 {
        say!(
            "lockbpf: {} access records are left out: `lockbpf access --from` makes a file of them",
            done.access_records
        );
    }
    if done.left_out > 0 {
        say!("lockbpf: {} futex waits outside lock calls are left out", done.left_out);
    }
    if done.late > 0 {
        say!("lockbpf: {} events came too late for their place and were put as early as possible", done.late);
    }
}

fn tell_written(written: &Written, to: &Path) {
    let Written { events, steps, event_bytes, bytes } = *written;
    let per = |n: u64| if n == 0 { 0.0 } else { event_bytes as f64 / n as f64 };
    say!(
        "lockbpf: {events} events in {bytes} bytes to {}: {:.2} bytes an event, {:.2} a step; {} bytes of sums and names",
        to.display(),
        per(events),
        per(steps),
        bytes - event_bytes
    );
}

fn capture(args: ExportArgs, format: ExportFormat, compression: Compression) -> Result<ExitCode> {
    let ExportArgs { to, target, capture, tables: how, .. } = args;
    if capture.functions.is_some() {
        bail!("recordings do not keep calls of the C library: observe without `export` to have --functions reported");
    }
    if capture.alerts_on_stdout() && to == Path::new("-") {
        bail!("the recording goes to standard output: name a file for --alerts");
    }
    // Event lines have no place for them.
    let transitions = matches!(format, ExportFormat::Bin) && !capture.futex_only;
    let plan = Plan::from_args(target, CaptureArgs { transitions, ..capture })?;
    let quality = match format {
        ExportFormat::Bin => record(&plan, Growing::open(&to)?, &to, compression)?,
        ExportFormat::Jsonl | ExportFormat::Tables | ExportFormat::View(_) => {
            let out = Out::create(&to, format, &how)?;
            // These want names first and everything in order: both are known at the end.
            let trace = destination::temporary()?;
            let quality = record(&plan, trace.as_file(), trace.path(), Compression::None)?;
            rights::give_up()?;
            translate(&[Input::open(trace.path())?], &to, out, compression)?;
            quality
        }
    };
    Ok(ExitCode::from(u8::from(plan.capture.strict && quality.incomplete())))
}

/// Observes, and writes a trace of it.
///
/// # Errors
/// When the target cannot be observed, or the trace not be written.
pub(super) fn record(plan: &Plan, out: impl io::Write, to: &Path, compression: Compression) -> Result<Quality> {
    let mut recorder = Recorder::new(out, destination::told(to), compression, &plan.request(None));
    let captured = live::observe(plan, None, &mut recorder)?;
    let quality = captured.harvest.quality.clone();
    let (_, written) = recorder.finish(captured)?;
    tell_written(&written, to);
    for (name, count) in quality.of_class(lockbpf_common::counter::Class::Lost) {
        say!("lockbpf: lost: {count} {name}");
    }
    for (name, count) in &quality.undecodable {
        say!("lockbpf: lost: {count} records ({name})");
    }
    for failed in &quality.failed_probes {
        say!("lockbpf: not probed: {} ({})", failed.probe, failed.reason);
    }
    Ok(quality)
}
