//! Python functions. A thread's frames in CPython lie on the heap and change as it goes on, so they are read when its stack is taken.
//!
//! Where the thread's own state is in the interpreter is kept by thread, and asked anew each time whether it is still that.

use crate::gate::charge_stack;
use crate::maps::{FutexWord, NEW_PYTHON_PLACES, PYTHON_PLACES, PYTHON_STACKS, PYTHONS};
use crate::thread::{Thread, now, own_tid, task};
use aya_ebpf::bindings::{BPF_LOCAL_STORAGE_GET_F_CREATE, BPF_RB_NO_WAKEUP};
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::helpers::generated::{
    bpf_probe_read_kernel, bpf_probe_read_user as bpf_probe_read_user_bytes, bpf_task_storage_get,
};
use core::ffi::c_void;
use lockbpf_common::python::{
    FRAME_WORDS, FRAMES_IN_TOP, IN_TOP, Interpreter, MAX_FRAMES, MAX_THREADS, PythonFrame, PythonPlace,
};
use lockbpf_common::record::TOP_WORDS;

/// Threads that are looked at in one stride.
const STRIDE: usize = 16;
/// After a thread was not found in the interpreter, it is not looked for again for so long, ns.
const RETRY_NS: u64 = 100_000_000;

/// What was read of a thread last. Zeroed storage is the valid initial state.
#[repr(C)]
pub struct PythonStack {
    /// Address of its state in the interpreter; 0 if it is not known.
    thread: u64,
    /// When that may be looked for again, ns.
    retry_ns: u64,
    /// The frame in hand.
    words: [u64; FRAME_WORDS],
    /// Innermost first.
    frames: [PythonFrame; MAX_FRAMES],
    /// How many of these count.
    count: u32,
    /// The thread's number in its own pid namespace; 0 if it is not known.
    tid: u32,
}

#[inline(always)]
fn own(flags: u64) -> Option<&'static mut PythonStack> {
    // SAFETY: PYTHON_STACKS is a task-storage map of `PythonStack`, the task is the current one; the storage lives as long as it, and
    // only the task itself uses it.
    unsafe {
        bpf_task_storage_get(PYTHON_STACKS.as_ptr(), task().cast(), core::ptr::null_mut(), flags)
            .cast::<PythonStack>()
            .as_mut()
    }
}

/// A word of the process's; 0 where there is none.
#[inline(always)]
fn word(address: u64) -> u64 {
    // SAFETY: a faulting address is an error from the helper, not a fault.
    unsafe { bpf_probe_read_user(address as *const u64) }.unwrap_or(0)
}

/// Reads the Python functions that the current thread is in. Returns their fingerprint; 0 if there are none.
#[inline(always)]
pub fn python_frames(process: u32) -> u64 {
    if find_thread(process) == 0 { 0 } else { read_frames(process) }
}

/// See [`python_frames`], of a thread that was found. Global.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn read_frames(process: u32) -> u64 {
    let Some(python) = PYTHONS.get_ptr(process) else { return 0 };
    let Some(stack) = own(0) else { return 0 };
    // SAFETY: the kernel returned a valid entry, which is written once.
    let python = unsafe { &*python };
    stack.count = 0;
    let mut frame = innermost(python, stack);
    let (mut fingerprint, mut i) = (0, 0);
    while i < MAX_FRAMES {
        if !read_frame(stack, frame) {
            break;
        }
        let found = in_hand(python, stack);
        stack.frames[i] = found;
        fingerprint = found.fingerprint(fingerprint);
        i += 1;
        stack.count = i as u32;
        frame = stack.words[python.previous as usize & (FRAME_WORDS - 1)];
    }
    fingerprint
}

/// Where in a Python function a lock is asked for, if the interpreter itself does so; else where the call returns to. At the expense of
/// a slot. Global.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn python_site(process: u32, slot: u32, returns_to: u64) -> u64 {
    let Some(python) = PYTHONS.get_ptr(process) else { return returns_to };
    // SAFETY: as above.
    let python = unsafe { &*python };
    if returns_to < python.code_start || returns_to >= python.code_end {
        return returns_to;
    }
    let began = now();
    let mut site = returns_to;
    if find_thread(process) != 0
        && let Some(stack) = own(0)
    {
        let frame = innermost(python, stack);
        if read_frame(stack, frame) {
            site = tell(process, in_hand(python, stack));
        }
    }
    charge_stack(slot, began);
    site
}

/// Puts the innermost Python functions in place of the last words of the top of the thread's stack, at the expense of its slot.
#[inline(always)]
pub fn add_innermost(t: &Thread, top: &mut [u64; TOP_WORDS]) {
    let began = now();
    if python_frames(t.process) == 0 {
        return;
    }
    let Some(stack) = own(0) else { return };
    let mut i = 0;
    while i < FRAMES_IN_TOP {
        top[TOP_WORDS - FRAMES_IN_TOP + i] =
            if (i as u32) < stack.count { stack.frames[i].address() | IN_TOP } else { 0 };
        i += 1;
    }
    charge_stack(t.slot, began);
}

/// Tells user space of a place, unless it was told before. Returns its address.
#[inline(always)]
fn tell(process: u32, frame: PythonFrame) -> u64 {
    let key = FutexWord { addr: frame.instruction, process: u64::from(process) };
    // SAFETY: copied at once.
    if unsafe { PYTHON_PLACES.get(key) }.copied() != Some(frame.code)
        && let Some(mut entry) = NEW_PYTHON_PLACES.reserve_untyped::<PythonPlace>(0)
    {
        entry.write(PythonPlace { process: u64::from(process), frame });
        entry.submit(u64::from(BPF_RB_NO_WAKEUP));
        // A failure only has it told once more.
        let _ = PYTHON_PLACES.insert(key, frame.code, 0);
    }
    frame.address()
}

/// Adds the frames that were read last to a copy of the stack. Returns their number.
#[inline(always)]
pub fn add_frames(to: &mut [PythonFrame; MAX_FRAMES]) -> u32 {
    let Some(stack) = own(0) else { return 0 };
    const SIZE: u32 = size_of::<[PythonFrame; MAX_FRAMES]>() as u32;
    // SAFETY: both have this size.
    unsafe { bpf_probe_read_kernel(core::ptr::from_mut(to).cast(), SIZE, (&raw const stack.frames).cast()) };
    stack.count
}

/// Reads a frame's words; false if there is none.
#[inline(always)]
fn read_frame(stack: &mut PythonStack, frame: u64) -> bool {
    const SIZE: u32 = size_of::<[u64; FRAME_WORDS]>() as u32;
    // SAFETY: words has this size; a faulting address is an error from the helper, not a fault.
    frame != 0 && unsafe { bpf_probe_read_user_bytes((&raw mut stack.words).cast(), SIZE, frame as *const c_void) } == 0
}

#[inline(always)]
fn in_hand(python: &Interpreter, stack: &PythonStack) -> PythonFrame {
    let word = |at: u32| stack.words[at as usize & (FRAME_WORDS - 1)];
    PythonFrame { code: word(python.code), instruction: word(python.instruction) }
}

/// Address of the innermost frame of a thread that was found; 0 if it has none.
#[inline(always)]
fn innermost(python: &Interpreter, stack: &PythonStack) -> u64 {
    let holder = if python.holder == 0 { stack.thread } else { word(stack.thread + u64::from(python.holder)) };
    word(holder + u64::from(python.innermost))
}

/// Makes sure that the thread's state in the interpreter is known. Returns 0 if it is not: the thread does not run Python. Global.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_thread(process: u32) -> u32 {
    let Some(python) = PYTHONS.get_ptr(process) else { return 0 };
    let Some(stack) = own(u64::from(BPF_LOCAL_STORAGE_GET_F_CREATE)) else { return 0 };
    // SAFETY: the kernel returned a valid entry, which is written once.
    let python = unsafe { &*python };
    if stack.tid == 0 {
        stack.tid = own_tid();
    }
    if stack.thread != 0 && is_thread(python, stack.thread, stack.tid) {
        return 1;
    }
    stack.thread = 0;
    let now = now();
    if now < stack.retry_ns || stack.tid == 0 {
        return 0;
    }
    let mut thread = word(python.threads);
    let mut strides = 0;
    while strides < MAX_THREADS / STRIDE {
        thread = walk_threads(process, stack.tid, thread);
        if thread == 0 {
            break;
        }
        if is_thread(python, thread, stack.tid) {
            stack.thread = thread;
            return 1;
        }
        strides += 1;
    }
    stack.retry_ns = now + RETRY_NS;
    0
}

/// Goes one stride along the interpreter's threads. Returns the thread `tid` if it is among them, else the one after them; 0 at the end.
/// Global: the verifier follows the stride once, not for each of all threads.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn walk_threads(process: u32, tid: u32, from: u64) -> u64 {
    let Some(python) = PYTHONS.get_ptr(process) else { return 0 };
    // SAFETY: the kernel returned a valid entry, which is written once.
    let python = unsafe { &*python };
    let mut thread = from;
    let mut i = 0;
    while i < STRIDE {
        if thread == 0 || is_thread(python, thread, tid) {
            break;
        }
        thread = word(thread + u64::from(python.next));
        i += 1;
    }
    thread
}

/// Whether the interpreter's thread at this address is the thread `tid`.
#[inline(always)]
fn is_thread(python: &Interpreter, thread: u64, tid: u32) -> bool {
    word(thread + u64::from(python.native_id)) == u64::from(tid)
}
