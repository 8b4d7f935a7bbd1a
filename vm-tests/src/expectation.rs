//! What a kernel is expected to offer: said by the host, which knows the kernel, and demanded in the machine.

use std::{fmt, str::FromStr};

/// How lockbpf must behave on a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// Too old: refused, with the oldest supported kernel named.
    Refused,
    /// Neither uprobe sessions nor links of many functions: probes are perf events.
    PerfEvents,
    /// Links of many functions, but no sessions.
    Links,
    /// As [`Links`](Self::Links); and a process that filters its system calls is killed where its returns are watched.
    LinksKillFiltered,
    /// Uprobe sessions.
    Sessions,
}

impl Expectation {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Refused, Self::PerfEvents, Self::Links, Self::LinksKillFiltered, Self::Sessions];

    fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::PerfEvents => "perf-events",
            Self::Links => "links",
            Self::LinksKillFiltered => "links-kill-filtered",
            Self::Sessions => "sessions",
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Expectation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|e| e.name() == text).ok_or_else(|| format!("no expectation is called {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for expectation in Expectation::ALL {
            assert_eq!(expectation.to_string().parse(), Ok(expectation));
        }
        assert!("".parse::<Expectation>().is_err());
    }
}
