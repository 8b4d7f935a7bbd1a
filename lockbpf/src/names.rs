//! Names for addresses, as the report asks for them. The answers come from [`crate::symbol`] when capture is live, and
//! from tables in tests: the report itself reads no file.

use crate::id::{Lock, Process, Site, Tid};
use crate::stack::Role;

/// One function on a stack; inlined functions are frames of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Demangled name; `None` where no symbol covers the address.
    pub function: Option<String>,
    /// Source file and line, if debug information has them.
    pub location: Option<(String, u32)>,
    /// Object file (base name) and offset in it, for addresses without a symbol.
    pub module: Option<(String, u64)>,
    /// The address itself.
    pub addr: u64,
    /// Whether the compiler inlined this function into the next frame.
    pub inlined: bool,
}

/// Source of names.
pub trait Names {
    /// The functions at a return address, innermost (most deeply inlined) first; never empty.
    fn frames(&mut self, process: Process, return_addr: u64) -> Vec<Frame>;

    /// The name of a lock from the symbol tables, `cache_lock` or `table+0x28`; `None` for the heap and stacks.
    fn global(&mut self, lock: Lock) -> Option<String>;

    /// A stack as the kernel walked it, innermost first, as return addresses from `site` (the place that requested the
    /// lock, if it is known) outwards.
    fn call_stack(&mut self, process: Process, raw: &[u64], site: Option<u64>) -> Vec<u64>;

    /// What a return address on a stack is to a reader: what [`Names::call_stack`] goes by.
    fn role(&mut self, _process: Process, _return_addr: u64) -> Role {
        Role::Program
    }

    /// What the input itself calls a lock, if its locks have identities of their own (event lines).
    fn lock_id(&mut self, _lock: Lock) -> Option<String> {
        None
    }

    /// What the input itself calls a static critical section.
    fn site_id(&mut self, _site: Site) -> Option<String> {
        None
    }

    /// What the input itself calls a thread, where that is not its number.
    fn thread_id(&mut self, _tid: Tid) -> Option<String> {
        None
    }

    /// The name of a lock's kind, where it is none that this crate knows.
    fn kind(&mut self, _lock: Lock) -> Option<String> {
        None
    }

    /// The function that a site lies in, without inlining, as a short label: `assoc_insert`.
    fn function(&mut self, site: Site) -> Option<String> {
        self.frames(site.process, site.addr).pop().and_then(|f| f.function)
    }
}
