//! How a tool that cannot attach starts the program that it observes: a command before it, or variables around it.

use std::{ffi::OsString, path::Path, process::Command};

/// What makes a program run under a tool. Its process id stays the one that was started.
#[derive(Clone, Debug, Default)]
pub(super) struct Wrapper {
    prefix: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
}

impl Wrapper {
    /// The program by itself.
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// Whether it is the program by itself.
    pub(super) fn is_none(&self) -> bool {
        self.prefix.is_empty() && self.env.is_empty()
    }

    /// A command that executes the program named by its last arguments.
    pub(super) fn prefix(words: impl IntoIterator<Item = OsString>) -> Self {
        Self { prefix: words.into_iter().collect(), env: Vec::new() }
    }

    /// The program, with a library loaded before all others.
    pub(super) fn preload(library: impl Into<OsString>) -> Self {
        Self { prefix: Vec::new(), env: vec![("LD_PRELOAD", library.into())] }
    }

    /// A command for `program`, whose arguments can be added.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut words = self.prefix.iter().map(OsString::as_os_str).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or(program.as_os_str()));
        command.args(words).envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::describe;

    #[test]
    fn the_program_comes_last_with_its_own_arguments() {
        let wrapper = Wrapper::prefix(["valgrind", "--tool=drd"].map(OsString::from));
        assert_eq!(describe(wrapper.command(Path::new("/bin/p")).arg("x")), "valgrind --tool=drd /bin/p x");
        assert_eq!(describe(&Wrapper::none().command(Path::new("/bin/p"))), "/bin/p");
    }

    #[test]
    fn a_preloaded_library_is_a_variable() {
        let command = Wrapper::preload("lib.so").command(Path::new("/bin/p"));
        let found: Vec<_> = command.get_envs().collect();
        assert_eq!(found, [("LD_PRELOAD".as_ref(), Some("lib.so".as_ref()))]);
    }
}
