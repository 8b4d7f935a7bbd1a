//! Who ends the waits of others: threads that take what they give, as with a lock, or others.

use crate::id::Tid;
use crate::tally::{Tally, TopTallies};
use std::ops::AddAssign;

/// Threads and their waits.
pub type Threads = TopTallies<Tid, 32>;

/// Waits from which on it is believed that others give than those who take.
const ENOUGH: u64 = 8;

/// Waits that others ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// All of which it is known who did.
    pub all: Tally,
    /// Those that were ended by threads which take what they give.
    pub back: Tally,
    /// Whether some threads are not known, since there was no room for them.
    pub crowded: bool,
}

impl Given {
    /// The waits that these threads ended, some of whom take what they give.
    pub(super) fn by(givers: &Threads, takes: impl Fn(Tid) -> bool) -> Self {
        let mut given = Self { crowded: givers.rest().count > 0, ..Self::default() };
        for (giver, waits) in givers.top() {
            given.all += waits;
            if takes(giver) {
                given.back += waits;
            }
        }
        given
    }

    /// Whether threads give back what they have taken: three quarters of the waits, and of their time. Of those that hand work on to one another
    /// each second wait may look like that, for most of the time (`SimpleQueue.get` of CPython until 3.12).
    #[must_use]
    pub fn is_back(&self) -> bool {
        let most = |back: u64, all: u64| u128::from(back) * 4 > u128::from(all) * 3;
        most(self.back.count, self.all.count) && most(self.back.time.0, self.all.time.0)
    }

    /// Whether it is certain that others give than those who take. Then nobody holds what is waited for.
    #[must_use]
    pub fn is_work(&self) -> bool {
        !self.crowded && self.all.count >= ENOUGH && !self.is_back()
    }
}

impl AddAssign for Given {
    fn add_assign(&mut self, other: Self) {
        self.all += other.all;
        self.back += other.back;
        self.crowded |= other.crowded;
    }
}
