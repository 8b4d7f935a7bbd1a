//! Names for addresses, as the report asks for them. Live, the answers come from symbol tables and debug information,
//! and from tables in tests: the report itself reads no file.

use crate::id::{Lock, Process, Site, Tid};
use crate::stack::Role;
use lockbpf_common::goroutine::{self, Goroutine};
use lockbpf_common::task::{self, Task};

/// Beginnings of the names, in lower case, of functions that are inlined and lock or wait for the program: of libstdc++, of Go's `sync`, of tokio.
const WAITING: &[&str] = &[
    "std::__detail::__",
    "std::__atomic",
    "std::barrier<",
    "std::__tree_barrier",
    "std::latch::",
    "std::counting_semaphore",
    "sync.(*",
    "tokio::sync::",
    "<tokio::sync::",
];

/// One function on a stack; inlined functions are frames of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Demangled name; `None` where no symbol covers the address.
    pub function: Option<String>,
    /// Source file and line, if debug information has them.
    pub location: Option<(String, u32)>,
    /// Object file (base name) and offset in it. Of a function without a name it is where the function begins, if unwind information tells.
    pub module: Option<(String, u64)>,
    /// The address itself.
    pub addr: u64,
    /// Whether the compiler inlined this function into the next frame.
    pub inlined: bool,
}

impl Frame {
    /// `function (file:line)`, or the best that is known instead.
    #[must_use]
    pub fn symbol(&self) -> String {
        let name = match (&self.function, &self.module) {
            (Some(function), _) => function.clone(),
            (None, Some((module, offset))) => format!("{module}+{offset:#x}"),
            (None, None) => format!("{:#x}", self.addr),
        };
        match &self.location {
            Some((file, line)) => format!("{name} ({}:{line})", file.rsplit('/').next().unwrap_or(file)),
            None => name,
        }
    }

    /// The frame that [`Frame::symbol`] describes; a text of another form is a function's name as a whole.
    #[must_use]
    pub fn from_symbol(text: &str) -> Self {
        let parts = text.strip_suffix(')').and_then(|text| {
            let (function, place) = text.rsplit_once(" (")?;
            let (file, line) = place.rsplit_once(':')?;
            Some((function.to_owned(), (file.to_owned(), line.parse().ok()?)))
        });
        match parts {
            Some((function, location)) => {
                Self { function: Some(function), location: Some(location), ..Self::default() }
            }
            None => Self { function: Some(text.to_owned()), ..Self::default() },
        }
    }

    /// Whether it is a lock call's wrapper that was inlined where the reader's own code stands (`lock_guard`,
    /// `inline_mysql_mutex_lock`, `call_once` and the like), or a closure that has no name to go by.
    pub(crate) fn is_wrapper(&self) -> bool {
        let name = self.function.as_deref().unwrap_or_default().to_ascii_lowercase();
        let drops = name.starts_with("core::mem::drop") || name.starts_with("core::ptr::drop_in_place");
        let name = name.replace("block", "").replace("clock", "");
        let locks = ["lock", "mutex", "call_once", "gthread_"].into_iter().any(|part| name.contains(part));
        self.inlined && (drops || name.starts_with('{') || locks || WAITING.iter().any(|start| name.starts_with(start)))
    }
}

/// The one of the functions at a site, innermost first, that a reader knows it by.
#[must_use]
pub fn place(frames: &[Frame]) -> Option<&Frame> {
    let own = frames.iter().find(|frame| !frame.is_wrapper()).or(frames.last())?;
    let is = |frame: &Frame, part: &str| frame.function.as_deref().is_some_and(|name| name.contains(part));
    // A thread of Rust's is often nothing but closures in this function: the innermost has at least a line.
    let closure = || frames.iter().find(|frame| frame.inlined && is(frame, "{closure"));
    if is(own, "__rust_begin_short_backtrace") { closure().or(Some(own)) } else { Some(own) }
}

/// The name of a goroutine, a task or a virtual thread; `None` for a thread of the system's.
fn name_of_no_thread(tid: Tid) -> Option<String> {
    match task::task(tid.0) {
        Some(Task::Of(address)) => return Some(format!("task at …{address:x}")),
        Some(Task::Readers(lock)) => return Some(format!("readers of …{lock:x}")),
        Some(Task::Virtual(number)) => return Some(format!("virtual thread {number}")),
        None => {}
    }
    Some(match goroutine::goroutine(tid.0)? {
        Goroutine::Number(number) => format!("goroutine {number}"),
        Goroutine::Address(address) => format!("goroutine at …{address:x}"),
    })
}

/// Source of names.
pub trait Names {
    /// The functions at a return address, innermost (most deeply inlined) first; never empty.
    fn frames(&mut self, process: Process, return_addr: u64) -> Vec<Frame>;

    /// The name of a lock from the symbol tables and debug information: `cache_lock`, `table[1].lock`, or `table+0x28`
    /// without the latter; `None` for the heap and stacks.
    fn global(&mut self, lock: Lock) -> Option<String>;

    /// Whether a lock that has no name is known to be on a thread's stack.
    fn is_on_stack(&mut self, _lock: Lock) -> bool {
        false
    }

    /// The member that holds the lock which is asked for at a site, behind its object's type, if that is certain:
    /// `session.queue.lock`.
    fn member(&mut self, _site: Site) -> Option<String> {
        None
    }

    /// A stack as the kernel walked it, innermost first, as return addresses from `site` (the place that requested the
    /// lock, if it is known) outwards.
    fn call_stack(&mut self, process: Process, raw: &[u64], site: Option<u64>) -> Vec<u64>;

    /// The same of a stack that may have been taken where the lock was given back: if the function that did so had also asked for it, at
    /// `site`, that stands for both.
    fn section_stack(&mut self, process: Process, raw: &[u64], site: Option<u64>) -> Vec<u64> {
        let mut stack = self.call_stack(process, raw, site);
        if let (Some(site), &[first, second, ..]) = (site, stack.as_slice())
            && first == site
            && !raw.contains(&site)
        {
            let [asked, gave_back] = [first, second].map(|addr| {
                let Frame { function, module, .. } = self.frames(process, addr).pop()?;
                match function {
                    Some(_) => Some((function, module.map(|(module, _)| (module, 0)))),
                    None => module.map(|module| (None, Some(module))),
                }
            });
            if asked.is_some() && asked == gave_back {
                stack.remove(1);
            }
        }
        stack
    }

    /// What a return address on a stack is to a reader: what [`Names::call_stack`] goes by.
    fn role(&mut self, _process: Process, _return_addr: u64) -> Role {
        Role::Program
    }

    /// A stack as the kernel walked it, innermost first, with the C library's own frames: in what a thread slept.
    fn whole_stack(&mut self, process: Process, raw: &[u64]) -> Vec<u64> {
        raw.iter().copied().take_while(|&addr| self.role(process, addr) != Role::Nothing).collect()
    }

    /// What the input itself calls a lock, if its locks have identities of their own (event lines).
    fn lock_id(&mut self, _lock: Lock) -> Option<String> {
        None
    }

    /// What the input itself calls a static critical section.
    fn site_id(&mut self, _site: Site) -> Option<String> {
        None
    }

    /// What the input itself calls a thread, where that is not its number; a goroutine or a task by its own.
    fn thread_id(&mut self, tid: Tid) -> Option<String> {
        name_of_no_thread(tid)
    }

    /// The number that the input itself calls a thread, where [`Names::thread_id`] is a number too large for [`Tid`].
    fn thread_number(&mut self, _tid: Tid) -> Option<u64> {
        None
    }

    /// The name of a thread, where the input has one (event lines).
    fn comm(&mut self, _tid: Tid) -> Option<String> {
        None
    }

    /// The name of a lock's kind, where the input or the user has one for it.
    fn kind(&mut self, _lock: Lock) -> Option<String> {
        None
    }

    /// The function that a site lies in, without inlining, as a short label: `assoc_insert`.
    fn function(&mut self, site: Site) -> Option<String> {
        self.frames(site.process, site.addr).pop().and_then(|f| f.function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_a_closure_has_its_place_there() {
        let frame = |name: &str, inlined| Frame { function: Some(name.to_owned()), inlined, ..Frame::default() };
        let begins = "std::sys::backtrace::__rust_begin_short_backtrace";
        let frames =
            [frame("lock<u64>", true), frame("{closure#3}", true), frame("{closure#0}", true), frame(begins, false)];
        assert_eq!(place(&frames), Some(&frames[1]));
        let frames = [frame("{closure#3}", true), frame("search", true), frame(begins, false)];
        assert_eq!(place(&frames), Some(&frames[1]));
        assert_eq!(place(&[frame(begins, false)]).map(Frame::symbol).as_deref(), Some(begins));
    }

    #[test]
    fn inlined_functions_of_libraries_that_lock_or_wait_are_passed_over() {
        let frame = |name: &str, inlined| Frame { function: Some(name.to_owned()), inlined, ..Frame::default() };
        for inlined in [
            &["sync.(*Once).Do"][..],
            &["std::__detail::__platform_notify<int>", "std::barrier<std::__empty_completion>::arrive"],
            &["__gthread_once", "std::call_once<main::<lambda()> >"],
        ] {
            let mut frames: Vec<_> = inlined.iter().map(|name| frame(name, true)).collect();
            frames.push(frame("own", false));
            assert_eq!(place(&frames), frames.last());
        }
        // Not inlined it is all that is known.
        let library = [frame("sync.(*Once).Do", false)];
        assert_eq!(place(&library), library.first());
    }

    #[test]
    fn symbols_are_read_back() {
        for text in ["f", "f (wal.c:210)", "operator() (int)", "a::b<c (d)> (x.rs:1)", "f (wal.c:-1)", ""] {
            assert_eq!(Frame::from_symbol(text).symbol(), text);
        }
        let frame = Frame::from_symbol("flush (wal.c:210)");
        assert_eq!((frame.function.as_deref(), frame.location), (Some("flush"), Some(("wal.c".to_owned(), 210))));
    }
}
