//! `lockbpf agent`: observes for months, and serves metrics and profiles over HTTP, or pushes them.
//!
//! An observation is begun anew now and then ([`config::Config::renew`]): the analysis remembers each lock, thread, stack and process that it ever saw, and
//! the kernel side's maps fill. The sums go on ([`crate::metrics`]). One thread observes and never waits for the network; others serve
//! what the last snapshot said, and push it.

mod args;
mod config;
mod fields;
mod notify;
mod observer;
mod push;
mod serve;
mod shared;
mod told;

use super::ends::Ends;
use super::http::{Listen, Server};
use super::{live, output};
use anyhow::Result;
pub(super) use args::AgentArgs;
use config::Config;
use notify::Notify;
use observer::Observer;
use push::Pusher;
use shared::Shared;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};
use told::Told;

/// How long after an observation that could not begin the next one is tried.
const RETRY: Duration = Duration::from_secs(10);
/// How often it is looked meanwhile whether the service is to end.
const LOOK: Duration = Duration::from_millis(100);

/// Observes and serves until it is asked to end.
///
/// # Errors
/// When the configuration is wrong, nothing can be served, or the first observation cannot begin.
pub(super) fn run(args: &AgentArgs) -> Result<ExitCode> {
    let mut config = Config::load(args)?;
    let token = config.token()?;
    if args.check {
        let path = args.config.as_deref().unwrap_or(Path::new("the default"));
        output::write(format!("{}: no mistakes; {config}\n", path.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let ends = Ends::of_service()?;
    let notify = Notify::from_environment();
    let shared = Arc::new(Shared::new(token, config.interval));
    let mut server = serve::start(&config.listen, shared.clone())?;
    say!("lockbpf: serving http at {}", server.address());
    let mut pusher = Pusher::start(&config.push, &shared)?;
    let mut told = Told::new(config.limits(), config.limits.stacks, shared.clone());
    loop {
        let mut observer = Observer::new(&config, args, &mut told, &notify);
        let observed = live::observe(&config.plan(), None, &mut observer);
        let reloaded = match observed {
            Ok(captured) => observer.finish(captured)?,
            Err(_) if ends.is_asked() => break,
            Err(error) if !told.has_begun() => return Err(error),
            Err(error) => {
                say!("lockbpf: nothing is observed, which is tried again in {} s: {error:#}", RETRY.as_secs());
                told.fault(format!("{error:#}"));
                wait(&ends, &notify);
                if Ends::reload_asked() { config.reloaded(args) } else { None }
            }
        };
        if ends.is_asked() {
            break;
        }
        if let Some((new, token)) = reloaded {
            notify.reloading();
            shared.set(token, new.interval);
            if new.listen != config.listen {
                server = moved(server, &new.listen, &shared)?;
            }
            if new.push != config.push {
                pusher = pushed(pusher, &new, &config, &shared)?;
            }
            told.limit(new.limits(), new.limits.stacks);
            config = new;
            notify.ready();
        }
    }
    notify.stopping();
    drop(pusher);
    drop(server);
    Ok(ExitCode::SUCCESS)
}

/// Serves at another address; where that cannot be had, at the one before.
fn moved(server: Server, to: &Listen, shared: &Arc<Shared>) -> Result<Server> {
    let from = server.address().clone();
    // Both may want the same port.
    drop(server);
    let started = serve::start(to, shared.clone()).or_else(|error| {
        say!("lockbpf: {error:#}; it stays where it was");
        serve::start(&from, shared.clone())
    })?;
    say!("lockbpf: serving http at {}", started.address());
    Ok(started)
}

/// Pushes elsewhere; where that cannot be done, where it did before.
fn pushed(pusher: Option<Pusher>, to: &Config, from: &Config, shared: &Arc<Shared>) -> Result<Option<Pusher>> {
    // Both may want the same directory.
    drop(pusher);
    Pusher::start(&to.push, shared).or_else(|error| {
        say!("lockbpf: {error:#}; it is pushed as before");
        Pusher::start(&from.push, shared)
    })
}

/// Until the next try, unless something is wanted before.
fn wait(ends: &Ends, notify: &Notify) {
    let until = Instant::now() + RETRY;
    while Instant::now() < until && !ends.is_asked() {
        notify.alive();
        sleep(LOOK);
    }
}
