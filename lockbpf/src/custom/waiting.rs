//! What a program says of its own waits: a variable that leads to the lock for which a process waits. It tells of waits that no probe saw begin.

use super::address::{Address, Base};
use super::file;
use lockbpf_common::custom::Place;

/// Where a process says for which lock it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Symbol of a variable of the program.
    pub variable: String,
    /// The lock, from the variable on; nowhere while it waits for none.
    pub lock: Place,
    /// Where it stands who holds it, from the lock on; [`Place::NONE`] if nothing tells.
    pub owner: Place,
}

impl Waiting {
    /// What is written.
    pub(super) fn of(written: &file::Waiting) -> Result<Self, &'static str> {
        let from = |Address { base, place }, wanted, size| (base == wanted).then_some(Place { size, ..place });
        let lock = from(written.lock.0, Base::Static, 8).filter(|place| place.reads > 0);
        let lock = lock.ok_or("what a process waits for is read from the variable: `*static`, `*(*(static)+8)`")?;
        let owner = match written.owner {
            None => Place::NONE,
            Some(owner) => {
                from(owner.0, Base::Lock, 4).ok_or("who holds it stands at a place of the lock: `*(lock+8)`")?
            }
        };
        if written.variable.is_empty() {
            return Err("a variable has a symbol");
        }
        Ok(Self { variable: written.variable.clone(), lock, owner })
    }
}

/// The address that a place is, from this base on, as memory says that `read` reads; `None` if a pointer on the way there is null or cannot be read.
pub fn address(base: u64, place: &Place, read: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    let (first, others) = place.offsets.split_first()?;
    let plus = |address: u64, offset: &i32| address.wrapping_add_signed(i64::from(*offset));
    others.iter().take(place.reads as usize).try_fold(plus(base, first), |address, offset| {
        let pointer = read(address).filter(|&pointer| pointer != 0)?;
        Some(plus(pointer, offset))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_followed_to_the_end() {
        let place = |text: &str| text.parse::<Address>().unwrap().place;
        let memory = |address| match address {
            0x100 => Some(0x200),
            0x210 => Some(0x300),
            0x400 => Some(0),
            _ => None,
        };
        let at = |base, text| address(base, &place(text), memory);
        assert_eq!([at(0x100, "static+4"), at(0x100, "*static")], [Some(0x104), Some(0x200)]);
        assert_eq!([at(0x100, "*(*(static)+16)-8"), at(0x400, "*static")], [Some(0x2f8), None]);
        assert_eq!([at(0x100, "*(*(static)+8)"), at(u64::MAX, "*(static+8)")], [None, None]);
    }
}
