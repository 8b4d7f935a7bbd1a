//! Functions that do nothing but call a probed one: what they request counts for their callers.

use crate::thread::Thread;

impl Thread {
    /// Where a call with this first argument is to be counted, that returns to `returns_to`.
    #[inline(always)]
    pub fn site(&mut self, argument: u64, returns_to: u64) -> u64 {
        if self.wrapper.argument == 0 {
            return returns_to;
        }
        let wrapper = self.wrapper;
        self.wrapper.argument = 0;
        if wrapper.argument == argument { wrapper.site } else { returns_to }
    }
}
