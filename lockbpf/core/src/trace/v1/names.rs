//! Names frames: what addresses and locks are called, and what the input itself called locks, sites and threads. Each
//! frame stands alone; text that recurs in it is told once.

use super::super::Malformed;
use super::super::names::{Named, NamedSite, NamedThread, TraceNames};
use super::super::varint::{Cursor, put, put_delta, put_text};
use super::shape::{code_in, put_code};
use crate::id::{Lock, Process, Site, Tid};
use crate::names::Frame;
use crate::stack::Role;
use crate::untrusted::shown;
use std::collections::HashMap;

const ADDRESS: u8 = 1;
const LOCK: u8 = 2;
const SITE: u8 = 3;
const THREAD: u8 = 4;
const ROLES: [Role; 4] = [Role::Program, Role::Locking, Role::Libc, Role::Nothing];

/// Turns names into the payloads of names frames.
#[derive(Debug, Default)]
pub(in super::super) struct NamesEncoder {
    out: Vec<u8>,
    texts: HashMap<String, u64>,
    near: u64,
}

impl NamesEncoder {
    pub(in super::super) fn address(&mut self, process: Process, addr: u64, role: Role, frames: &[Frame]) {
        self.begin(ADDRESS, process, addr);
        put_code(&mut self.out, &ROLES, role);
        put(&mut self.out, frames.len() as u64);
        for frame in frames {
            self.out.push(u8::from(frame.inlined));
            self.text(frame.function.as_deref());
            self.text(frame.location.as_ref().map(|(file, _)| file.as_str()));
            if let Some((_, line)) = frame.location {
                put(&mut self.out, u64::from(line));
            }
            self.text(frame.module.as_ref().map(|(module, _)| module.as_str()));
            if let Some((_, offset)) = frame.module {
                put_delta(&mut self.out, addr, offset);
            }
            put_delta(&mut self.out, addr, frame.addr);
        }
    }

    pub(in super::super) fn lock(&mut self, lock: Lock, named: &Named) {
        self.begin(LOCK, lock.process, lock.addr);
        for text in [&named.global, &named.id, &named.kind] {
            self.text(text.as_deref());
        }
        self.out.push(u8::from(named.on_stack));
    }

    pub(in super::super) fn site(&mut self, site: Site, named: &NamedSite) {
        self.begin(SITE, site.process, site.addr);
        self.text(named.id.as_deref());
        self.text(named.member.as_deref());
    }

    pub(in super::super) fn thread(&mut self, tid: Tid, named: &NamedThread) {
        self.begin(THREAD, Process(0), u64::from(tid.0));
        self.text(named.id.as_deref());
        self.text(named.comm.as_deref());
        self.out.push(u8::from(named.number.is_some()));
        if let Some(number) = named.number {
            put(&mut self.out, number);
        }
    }

    fn begin(&mut self, tag: u8, process: Process, addr: u64) {
        self.out.push(tag);
        put(&mut self.out, u64::from(process.0));
        put_delta(&mut self.out, self.near, addr);
        self.near = addr;
    }

    fn text(&mut self, text: Option<&str>) {
        match text {
            None => put(&mut self.out, 0),
            Some(text) => match self.texts.get(text) {
                Some(&number) => put(&mut self.out, number + 2),
                None => {
                    put(&mut self.out, 1);
                    put_text(&mut self.out, text);
                    self.texts.insert(text.to_owned(), self.texts.len() as u64);
                }
            },
        }
    }

    /// Bytes that wait to be written.
    pub(in super::super) fn waiting(&self) -> usize {
        self.out.len()
    }

    /// The payload that waits.
    pub(in super::super) fn payload(&self) -> &[u8] {
        &self.out
    }

    /// The payload was written: the next one begins.
    pub(in super::super) fn clear(&mut self) {
        self.out.clear();
        self.texts.clear();
        self.near = 0;
    }
}

/// Adds what a names frame tells.
pub(in super::super) fn read(payload: &[u8], names: &mut TraceNames) -> Result<(), Malformed> {
    let mut from = Texts { cursor: Cursor(payload), texts: Vec::new() };
    let mut near = 0;
    while !from.cursor.is_empty() {
        let tag = from.cursor.byte()?;
        let process = Process(from.cursor.number32()?);
        near = from.cursor.delta(near)?;
        match tag {
            ADDRESS => {
                let role = code_in(&ROLES, &mut from.cursor)?;
                let frames = from.frames(near)?;
                names.add_address(process, near, role, frames)?;
            }
            LOCK => {
                let (global, id, kind) = (from.owned()?, from.owned()?, from.owned()?);
                let on_stack = code_in(&[false, true], &mut from.cursor)?;
                let named = Named { global, id, kind, on_stack };
                names.add_lock(Lock { process, addr: near }, named)?;
            }
            SITE => {
                let named = NamedSite { id: from.owned()?, member: from.owned()? };
                names.add_site(Site { process, addr: near }, named)?;
            }
            THREAD => {
                let tid = Tid(u32::try_from(near).map_err(|_| Malformed::TooLarge)?);
                let (id, comm) = (from.owned()?, from.owned()?);
                let has_number = code_in(&[false, true], &mut from.cursor)?;
                let number = if has_number { Some(from.cursor.number()?) } else { None };
                names.add_thread(tid, NamedThread { id, number, comm })?;
            }
            _ => return Err(Malformed::Unknown("sort of name")),
        }
    }
    Ok(())
}

struct Texts<'a> {
    cursor: Cursor<'a>,
    texts: Vec<&'a str>,
}

impl<'a> Texts<'a> {
    fn text(&mut self) -> Result<Option<&'a str>, Malformed> {
        match self.cursor.number()? {
            0 => Ok(None),
            1 => {
                let text = self.cursor.text()?;
                self.texts.push(text);
                Ok(Some(text))
            }
            number => {
                let at = usize::try_from(number - 2).map_err(|_| Malformed::TooLarge)?;
                self.texts.get(at).copied().map(Some).ok_or(Malformed::Undefined)
            }
        }
    }

    fn owned(&mut self) -> Result<Option<String>, Malformed> {
        Ok(self.text()?.map(|text| shown(text).into_owned()))
    }

    fn frames(&mut self, addr: u64) -> Result<Vec<Frame>, Malformed> {
        let count = self.cursor.count()?;
        let mut frames = Vec::new();
        for _ in 0..count {
            let inlined = code_in(&[false, true], &mut self.cursor)?;
            let function = self.owned()?;
            let location = match self.owned()? {
                Some(file) => Some((file, self.cursor.number32()?)),
                None => None,
            };
            let module = match self.owned()? {
                Some(module) => Some((module, self.cursor.delta(addr)?)),
                None => None,
            };
            frames.push(Frame { function, location, module, addr: self.cursor.delta(addr)?, inlined });
        }
        Ok(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;

    #[test]
    fn names_are_clean_once_they_are_read() {
        let mut encoder = NamesEncoder::default();
        let tid = Tid(7);
        encoder.thread(tid, &NamedThread { comm: Some("a\x1b[2J\nb".to_owned()), ..NamedThread::default() });
        let mut names = TraceNames::default();
        read(encoder.payload(), &mut names).unwrap();
        assert_eq!(names.comm(tid).as_deref(), Some(r"a\u{1b}[2J\u{a}b"));
    }
}
