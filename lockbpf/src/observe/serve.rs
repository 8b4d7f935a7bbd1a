//! The first thing that a program does that observes, and the last: it may be a helper of another one, and has helpers itself.

use crate::capture::{
    aside, calibrate, calibrate_target, guardian, launch, reader, remover, seccomp, seccomp_target, serve as probes,
};
use crate::{helper, rights, sandbox, symbol};
use anyhow::{Context, Result, bail};
use std::env;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// Does what a helper does if this process is one, to its end; `None` if it is not. A program that observes calls it first in `main`, before
/// there are other threads, and ends with what it returns.
#[must_use]
pub fn serve() -> Option<ExitCode> {
    helper::is_one().then(|| {
        run().unwrap_or_else(|error| {
            eprintln!("lockbpf: {error:#}");
            ExitCode::from(2)
        })
    })
}

/// What is to be done before a program ends that has observed: a command that it has started ends as was asked for, the kernel has removed the
/// probes, and helpers end. `tell` hears why that takes so long. Without this all of it happens, too, but some of it after the program.
pub fn settle(tell: &dyn Fn(&str)) {
    launch::see_off(tell);
    aside::wait(|| tell("waiting until the kernel has removed the probes"));
    remover::dismiss();
    reader::dismiss();
}

fn run() -> Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.first() {
        // It loads a program where breakpoints of an lockbpf that was killed have stayed.
        Some(&remover::COMMAND) => rights::lay_down()?,
        _ => rights::give_up()?,
    }
    let pid = |text: &str| text.parse().context("a helper is told the number of a process");
    // What costs are measured on is observed as any program is; the others help all the time.
    if let Some(&name) =
        words.first().filter(|name| [guardian::COMMAND, remover::COMMAND, sandbox::COMMAND].contains(name))
    {
        helper::take_name(name).context("a helper gets a name")?;
        guardian::ignore_signals();
    }
    match words.as_slice() {
        [guardian::COMMAND, of] => Ok(guardian::run(pid(of)?)),
        [remover::COMMAND, of] => Ok(remover::run(pid(of)?)),
        [sandbox::COMMAND, more @ ..] => read(more == [reader::ARGUMENT]),
        [seccomp::COMMAND] => Ok(seccomp_target::run()),
        [calibrate::COMMAND] => Ok(calibrate_target::run()),
        _ => bail!("{} is set, and there is no helper {}", helper::VARIABLE, arguments.join(" ")),
    }
}

/// Reads files of observed programs: where their functions are to be probed, or what they are called.
fn read(where_to_probe: bool) -> Result<ExitCode> {
    sandbox::enter()?;
    // After that: what was open beside it is closed.
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    if where_to_probe {
        probes::serve(&socket)?;
    } else {
        symbol::serve(&socket, &[sandbox::LENT.into()])?;
    }
    Ok(ExitCode::SUCCESS)
}
