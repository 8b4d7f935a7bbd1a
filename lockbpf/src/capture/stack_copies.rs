//! Stacks that the kernel side has copied: fetched, and once they are unwound, numbered. Equal stacks have one number, that
//! of their first copy; the kernel side is told of it, so that it need not copy that stack again.

use super::CaptureError;
use crate::id::{Process, StackId};
use crate::unwind::{Decision, Registers, StackCopy, Unwound};
use aya::Ebpf;
use aya::maps::{Array, HashMap as BpfHashMap, MapData, RingBuf};
use bytes::Buf;
use lockbpf_common::process::SERIAL_COPY;
use lockbpf_common::python::{Interpreter, MAX_FRAMES, PythonFrame};
use lockbpf_common::stack_copy::{
    AT_ONCE, BLOCK, BLOCKS, FIRST_COPY, KnownKey, KnownStack, MAX_KNOWN, MAX_SLOTS, REGISTERS, RETURNS, WAYS, how,
    known_ip, method, place,
};
use std::collections::{HashMap, HashSet};

/// Distinct stacks kept.
const MAX_KEPT: usize = 65_536;

/// The number of the first stack that is no copy: of which only some calls are known. There are fewer copies.
const FIRST_CALLS: u32 = 1 << 30;

/// What is copied of a stack at most, bytes.
pub const COPY_BYTES: usize = BLOCK * BLOCKS;

/// The copied stacks of an observation.
pub(super) struct StackCopies {
    ring: RingBuf<MapData>,
    places: RingBuf<MapData>,
    /// By number of the copy: the stack, or that it is none.
    numbers: HashMap<StackId, Option<StackId>>,
    stacks: HashMap<StackId, Vec<u64>>,
    ids: HashMap<(Process, Vec<u64>), StackId>,
    /// Stacks of a place that the kernel side knows.
    ways: HashMap<(Process, u64, u32), u32>,
    known: u32,
    /// Stacks for which there was no room.
    beyond: u64,
    undecodable: u64,
    /// Processes of which is settled by what they run how their stacks are taken.
    settled: HashSet<Process>,
}

/// What the number in a record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// This stack, or none.
    Known(Option<StackId>),
    /// A copy that has not been unwound yet.
    NotYet,
}

impl StackCopies {
    /// Takes the ring buffer over, and lets the kernel side begin to copy.
    pub(super) fn start(ebpf: &mut Ebpf) -> Result<Self, CaptureError> {
        let ring = ebpf.take_map("STACK_COPIES").ok_or(CaptureError::NoMap("STACK_COPIES"))?;
        let places = ebpf.take_map("NEW_PYTHON_PLACES").ok_or(CaptureError::NoMap("NEW_PYTHON_PLACES"))?;
        let mut copies = Self {
            ring: ring.try_into()?,
            places: places.try_into()?,
            numbers: HashMap::new(),
            stacks: HashMap::new(),
            ids: HashMap::new(),
            ways: HashMap::new(),
            known: 0,
            beyond: 0,
            undecodable: 0,
            settled: HashSet::new(),
        };
        copies.fetch(ebpf, AT_ONCE)?;
        Ok(copies)
    }

    /// Every copy that is there. The programs may make `more` until the next call.
    pub(super) fn fetch(&mut self, ebpf: &mut Ebpf, more: u64) -> Result<Vec<StackCopy>, CaptureError> {
        let mut copies = Vec::new();
        while let Some(record) = self.ring.next() {
            match decode(&record) {
                Some(copy) => copies.push(copy),
                None => self.undecodable += 1,
            }
        }
        let serials: Array<_, u64> = ebpf.map("SERIALS").ok_or(CaptureError::NoMap("SERIALS"))?.try_into()?;
        let limit = serials.get(&SERIAL_COPY, 0)?.saturating_add(more);
        let map = ebpf.map_mut("COPY_LIMIT").ok_or(CaptureError::NoMap("COPY_LIMIT"))?;
        Array::<_, u64>::try_from(map)?.set(0, limit, 0)?;
        Ok(copies)
    }

    /// The places in Python functions where locks were asked for that were not told before.
    pub(super) fn python_places(&mut self) -> Vec<(Process, PythonFrame)> {
        let mut places = Vec::new();
        while let Some(record) = self.places.next() {
            match decode_place(&record) {
                Some(place) => places.push(place),
                None => self.undecodable += 1,
            }
        }
        places
    }

    /// Takes note of what a copy has turned out to be, and of the addresses that are `told` of it. One that says nothing is what frame
    /// pointers said, if they did.
    pub(super) fn settle(
        &mut self,
        ebpf: &mut Ebpf,
        copy: &StackCopy,
        unwound: &Unwound,
        told: Vec<u64>,
    ) -> Result<(), CaptureError> {
        if unwound.addresses.len() < 2 && copy.frames.is_some() {
            self.numbers.insert(copy.number, copy.frames);
            return Ok(());
        }
        let key = (copy.process, told);
        let id = match self.ids.get(&key) {
            Some(&id) => id,
            None if self.stacks.len() >= MAX_KEPT => {
                self.beyond += 1;
                self.numbers.insert(copy.number, None);
                return Ok(());
            }
            None => {
                self.stacks.insert(copy.number, key.1.clone());
                self.ids.insert(key, copy.number);
                copy.number
            }
        };
        self.numbers.insert(copy.number, Some(id));
        self.tell(ebpf, copy, unwound, id)
    }

    /// Tells the kernel side by what to recognise a stack, if it can.
    fn tell(&mut self, ebpf: &mut Ebpf, copy: &StackCopy, unwound: &Unwound, id: StackId) -> Result<(), CaptureError> {
        let Some((known, stack_pointer)) = known(copy, unwound, id) else { return Ok(()) };
        let how = if copy.at_release { how::AT_RELEASE } else { 0 };
        let ip =
            known_ip(copy.registers.ip, how) ^ copy.python.iter().fold(0, |before, frame| frame.fingerprint(before));
        let way = self.ways.entry((copy.process, ip, place(stack_pointer, 0))).or_insert(0);
        if *way >= WAYS || self.known >= MAX_KNOWN {
            return Ok(());
        }
        let key = KnownKey { ip, process: copy.process.0, place: place(stack_pointer, *way) };
        let map = ebpf.map_mut("KNOWN_STACKS").ok_or(CaptureError::NoMap("KNOWN_STACKS"))?;
        BpfHashMap::<_, KnownKey, KnownStack>::try_from(map)?.insert(key, known, 0)?;
        *way += 1;
        self.known += 1;
        Ok(())
    }

    /// The number of a stack of which only these calls are known; `None` if there is no room for it.
    pub(super) fn number_calls(&mut self, process: Process, calls: Vec<u64>) -> Option<StackId> {
        let key = (process, calls);
        if let Some(&id) = self.ids.get(&key) {
            return Some(id);
        }
        let number = self.stacks.len();
        let id = StackId(FIRST_CALLS + u32::try_from(number).ok().filter(|_| number < MAX_KEPT)?);
        self.stacks.insert(id, key.1.clone());
        self.ids.insert(key, id);
        Some(id)
    }

    /// How the stacks of a process are taken from now on, unless what it runs has settled that.
    pub(super) fn decide(&self, ebpf: &mut Ebpf, process: Process, decision: Decision) -> Result<(), CaptureError> {
        match decision {
            _ if self.settled.contains(&process) => Ok(()),
            Decision::Frames => Self::set(ebpf, process, method::FRAMES),
            Decision::Unwind => Self::set(ebpf, process, method::COPY),
        }
    }

    /// The stacks of a process are taken with Python's functions from now on.
    pub(super) fn read_python(
        &mut self,
        ebpf: &mut Ebpf,
        process: Process,
        python: Interpreter,
    ) -> Result<(), CaptureError> {
        let map = ebpf.map_mut("PYTHONS").ok_or(CaptureError::NoMap("PYTHONS"))?;
        BpfHashMap::<_, u32, Interpreter>::try_from(map)?.insert(process.0, python, 0)?;
        self.settled.insert(process);
        Self::set(ebpf, process, method::PYTHON)
    }

    /// The stacks of a process are copied from now on in which a machine makes code while it runs.
    pub(super) fn generates_code(&mut self, ebpf: &mut Ebpf, process: Process) -> Result<(), CaptureError> {
        if self.settled.insert(process) { Self::set(ebpf, process, method::GENERATED) } else { Ok(()) }
    }

    fn set(ebpf: &mut Ebpf, process: Process, method: u32) -> Result<(), CaptureError> {
        let map = ebpf.map_mut("METHODS").ok_or(CaptureError::NoMap("METHODS"))?;
        Ok(BpfHashMap::<_, u32, u32>::try_from(map)?.insert(process.0, method, 0)?)
    }

    /// Where copies come from.
    pub(super) fn ring(&self) -> &RingBuf<MapData> {
        &self.ring
    }

    /// What a number stands for.
    pub(super) fn number(&self, id: StackId) -> Numbered {
        if id.0 < FIRST_COPY {
            return Numbered::Known(Some(id));
        }
        self.numbers.get(&id).map_or(Numbered::NotYet, |&known| Numbered::Known(known))
    }

    /// One stack.
    pub(super) fn get(&self, id: StackId) -> Option<&[u64]> {
        self.stacks.get(&id).map(Vec::as_slice)
    }

    /// Every stack.
    pub(super) fn all(&self) -> impl Iterator<Item = (StackId, &[u64])> {
        self.stacks.iter().map(|(&id, stack)| (id, stack.as_slice()))
    }

    /// Stacks that were lost here.
    pub(super) fn lost(&self) -> u64 {
        self.beyond + self.undecodable
    }
}

/// By what the kernel side recognises a stack, and the stack pointer that it goes by; `None` if it cannot.
fn known(copy: &StackCopy, unwound: &Unwound, id: StackId) -> Option<(KnownStack, u64)> {
    let stack_pointer = copy.registers.stack_pointer()?;
    let slots = unwound.slots.as_ref().filter(|slots| !slots.is_empty())?;
    let count = Some(slots.len() + unwound.interpreted.len()).filter(|&count| count <= MAX_SLOTS)?;
    let mut known = KnownStack { stack: id.0, count: count as u32, slots: [0; MAX_SLOTS], words: [0; MAX_SLOTS] };
    let callers = slots.iter().copied().zip(unwound.addresses.iter().skip(1).copied());
    // Frames of all methods that are interpreted return to the same place.
    let methods = unwound.interpreted.iter().map(|method| (method.slot, method.address));
    for (i, (address, caller)) in callers.chain(methods).enumerate() {
        let above = address.checked_sub(stack_pointer).filter(|above| above % 8 == 0)?;
        *known.slots.get_mut(i)? = u16::try_from(above / 8).ok()?;
        // As it is in memory, with its signature if it has one.
        known.words[i] = if copy.returns.contains(&caller) { caller } else { copy.word(address).ok()? };
    }
    Some((known, stack_pointer))
}

/// One place; `None` if it is none.
fn decode_place(mut record: &[u8]) -> Option<(Process, PythonFrame)> {
    let process = Process(u32::try_from(record.try_get_u64_ne().ok()?).ok()?);
    let (code, instruction) = (record.try_get_u64_ne().ok()?, record.try_get_u64_ne().ok()?);
    Some((process, PythonFrame { code, instruction }))
}

/// One record; `None` if it is none.
fn decode(mut record: &[u8]) -> Option<StackCopy> {
    let process = Process(record.try_get_u32_ne().ok()?);
    let number = StackId(record.try_get_u32_ne().ok()?);
    let frames = StackId::from_raw(record.try_get_i32_ne().ok()?);
    let blocks = usize::from(record.try_get_u16_ne().ok()?);
    let absent = usize::from(record.try_get_u16_ne().ok()?).checked_mul(BLOCK)?;
    let at_release = record.try_get_u32_ne().ok()? & how::AT_RELEASE != 0;
    let python_frames = record.try_get_u32_ne().ok()? as usize;
    let mut returns = [0; RETURNS];
    for word in &mut returns {
        *word = record.try_get_u64_ne().ok()?;
    }
    let mut words = [0; REGISTERS];
    for word in &mut words {
        *word = record.try_get_u64_ne().ok()?;
    }
    let registers = Registers::saved(&words);
    let mut python = Vec::with_capacity(MAX_FRAMES);
    for _ in 0..MAX_FRAMES {
        let (code, instruction) = (record.try_get_u64_ne().ok()?, record.try_get_u64_ne().ok()?);
        python.push(PythonFrame { code, instruction });
    }
    python.truncate(python_frames);
    let base = (registers.stack_pointer()? & !(BLOCK as u64 - 1)).checked_add(absent as u64)?;
    let bytes = record.get(absent..absent.checked_add(blocks.checked_mul(BLOCK)?)?)?.to_vec();
    let bounded = absent + bytes.len() == COPY_BYTES;
    Some(StackCopy { process, number, frames, at_release, returns, registers, python, base, bytes, bounded })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::{End, Interpreted};
    use proptest::prelude::*;

    fn copy(stack_pointer: u64) -> StackCopy {
        let top = StackCopy::top(Process(1), Registers::of(0x40, stack_pointer, 0), 0x1000, (0..64u8).collect());
        StackCopy { number: StackId(FIRST_COPY), bounded: false, ..top }
    }

    fn unwound(slots: Option<Vec<u64>>) -> Unwound {
        Unwound { addresses: vec![1, 2, 3], slots, end: End::Root, by_frame_pointers: false, interpreted: Vec::new() }
    }

    #[test]
    fn a_stack_is_known_by_its_return_addresses() {
        let (known, stack_pointer) = known(&copy(0x1008), &unwound(Some(vec![0x1010, 0x1030])), StackId(7)).unwrap();
        assert_eq!((known.stack, known.count, stack_pointer), (7, 2, 0x1008));
        assert_eq!(known.slots[..3], [1, 5, 0]);
        assert_eq!(known.words[0], u64::from_ne_bytes([16, 17, 18, 19, 20, 21, 22, 23]));
    }

    /// The frames of two methods differ by nothing else.
    #[test]
    fn what_is_interpreted_is_known_by_its_methods() {
        let method = Interpreted { address: 0x4200, slot: 0x1018 };
        let stack = Unwound { interpreted: vec![method], ..unwound(Some(vec![0x1010, 0x1030])) };
        let (known, _) = known(&copy(0x1008), &stack, StackId(7)).unwrap();
        assert_eq!((known.count, &known.slots[..3]), (3, &[1, 5, 2][..]));
        assert_eq!(known.words[2], u64::from_ne_bytes([24, 25, 26, 27, 28, 29, 30, 31]));
    }

    #[test]
    fn of_a_call_that_is_watched_the_callers_address_counts() {
        let copy = StackCopy { returns: [2, 0], ..copy(0x1008) };
        let (known, _) = known(&copy, &unwound(Some(vec![0x1010])), StackId(7)).unwrap();
        assert_eq!(known.words[0], 2);
    }

    #[test]
    fn frames_and_flags_are_decoded() {
        let mut bytes = [0u8; 24 + 8 * RETURNS + 8 * REGISTERS + 16 * MAX_FRAMES].to_vec();
        bytes[16..20].copy_from_slice(&(how::AT_RELEASE | how::PYTHON).to_ne_bytes());
        bytes[20..24].copy_from_slice(&2u32.to_ne_bytes());
        let first = 24 + 8 * RETURNS + 8 * REGISTERS;
        for (n, word) in (1u64..=6).enumerate() {
            bytes[first + 8 * n..first + 8 * n + 8].copy_from_slice(&word.to_ne_bytes());
        }
        let copy = decode(&bytes).unwrap();
        let frame = |code, instruction| PythonFrame { code, instruction };
        assert!(copy.at_release && copy.python == [frame(1, 2), frame(3, 4)], "{copy:?}");
        let told = decode_place(&[&7u64.to_ne_bytes()[..], &bytes[first..first + 16]].concat());
        assert_eq!(told, Some((Process(7), frame(1, 2))));
    }

    #[test]
    fn what_cannot_be_compared_is_not_known() {
        for slots in [
            None,
            Some(vec![]),
            Some(vec![0x1000]),
            Some(vec![0x1011]),
            Some(vec![0x9000]),
            Some(vec![0x1010; MAX_SLOTS + 1]),
        ] {
            assert!(known(&copy(0x1008), &unwound(slots), StackId(7)).is_none());
        }
    }

    #[test]
    fn what_is_absent_is_not_told() {
        let mut bytes = [0u8; 24 + 8 * RETURNS + 8 * REGISTERS + 16 * MAX_FRAMES].to_vec();
        bytes.extend((0..BLOCKS).flat_map(|block| [block as u8; BLOCK]));
        bytes[12..14].copy_from_slice(&14u16.to_ne_bytes());
        bytes[14..16].copy_from_slice(&2u16.to_ne_bytes());
        let copy = decode(&bytes).unwrap();
        assert_eq!((copy.base, copy.bytes.len(), copy.bounded), (2 * BLOCK as u64, 14 * BLOCK, true));
        assert_eq!(copy.word(BLOCK as u64), Err(End::Astray));
        assert_eq!(copy.word(2 * BLOCK as u64), Ok(u64::from_ne_bytes([2; 8])));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_copy_or_none(
            bytes in prop::collection::vec(any::<u8>(), 0..600),
            blocks in prop_oneof![0u16..3, any::<u16>()],
            absent in prop_oneof![0u16..3, any::<u16>()],
        ) {
            decode(&bytes);
            prop_assert!(decode_place(&bytes).is_none() || bytes.len() >= 24);
            let mut whole = [0u8; 24 + 8 * RETURNS].to_vec();
            whole[12..14].copy_from_slice(&blocks.to_ne_bytes());
            whole[14..16].copy_from_slice(&absent.to_ne_bytes());
            whole.extend([0; 8 * REGISTERS + 16 * MAX_FRAMES + BLOCK]);
            prop_assert_eq!(decode(&whole).is_some(), u32::from(blocks) + u32::from(absent) <= 1);
        }
    }
}
