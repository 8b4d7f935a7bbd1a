use super::super::walk::{Branch, Decoded, Obstacle, Path, Walk, walk};
use super::super::{Kind, state};
use super::*;
use state::Machine;

/// Sums up five words, stores the sum, and branches on it.
const SUM: &[u8] = b"\x31\xc0\xb9\x05\x00\x00\x00\x48\x03\x07\x48\x83\xc7\x08\x83\xe9\x01\x75\xf4\x48\x89\x06\x48\x85\xc0\x74\x01\x90\xc3";
/// `push rbx; call 0x60; mov rax,[rbx]; pop rbx; mov [rbx],rax; mov rdx,[rax]; ret`.
const CALLER: &[u8] = b"\x53\xe8\x1a\x00\x00\x00\x48\x8b\x03\x5b\x48\x89\x03\x48\x8b\x10\xc3";
/// `push rbp; mov rbp,rsp; mov [rbp-8],rdi; mov rax,[rbp-8]; mov dword ptr [rax],7; leave; ret`.
const CALLED: &[u8] = b"\x55\x48\x89\xe5\x48\x89\x7d\xf8\x48\x8b\x45\xf8\xc7\x00\x07\x00\x00\x00\xc9\xc3";
/// `mov rdi,[rdi]`, then as long as words are not that: `mov rax,[rsi]; add rsi,8; cmp rax,rdi; jne`.
const SEARCH: &[u8] = b"\x48\x8b\x3f\x48\x8b\x06\x48\x83\xc6\x08\x48\x39\xf8\x75\xf4\xc3";

fn follow_with(
    from: &Registers,
    memory: &mut Bytes,
    limit: usize,
    marks: &dyn Fn(u64) -> bool,
) -> Result<Walk, Obstacle> {
    let mut path =
        Path { memory, vectors: &mut || None, stack: RSP - 0x1000..RSP + 0x1000, marks, machine: Machine::default() };
    walk(&mut Decoded::default(), from, limit, &mut path)
}

fn follow(from: &Registers, memory: &mut Bytes) -> Result<Walk, Obstacle> {
    follow_with(from, memory, 1_000, &|_| false)
}

fn seen(walk: &Walk) -> Vec<(u64, u64, Kind)> {
    walk.accesses.iter().map(|access| (access.at - IP, access.touch.address, access.touch.kind)).collect()
}

#[test]
fn a_counting_loop_needs_no_stop() {
    let walk = follow(&registers(), &mut Bytes::with(IP, SUM)).unwrap();
    let mut expected: Vec<_> = (0..5).map(|i| (7, RDI + 8 * i, Kind::Read)).collect();
    expected.push((0x13, RSI, Kind::Write));
    assert_eq!(seen(&walk), expected);
    assert_eq!(walk.instructions, 2 + 5 * 4 + 3);
    assert_eq!(walk.stops, [IP + 0x1c, IP + 0x1b], "what was read decides the branch");
    let branch = |at, taken| Branch { at: IP + at, taken };
    assert_eq!(walk.branches, [true, true, true, true, false].map(|taken| branch(0x11, taken)));
    assert_eq!(walk.decided(IP + 0x1c), Some(branch(0x19, true)));
    assert_eq!((walk.decided(IP + 0x1b), walk.decided(IP)), (Some(branch(0x19, false)), None));
    let mut actual = registers();
    actual.general[number::RDI] = RDI + 40;
    actual.general[number::RCX] = 0;
    actual.general[number::RAX] = 12345;
    assert_eq!(walk.expected.wrong(&actual).count(), 0);
    actual.general[number::RDI] += 8;
    assert_eq!(walk.expected.wrong(&actual).collect::<Vec<_>>(), [number::RDI]);
}

#[test]
fn calls_and_what_is_pushed_are_followed() {
    let mut memory = Bytes::with(IP, CALLER);
    memory.put(IP + 0x20, CALLED);
    let walk = follow(&registers(), &mut memory).unwrap();
    use Kind::{Read, Write};
    let expected = [
        (0, RSP - 8, Write),
        (1, RSP - 16, Write),
        (0x20, RSP - 24, Write),
        (0x24, RSP - 32, Write),
        (0x28, RSP - 32, Read),
        (0x2c, RDI, Write),
        (0x32, RSP - 24, Read),
        (0x33, RSP - 16, Read),
        (6, RBX, Read),
        (9, RSP - 8, Read),
        (0xa, RBX, Write),
    ];
    assert_eq!(seen(&walk), expected);
    assert_eq!(walk.stops, [IP + 0xd], "it reads where another read tells");
}

#[test]
fn a_stop_that_is_passed_before_is_made_there() {
    let mut memory = Bytes::with(IP, SEARCH);
    let first = follow(&registers(), &mut memory).unwrap();
    assert_eq!((first.stops.as_slice(), first.instructions), (&[IP + 3][..], 1));
    assert_eq!(seen(&first), [(0, RDI, Kind::Read)]);
    // From the head of the loop, where the breakpoint is passed once.
    let second = follow(&Registers { ip: IP + 3, ..registers() }, &mut memory).unwrap();
    assert_eq!((second.stops.as_slice(), second.instructions), (&[IP + 3, IP + 0xf][..], 4));
}

#[test]
fn marks_and_limits_end_a_walk() {
    let mut memory = Bytes::with(IP, SUM);
    let marked = follow_with(&registers(), &mut memory, 1_000, &|address| address == IP + 0x13).unwrap();
    assert_eq!((marked.stops.as_slice(), marked.instructions), (&[IP + 0x13][..], 22));
    let limited = follow_with(&registers(), &mut memory, 10, &|_| false).unwrap();
    assert_eq!((limited.stops.len(), limited.instructions), (0, 10));
    let endless = follow_with(&registers(), &mut Bytes::with(IP, b"\xeb\xfe"), 10, &|_| false).unwrap();
    assert_eq!((endless.stops.len(), endless.instructions), (0, 10));
}

#[test]
fn obstacles_are_told_when_they_come() {
    let at = |code: &[u8]| follow(&registers(), &mut Bytes::with(IP, code)).map(|walk| walk.stops);
    assert_eq!(at(b"\x0f\x05"), Err(Obstacle::SystemCall { next: IP + 2 }));
    assert_eq!(at(b"\xcc"), Err(Obstacle::Breakpoint));
    assert_eq!(at(b"\xc7\xf8\x00\x00\x00\x00"), Err(Obstacle::Unsupported("xbegin".to_owned())));
    assert_eq!(at(b"\x06"), Err(Obstacle::Unreadable));
    assert_eq!(at(b"\x90\x0f\x05"), Ok(vec![IP + 1]));
    assert_eq!(at(b"\x90\xcc"), Ok(vec![IP + 1]));
    // Behind a pointer to a function that may change.
    assert_eq!(at(b"\x90\xff\x50\x08"), Ok(vec![IP + 1]));
    let mut memory = Bytes::with(IP, b"\xff\x50\x08");
    memory.put(RAX + 8, &(IP + 0x80).to_le_bytes());
    memory.put(IP + 0x80, b"\xcc");
    assert_eq!(follow(&registers(), &mut memory).unwrap().stops, [IP + 0x80]);
}

#[test]
fn the_kernel_and_masks_are_asked_only_when_it_is_time() {
    // vmovdqu8 [rdi]{k1},zmm0
    let store = b"\x62\xf1\x7f\x49\x7f\x07\xcc";
    let mut asked = 0;
    let mut memory = Bytes::with(IP, store);
    let mut path = Path {
        memory: &mut memory,
        vectors: &mut || {
            asked += 1;
            Some(Box::new(Vectors { mask: [0, 0xf, 0, 0, 0, 0, 0, 0], ..Vectors::default() }))
        },
        stack: RSP..RSP,
        marks: &|_| false,
        machine: Machine::default(),
    };
    let walk = walk(&mut Decoded::default(), &registers(), 100, &mut path).unwrap();
    assert_eq!((walk.accesses.len(), walk.accesses[0].touch.size, asked), (1, 4, 1));
    let mut later = vec![0x90];
    later.extend_from_slice(store);
    assert_eq!(follow(&registers(), &mut Bytes::with(IP, &later)).unwrap().stops, [IP + 1]);
}
