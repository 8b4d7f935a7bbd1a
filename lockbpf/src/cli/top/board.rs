//! The thread that draws and reads keys, so that who observes never waits for the terminal.

use super::digest::{Digest, Snapshot};
use super::keys::{Action, action};
use super::model::{Effect, Model};
use super::screen::{self, Screen};
use super::view::{self, Style};
use crate::cli::destination::Whole;
use crate::cli::messages;
use crate::rights;
use crate::units::Time;
use crate::untrusted::{is_unsafe, shown};
use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often it is looked for keys and snapshots.
const TICK: Duration = Duration::from_millis(100);
/// Snapshots that may wait to be drawn. More are dropped: sums are cumulative, so the next one tells all.
const WAITING: usize = 2;
/// For so long it is waited for a terminal that takes nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the thread is told.
enum Told {
    /// The next snapshot.
    Snapshot(Box<Snapshot>),
    /// This process is about to be stopped: room is to be made, and that to be said.
    Stops(SyncSender<()>),
    /// It goes on.
    GoesOn,
    /// The observation is over.
    Over,
}

/// What both threads see.
#[derive(Debug, Default)]
struct Shared {
    /// Whether the user has had enough.
    done: AtomicBool,
    /// The lock that is looked at.
    chosen: Mutex<Option<String>>,
}

/// The screen, as who observes knows it.
pub(super) struct Board {
    tell: SyncSender<Told>,
    shared: Arc<Shared>,
    thread: JoinHandle<Result<()>>,
}

impl Board {
    /// Opens the screen.
    ///
    /// # Errors
    /// When the terminal does not let it, or no thread can be started.
    pub(super) fn open(start: Time) -> Result<Self> {
        let screen = Screen::open()?;
        let (tell, told) = sync_channel(WAITING);
        let shared = Arc::new(Shared::default());
        let seen = shared.clone();
        let run = move || {
            // It writes files that the user asks for, and observes nobody.
            rights::give_up()?;
            let done = Done(&seen);
            let board = Drawing {
                screen,
                digest: Digest::new(start),
                model: Model::default(),
                style: Style::of_environment(),
                told,
                shared: done.0,
            };
            board.run()
        };
        let thread = thread::Builder::new().name("screen".to_owned()).spawn(run).context("failed to start a thread")?;
        Ok(Self { tell, shared, thread })
    }

    /// Shows a snapshot, as soon as the thread comes to it.
    pub(super) fn show(&self, snapshot: Snapshot) {
        match self.tell.try_send(Told::Snapshot(Box::new(snapshot))) {
            Ok(()) | Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Disconnected(_)) => self.shared.done.store(true, Ordering::Relaxed),
        }
    }

    /// The lock that the user looks at.
    pub(super) fn chosen(&self) -> Option<String> {
        self.shared.chosen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the user has had enough.
    pub(super) fn is_done(&self) -> bool {
        self.shared.done.load(Ordering::Relaxed)
    }

    /// Makes room before this process is stopped, or comes back after that.
    pub(super) fn suspended(&self, stops: bool) {
        if stops {
            let (made, room) = sync_channel(1);
            if self.tell.try_send(Told::Stops(made)).is_err() || room.recv_timeout(PATIENCE).is_err() {
                screen::restore();
            }
        } else {
            let _ = self.tell.try_send(Told::GoesOn);
        }
    }

    /// Closes the screen.
    ///
    /// # Errors
    /// What went wrong with it.
    pub(super) fn close(self) -> Result<()> {
        let _ = self.tell.try_send(Told::Over);
        drop(self.tell);
        let since = Instant::now();
        while !self.thread.is_finished() {
            if since.elapsed() > PATIENCE {
                screen::restore();
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.thread.join().unwrap_or_else(|_| anyhow::bail!("the screen failed"))
    }
}

/// Says at its end, however that comes about, that the user is done.
struct Done<'a>(&'a Shared);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Relaxed);
    }
}

/// The thread's own.
struct Drawing<'a> {
    screen: Screen,
    digest: Digest,
    model: Model,
    style: Style,
    told: Receiver<Told>,
    shared: &'a Shared,
}

impl Drawing<'_> {
    fn run(mut self) -> Result<()> {
        let mut is_stale = true;
        let mut said = 0;
        loop {
            loop {
                match self.told.try_recv() {
                    Ok(Told::Snapshot(snapshot)) => {
                        self.model.take(self.digest.take(*snapshot));
                        is_stale = true;
                    }
                    Ok(Told::Stops(made)) => {
                        screen::restore();
                        let _ = made.send(());
                        // Nothing is drawn until it goes on.
                        while let Ok(told) = self.told.recv() {
                            if matches!(told, Told::GoesOn | Told::Over) {
                                break;
                            }
                        }
                        self.screen.reopen()?;
                        is_stale = true;
                    }
                    Ok(Told::GoesOn) | Err(TryRecvError::Empty) => break,
                    Ok(Told::Over) | Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            if let Some((number, message)) = messages::last().filter(|&(number, _)| number != said) {
                said = number;
                self.model.message = message.lines().next().map(str::to_owned);
                is_stale = true;
            }
            *self.shared.chosen.lock().unwrap_or_else(PoisonError::into_inner) = self.model.lock();
            if is_stale {
                let Self { screen, model, style, .. } = &mut self;
                screen
                    .terminal
                    .draw(|frame| view::draw(model, style, frame))
                    .context("failed to draw on the terminal")?;
                is_stale = false;
            }
            let mut pause = TICK;
            while event::poll(pause).context("failed to read keys")? {
                is_stale = true;
                pause = Duration::ZERO;
                match event::read().context("failed to read keys")? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => self.press(key)?,
                    _ => {}
                }
            }
        }
    }

    fn press(&mut self, key: KeyEvent) -> Result<()> {
        if !self.model.is_typing() || key.modifiers.contains(KeyModifiers::CONTROL) {
            return self.effect(action(key));
        }
        match key.code {
            KeyCode::Char(c) if !is_unsafe(c) => self.model.type_in(c),
            KeyCode::Backspace => self.model.erase(),
            KeyCode::Enter => self.model.end_typing(true),
            KeyCode::Esc => self.model.end_typing(false),
            _ => {}
        }
        Ok(())
    }

    fn effect(&mut self, meant: Option<Action>) -> Result<()> {
        match meant.map_or(Effect::None, |action| self.model.act(action)) {
            Effect::None => {}
            Effect::Export(json) => {
                let at = self.model.frame().map_or(0, |frame| frame.at_ns);
                self.model.message = Some(match export(&json, at) {
                    Ok(path) => format!("written to {}", shown(&path.display().to_string())),
                    Err(error) => format!("{error:#}"),
                });
            }
            Effect::Suspend => kill(Pid::this(), Signal::SIGTSTP).context("failed to stop this process")?,
            Effect::Quit => self.shared.done.store(true, Ordering::Relaxed),
        }
        Ok(())
    }
}

/// Writes what is shown to a file that was not there.
fn export(json: &str, at_ns: u64) -> Result<PathBuf> {
    let name = |n: u32| {
        let again = if n == 0 { String::new() } else { format!("-{n}") };
        format!("lockbpf-top-{}-{}s{again}.json", std::process::id(), at_ns / 1_000_000_000)
    };
    let name = (0..).map(name).find(|name| !Path::new(name).exists()).unwrap_or_default();
    let path = std::env::current_dir().map_or_else(|_| PathBuf::from(&name), |dir| dir.join(&name));
    let mut file = Whole::create(&path)?;
    file.write_all(json.as_bytes()).with_context(|| format!("failed to write {}", path.display()))?;
    file.finish()?;
    Ok(path)
}
