//! A reader of BTF, the kernel's own type information: just the offset of a member and the presence of an enumerator.
//! (Aya parses BTF too, but keeps members to itself.)

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::OnceLock;

/// Where the kernel shows its types.
pub const KERNEL: &str = "/sys/kernel/btf/vmlinux";

/// How the names of such functions begin.
const ITERATOR: &str = "bpf_iter_";

/// Why BTF could not be used.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The file could not be read.
    #[error("failed to read kernel types from {KERNEL}: {0}; a kernel built with CONFIG_DEBUG_INFO_BTF is needed")]
    Read(#[source] std::io::Error),
    /// The bytes are not BTF, or not all there.
    #[error("failed to parse kernel types from {KERNEL}: {0}")]
    Malformed(&'static str),
    /// The kernel has no such member, or not at a whole byte.
    #[error("failed to find {structure}.{member} among the kernel's types; this kernel is not supported")]
    NoMember {
        /// Structure searched.
        structure: &'static str,
        /// Member not found in it.
        member: &'static str,
    },
}

/// Offsets in the kernel's `task_struct`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskOffsets {
    /// Offset of `group_leader`.
    pub group_leader: u32,
    /// Offset of `start_boottime`.
    pub start_boottime: u32,
    /// Offset of `tgid`.
    pub tgid: u32,
    /// Offset of `real_parent`.
    pub real_parent: u32,
    /// Offset of `mm`.
    pub mm: u32,
    /// Offset of `__state`; before 5.14, `state`.
    pub state: u32,
    /// Offset of `sched_info.run_delay`; `None` where the kernel does not keep it.
    pub run_delay: Option<u32>,
    /// Where a thread's number in its own pid namespace is; `None` where that is not found.
    pub own_tid: Option<OwnTid>,
}

/// Offsets on the way to a thread's number in its own pid namespace, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnTid {
    /// Offset of `task_struct::thread_pid`.
    pub thread_pid: u32,
    /// Offset of `pid::level`.
    pub level: u32,
    /// Offset of `pid::numbers`.
    pub numbers: u32,
}

/// A member of a structure or union.
#[derive(Clone, Copy, Debug)]
struct Member {
    name: u32,
    type_id: u32,
    bit_offset: u32,
    bitfield: bool,
}

/// Type information, with what the two questions need.
#[derive(Debug, Default)]
pub struct Btf {
    strings: Vec<u8>,
    /// Members of the structures and unions, by type number.
    members: HashMap<u32, Vec<Member>>,
    /// Names of structures and unions that have one.
    named: Vec<(u32, u32)>,
    /// Names of the type definitions.
    typedefs: Vec<(u32, u32)>,
    /// Names of the functions by which the kernel declares what can be iterated over.
    iterators: Vec<(u32, u32)>,
    /// Enumerations: name, and names of the enumerators.
    enums: Vec<(u32, Vec<u32>)>,
}

impl Btf {
    /// The running kernel's types.
    ///
    /// # Errors
    /// If the kernel shows none, or they are malformed.
    pub fn kernel() -> Result<&'static Self, BtfError> {
        // Several megabytes that do not change: parsed once.
        static TYPES: OnceLock<Btf> = OnceLock::new();
        if let Some(types) = TYPES.get() {
            return Ok(types);
        }
        let types = Self::parse(&std::fs::read(Path::new(KERNEL)).map_err(BtfError::Read)?)?;
        Ok(TYPES.get_or_init(|| types))
    }

    /// Parses the format of `Documentation/bpf/btf.rst`, of either byte order.
    ///
    /// # Errors
    /// If the bytes are not well-formed BTF.
    pub fn parse(data: &[u8]) -> Result<Self, BtfError> {
        let big = match data.first_chunk() {
            Some([0x9f, 0xeb]) => false,
            Some([0xeb, 0x9f]) => true,
            _ => return Err(BtfError::Malformed("no BTF magic number")),
        };
        let mut header = Reader { data, at: 4, big };
        let header_len = header.u32()?;
        let (type_off, type_len) = (header.u32()?, header.u32()?);
        let (string_off, string_len) = (header.u32()?, header.u32()?);
        let section = |offset: u32, len: u32| {
            let start = (header_len as usize).checked_add(offset as usize)?;
            data.get(start..start.checked_add(len as usize)?)
        };
        let types = section(type_off, type_len).ok_or(BtfError::Malformed("types reach past the end"))?;
        let strings = section(string_off, string_len).ok_or(BtfError::Malformed("strings reach past the end"))?;

        let mut btf = Self { strings: strings.to_vec(), ..Self::default() };
        let mut reader = Reader { data: types, at: 0, big };
        let mut id = 0;
        while reader.at < types.len() {
            id += 1;
            btf.read_type(id, &mut reader)?;
        }
        Ok(btf)
    }

    fn read_type(&mut self, id: u32, reader: &mut Reader<'_>) -> Result<(), BtfError> {
        let (name, info, _size_or_type) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (count, kind, flag) = (info & 0xffff, info >> 24 & 31, info >> 31 == 1);
        match kind {
            // int, var, decl_tag: one word more
            1 | 14 | 17 => reader.skip(4)?,
            // typedef
            8 => self.typedefs.push((name, id)),
            // pointer, forward, volatile, const, restrict, float, type_tag
            2 | 7 | 9..=11 | 16 | 18 => {}
            // function
            12 => {
                if self.after(name, ITERATOR).is_some() {
                    self.iterators.push((name, id));
                }
            }
            // array
            3 => reader.skip(12)?,
            // structure, union
            4 | 5 => {
                let mut members = Vec::new();
                for _ in 0..count {
                    let (name, type_id, offset) = (reader.u32()?, reader.u32()?, reader.u32()?);
                    // With the flag, the top byte is the width of a bit field, 0 for an ordinary member.
                    let (bit_offset, bitfield) =
                        if flag { (offset & 0x00ff_ffff, offset >> 24 != 0) } else { (offset, false) };
                    members.push(Member { name, type_id, bit_offset, bitfield });
                }
                self.members.insert(id, members);
                if name != 0 {
                    self.named.push((name, id));
                }
            }
            // enumeration of 32 or 64 bits
            6 | 19 => {
                let mut names = Vec::new();
                for _ in 0..count {
                    names.push(reader.u32()?);
                    reader.skip(if kind == 6 { 4 } else { 8 })?;
                }
                self.enums.push((name, names));
            }
            // function prototype
            13 => reader.skip(count as usize * 8)?,
            // data section
            15 => reader.skip(count as usize * 12)?,
            _ => return Err(BtfError::Malformed("a kind of type that this version does not know")),
        }
        Ok(())
    }

    /// Offsets in `task_struct`.
    ///
    /// # Errors
    /// If it lacks one of the members.
    pub fn task_offsets(&self) -> Result<TaskOffsets, BtfError> {
        let offset = |member| {
            self.member_offset("task_struct", member).ok_or(BtfError::NoMember { structure: "task_struct", member })
        };
        Ok(TaskOffsets {
            group_leader: offset("group_leader")?,
            start_boottime: offset("start_boottime")?,
            tgid: offset("tgid")?,
            real_parent: offset("real_parent")?,
            mm: offset("mm")?,
            state: offset("__state").or_else(|_| offset("state"))?,
            run_delay: offset("sched_info")
                .ok()
                .zip(self.member_offset("sched_info", "run_delay"))
                .and_then(|(outer, inner)| outer.checked_add(inner)),
            own_tid: self.own_tid(),
        })
    }

    fn own_tid(&self) -> Option<OwnTid> {
        Some(OwnTid {
            thread_pid: self.member_offset("task_struct", "thread_pid")?,
            level: self.member_offset("pid", "level")?,
            numbers: self.member_offset("pid", "numbers")?,
        })
    }

    /// Number of the type of a tracepoint's arguments; `None` if the kernel has no such tracepoint.
    #[must_use]
    pub fn tracepoint(&self, name: &str) -> Option<u32> {
        let name = format!("btf_trace_{name}");
        self.typedefs.iter().find(|&&(n, _)| self.is(n, &name)).map(|&(_, id)| id)
    }

    /// Number of the type of an iterator over all of something (`task`, …); `None` if the kernel has none.
    #[must_use]
    pub fn iterator(&self, name: &str) -> Option<u32> {
        let name = format!("{ITERATOR}{name}");
        self.iterators.iter().find(|&&(n, _)| self.is(n, &name)).map(|&(_, id)| id)
    }

    /// Offset in bytes of a member of a structure, also of one inside anonymous structures and unions; `None` if there
    /// is no such member, or it is a bit field.
    #[must_use]
    pub fn member_offset(&self, structure: &str, member: &str) -> Option<u32> {
        let candidates = self.named.iter().filter(|&&(name, _)| self.is(name, structure));
        candidates.filter_map(|&(_, id)| self.find(id, member)).next()
    }

    fn find(&self, structure: u32, member: &str) -> Option<u32> {
        let mut seen = HashSet::new();
        let mut open = vec![(structure, 0u32)];
        while let Some((id, base)) = open.pop() {
            // Each anonymous type once: malformed types may contain each other.
            if !seen.insert(id) {
                continue;
            }
            for m in self.members.get(&id)? {
                let bits = base.checked_add(m.bit_offset)?;
                if self.is(m.name, member) {
                    return (!m.bitfield && bits.is_multiple_of(8)).then_some(bits / 8);
                }
                if m.name == 0 && self.members.contains_key(&m.type_id) {
                    open.push((m.type_id, bits));
                }
            }
        }
        None
    }

    /// Whether an enumeration of this name has an enumerator of that name: how the kernel shows what it can do.
    #[must_use]
    pub fn has_enumerator(&self, enumeration: &str, enumerator: &str) -> bool {
        self.enums
            .iter()
            .filter(|(name, _)| self.is(*name, enumeration))
            .any(|(_, names)| names.iter().any(|&name| self.is(name, enumerator)))
    }

    /// Whether the kernel has uprobe links of many functions (6.6).
    #[must_use]
    pub fn has_uprobe_links(&self) -> bool {
        self.has_enumerator("bpf_attach_type", "BPF_TRACE_UPROBE_MULTI")
    }

    /// Whether the kernel has uprobe sessions (6.13). To be asked first: an older one may well load a program that is meant
    /// for them, and refuses only its link.
    #[must_use]
    pub fn has_uprobe_sessions(&self) -> bool {
        self.has_enumerator("bpf_attach_type", "BPF_TRACE_UPROBE_SESSION")
    }

    fn is(&self, name: u32, text: &str) -> bool {
        self.after(name, text).is_some_and(|after| after.first() == Some(&0))
    }

    /// What follows on `text` at the beginning of a name, and all names after it; `None` if it begins otherwise.
    fn after(&self, name: u32, text: &str) -> Option<&[u8]> {
        let rest = self.strings.get(name as usize..).unwrap_or_default();
        rest.strip_prefix(text.as_bytes()).filter(|_| name != 0)
    }
}

struct Reader<'a> {
    data: &'a [u8],
    at: usize,
    big: bool,
}

impl Reader<'_> {
    fn u32(&mut self) -> Result<u32, BtfError> {
        let bytes = self.data.get(self.at..).and_then(|rest| rest.first_chunk::<4>());
        let bytes = *bytes.ok_or(BtfError::Malformed("it ends in the middle of a type"))?;
        self.at += 4;
        Ok(if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn skip(&mut self, bytes: usize) -> Result<(), BtfError> {
        self.at = self.at.saturating_add(bytes);
        if self.at > self.data.len() { Err(BtfError::Malformed("it ends in the middle of a type")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STRUCT: u32 = 4 << 24;
    const UNION: u32 = 5 << 24;
    const FLAG: u32 = 1 << 31;

    /// Types given as words, behind a header; strings as `\0`-terminated names.
    fn btf(types: &[u32], strings: &[u8], big: bool) -> Vec<u8> {
        let (type_len, string_len) = (types.len() as u32 * 4, strings.len() as u32);
        let header = [24, 0, type_len, type_len, string_len];
        let words = header.iter().chain(types);
        let mut data = if big { vec![0xeb, 0x9f, 1, 0] } else { vec![0x9f, 0xeb, 1, 0] };
        data.extend(words.flat_map(|w| if big { w.to_be_bytes() } else { w.to_le_bytes() }));
        data.extend(strings);
        data
    }

    /// `struct task { u64 a; struct { u64 b; union { u32 : 3; u32 x; }; }; u32 f : 5; }` and `enum e { v }`.
    #[rustfmt::skip]
    fn sample() -> Vec<u32> {
        vec![
            0, UNION | FLAG | 2, 4,    0, 9, 3 << 24,   6, 9, 0,
            0, STRUCT | 2, 16,         16, 9, 0,        0, 1, 64,
            1, STRUCT | FLAG | 3, 32,  8, 9, 0,         0, 2, 64,   10, 9, 5 << 24 | 192,
            12, 6 << 24 | 1, 4,        14, 7,
        ]
    }

    const NAMES: &[u8] = b"\0task\0x\0a\0f\0e\0v\0b\0";

    #[test]
    fn members_are_found_through_anonymous_types() {
        for big in [false, true] {
            let btf = Btf::parse(&btf(&sample(), NAMES, big)).unwrap();
            assert_eq!(btf.member_offset("task", "a"), Some(0));
            assert_eq!(btf.member_offset("task", "x"), Some(16));
            assert_eq!(btf.member_offset("task", "f"), None, "a bit field has no byte offset");
            assert_eq!(btf.member_offset("task", "tas"), None);
            assert_eq!(btf.member_offset("a", "x"), None);
            assert!(btf.has_enumerator("e", "v") && !btf.has_enumerator("e", "x"));
        }
    }

    #[test]
    fn types_that_contain_themselves_end_the_search() {
        let types = [1, STRUCT | 2, 8, 0, 1, 0, 0, 1, 32];
        assert_eq!(Btf::parse(&btf(&types, NAMES, false)).unwrap().member_offset("task", "a"), None);
    }

    #[test]
    fn damage_is_an_error() {
        let whole = btf(&sample(), NAMES, false);
        assert!(Btf::parse(&whole).is_ok());
        for len in 0..whole.len() {
            assert!(Btf::parse(&whole[..len]).is_err(), "cut to {len} bytes");
        }
        let unknown = btf(&[0, 31 << 24, 0], NAMES, false);
        assert!(matches!(Btf::parse(&unknown), Err(BtfError::Malformed(_))));
    }

    /// The running kernel, against bpftool where both are there.
    #[test]
    fn the_running_kernel() {
        if !Path::new(KERNEL).exists() {
            return crate::fixture::skipped("this kernel shows no BTF");
        }
        let btf = Btf::kernel().unwrap();
        let offsets = btf.task_offsets().unwrap();
        assert!(offsets.group_leader.is_multiple_of(8) && offsets.start_boottime.is_multiple_of(8));
        assert_ne!(offsets.group_leader, offsets.start_boottime);
        assert!(offsets.own_tid.is_some_and(|own| own.numbers > own.level));
        assert!(btf.tracepoint("sched_switch").is_some() && btf.tracepoint("no_such_tracepoint").is_none());
        assert!(btf.has_enumerator("bpf_attach_type", "BPF_PERF_EVENT"));
        assert_eq!(btf.member_offset("list_head", "prev"), Some(8));

        let raw = match std::process::Command::new("bpftool").args(["btf", "dump", "file", KERNEL]).output() {
            Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap(),
            _ => return eprintln!("no bpftool: its answer is not compared"),
        };
        let task = raw.split("STRUCT 'task_struct'").nth(1).unwrap().split("\n[").next().unwrap();
        for (member, offset) in [
            ("group_leader", offsets.group_leader),
            ("start_boottime", offsets.start_boottime),
            ("__state", offsets.state),
        ] {
            let line = task.lines().find(|l| l.contains(&format!("'{member}' "))).unwrap();
            assert!(line.ends_with(&format!("bits_offset={}", offset * 8)), "{line}: {offset}");
        }
        let id = btf.tracepoint("sched_switch").unwrap();
        assert!(raw.contains(&format!("[{id}] TYPEDEF 'btf_trace_sched_switch' ")), "{id}");
    }

    proptest! {
        #[test]
        fn noise_never_panics(types in prop::collection::vec(any::<u32>(), 0..40), strings: Vec<u8>, kinds in 0u32..20) {
            let mut types = types;
            if let Some(info) = types.get_mut(1) {
                *info = *info & 0x8000_0003 | kinds << 24;
            }
            if let Ok(btf) = Btf::parse(&btf(&types, &strings, false)) {
                let _ = btf.member_offset("a", "b");
            }
        }
    }
}
