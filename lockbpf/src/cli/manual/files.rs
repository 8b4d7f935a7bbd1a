//! Which files and variables commands go by that are named by no option.

/// Commands that place probes, and so want to know what these cost.
const PRICED: &[&str] =
    &["lockbpf", "demo", "top", "export", "agent", "doctor", "predict", "access", "advise", "select"];
/// Commands that observe locks, those described by files too.
const OBSERVING: &[&str] = &["lockbpf", "demo", "top", "export", "agent", "doctor", "locks", "select"];

/// A file or a variable, and who goes by it.
pub(super) struct Known {
    /// Its name.
    pub(super) name: &'static str,
    /// What it is for, as a sentence.
    pub(super) what: &'static str,
    /// The commands, `lockbpf` for itself; none for all.
    commands: &'static [&'static str],
}

impl Known {
    /// Whether a command goes by it.
    pub(super) fn is_of(&self, command: &str) -> bool {
        self.commands.is_empty() || self.commands.contains(&command)
    }
}

/// Files.
pub(super) const FILES: &[Known] = &[
    Known {
        name: "/etc/lockbpf/agent.toml",
        what: "The configuration of the service, lockbpf.service; each option is explained there.",
        commands: &["lockbpf", "agent"],
    },
    Known {
        name: "/etc/lockbpf/locks.d/",
        what: "Descriptions of locks that every observation goes by (docs/locks.md).",
        commands: OBSERVING,
    },
    Known {
        name: "/var/lib/lockbpf/push/",
        what: "What the service has still to push, unless its configuration names another directory.",
        commands: &["agent"],
    },
    Known {
        name: "$XDG_CACHE_HOME/lockbpf/costs.json, else below /var/cache/ (root) or ~/.cache/",
        what: "What probes cost on this machine, as measured at the first start after a boot. May be deleted.",
        commands: PRICED,
    },
    Known {
        name: "$XDG_STATE_HOME/lockbpf/calibration-*.json, else below ~/.local/state/",
        what: "What locks cost on this machine, for predictions.",
        commands: &["lockbpf", "calibrate", "predict"],
    },
    Known {
        name: "/usr/share/doc/lockbpf/",
        what: "The documents that are named as docs/..., in Debian's package.",
        commands: &[],
    },
];

/// Variables.
pub(super) const VARIABLES: &[Known] = &[
    Known { name: "LOCKBPF_LOG", what: "What is logged on stderr: error, warn, info, debug or trace.", commands: &[] },
    Known {
        name: "LOCKBPF_HOST",
        what: "What this machine is called in what the service pushes; without it, its host name.",
        commands: &["agent"],
    },
    Known {
        name: "DEBUGINFOD_URLS",
        what: "Servers of debug files. If it names any, debuginfod-find(1) is asked for those that this machine lacks.",
        commands: OBSERVING,
    },
    Known { name: "NO_COLOR", what: "If it is set, nothing is coloured.", commands: &["top"] },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command::Cli;
    use clap::CommandFactory;

    #[test]
    fn commands_are_those_that_there_are() {
        let cli = Cli::command();
        let mut names: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
        names.push(cli.get_name());
        for known in FILES.iter().chain(VARIABLES) {
            for command in known.commands {
                assert!(names.contains(command), "{} is of no command {command}", known.name);
            }
        }
    }
}
