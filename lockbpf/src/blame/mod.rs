//! Who held a lock while others waited for it.

/// Accumulates section events into shares of waiting per holder site.
#[derive(Clone, Debug, Default)]
pub struct Blame;
