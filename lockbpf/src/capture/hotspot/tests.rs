//! Machines of their own in this process's memory.

use super::*;

fn own(addr: *const impl Sized) -> u64 {
    addr as u64
}

/// A name as the machine has it: its length in the first two bytes, its text from the sixth on.
fn symbol(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap().to_ne_bytes();
    [&length[..], &[0; 4], text.as_bytes(), &[0; 8]].concat()
}

/// Tables of these fields with their offsets or, if static, addresses; and of the sizes of these types.
fn table(fields: &[(&str, &str, u64)], sizes: &[(&str, u64)]) -> Table {
    let text = |name: &str| Vec::leak(format!("{name:\0<32}").into_bytes()).as_ptr();
    let fields =
        fields.iter().flat_map(|(owner, field, place)| [own(text(owner)), own(text(field)), 0, 0, *place, *place]);
    let sizes = sizes.iter().flat_map(|(of, size)| [own(text(of)), 0, 0, 0, *size]);
    let fields: &[u64] = Vec::leak(fields.chain([0; 6]).collect());
    let sizes: &[u64] = Vec::leak(sizes.chain([0; 5]).collect());
    let pointers = [own(fields.as_ptr()), own(sizes.as_ptr())];
    Table::read(std::process::id(), own(&raw const pointers[0]), Some(own(&raw const pointers[1]))).unwrap()
}

const NAMES: [(&str, &str, u64); 3] = [("Klass", "_name", 8), ("Symbol", "_length", 0), ("Symbol", "_body[0]", 6)];

#[test]
fn a_class_is_found_from_a_monitor() {
    let name = symbol("java/lang/Object");
    let class = [0, own(name.as_ptr())];
    let base = own(class.as_ptr()) & !0xfff;
    let object = [0, own(class.as_ptr()) - base];
    let handle = own(object.as_ptr());
    let monitor = [0, own(&raw const handle)];
    // The same object as ZGC points to it, and one with its class in its first word.
    let coloured = (handle << 14) | 0x2010;
    let coloured = [0, own(&raw const coloured)];
    let compact = [object[1] << 42 | 1, 0];
    let compact_handle = own(compact.as_ptr());
    let compact = [0, own(&raw const compact_handle)];
    let shift = 0_u32;
    let fields = [
        ("ObjectMonitor", "_object", 8),
        ("oopDesc", "_metadata._compressed_klass", 8),
        ("CompressedKlassPointers", "_shift", own(&raw const shift)),
        ("CompressedKlassPointers", "_base", own(&raw const base)),
    ];
    let pid = std::process::id();
    let monitors = Monitors::of(&table(&[&fields[..], &NAMES].concat(), &[]), None).unwrap();
    assert_eq!(monitors.class_of(pid, own(monitor.as_ptr())).as_deref(), Some("java.lang.Object"));
    assert_eq!(monitors.class_of(pid, own(coloured.as_ptr())).as_deref(), Some("java.lang.Object"));
    assert_eq!(monitors.class_of(pid, own(object.as_ptr())), None);
    assert_eq!(monitors.class_of(pid, u64::MAX), None);
    for (flag, name) in [(1, Some("java.lang.Object")), (0, None)] {
        let flag = own(&raw const flag);
        let monitors = Monitors { compact: Some(flag), ..monitors.clone() };
        assert_eq!(monitors.class_of(pid, own(compact.as_ptr())).as_deref(), name);
    }
    // What the machine's memory says is the target's.
    let too_far = MAX_SHIFT;
    assert_eq!(Monitors { shift: own(&raw const too_far), ..monitors }.class_of(pid, own(monitor.as_ptr())), None);
    assert_eq!(Monitors::of(&table(&fields, &[]), None), None);
}

#[test]
fn a_machine_that_has_not_begun_has_no_table() {
    let nothing = 0_u64;
    assert!(Table::read(std::process::id(), own(&raw const nothing), None).is_none());
    assert!(Table::read(u32::MAX, 8, None).is_none());
}

/// `used_at`: where a block says whether it is used, its length being the bytes before.
fn generated_code(used_at: u64) {
    let pid = std::process::id();
    // A method of a class: its constant part, and the pool in which its name is the third entry.
    let (class_name, method_name) = (symbol("app/Ledger"), symbol("audit"));
    let class = [0, own(class_name.as_ptr())];
    let pool = [own(class.as_ptr()), 7, 0, 0, own(method_name.as_ptr())];
    let const_method = [own(pool.as_ptr()), 3];
    let method = [own(const_method.as_ptr())];
    // Segments of 64 bytes: a method's block of two, a free one, a stub's, and what was never used. The contents, behind 16 bytes, are a
    // name, words of a frame, and a method.
    let strings = ["nmethod", "monitorexit Runtime1 stub"].map(|text| format!("{text:\0<64}"));
    let block = |length: u64, used: u64, contents: [u64; 3]| {
        let header = if used_at == 4 { [length | used << 32, 0] } else { [length, used] };
        let mut words = [&header[..], &contents].concat();
        words.resize(usize::try_from(length).unwrap() * 8, 0);
        words
    };
    let [compiled, stub] = strings.each_ref().map(|text| own(text.as_ptr()));
    let mut code = block(2, 1, [compiled, 6, own(method.as_ptr())]);
    code.extend(block(1, 0, [compiled, 6, 8]));
    code.extend(block(1, 1, [stub, 0, 0]));
    code.resize(code.len() + 128, 0);
    let low = own(code.as_ptr());
    let heap = [low, low + 64 * 20, 6];
    let data = [own(heap.as_ptr())];
    let array = [1, own(data.as_ptr())];
    let heaps = own(array.as_ptr());
    let fields = [
        ("CodeCache", "_heaps", own(&raw const heaps)),
        ("GrowableArrayBase", "_len", 0),
        ("GrowableArray<int>", "_data", 8),
        ("CodeHeap", "_memory", 0),
        ("VirtualSpace", "_low", 0),
        ("VirtualSpace", "_high", 8),
        ("CodeHeap", "_log2_segment_size", 16),
        ("HeapBlock", "_header", 0),
        ("HeapBlock::Header", "_length", 0),
        ("HeapBlock::Header", "_used", used_at),
        ("CodeBlob", "_name", 0),
        ("CodeBlob", "_frame_size", 8),
        ("CompiledMethod", "_method", 16),
        ("Method", "_constMethod", 0),
        ("ConstMethod", "_constants", 0),
        ("ConstMethod", "_name_index", 8),
        ("ConstantPool", "_pool_holder", 0),
    ];
    let sizes = [("HeapBlock", 16), ("ConstantPool", 8)];
    let mut read = Code::of(&table(&[&fields[..], &NAMES].concat(), &sizes)).unwrap();
    let found = read.look(pid);
    let method = Generated { range: low..low + 128, name: "app.Ledger.audit".to_owned(), frame: Some(48) };
    let stub = Generated { range: low + 192..low + 256, name: "monitorexit Runtime1 stub".to_owned(), frame: None };
    assert_eq!(found, [method, stub]);
    // What the tables say is the target's.
    let mut damaged = fields;
    damaged[5].2 = u64::MAX;
    assert!(Code::of(&table(&[&damaged[..], &NAMES].concat(), &sizes)).is_none());
    // The process may be gone.
    assert_eq!(read.look(u32::MAX), []);
    assert!(Code::of(&table(&fields, &sizes)).is_none());
}

#[test]
fn generated_code_is_told_by_its_methods() {
    generated_code(8);
    // From JDK 23 on.
    generated_code(4);
}
