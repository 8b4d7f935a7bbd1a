//! From a type and an offset in it to the path of members that leads there: `.shards[3].lock`.

use super::info::{Die, Info, Ref};
use super::lock_type;
use gimli::constants as dw;
use std::fmt::Write;

/// Members of members, and types that stand for types, that are followed.
const MAX_DEPTH: usize = 64;
/// Dimensions of an array.
const MAX_DIMENSIONS: usize = 16;

/// Where a path led.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Path {
    /// `.shards[3].lock`; empty for the whole.
    pub(super) text: String,
    /// Whether it ends at a lock.
    pub(super) is_lock: bool,
    /// Bytes from what it leads to.
    pub(super) rest: u64,
}

/// Follows an offset into a type. Where it is not certain which member is meant, the path ends before it.
pub(super) fn path(info: &Info, ty: Ref, offset: u64) -> Option<Path> {
    let mut walk = Walk { info, text: String::new(), depth: 0 };
    let (is_lock, rest) = walk.enter(ty, offset, false)?;
    Some(Path { text: walk.text, is_lock, rest })
}

/// The name of a type, as far as it has one: `struct shard` is `shard`.
pub(super) fn type_name(info: &Info, ty: Ref) -> Option<String> {
    let mut at = ty;
    for _ in 0..MAX_DEPTH {
        let die = info.die(at)?;
        if let Some(name) = info.name(at, &die) {
            return Some(name);
        }
        if !is_qualifier(die.tag()) {
            return None;
        }
        at = info.type_of(at, &die)?;
    }
    None
}

/// The type that a pointer or reference points to.
pub(super) fn pointee(info: &Info, ty: Ref) -> Option<Ref> {
    let mut at = ty;
    for _ in 0..MAX_DEPTH {
        let die = info.die(at)?;
        let next = info.type_of(at, &die)?;
        match die.tag() {
            dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => {
                return Some(next);
            }
            dw::DW_TAG_typedef => at = next,
            tag if is_qualifier(tag) => at = next,
            _ => return None,
        }
    }
    None
}

/// Bytes that a type takes.
pub(super) fn size(info: &Info, ty: Ref) -> Option<u64> {
    let (mut at, mut factor) = (ty, 1_u64);
    for _ in 0..MAX_DEPTH {
        let die = info.die(at)?;
        // A declaration's size is with the definition.
        if let Some((_, value)) = info.attr(at, &die, dw::DW_AT_byte_size) {
            return value.udata_value()?.checked_mul(factor);
        }
        if die.tag() == dw::DW_TAG_array_type {
            for count in dimensions(info, at)? {
                factor = factor.checked_mul(count?)?;
            }
        }
        at = info.type_of(at, &die)?;
    }
    None
}

fn is_qualifier(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_const_type
            | dw::DW_TAG_volatile_type
            | dw::DW_TAG_atomic_type
            | dw::DW_TAG_restrict_type
            | dw::DW_TAG_shared_type
            | dw::DW_TAG_immutable_type
    )
}

/// How many elements each dimension of an array has, where that is fixed.
fn dimensions(info: &Info, array: Ref) -> Option<Vec<Option<u64>>> {
    let ranges = info.children(array)?.into_iter().filter(|(_, die)| die.tag() == dw::DW_TAG_subrange_type);
    let count = |(_, die): (Ref, Die)| {
        let last = || Info::constant(&die, dw::DW_AT_upper_bound).and_then(|last| last.checked_add(1));
        Info::constant(&die, dw::DW_AT_count).or_else(last)
    };
    let dimensions: Vec<_> = ranges.map(count).collect();
    (!dimensions.is_empty() && dimensions.len() <= MAX_DIMENSIONS).then_some(dimensions)
}

/// A part of a structure: a member, or what a class inherits.
struct Part {
    name: Option<String>,
    ty: Ref,
    at: u64,
}

struct Walk<'i> {
    info: &'i Info,
    text: String,
    depth: usize,
}

impl Walk<'_> {
    /// Goes on into a type. Yields whether that led to a lock, and the bytes that are left.
    fn enter(&mut self, ty: Ref, offset: u64, nameless: bool) -> Option<(bool, u64)> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let die = self.info.die(ty)?;
        let name = self.info.name(ty, &die);
        let lock = name.as_deref().filter(|name| lock_type::is_lock(name));
        let end = match die.tag() {
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                let definition = self.definition(ty, &die);
                match lock {
                    Some(lock) => self.lock(definition, lock, offset),
                    None => {
                        let nameless = nameless || name.as_deref().is_some_and(lock_type::is_wrapper);
                        let union = die.tag() == dw::DW_TAG_union_type;
                        self.structure(definition?, offset, union, nameless)?
                    }
                }
            }
            _ if lock.is_some() => (true, offset),
            dw::DW_TAG_array_type => self.array(ty, &die, offset)?,
            tag if tag == dw::DW_TAG_typedef || is_qualifier(tag) => {
                self.enter(self.info.type_of(ty, &die)?, offset, nameless)?
            }
            _ => (false, offset),
        };
        self.depth -= 1;
        Some(end)
    }

    /// Where the members of a type are told: a declaration refers to that by the type's signature.
    fn definition(&self, ty: Ref, die: &Die) -> Option<Ref> {
        match die.attr_value(dw::DW_AT_signature) {
            Some(signature) => self.info.follow(ty, &signature),
            None => Some(ty),
        }
    }

    /// Ends at a lock, unless the lock holds what it protects and the offset leads into that.
    fn lock(&mut self, definition: Option<Ref>, name: &str, offset: u64) -> (bool, u64) {
        if lock_type::is_c(name) {
            return (true, offset);
        }
        let before = self.text.len();
        let inner = definition.and_then(|ty| {
            let mut parts = self.covering(ty, offset)?;
            let part = parts.pop().filter(|_| parts.is_empty())?;
            let protected = part.name.as_deref().is_some_and(lock_type::is_protected);
            let end = protected.then(|| self.part(&part, offset, false)).flatten();
            end.filter(|&(is_lock, _)| is_lock)
        });
        inner.unwrap_or_else(|| {
            self.text.truncate(before);
            // A runtime's lock is one thing, wherever in it its word is.
            (true, 0)
        })
    }

    fn structure(&mut self, ty: Ref, offset: u64, union: bool, nameless: bool) -> Option<(bool, u64)> {
        let covering = self.covering(ty, offset)?;
        if !union && covering.len() == 1 {
            return self.part(covering.first()?, offset, nameless);
        }
        // Several members share the place: a lock among them is what is meant by someone who locks there.
        let (before, depth) = (self.text.len(), self.depth);
        let mut ends = Vec::new();
        for part in &covering {
            let end = self.part(part, offset, nameless);
            let text = self.text.split_off(before);
            self.depth = depth;
            ends.extend(end.map(|end| (end, text)));
        }
        let locks: Vec<_> = ends.iter().filter(|((is_lock, _), _)| *is_lock).collect();
        let only = match (&locks[..], &ends[..]) {
            (&[only], _) | ([], [only]) => only,
            _ => return Some((false, offset)),
        };
        self.text.push_str(&only.1);
        Some(only.0)
    }

    /// Goes on into a part.
    fn part(&mut self, part: &Part, offset: u64, nameless: bool) -> Option<(bool, u64)> {
        if let Some(name) = part.name.as_deref().filter(|_| !nameless) {
            // Rust's tuples.
            let name = name.strip_prefix("__").filter(|n| n.bytes().all(|b| b.is_ascii_digit())).unwrap_or(name);
            write!(self.text, ".{name}").ok()?;
        }
        self.enter(part.ty, offset - part.at, false)
    }

    /// The parts of a structure that an offset is in.
    fn covering(&self, ty: Ref, offset: u64) -> Option<Vec<Part>> {
        let mut parts = Vec::new();
        let mut open = Vec::new();
        let mut left = vec![ty];
        let mut seen = 0;
        while let Some(ty) = left.pop() {
            for (at, die) in self.info.children(ty)? {
                match die.tag() {
                    // Any variant of a Rust enum may be the present one.
                    dw::DW_TAG_variant_part | dw::DW_TAG_variant => {
                        seen += 1;
                        if seen > MAX_DEPTH {
                            return None;
                        }
                        left.push(at);
                    }
                    dw::DW_TAG_member | dw::DW_TAG_inheritance => {
                        // A static member is no part, and where a virtual base is depends on the object.
                        let place = die.attr_value(dw::DW_AT_data_member_location);
                        let known = self.info.member_offset(at, &die);
                        if die.has_attr(dw::DW_AT_external) || (place.is_some() && known.is_none()) {
                            continue;
                        }
                        let start = known.unwrap_or(0);
                        let Some(ty) = self.info.type_of(at, &die).filter(|_| start <= offset) else { continue };
                        let inherited = die.tag() == dw::DW_TAG_inheritance;
                        let name = if inherited { None } else { self.info.name(at, &die) };
                        let part = Part { name, ty, at: start };
                        match size(self.info, ty) {
                            Some(size) if offset - start < size => parts.push(part),
                            // Without a length: what follows the others.
                            None | Some(0) => open.push(part),
                            Some(_) => {}
                        }
                    }
                    _ => {}
                }
            }
        }
        if parts.is_empty() {
            parts.extend(open.into_iter().max_by_key(|part| part.at));
        }
        Some(parts)
    }

    fn array(&mut self, ty: Ref, die: &Die, offset: u64) -> Option<(bool, u64)> {
        let element = self.info.type_of(ty, die)?;
        let stride = Info::constant(die, dw::DW_AT_byte_stride).or_else(|| size(self.info, element))?;
        let dimensions = dimensions(self.info, ty)?;
        let mut nth = offset.checked_div(stride)?;
        let mut indices = Vec::with_capacity(dimensions.len());
        for &count in dimensions.iter().skip(1).rev() {
            let count = count.filter(|&count| count > 0)?;
            indices.push(nth % count);
            nth /= count;
        }
        indices.push(nth);
        for index in indices.iter().rev() {
            write!(self.text, "[{index}]").ok()?;
        }
        self.enter(element, offset % stride, false)
    }
}
