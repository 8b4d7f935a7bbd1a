//! What the agent observes: servers under load by turns, programs that last, and others that come, go and are killed.

use std::{process::Command, time::Duration};

use anyhow::{Context as _, Result};

use crate::{
    bench::{
        child::Child,
        harm::target::{Kind, Programs, Target},
        interrupt, mariadb,
        memcached::Memcached,
        server::Loaded,
        wrapper::Wrapper,
    },
    workspace,
};

/// How long a program lives that comes and is killed.
const SHORT: Duration = Duration::from_millis(200);
/// So many of them in each turn.
const SHORT_ONES: u32 = 4;
/// The program in Java that is observed.
const JAVA: &str = "tests/workloads/Monitors.java";

/// All that runs.
pub(super) struct Mix {
    servers: Vec<Box<dyn Loaded>>,
    java: Option<Child>,
    lasting: Vec<(Kind, Target)>,
    programs: Programs,
    turns: usize,
}

impl Mix {
    /// Starts what there is on this machine.
    ///
    /// # Errors
    /// Something of it does not start.
    pub(super) fn start() -> Result<Self> {
        let is_there = |programs: &[&str]| programs.iter().all(|program| workspace::find_program(program).is_some());
        let mut servers: Vec<Box<dyn Loaded>> = vec![Box::new(Memcached::start(&Wrapper::none())?)];
        if is_there(&mariadb::PROGRAMS) {
            let mut server = mariadb::Mariadb::start(&Wrapper::none())?;
            server.pause()?;
            servers.push(Box::new(server));
        }
        let java = is_there(&["java"]).then(java).transpose()?;
        let programs = Programs::compile()?;
        let kinds = Kind::ALL.into_iter().filter(|&kind| programs.has(kind));
        let lasting = kinds.map(|kind| Ok((kind, programs.start(kind)?))).collect::<Result<_>>()?;
        Ok(Self { servers, java, lasting, programs, turns: 0 })
    }

    /// What it is made of.
    pub(super) fn names(&self) -> Vec<String> {
        let servers = self.servers.iter().map(|server| server.name().to_owned());
        let java = self.java.iter().map(|_| "Java".to_owned());
        servers.chain(java).chain(self.lasting.iter().map(|(kind, _)| kind.name().to_owned())).collect()
    }

    /// Goes on for so long: one server after the other has load for half of it, and some programs come and are killed.
    ///
    /// # Errors
    /// A server is gone, or the run was interrupted.
    pub(super) fn turn(&mut self, time: Duration) -> Result<()> {
        let number = self.servers.len();
        self.turns += 1;
        let loaded = self.turns % number;
        self.servers[loaded].resume()?;
        interrupt::sleep(time / 2)?;
        self.servers[loaded].pause()?;
        for short in 0..SHORT_ONES {
            let kind = if short % 2 == 0 { Kind::Threading } else { Kind::Forking };
            let target = self.programs.start(kind)?;
            interrupt::sleep(SHORT)?;
            drop(target);
        }
        interrupt::sleep((time / 2).saturating_sub(SHORT * SHORT_ONES))
    }

    /// Which of the programs that last have died, or hang.
    ///
    /// # Errors
    /// They cannot be looked at.
    pub(super) fn harmed(&mut self) -> Result<Vec<String>> {
        let mut harmed = Vec::new();
        for server in &mut self.servers {
            harmed.extend(server.requests().err().map(|error| format!("{}: {error:#}", server.name())));
        }
        if let Some(java) = &mut self.java {
            harmed.extend(java.check_alive().err().map(|error| format!("Java: {error:#}")));
        }
        for (kind, target) in &mut self.lasting {
            let death = target.death()?.or(if target.gets_on()? { None } else { Some("it hangs".to_owned()) });
            harmed.extend(death.map(|death| format!("{}: {death}", kind.name())));
        }
        Ok(harmed)
    }
}

/// A program of which two threads contend for a monitor.
fn java() -> Result<Child> {
    let mut command = Command::new("java");
    command.arg(workspace::root().join(JAVA)).args(["load", "2"]);
    let mut java = Child::start(&mut command).context("failed to start the program in Java")?;
    java.expect_out(|line| (line == "ready").then_some(()))?;
    java.tell("")?;
    Ok(java)
}
