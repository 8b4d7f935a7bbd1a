use super::row::Row;
use super::step::{Context, RowAt};
use super::table::Table;
use super::*;
use crate::fixture::Damage;
use crate::names::Names;
use crate::symbol::Symbols;
use crate::symbol::fixture::{PROCESS, Program, Workshop};
use crate::unwind::{Interpreted, Unwind};
use proptest::prelude::*;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

/// The C library's unwind information, its address, and where its functions begin.
static LIBC: LazyLock<(Vec<u8>, u64, Vec<u64>)> = LazyLock::new(|| {
    let maps = crate::symbol::maps::read(std::process::id()).unwrap().1;
    let path = maps.into_iter().find(|m| m.base_name().starts_with("libc.so")).expect("a C library").path;
    let (bytes, address) = Table::eh_frame_of(&File::open(path).unwrap());
    let starts = Table::of_eh_frame(bytes.clone(), address).starts();
    (bytes, address, starts)
});

fn copy(registers: Registers, base: u64, bytes: Vec<u8>) -> StackCopy {
    let bounded = bytes.len() == 16 << 10;
    StackCopy { bounded, ..StackCopy::top(PROCESS, registers, base, bytes) }
}

/// The stack of a program's only thread, which is in a system call; its frame pointer is anything.
fn sleeping(pid: u32, frame_pointer: u64) -> StackCopy {
    let text = loop {
        // It has said that it is ready just before it sleeps.
        let text = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
        if text.starts_with("0 ") || text.starts_with("63 ") {
            break text;
        }
        std::thread::yield_now();
    };
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let [.., stack_pointer, ip] = words[..] else { panic!("not in a system call: {text}") };
    let base = number(stack_pointer) & !1023;
    let mut bytes = vec![0; 16 << 10];
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let read = memory.read_at(&mut bytes, base).unwrap();
    bytes.truncate(read);
    copy(Registers::of(number(ip), number(stack_pointer), frame_pointer), base, bytes)
}

const CHAIN: &str = "
    #include <alloca.h>
    #define NAMED __attribute__((noipa))
    NAMED int innermost(int n) { stay(); return n + 1; }
    NAMED int second(int n) { volatile char *room = alloca(n * 100); room[0] = 1; return innermost(n) + room[0]; }
    NAMED int third(int n) { volatile int kept[40]; kept[n] = n; return second(n) + kept[n]; }
    int main(void) { return third(3) == 77; }";

#[track_caller]
fn assert_chain(symbols: &mut Symbols, unwound: &Unwound, expected: &[&str]) {
    let all = unwound.addresses.iter().map(|&addr| symbols.function(crate::id::Site { process: PROCESS, addr }));
    let names: Vec<String> = all.map(Option::unwrap_or_default).collect();
    let begin = names.iter().position(|name| name == expected[0]).unwrap_or_else(|| panic!("{names:?}"));
    assert_eq!(names[begin..begin + expected.len()], *expected, "{unwound:?}");
}

#[test]
fn a_known_chain_is_found_whole() {
    let workshop = Workshop::new();
    for options in [&["-O2"][..], &["-O2", "-fno-asynchronous-unwind-tables", "-g"], &["-O1", "-static"]] {
        let Some(path) = workshop.build("cc", CHAIN, options) else { return };
        let program = Program::start(&path, &[]);
        let mut symbols = Symbols::new();
        symbols.observe(PROCESS, program.pid());
        let mut stack = sleeping(program.pid(), 0);
        let mut unwound = symbols.unwind(&stack);
        if unwound.end != End::Root {
            // `second` keeps a frame pointer, which what it calls must preserve, but the C library may not have saved.
            let (base, words) = (stack.base, stack.bytes.len() as u64 / 8);
            for frame in (0..words).map(|n| base + 8 * n) {
                stack = sleeping(program.pid(), frame);
                unwound = symbols.unwind(&stack);
                if unwound.end == End::Root {
                    break;
                }
            }
        }
        assert_eq!(unwound.end, End::Root, "{options:?}: {unwound:?}");
        assert_chain(&mut symbols, &unwound, &["innermost", "second", "third", "main"]);
        assert_eq!(unwound.slots.map(|slots| slots.len()), Some(unwound.addresses.len() - 1));
    }
}

#[test]
fn a_copy_that_is_too_short_is_cut() {
    let workshop = Workshop::new();
    let Some(path) = workshop.build("cc", CHAIN, &["-O2"]) else { return };
    let program = Program::start(&path, &[]);
    let mut symbols = Symbols::new();
    symbols.observe(PROCESS, program.pid());
    let mut stack = sleeping(program.pid(), 0);
    let top = (stack.registers.stack_pointer().unwrap() - stack.base) as usize;
    stack.bytes.truncate(top + 8);
    stack.bounded = true;
    assert_eq!(symbols.unwind(&stack).end, End::Cut);
    stack.bounded = false;
    assert_ne!(symbols.unwind(&stack).end, End::Cut, "there the stack's memory ends");
}

#[test]
fn a_process_that_is_not_known_has_no_stack() {
    let unwound = Symbols::new().unwind(&copy(Registers::of(7, 8, 9), 0, Vec::new()));
    assert_eq!((unwound.addresses, unwound.end), (vec![7], End::NoInformation));
}

#[test]
fn generated_code_is_passed_by_its_frame_pointer() {
    let words = [0x1020u64, 0x77, 0, 0, 0, 0x88];
    let bytes = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let stack = copy(Registers::of(0x55, 0x1000, 0x1000), 0x1000, bytes);
    let mut unwinder = Unwinder::default();
    let unwound = unwinder.unwind(&stack, &AddressSpace::default(), &Files::none(), |_| Outside::Code);
    assert_eq!(unwound.addresses, [0x55, 0x77, 0x88]);
    assert_eq!((unwound.end, unwound.by_frame_pointers), (End::Root, true));
    assert_eq!(unwound.slots, Some(vec![0x1008, 0x1028]));
    let unwound = unwinder.unwind(&stack, &AddressSpace::default(), &Files::none(), |_| Outside::Nothing);
    assert_eq!((unwound.addresses, unwound.end), (vec![0x55], End::Astray));
}

/// As in a program that has just begun, and whose mappings are not known yet: they are looked at anew then.
#[test]
fn no_thread_begins_in_code_that_is_not_known() {
    let stack = copy(Registers::of(0x55, 0x1000, 0), 0x1000, Vec::new());
    let unwind = |outside| {
        let stack = Unwinder::default().unwind(&stack, &AddressSpace::default(), &Files::none(), |_| outside);
        (stack.addresses, stack.end)
    };
    assert_eq!(unwind(Outside::Nothing), (vec![0x55], End::NoInformation));
    assert_eq!(unwind(Outside::Code), (vec![0x55], End::Root));
}

#[test]
fn generated_code_is_passed_by_the_size_of_its_frame() {
    let words = [1u64, 2, 0x1234, 0x77, 3, 0x5678, 0x88, 4];
    let bytes = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let stack = copy(Registers::of(0x55, 0x1000, 0x9999), 0x1000, bytes);
    let sizes = |at| match at {
        0x55 => Outside::Frame(32),
        0x76 => Outside::Frame(24),
        _ => Outside::Code,
    };
    let unwound = Unwinder::default().unwind(&stack, &AddressSpace::default(), &Files::none(), sizes);
    // The last one's frame pointer leads nowhere.
    assert_eq!((unwound.addresses, unwound.end), (vec![0x55, 0x77, 0x88], End::NoInformation));
    assert_eq!((unwound.slots, unwound.by_frame_pointers), (Some(vec![0x1018, 0x1030]), false));
    let none = |_| Outside::Frame(u64::MAX);
    let unwound = Unwinder::default().unwind(&stack, &AddressSpace::default(), &Files::none(), none);
    assert_eq!((unwound.addresses, unwound.end), (vec![0x55], End::NoInformation));
}

#[test]
fn an_interpreters_frame_stands_for_its_method() {
    let words = [0u64, 0x4200, 7, 8, 0x1040, 0x77, 0, 0, 0, 0x88];
    let bytes = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let stack = copy(Registers::of(0x55, 0x1000, 0x1020), 0x1000, bytes);
    let interpreter = |at| if at == 0x55 { Outside::Interpreter { below: 3 } } else { Outside::Code };
    let unwound = Unwinder::default().unwind(&stack, &AddressSpace::default(), &Files::none(), interpreter);
    let method = Interpreted { address: 0x4200, slot: 0x1008 };
    assert_eq!((unwound.addresses, unwound.interpreted), (vec![0x4201, 0x77, 0x88], vec![method]));
    assert_eq!((unwound.slots, unwound.end), (Some(vec![0x1028, 0x1048]), End::Root));
}

/// Compiled code calls an interpreted method, and has to make room for arguments on its own stack.
#[test]
fn an_interpreted_methods_caller_is_as_large_as_it_was_before_the_call() {
    let words = [0u64, 0x4200, 7, 0x1040, 0x9998, 0x77, 0, 0, 5, 6, 0, 0x88];
    let bytes = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let stack = copy(Registers::of(0x55, 0x1000, 0x1020), 0x1000, bytes);
    let code = |at| match at {
        0x55 => Outside::Interpreter { below: 3 },
        0x76 => Outside::Frame(32),
        _ => Outside::Code,
    };
    let unwound = Unwinder::default().unwind(&stack, &AddressSpace::default(), &Files::none(), code);
    assert_eq!((unwound.addresses, unwound.end), (vec![0x4201, 0x77, 0x88], End::Root));
}

#[test]
fn a_replaced_return_address_is_put_back() {
    let words = [0x1020u64, 0x7fff, 0, 0, 0, 0x88];
    let bytes = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let mut stack = copy(Registers::of(0x55, 0x1000, 0x1000), 0x1000, bytes);
    let unwind = |stack: &StackCopy| {
        Unwinder::default().unwind(stack, &AddressSpace::default(), &Files::none(), |at| {
            if at < 0x1000 { Outside::Code } else { Outside::Nothing }
        })
    };
    assert_eq!((unwind(&stack).addresses, unwind(&stack).end), (vec![0x55], End::Astray));
    stack.returns = [0x77, 0];
    assert_eq!((unwind(&stack).addresses, unwind(&stack).end), (vec![0x55, 0x77, 0x88], End::Root));
    let words = [0x1020u64, 0x77, 0, 0, 0, 0x7fff];
    stack.bytes = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    assert_eq!((unwind(&stack).addresses, unwind(&stack).end), (vec![0x55, 0x77], End::Astray), "it was in its place");
}

proptest! {
    /// Frame pointers that lead anywhere, also in circles.
    #[test]
    fn hostile_frames_end(words in prop::collection::vec(0x1000u64..0x1200, 1..64), frame in 0x1000u64..0x1200) {
        let bytes = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let stack = copy(Registers::of(0x55, 0x1000, frame), 0x1000, bytes);
        let unwound = Unwinder::default().unwind(&stack, &AddressSpace::default(), &Files::none(), |_| Outside::Code);
        prop_assert!(unwound.addresses.len() <= MAX_FRAMES);
    }

    /// Any stack, in any function of the C library, as it is or damaged.
    #[test]
    fn hostile_information_ends(
        damage in Damage::any(64),
        function in any::<prop::sample::Index>(),
        into in 0u64..256,
        words in prop::collection::vec(prop_oneof![any::<u64>(), 0x1000u64..0x3000], 0..128),
        registers in (0x1000u64..0x1400, 0x1000u64..0x1400),
    ) {
        let (bytes, address, starts) = &*LIBC;
        // A part, so that each case is quick.
        let table = Table::of_eh_frame(damage.of(bytes[..bytes.len().min(64 << 10)].to_vec()), *address);
        let damaged = table.starts();
        let start = if damaged.is_empty() { *function.get(starts) } else { *function.get(&damaged) };
        let stack = copy(
            Registers::of(0, registers.0, registers.1),
            0x1000,
            words.iter().flat_map(|w| w.to_ne_bytes()).collect(),
        );
        let mut context = Context::default();
        let address = start.wrapping_add(into);
        let row = table.find(address, RowAt { address, context: &mut context }).flatten();
        if let Some(Ok(Some(caller))) = row.and_then(Row::bounded).map(|row| row.step(&stack.registers, &stack)) {
            prop_assert!(caller.slot.is_none_or(|slot| stack.word(slot).is_ok()));
        }
    }

    /// Bytes that never were unwind information.
    #[test]
    fn any_bytes_are_a_table(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        Table::of_eh_frame(bytes, 0x1000).starts();
    }
}
