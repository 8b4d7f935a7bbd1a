//! What is to be tested in a machine: said by the host, which knows the kernel and the processor, and demanded in the machine.

use std::{fmt, str::FromStr};

use crate::expectation::Expectation;

/// The tests that are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All that fit the kernel and the processor.
    All,
    /// Those of what the processor counts.
    Counters,
    /// All but these.
    Core,
    /// A few, for every change.
    Few,
}

impl Selection {
    const ALL: [Self; 4] = [Self::All, Self::Counters, Self::Core, Self::Few];

    fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Counters => "counters",
            Self::Core => "core",
            Self::Few => "few",
        }
    }
}

/// A machine's task: the words of the init's command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How lockbpf must behave on the kernel.
    pub expectation: Expectation,
    /// Which tests are run.
    pub selection: Selection,
    /// Cycles that the processor takes for each instruction; `None` if it counts neither.
    pub cycles_per_instruction: Option<u32>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.expectation, self.selection.name())?;
        self.cycles_per_instruction.map_or(Ok(()), |cycles| write!(f, " {cycles}"))
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = text.split_whitespace();
        let expectation = words.next().unwrap_or_default().parse()?;
        let selection = words.next().unwrap_or_default();
        let selection = Selection::ALL
            .into_iter()
            .find(|known| known.name() == selection)
            .ok_or_else(|| format!("no selection of tests is called {selection:?}"))?;
        let cycles = words.next().map(|word| word.parse().map_err(|_| format!("{word:?} is no number of cycles")));
        match words.next() {
            Some(word) => Err(format!("{word:?} is one word too many")),
            None => Ok(Self { expectation, selection, cycles_per_instruction: cycles.transpose()? }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_back() {
        for selection in Selection::ALL {
            for cycles_per_instruction in [None, Some(2)] {
                let plan = Plan { expectation: Expectation::PerfEvents, selection, cycles_per_instruction };
                assert_eq!(plan.to_string().parse(), Ok(plan));
            }
        }
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        for text in ["", "sessions", "sessions some", "sessions all fast", "sessions all 1 2"] {
            assert!(text.parse::<Plan>().is_err(), "{text}");
        }
    }
}
