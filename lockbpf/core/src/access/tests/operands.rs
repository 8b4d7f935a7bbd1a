use super::super::operands::{Surroundings, Unknown, touches};
use super::super::state::{Machine, Registers, Vectors, number};
use super::super::values::Values;
use super::super::{Kind, Way};
use super::*;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};
use proptest::prelude::*;

type Touched = (u64, u64, Kind);

fn decode(
    code: &[u8],
    registers: &Registers,
    vectors: Option<&Vectors>,
    memory: &mut Bytes,
) -> Result<Vec<(u64, u64, Kind, Way)>, Unknown> {
    let instruction = Decoder::with_ip(64, code, IP, DecoderOptions::NONE).decode();
    assert!(!instruction.is_invalid() && instruction.len() == code.len(), "{code:02x?}");
    let mut factory = InstructionInfoFactory::new();
    let machine = Machine { xsave_bytes: 832 };
    let mut around = Surroundings { vectors, now: true, machine, memory };
    let found = touches(&instruction, factory.info(&instruction), &Values::of(registers), &mut around)?;
    Ok(found.into_iter().map(|t| (t.address, t.size, t.kind, t.way)).collect())
}

fn touched(code: &[u8]) -> Vec<Touched> {
    let found = decode(code, &registers(), None, &mut Bytes::default()).unwrap();
    found.into_iter().map(|(address, size, kind, _)| (address, size, kind)).collect()
}

fn with_vectors(code: &[u8], change: impl FnOnce(&mut Vectors)) -> Vec<Touched> {
    let mut vectors = Vectors::default();
    change(&mut vectors);
    assert_eq!(decode(code, &registers(), None, &mut Bytes::default()), Err(Unknown::Vectors));
    let found = decode(code, &registers(), Some(&vectors), &mut Bytes::default()).unwrap();
    found.into_iter().map(|(address, size, kind, _)| (address, size, kind)).collect()
}

use Kind::{Read, Update, Write};

#[test]
fn plain_operands() {
    let cases: &[(&[u8], &[Touched])] = &[
        (b"\x48\x8b\x44\x8b\x10", &[(RBX + 3 * 4 + 0x10, 8, Read)]), // mov rax,[rbx+rcx*4+0x10]
        (b"\x89\x05\x00\x01\x00\x00", &[(IP + 6 + 0x100, 4, Write)]), // mov [rip+0x100],eax
        (b"\x48\x01\x07", &[(RDI, 8, Update)]),                      // add [rdi],rax
        (b"\x48\x39\x37", &[(RDI, 8, Read)]),                        // cmp [rdi],rsi
        (b"\xf6\x47\x01\x01", &[(RDI + 1, 1, Read)]),                // test byte [rdi+1],1
        (b"\x48\x0f\x45\x07", &[(RDI, 8, Read)]),                    // cmovne rax,[rdi]
        (b"\x0f\x95\x07", &[(RDI, 1, Write)]),                       // setne [rdi]
        (b"\x48\x0f\xc3\x07", &[(RDI, 8, Write)]),                   // movnti [rdi],rax
        (b"\x0f\x38\xf0\x07", &[(RDI, 4, Read)]),                    // movbe eax,[rdi]
        (b"\x67\x8b\x01", &[(3, 4, Read)]),                          // mov eax,[ecx]
        (b"\xd7", &[(RBX, 1, Read)]),                                // xlat: al is 0
        (b"\xdb\x2f", &[(RDI, 10, Read)]),                           // fld tbyte [rdi]
        (b"\xdd\x1f", &[(RDI, 8, Write)]),                           // fstp qword [rdi]
        (b"\x0f\xae\x17", &[(RDI, 4, Read)]),                        // ldmxcsr [rdi]
        (b"\x0f\xae\x24\x24", &[(RSP, 832, Update)]),                // xsave [rsp]: it reads its header
        (b"\x0f\xae\x04\x24", &[(RSP, 512, Write)]),                 // fxsave [rsp]
    ];
    for (code, expected) in cases {
        assert_eq!(touched(code), *expected, "{code:02x?}");
    }
}

#[test]
fn what_only_names_memory_does_not_access_it() {
    for code in [
        &b"\x48\x8d\x47\x08"[..], // lea rax,[rdi+8]
        b"\x0f\x1f\x00",          // nop [rax]
        b"\x0f\x18\x08",          // prefetcht0 [rax]
        b"\xc5\xf8\x77",          // vzeroupper
        b"\x31\xc0",              // xor eax,eax
    ] {
        assert_eq!(touched(code), [], "{code:02x?}");
    }
}

#[test]
fn the_stack_is_accessed_implicitly() {
    let cases: &[(&[u8], &[Touched])] = &[
        (b"\x50", &[(RSP - 8, 8, Write)]),                             // push rax
        (b"\x59", &[(RSP, 8, Read)]),                                  // pop rcx
        (b"\xff\x37", &[(RDI, 8, Read), (RSP - 8, 8, Write)]),         // push [rdi]
        (b"\xe8\x00\x01\x00\x00", &[(RSP - 8, 8, Write)]),             // call
        (b"\xff\x50\x08", &[(RAX + 8, 8, Read), (RSP - 8, 8, Write)]), // call [rax+8]
        (b"\xc3", &[(RSP, 8, Read)]),                                  // ret
        (b"\xc9", &[(RBP, 8, Read)]),                                  // leave
        (b"\x9c", &[(RSP - 8, 8, Write)]),                             // pushf
    ];
    for (code, expected) in cases {
        let mut found = touched(code);
        found.sort_by_key(|&(address, ..)| address);
        assert_eq!(found, *expected, "{code:02x?}");
    }
}

#[test]
fn locked_operations_update() {
    for code in [
        &b"\xf0\x48\x0f\xb1\x37"[..], // lock cmpxchg [rdi],rsi
        b"\x48\x87\x07",              // xchg [rdi],rax
    ] {
        assert_eq!(touched(code), [(RDI, 8, Update)], "{code:02x?}");
    }
    assert_eq!(touched(b"\xf0\x0f\xc1\x37"), [(RDI, 4, Update)]); // lock xadd [rdi],esi
    assert_eq!(touched(b"\xf0\xff\x07"), [(RDI, 4, Update)]); // lock inc dword [rdi]
    assert_eq!(touched(b"\xf0\x48\x0f\xc7\x0f"), [(RDI, 16, Update)]); // lock cmpxchg16b [rdi]
}

#[test]
fn bits_beyond_the_operand() {
    let at = |code: &[u8], rax: u64| {
        let mut registers = registers();
        registers.general[number::RAX] = rax;
        decode(code, &registers, None, &mut Bytes::default()).unwrap()[0].0
    };
    let bts = b"\x48\x0f\xab\x07"; // bts qword [rdi],rax
    assert_eq!([at(bts, 0), at(bts, 63), at(bts, 64), at(bts, 200)], [RDI, RDI, RDI + 8, RDI + 24]);
    assert_eq!(at(bts, u64::MAX), RDI - 8);
    assert_eq!(at(b"\xf0\x0f\xb3\x07", 33), RDI + 4); // lock btr dword [rdi],eax
    assert_eq!(at(b"\x0f\xba\x27\x05", 200), RDI); // bt dword [rdi],5
}

#[test]
fn strings_have_their_true_lengths() {
    assert_eq!(touched(b"\xf3\xa4"), [(RDI, 3, Write), (RSI, 3, Read)]); // rep movsb
    assert_eq!(touched(b"\xf3\x48\xa5"), [(RDI, 24, Write), (RSI, 24, Read)]); // rep movsq
    assert_eq!(touched(b"\xf3\x48\xab"), [(RDI, 24, Write)]); // rep stosq
    assert_eq!(touched(b"\xf3\xac"), [(RSI, 3, Read)]); // rep lodsb
    assert_eq!(touched(b"\xa4"), [(RDI, 1, Write), (RSI, 1, Read)]); // movsb
    let with = |rcx: u64, flags: u64| {
        let mut registers = Registers { flags, ..registers() };
        registers.general[number::RCX] = rcx;
        decode(b"\xf3\x48\xab", &registers, None, &mut Bytes::default()).unwrap()
    };
    assert_eq!(with(0, 0x202), []);
    assert_eq!(with(3, 0x602)[0].0, RDI - 16, "downwards");
}

#[test]
fn comparisons_end_where_memory_tells() {
    let length = |code: &[u8], at: u64, bytes: &[u8], rcx: u64| {
        let mut registers = registers();
        registers.general[number::RCX] = rcx;
        registers.general[number::RAX] = 0;
        let mut memory = Bytes::with(at, bytes);
        memory.put(RSI, b"abcdef");
        decode(code, &registers, None, &mut memory).unwrap().iter().map(|&(_, size, ..)| size).max()
    };
    let (cmpsb, scasb) = (b"\xf3\xa6", b"\xf2\xae"); // repe cmpsb; repne scasb, for the byte 0
    assert_eq!(length(cmpsb, RDI, b"abcxef", 6), Some(4));
    assert_eq!(length(cmpsb, RDI, b"abcdef", 6), Some(6));
    assert_eq!(length(cmpsb, RDI, b"abcdef", 0), None);
    assert_eq!(length(scasb, RDI, b"xyz\0\0", u64::MAX), Some(4));
    let mut around =
        Surroundings { vectors: None, now: false, machine: Machine::default(), memory: &mut Bytes::default() };
    let instruction = Decoder::with_ip(64, scasb, IP, DecoderOptions::NONE).decode();
    let mut factory = InstructionInfoFactory::new();
    let later = touches(&instruction, factory.info(&instruction), &Values::of(&registers()), &mut around);
    assert_eq!(later, Err(Unknown::Register), "what will be there then is not known");
}

#[test]
fn segments_and_linkage() {
    let ways = |code: &[u8]| decode(code, &registers(), None, &mut Bytes::default()).unwrap();
    assert_eq!(ways(b"\x64\x48\x8b\x04\x25\x28\x00\x00\x00"), [(FS + 0x28, 8, Read, Way::ThreadLocal)]); // mov rax,fs:[0x28]
    assert_eq!(ways(b"\xff\x25\x00\x01\x00\x00"), [(IP + 6 + 0x100, 8, Read, Way::Linkage)]); // jmp [rip+0x100]
    assert_eq!(ways(b"\xff\x24\xc8"), [(RAX + 24, 8, Read, Way::Plain)]); // jmp [rax+rcx*8]
}

#[test]
fn vectors_without_a_mask() {
    let cases: &[(&[u8], Touched)] = &[
        (b"\x0f\x10\x06", (RSI, 16, Read)),                // movups xmm0,[rsi]
        (b"\xc5\xfe\x6f\x46\x20", (RSI + 0x20, 32, Read)), // vmovdqu ymm0,[rsi+0x20]
        (b"\x62\xf1\xfe\x48\x6f\x06", (RSI, 64, Read)),    // vmovdqu64 zmm0,[rsi]
        (b"\x66\x0f\x74\x0f", (RDI, 16, Read)),            // pcmpeqb xmm1,[rdi]
        (b"\xf2\x0f\x10\x07", (RDI, 8, Read)),             // movsd xmm0,[rdi]
        (b"\xf2\x48\x0f\x2a\x07", (RDI, 8, Read)),         // cvtsi2sd xmm0,[rdi]
        (b"\x62\xf1\x74\x58\x58\x00", (RAX, 4, Read)),     // vaddps zmm0,zmm1,[rax]{1to16}
    ];
    for (code, expected) in cases {
        assert_eq!(touched(code), [*expected], "{code:02x?}");
    }
}

#[test]
fn older_masks_are_signs_of_elements() {
    const ON: u32 = 1 << 31;
    let mask = |v: &mut Vectors| lanes(v, 1, &[ON, 0, 0, ON, ON, 0, 0, 0]);
    // vmaskmovps [rdi],ymm1,ymm0
    assert_eq!(with_vectors(b"\xc4\xe2\x75\x2e\x07", mask), [(RDI, 4, Write), (RDI + 12, 8, Write)]);
    // vpmaskmovd ymm0,ymm1,[rsi]
    assert_eq!(with_vectors(b"\xc4\xe2\x75\x8c\x06", mask), [(RSI, 4, Read), (RSI + 12, 8, Read)]);
    // maskmovdqu xmm0,xmm1
    assert_eq!(with_vectors(b"\x66\x0f\xf7\xc1", |v| v.vector[1][5..8].fill(0x80)), [(RDI + 5, 3, Write)]);
    // maskmovq mm0,mm1
    assert_eq!(with_vectors(b"\x0f\xf7\xc1", |v| v.mmx[1] = 0x80), [(RDI, 1, Write)]);
}

#[test]
fn mask_registers() {
    // vmovdqu8 [rdi]{k1},zmm0
    assert_eq!(
        with_vectors(b"\x62\xf1\x7f\x49\x7f\x07", |v| v.mask[1] = 0xff_0001),
        [(RDI, 1, Write), (RDI + 16, 8, Write)]
    );
    // vmovdqu32 ymm1{k2}{z},[rsi]
    assert_eq!(with_vectors(b"\x62\xf1\x7e\xaa\x6f\x0e", |v| v.mask[2] = 0x106), [(RSI + 4, 8, Read)]);
    // vmovss [rdi]{k1},xmm0
    let vmovss = b"\x62\xf1\x7e\x09\x11\x07";
    assert_eq!(with_vectors(vmovss, |v| v.mask[1] = 1), [(RDI, 4, Write)]);
    assert_eq!(with_vectors(vmovss, |v| v.mask[1] = 2), []);
    // vpcompressd [rdi]{k1},zmm0: as many as are chosen, one after another
    assert_eq!(with_vectors(b"\x62\xf2\x7d\x49\x8b\x07", |v| v.mask[1] = 0x8021), [(RDI, 12, Write)]);
    // vpexpandd zmm0{k1},[rsi]
    assert_eq!(with_vectors(b"\x62\xf2\x7d\x49\x89\x06", |v| v.mask[1] = 0x11), [(RSI, 8, Read)]);
}

#[test]
fn gathered_and_scattered() {
    const ON: u32 = 1 << 31;
    // vpgatherdd ymm0,[rax+ymm2*4],ymm1
    let found = with_vectors(b"\xc4\xe2\x75\x90\x04\x90", |v| {
        lanes(v, 1, &[ON, 0, ON, 0, 0, 0, 0, ON]);
        lanes(v, 2, &[1, 9, -2_i32 as u32, 9, 9, 9, 9, 100]);
    });
    assert_eq!(found, [(RAX + 4, 4, Read), (RAX - 8, 4, Read), (RAX + 400, 4, Read)]);
    // vgatherqpd ymm0,[rax+ymm2*8],ymm1
    let found = with_vectors(b"\xc4\xe2\xf5\x93\x04\xd0", |v| {
        lanes(v, 1, &[0, ON, 0, 0, 0, ON, 0, 0]);
        lanes(v, 2, &[2, 0, 0, 0, 5, 0, 0, 0]);
    });
    assert_eq!(found, [(RAX + 16, 8, Read), (RAX + 40, 8, Read)]);
    // vpgatherqd xmm0,[rax+ymm2*4],xmm1: four elements, by indices of 8 bytes
    let found = with_vectors(b"\xc4\xe2\x75\x91\x04\x90", |v| {
        lanes(v, 1, &[0, 0, 0, ON]);
        lanes(v, 2, &[0, 0, 0, 0, 0, 0, 7, 0]);
    });
    assert_eq!(found, [(RAX + 28, 4, Read)]);
    // vpgatherdd zmm0{k1},[rax+zmm2*4]
    let found = with_vectors(b"\x62\xf2\x7d\x49\x90\x04\x90", |v| {
        v.mask[1] = 1 << 15 | 1;
        lanes(v, 2, &[3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8]);
    });
    assert_eq!(found, [(RAX + 12, 4, Read), (RAX + 32, 4, Read)]);
    // vpscatterdd [rax+ymm2*4]{k1},ymm0
    let found = with_vectors(b"\x62\xf2\x7d\x29\xa0\x04\x90", |v| {
        v.mask[1] = 2;
        lanes(v, 2, &[0, 6]);
    });
    assert_eq!(found, [(RAX + 24, 4, Write)]);
}

proptest! {
    /// Whatever bytes and registers there are gives accesses, or says why not.
    #[test]
    fn no_code_is_a_panic(code in prop::collection::vec(any::<u8>(), 15), general: [u64; 16], flags: u64, masks: [u64; 8]) {
        let instruction = Decoder::with_ip(64, &code, IP, DecoderOptions::NONE).decode();
        if !instruction.is_invalid() {
            let mut registers = Registers { general, flags, ip: IP, ..Registers::default() };
            // A comparison goes over as much as the register says.
            registers.general[number::RCX] &= 0xffff;
            let vectors = Vectors { mask: masks, ..Vectors::default() };
            let mut memory = Bytes::default();
            let mut around = Surroundings { vectors: Some(&vectors), now: true, machine: Machine::default(), memory: &mut memory };
            let mut factory = InstructionInfoFactory::new();
            let _ = touches(&instruction, factory.info(&instruction), &Values::of(&registers), &mut around);
        }
    }
}
