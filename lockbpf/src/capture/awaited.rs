//! What processes say that they wait for, read from a variable of theirs ([`crate::custom::Waiting`]): it may change at any moment, and be nonsense.

use super::owner::read;
use crate::custom::{Described, Waiting, address};
use crate::id::Tid;
use lockbpf_common::custom::{Place, numbered};

/// A lock for which a process waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The lock, by its numbers.
    pub lock: u64,
    /// Who holds it, as the program numbers threads, if it says.
    pub owner: Option<Tid>,
    /// Where the single lock is.
    at: u64,
}

impl Awaited {
    /// That of a process in which the variable is at `variable`; `None` while it waits for none of this kind.
    #[must_use]
    pub fn of(pid: u32, variable: u64, kind: &Described, waiting: &Waiting) -> Option<Self> {
        let pointer = |from| read::<8>(pid, from).map(u64::from_ne_bytes);
        let at = address(variable, &waiting.lock, pointer).filter(|&at| at != 0)?;
        let place = |place: &Place| address(at, place, pointer).filter(|_| place.is_known());
        let word = |of: &Place| read::<4>(pid, place(of)?).map(u32::from_ne_bytes);
        let [number] = read::<1>(pid, place(&kind.kernel.name)?)?;
        let is_parted = kind.kernel.parted.checked_shr(number.into()).is_some_and(|parted| parted & 1 != 0);
        let part = if is_parted { word(&kind.kernel.part)? } else { 0 };
        let owner = word(&waiting.owner).filter(|&owner| owner != 0).map(Tid);
        Some(Self { lock: numbered(number.into(), part.into()), owner, at })
    }

    /// Whether it is the same single lock.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.lock, self.at) == (other.lock, other.at)
    }
}
