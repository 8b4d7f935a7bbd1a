//! A small Go program, made by hand as Go's linker lays one out: two functions, one of which has a call inlined into it.

/// Address of the code.
pub(crate) const TEXT: u64 = 0x40_0200;
/// Where the code is in the file.
const CODE: usize = 0x200;
/// Where the data is in the file; its address is this much more than that.
const DATA: usize = 0x400;
const DATA_BIAS: u64 = 0x50_0000;
/// Bytes of each function.
pub(crate) const SIZE: usize = 0x40;

/// `cmp 0x10(%r14),%rsp; jbe 20; push %rbp; nop; test %edx,%edx; je 15; jmp 7; 15: add $0x40,%rsp; ret; 20: call; jmp 0`, and
/// `int3` up to the next function.
pub(crate) const SLOW: &[u8] = &[
    0x49, 0x3b, 0x66, 0x10, 0x76, 0x0e, 0x55, 0x90, 0x85, 0xd2, 0x74, 0x03, 0x90, 0xeb, 0xf8, 0x48, 0x83, 0xc4, 0x40,
    0xc3, 0xe8, 0, 0, 0, 0, 0xeb, 0xe5,
];

/// The program; `old` as of Go 1.19, else as of 1.22.
pub(crate) fn program(old: bool) -> Vec<u8> {
    let mut file = vec![0; DATA];
    file[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
    file[16..24].copy_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    put(&mut file, 32, 64);
    // Sizes of the headers, and that there are two of segments and none of sections.
    file[52..60].copy_from_slice(&[64, 0, 56, 0, 2, 0, 64, 0]);
    file[CODE..CODE + 2 * SIZE].fill(0xcc);
    for at in [CODE, CODE + SIZE] {
        file[at..at + SLOW.len()].copy_from_slice(SLOW);
    }

    let release: &[u8] = if old { b"go1.19.8" } else { b"go1.22.4" };
    file.extend_from_slice(b"\xff Go buildinf:\x08\x02");
    file.resize(DATA + 32, 0);
    file.push(release.len() as u8);
    file.extend_from_slice(release);
    file.resize(file.len().next_multiple_of(8), 0);
    let table = file.len();
    let contents = table_of(old);
    file.extend_from_slice(&contents);
    file.resize(file.len().next_multiple_of(8), 0);
    let tree = file.len();
    // main.inlined, called from the instruction at 2.
    let node: Vec<u32> = if old { vec![0xffff, 0, 0, 24, 2] } else { vec![0, 24, 2, 1] };
    file.extend(node.iter().flat_map(|w| w.to_le_bytes()));
    file.resize(file.len().next_multiple_of(8), 0);
    let module = file.len();
    file.resize(module + 8 * 48, 0);
    let addr = |at: usize| at as u64 + DATA_BIAS;
    put(&mut file, module, addr(table));
    put(&mut file, module + 8, addr(table) + 72);
    put(&mut file, module + 8 * 22, TEXT);
    put(&mut file, module + 8 * if old { 38 } else { 40 }, addr(tree));

    let data = file.len() - DATA;
    for (at, flags, offset, vaddr, size) in [(64, 5, CODE, TEXT, 2 * SIZE), (120, 6, DATA, addr(DATA), data)] {
        file[at..at + 8].copy_from_slice(&[1, 0, 0, 0, flags, 0, 0, 0]);
        put(&mut file, at + 8, offset as u64);
        put(&mut file, at + 16, vaddr);
        put(&mut file, at + 32, size as u64);
        put(&mut file, at + 40, size as u64);
    }
    file
}

fn table_of(old: bool) -> Vec<u8> {
    // Names at 0, 24 and 37.
    let names = b"sync.(*Mutex).lockSlow\0\0main.inlined\0main.work\0";
    let files = b"/src/a.go\0/src/b.go\0";
    // Nothing; file 0 throughout; line 7 up to 4, 9 from there; file 1 from 4 on; inlined call 0 from 4 on. The first value is −1.
    let lines: &[&[u8]] = &[&[0], &[2, 64, 0], &[16, 4, 4, 60, 0], &[2, 4, 2, 60, 0], &[0, 4, 2, 60, 0]];
    let starts = [0u32, 1, 4, 9, 14];
    let mut table = vec![0; 72];
    table[..8].copy_from_slice(&[if old { 0xf0 } else { 0xf1 }, 0xff, 0xff, 0xff, 0, 0, 1, 8]);
    put(&mut table, 8, 2);
    put(&mut table, 16, 2);
    put(&mut table, 24, if old { TEXT } else { 0 });
    put_len(&mut table, 32);
    table.extend_from_slice(names);
    table.resize(table.len().next_multiple_of(8), 0);
    put_len(&mut table, 40);
    table.extend([0u32, 10].iter().flat_map(|w| w.to_le_bytes()));
    put_len(&mut table, 48);
    table.extend_from_slice(files);
    table.resize(table.len().next_multiple_of(8), 0);
    put_len(&mut table, 56);
    table.extend(lines.iter().flat_map(|l| l.iter()));
    table.resize(table.len().next_multiple_of(8), 0);
    put_len(&mut table, 64);
    let size = 20 + if old { 40 } else { 44 } + 4 * 3 + 4 * 4;
    let list = [0, 24, SIZE as u32, 24 + size as u32 - 20, 2 * SIZE as u32];
    table.extend(list.iter().flat_map(|w: &u32| w.to_le_bytes()));
    table.resize(table.len() + 4, 0);
    for (entry, name, file, line, inlined) in
        [(0u32, 0u32, starts[1], starts[2], 0), (SIZE as u32, 37, starts[3], starts[2], starts[4])]
    {
        let mut words = vec![entry, name, 0, 0, 0, file, line, 3, 0];
        if !old {
            words.push(1);
        }
        table.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        table.extend_from_slice(&[0, 0, 0, 4]);
        let tree = if inlined == 0 { u32::MAX } else { 0 };
        let words = [0, 0, inlined, u32::MAX, u32::MAX, u32::MAX, tree];
        table.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    }
    table
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn put_len(bytes: &mut [u8], at: usize) {
    put(bytes, at, bytes.len() as u64);
}
