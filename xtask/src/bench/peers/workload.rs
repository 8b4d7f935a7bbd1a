//! What the tools observe.

use anyhow::Result;
use serde::Serialize;

use super::kyoto::{self, Kyoto};
use crate::{
    bench::{
        locker::{Kind, Program},
        mariadb::{self, Mariadb},
        memcached::{self, Memcached},
        server::Loaded,
        wrapper::Wrapper,
    },
    workspace,
};

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// A lock that is taken and released as fast as possible
    Tight,
    /// Critical sections of 2,000 iterations
    Sections,
    /// Four threads with nested locks
    Nested,
    /// memcached under load
    Memcached,
    /// MariaDB under sysbench
    Mariadb,
    /// kccachetest wicked
    Kyoto,
    /// 64 threads and 16 locks
    Threads,
}

impl Workload {
    /// All of them, in the order of the table.
    pub(super) const ALL: [Self; 7] =
        [Self::Tight, Self::Sections, Self::Nested, Self::Memcached, Self::Mariadb, Self::Kyoto, Self::Threads];

    /// How a table names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tight => "tight loop",
            Self::Sections => "2,000 iterations",
            Self::Nested => "nested, 4 threads",
            Self::Memcached => memcached::NAME,
            Self::Mariadb => mariadb::NAME,
            Self::Kyoto => kyoto::PROGRAM,
            Self::Threads => "64 threads",
        }
    }

    /// Whether a resting instance may be stopped, so that it does nothing by itself. memcached's load would not forgive
    /// that an answer takes minutes.
    pub(super) fn rests_by_signal(self) -> bool {
        self != Self::Memcached
    }

    fn kind(self) -> Option<Kind> {
        match self {
            Self::Tight => Some(Kind { name: "tight", count: 1, text: "one thread, an uncontended lock" }),
            Self::Sections => {
                Some(Kind { name: "sections", count: 1, text: "one thread, 2,000 iterations in a section" })
            }
            Self::Nested => Some(Kind { name: "nested", count: 4, text: "4 threads, a lock inside of another one" }),
            Self::Threads => Some(Kind { name: "shared", count: 64, text: "64 threads, 16 locks" }),
            Self::Memcached | Self::Mariadb | Self::Kyoto => None,
        }
    }

    /// The Debian packages that it needs and a program of each.
    pub(super) fn packages(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Memcached => &[("memcached", "memcached")],
            Self::Mariadb => &[("mariadb-server", "mariadbd"), ("sysbench", "sysbench")],
            Self::Kyoto => &[(kyoto::PACKAGE, kyoto::PROGRAM)],
            Self::Tight | Self::Sections | Self::Nested | Self::Threads => &[],
        }
    }

    /// Why it cannot be measured here, if so.
    pub(super) fn missing(self) -> Option<String> {
        let missing = self.packages().iter().find(|(_, program)| workspace::find_program(program).is_none());
        missing.map(|(package, _)| format!("{package} is not installed"))
    }
}

/// Starts instances of a workload.
pub(super) struct Starter<'a> {
    /// Which one.
    pub(super) workload: Workload,
    /// The compiled program of the artificial ones.
    pub(super) program: &'a Program,
}

impl Starter<'_> {
    /// Starts one as the wrapper says.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(&self, wrapper: &Wrapper) -> Result<Box<dyn Loaded>> {
        if let Some(kind) = self.workload.kind() {
            return Ok(Box::new(self.program.start(kind, wrapper)?));
        }
        Ok(match self.workload {
            Workload::Memcached => Box::new(Memcached::start(wrapper)?),
            Workload::Mariadb => Box::new(Mariadb::start(wrapper)?),
            _ => Box::new(Kyoto::start(wrapper)?),
        })
    }
}
