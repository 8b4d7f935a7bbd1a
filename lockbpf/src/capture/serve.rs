//! The process's side of `super::reader`: questions are answered one after the other, each from the file that came with it.

use super::described::{self, Wanted};
use super::elf::{self, Linkage};
use super::go;
use super::judge::{Judged, Role, judge};
use super::library::find;
use super::mangled;
use super::prologue::Arch;
use super::reader::{Answer, Ask, Asked, At, MAX_SITES, Row, Told, ToldDescribed};
use super::site::Site;
use super::unusable::Unusable;
use crate::sandbox::socket;
use object::ReadCache;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;

/// Bytes of a file in which functions to be probed are looked for. It is read whole; programs that are larger are linked dynamically.
const MAX_BYTES: u64 = 512 << 20;
/// Bytes of all symbols in one answer.
const MAX_TEXT: usize = 1 << 20;

/// Answers until the other end of the socket is closed.
///
/// # Errors
/// When the socket fails, or what comes over it makes no sense.
pub fn serve(socket: &UnixStream) -> io::Result<()> {
    while let Some((bytes, files)) = socket::receive(socket)? {
        let ask = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
        let answer = answer(ask, files)?;
        socket::send(socket, &serde_json::to_vec(&answer).map_err(io::Error::other)?, &[])?;
    }
    Ok(())
}

/// The answer to a question.
///
/// # Errors
/// When there is no file to be asked about.
pub(super) fn answer(ask: Ask, files: Vec<OwnedFd>) -> io::Result<Answer> {
    let mut files = files.into_iter().map(File::from);
    let mut file = || files.next().ok_or_else(|| io::Error::other("no file came"));
    Ok(match ask {
        Ask::Ready => Answer::Ready,
        Ask::Interpreter => {
            let headers = elf::headers(&ReadCache::new(file()?));
            Answer::Interpreter(headers.map(|headers| match headers.linkage {
                Linkage::Dynamic { interpreter } => Some(interpreter.into_os_string().into_vec()),
                Linkage::Library | Linkage::Static => None,
            }))
        }
        Ask::Places(asked) => places(file()?, &asked),
        Ask::Resolvers(functions) => {
            let data = read_whole(file()?).unwrap_or_default();
            let (resolvers, base) = find::resolvers(&data, &functions);
            Answer::Resolvers(resolvers, base)
        }
        Ask::Calls(asked) => Answer::Calls(read_whole(file()?).ok().and_then(|data| find::calls(&data, &asked))),
        Ask::Described(wanted) => Answer::Described(described(file()?, &wanted)),
    })
}

fn places(file: File, asked: &Asked) -> Answer {
    if asked.role == Role::Executable {
        let cache = ReadCache::new(file);
        match is_left_alone(&cache, asked) {
            Ok(true) => return Answer::Places(Ok(None)),
            Ok(false) => {}
            Err(error) => return Answer::Places(Err(error)),
        }
        return whole(cache.into_inner(), asked);
    }
    whole(file, asked)
}

/// Whether there is nothing to look for in an executable. Dynamic ones may be huge; their headers are enough to leave them alone.
fn is_left_alone(cache: &ReadCache<File>, asked: &Asked) -> Result<bool, elf::ElfError> {
    let dynamic = asked.has_library || matches!(elf::headers(cache)?.linkage, Linkage::Dynamic { .. });
    Ok(dynamic && !mangled::has_symbols(cache) && !go::is_go(cache) && asked.wanted.is_empty())
}

fn whole(file: File, asked: &Asked) -> Answer {
    let judged = match read_whole(file) {
        Ok(data) => judge(&data, asked.role, &asked.wanted),
        Err(error) => Err(Unusable::Unreadable(error.to_string())),
    };
    Answer::Places(Ok(match judged {
        Ok(None) => None,
        Ok(Some(judged)) => Some(told(judged)),
        Err(why) => Some(Told { unusable: Some(why), ..Told::default() }),
    }))
}

fn told(judged: Judged) -> Told {
    let Judged { libc, build_id, sites, missing, lacking, unusable } = judged;
    let own = missing.iter().filter_map(|missing| Some((Row::of(&missing.function)?, missing.reason)));
    let lacking = lacking.into_iter().map(|(number, why)| (Row::Described(number as u16), why));
    Told { libc, build_id, sites: travelling(&sites), missing: own.chain(lacking).collect(), unusable }
}

/// Probes as they travel, as many as fit into an answer.
pub(super) fn travelling(sites: &[Site]) -> Vec<At> {
    sites.iter().filter_map(At::of).take(MAX_SITES).collect()
}

fn described(file: File, wanted: &[Wanted]) -> Result<ToldDescribed, Unusable> {
    let data = read_whole(file).map_err(|error| Unusable::Unreadable(error.to_string()))?;
    let arch = elf::headers(&*data)?.arch;
    if Some(arch) != Arch::host() {
        return Err(Unusable::ForeignProcessor);
    }
    let found = described::find(wanted, &data, arch);
    let sites = travelling(&found.sites);
    let mut left = MAX_TEXT;
    let symbols = found.symbols.into_iter().take(sites.len()).map(|symbol| {
        let fits = symbol.len() <= left;
        left = left.saturating_sub(symbol.len());
        if fits { symbol } else { String::new() }
    });
    let missing = found.missing.into_iter().map(|(number, why)| (number as u16, why)).collect();
    Ok(ToldDescribed { symbols: symbols.collect(), sites, missing })
}

/// The bytes of an open file, unless there are more than any program to be probed has.
fn read_whole(mut file: File) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    // Its length first, so that a very large one is not read for nothing; it may grow meanwhile.
    let mut length = file.metadata()?.len();
    if length <= MAX_BYTES {
        // Who sent it may have read of it.
        file.rewind()?;
        length = file.take(MAX_BYTES + 1).read_to_end(&mut data)? as u64;
    }
    if length > MAX_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(data) }
}
