//! Who calls locking functions: found among the words at the top of a stack, by the code around them where symbols do not tell.

use super::files::{FileId, ObjectFile};
use super::find::Kind;
use super::space::Place;
use super::unwind::Unwinder;
use super::{Symbols, call_instruction, runtime, system_call, tail_call};
use crate::id::Process;
use crate::names::Names;
use crate::stack::Role;
use crate::unwind::{MACHINE, Registers, StackCopy, Unwind};
use lockbpf_common::python::IN_TOP;
use lockbpf_common::record::LOW48;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

/// Calls that are looked for around one.
const AROUND: usize = 2;

/// Where the words at the top of a stack are taken to begin. Only distances count.
const TOP: u64 = 1 << 20;

impl Symbols {
    /// The return address into the program's own code that comes first among the words at the top of a stack: the caller
    /// of the C library's function that sleeps there. A word left over from an earlier call may be mistaken for it.
    ///
    /// Called for every event, so it looks at mappings only, or at the code of few functions: reading the symbols of a large file takes
    /// seconds.
    #[must_use]
    pub fn caller_among(&mut self, process: Process, words: &[u64]) -> Option<u64> {
        let mut find = |is: fn(&mut Self, Process, u64) -> bool| {
            words.iter().copied().find(|&word| is(self, process, word) && self.follows_call(process, word))
        };
        // Where all that is to be seen belongs to described locks, that is told.
        let caller = find(Self::is_caller).or_else(|| find(Self::belongs_to_described));
        let is_interpreter = |caller: u64| {
            let code = self.processes.get(&process).and_then(|known| known.interpreter.as_ref());
            code.is_some_and(|code| code.contains(&caller.wrapping_sub(1)))
        };
        if !caller.is_none_or(is_interpreter) {
            return caller;
        }
        // The function that it runs is wanted, and of these the one that uses the locks' modules.
        let functions: Vec<_> = words
            .iter()
            .filter(|&word| word & IN_TOP != 0)
            .map(|word| word & !IN_TOP)
            .filter(|&address| address <= LOW48)
            .collect();
        let outside = functions.iter().find(|&&function| self.role(process, function) != Role::Locking);
        outside.or(functions.first()).copied().or(caller)
    }

    /// The nearest of the calls that led to a return address among the words at the top of a stack, innermost first, as far as these words
    /// tell: frames of functions that keep a frame pointer are not found by the stack pointer alone. Callers that were left by a jump are put in.
    #[must_use]
    pub fn calls_around(&mut self, process: Process, words: &[u64], return_addr: u64) -> Vec<u64> {
        let Some(at) = words.iter().position(|&word| word == return_addr) else { return Vec::new() };
        let above = words.get(at + 1..).unwrap_or_default();
        let mut registers = Registers::of(return_addr.wrapping_sub(1), TOP, 0);
        registers.set(MACHINE.frame_pointer, None);
        let bytes = above.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let copy = StackCopy::top(process, registers, TOP, bytes);
        let calls = self.unwind(&copy).addresses.into_iter().skip(1).take(AROUND);
        let mut calls: Vec<_> = calls.take_while(|&call| self.follows_call(process, call)).collect();
        if let Some(&caller) = calls.first()
            && let Some(left) = self.left_between(process, return_addr, caller)
        {
            calls.insert(0, left);
        }
        calls
    }

    /// Where the function gave a lock back that is on the stack with this return address, or one that it had called: that may have jumped to the
    /// C library's, and so be on no stack.
    #[must_use]
    pub fn releaser(&mut self, process: Process, return_addr: u64) -> u64 {
        self.left_by_jump(process, return_addr).unwrap_or(return_addr)
    }

    /// Base name of the file into whose code a return address leads.
    #[must_use]
    pub fn file_of(&self, process: Process, return_addr: u64) -> Option<&str> {
        match self.processes.get(&process)?.space.place(return_addr.wrapping_sub(1), &self.files)? {
            Place::File(id, _) => self.files.get(id).map(|file| file.name.as_str()),
            Place::Region(..) => None,
        }
    }

    /// Leaves the function that gave a lock back out of a stack taken there, whose first frame of the program's own is at `place`: where the
    /// lock was asked for takes its place. That frame is already a caller if the function was left by a jump, or a function that it
    /// called to unlock was. Callers that were left by a jump are put in.
    pub fn leave_out_release(&mut self, process: Process, stack: &mut Vec<u64>, place: usize) {
        let Some(&return_addr) = stack.get(place) else { return };
        if let Some(left) = self.left_by_jump(process, return_addr) {
            // It may be another one than had asked for the lock. Whoever knows where that was can tell.
            return stack.insert(place, left);
        }
        if self.called_stand_in(process, return_addr) {
            return;
        }
        stack.remove(place);
        if let Some(&caller) = stack.get(place)
            && let Some(left) = self.left_between(process, return_addr, caller)
        {
            stack.insert(place, left);
        }
    }

    /// Where a function was left by a jump that `caller` had called, and that jumped to the function of `return_addr`.
    fn left_between(&mut self, process: Process, return_addr: u64, caller: u64) -> Option<u64> {
        let left = self.left_by_jump(process, caller)?;
        (self.function_of(process, left) != self.function_of(process, return_addr)).then_some(left)
    }

    /// The file and the first address there of the function that a return address leads into.
    fn function_of(&mut self, process: Process, return_addr: u64) -> Option<(FileId, u64)> {
        let (id, call) = self.call_before(process, return_addr)?;
        Some((id, self.beginning(id, call)?))
    }

    /// The first address of the function around an address, by the file's unwind information.
    pub(super) fn beginning(&mut self, id: FileId, addr: u64) -> Option<u64> {
        let file = self.files.get(id)?;
        Some(self.unwinder.function(id, file, addr)?.start)
    }

    fn called_stand_in(&mut self, process: Process, return_addr: u64) -> bool {
        let Some((id, call)) = self.call_before(process, return_addr) else { return false };
        let Some(file) = self.files.get(id).filter(|file| file.layout.is_x86_64) else { return false };
        let code = FileCode { file, id, unwinder: RefCell::new(&mut self.unwinder) };
        tail_call::stands_in(&code, call.wrapping_add(1))
    }

    /// Whether a return address leads into [own code](Self::is_own_code) that is no lock function of a C library in the program's file.
    #[must_use]
    pub fn is_caller(&mut self, process: Process, return_addr: u64) -> bool {
        self.is_own_code(process, return_addr)
            && !self.is_locking_code(process, return_addr)
            && !self.belongs_to_described(process, return_addr)
    }

    /// Whether it leads into a function that belongs to locks which users have described.
    fn belongs_to_described(&mut self, process: Process, return_addr: u64) -> bool {
        let is_known = self.call_before(process, return_addr).is_some_and(|(id, _)| self.files.has_inside(id));
        is_known && self.role(process, return_addr) == Role::Locking
    }

    /// Whether there is a call before an address, as far as code can be read there.
    fn follows_call(&mut self, process: Process, return_addr: u64) -> bool {
        let Some((id, call)) = self.call_before(process, return_addr) else { return true };
        let Some(file) = self.files.get(id) else { return true };
        *self.calls.get((id, call), || {
            let end = call.wrapping_add(1);
            let code = file.code(&(end.saturating_sub(call_instruction::LONGEST as u64)..end));
            code.is_none_or(|code| call_instruction::ends_with_call(&code, file.layout.is_x86_64))
        })
    }

    /// Whether the code before a return address is part of locking, where no symbols tell.
    pub(super) fn is_locking_code(&mut self, process: Process, return_addr: u64) -> bool {
        let Some((id, call)) = self.call_before(process, return_addr) else { return false };
        let Some(file) = self.files.get(id).filter(|file| file.layout.is_bare && file.debug.is_none()) else {
            return false;
        };
        let unwinder = &mut self.unwinder;
        *self.locking.get((id, call), || {
            file.layout.is_x86_64
                && system_call::is_locking(&FileCode { file, id, unwinder: RefCell::new(unwinder) }, call)
        })
    }

    fn left_by_jump(&mut self, process: Process, return_addr: u64) -> Option<u64> {
        let (id, call) = self.call_before(process, return_addr)?;
        let file = self.files.get(id)?;
        let in_file = call.wrapping_add(1);
        let unwinder = &mut self.unwinder;
        let left = self.left.get((id, in_file), || {
            let code = FileCode { file, id, unwinder: RefCell::new(unwinder) };
            file.layout.is_x86_64.then(|| tail_call::left_by_jump(&code, in_file)).flatten()
        });
        left.map(|left| return_addr.wrapping_add(left.wrapping_sub(in_file)))
    }

    /// What the code around an address, which has no symbol, tells of its function: the locking function that goes on there, or the system
    /// call that it makes.
    pub(super) fn by_code(&mut self, id: FileId, addr: u64) -> Option<String> {
        if let Some(function) = self.goes_on_here(id, addr) {
            return Some(function.to_owned());
        }
        let file = self.files.get(id).filter(|file| file.layout.is_x86_64)?;
        let code = FileCode { file, id, unwinder: RefCell::new(&mut self.unwinder) };
        system_call::name(&code, addr.wrapping_add(1)).map(|name| format!("{name} (system call)"))
    }

    /// The locking function of a C library that goes on in the one around an address, which has no symbol of its own and is the only one
    /// of the two on a stack.
    fn goes_on_here(&mut self, id: FileId, addr: u64) -> Option<&'static str> {
        let file = self.files.get(id).filter(|file| file.layout.is_x86_64 && runtime::is_libc(&file.name))?;
        let start = self.unwinder.function(id, file, addr)?.start;
        let (reader, unwinder) = (&self.reader, &mut self.unwinder);
        let parts = self.parts.get(id, || {
            let code = FileCode { file, id, unwinder: RefCell::new(unwinder) };
            let parts = |&name: &&'static str| {
                let own = reader.exactly(id, file, Kind::Function, name);
                let starts: BTreeSet<u64> =
                    own.iter().flat_map(|function| tail_call::goes_on_in(&code, function)).collect();
                starts.into_iter().map(move |start| (start, name)).collect::<Vec<_>>()
            };
            runtime::IN_PARTS.iter().flat_map(parts).collect()
        });
        match parts.iter().filter(|(part, _)| *part == start).collect::<Vec<_>>()[..] {
            [&(_, name)] => Some(name),
            _ => None,
        }
    }

    /// The file that the call before a return address is in, and the address there.
    fn call_before(&self, process: Process, return_addr: u64) -> Option<(FileId, u64)> {
        match self.processes.get(&process)?.space.place(return_addr.wrapping_sub(1), &self.files)? {
            Place::File(id, call) => Some((id, call)),
            Place::Region(..) => None,
        }
    }
}

/// One file's code, and its functions as unwind information tells them.
pub(super) struct FileCode<'a> {
    pub(super) file: &'a ObjectFile,
    pub(super) id: FileId,
    pub(super) unwinder: RefCell<&'a mut Unwinder>,
}

impl tail_call::Code for FileCode<'_> {
    fn code(&self, range: Range<u64>) -> Option<Vec<u8>> {
        self.file.code(&range)
    }

    fn function(&self, address: u64) -> Option<Range<u64>> {
        self.unwinder.borrow_mut().function(self.id, self.file, address)
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use crate::symbol::fixture::{PROCESS, Program, Workshop};
    use crate::symbol::tests::{functions, observed};

    /// The words at the top of a stack tell who called, as far as they go and no register but the stack pointer is needed.
    #[test]
    fn the_nearest_calls_by_the_top_of_a_stack() {
        let shop = Workshop::new();
        let source = r#"
#define NAMED __attribute__((noipa))
#define TOLD 64
static unsigned long words[TOLD];
NAMED void innermost(void) {
    unsigned long *top = (unsigned long *)__builtin_frame_address(0);
    for (int i = 0; i < TOLD; i++) words[i] = top[i];
}
NAMED int give_back(int n) { innermost(); return n + 1; }
NAMED int wide(int n) { volatile long kept[12]; kept[n] = n; return give_back(n) + kept[n]; }
NAMED int with_frame_pointer(int n) { volatile char *room = __builtin_alloca(n * 16); room[0] = 1; return give_back(n) + room[0]; }
static void told(int of, const char *kind) {
    char name[32];
    for (int i = 0; i < of; i++) { snprintf(name, sizeof name, "%s%d", kind, i); tell(name, (void *)words[i]); }
}
int main(void) {
    wide(3); told(TOLD, "wide");
    with_frame_pointer(3); told(TOLD, "frame");
    tell("give_back", give_back); tell("wide", wide); tell("with_frame_pointer", with_frame_pointer); tell("main", main);
    stay();
}
"#;
        let Some(path) = shop.build("gcc", source, &["-O2"]) else { return };
        let program = Program::start(&path, &[]);
        let mut symbols = observed(&program, Vec::new());
        let mut calls = |kind: &str, words: std::ops::Range<usize>| {
            let words: Vec<u64> = words.map(|i| program.told(&format!("{kind}{i}"))).collect();
            let caller = symbols.caller_among(PROCESS, &words).expect("a caller");
            let calls = symbols.calls_around(PROCESS, &words, caller);
            let addresses = std::iter::once(caller).chain(calls);
            addresses.map(|addr| functions(&mut symbols, addr).pop().expect("a function")).collect::<Vec<_>>()
        };
        assert_eq!(calls("wide", 0..64), ["give_back", "wide", "main"]);
        // As far as the words go.
        assert_eq!(calls("wide", 0..8), ["give_back", "wide"]);
        assert_eq!(calls("wide", 0..2), ["give_back"]);
        // Beyond a function that finds its frame by another register nothing is certain.
        assert_eq!(calls("frame", 0..64), ["give_back", "with_frame_pointer"]);
    }
}
