//! The kernel's symbols, from `/proc/kallsyms`: functions, and (where the kernel keeps them) variables. A reader of its own,
//! since symbolizers look for functions only, and locks are variables.
#![forbid(unsafe_code)]

use crate::proc;
use std::ops::Range;

/// Where the kernel lists its symbols.
pub const PATH: &str = "/proc/kallsyms";

/// Largest listing that is read, bytes.
const MAX_BYTES: usize = 256 << 20;
/// Largest variable that a lock is looked for in, bytes: beyond that, the variable before it says nothing.
const MAX_VARIABLE: u64 = 1 << 20;

/// Why the kernel's symbols are not known.
#[derive(Debug, thiserror::Error)]
pub enum KallsymsError {
    /// The listing could not be read.
    #[error("failed to read the kernel's symbols from {PATH}: {0}")]
    Read(#[source] std::io::Error),
    /// It is too large to be true.
    #[error("failed to read the kernel's symbols from {PATH}: more than {MAX_BYTES} bytes")]
    TooLarge,
    /// It has no addresses.
    #[error(
        "failed to learn the addresses of the kernel's symbols: it hides them; CAP_SYSLOG shows them (or kernel.kptr_restrict=0)"
    )]
    Hidden,
}

/// One symbol.
#[derive(Clone, Debug)]
struct Symbol {
    addr: u64,
    /// Its name in the text.
    name: Range<u32>,
    code: bool,
}

/// The symbols, in the order of their addresses.
#[derive(Debug, Default)]
pub struct Kallsyms {
    text: String,
    symbols: Vec<Symbol>,
}

impl Kallsyms {
    /// The running kernel's.
    ///
    /// # Errors
    /// When they cannot be read, or have no addresses.
    pub fn kernel() -> Result<Self, KallsymsError> {
        let bytes = proc::read(PATH).map_err(KallsymsError::Read)?;
        if bytes.len() > MAX_BYTES {
            return Err(KallsymsError::TooLarge);
        }
        Self::parse(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Parses such a listing; lines that are not understood are left out.
    ///
    /// # Errors
    /// When no symbol has an address.
    pub fn parse(text: String) -> Result<Self, KallsymsError> {
        let mut symbols = Vec::new();
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            symbols.extend(symbol(line, start));
            start += line.len();
        }
        if symbols.is_empty() {
            return Err(KallsymsError::Hidden);
        }
        symbols.sort_by_key(|s| s.addr);
        Ok(Self { text, symbols })
    }

    /// The address of a symbol.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<u64> {
        self.symbols.iter().find(|s| self.name(s) == name).map(|s| s.addr)
    }

    /// From the first of these symbols up to the end of the last.
    #[must_use]
    pub fn span(&self, wanted: impl Fn(&str) -> bool) -> Option<Range<u64>> {
        let mut all = self.symbols.iter().filter(|s| wanted(self.name(s))).map(|s| s.addr);
        let first = all.next()?;
        let last = all.next_back().unwrap_or(first);
        let end = self.symbols.get(self.symbols.partition_point(|s| s.addr <= last))?.addr;
        Some(first..end)
    }

    /// The function that an address is in.
    #[must_use]
    pub fn function(&self, addr: u64) -> Option<&str> {
        self.at(addr, true).map(|s| plain(self.name(s)))
    }

    /// The variable that an address is in, and how far.
    #[must_use]
    pub fn variable(&self, addr: u64) -> Option<String> {
        let symbol = self.at(addr, false)?;
        match addr - symbol.addr {
            0 => Some(self.name(symbol).to_owned()),
            offset if offset < MAX_VARIABLE => Some(format!("{}+{offset:#x}", self.name(symbol))),
            _ => None,
        }
    }

    /// The last symbol up to an address, if it is of that sort and there is one after it: beyond the last nothing is known.
    fn at(&self, addr: u64, code: bool) -> Option<&Symbol> {
        let next = self.symbols.partition_point(|s| s.addr <= addr);
        self.symbols.get(next)?;
        let last = self.symbols.get(next.checked_sub(1)?)?;
        // Several may have one address.
        let same = self.symbols[..next].iter().rev().take_while(|s| s.addr == last.addr);
        same.filter(|s| s.code == code).last()
    }

    fn name(&self, symbol: &Symbol) -> &str {
        self.text.get(symbol.name.start as usize..symbol.name.end as usize).unwrap_or_default()
    }
}

/// The symbol of a line (`ffffffff81000000 T name`, with the module behind a tab) that begins at `start`.
fn symbol(line: &str, start: usize) -> Option<Symbol> {
    let (addr, rest) = line.split_once(' ')?;
    let addr = u64::from_str_radix(addr, 16).ok().filter(|&addr| addr != 0)?;
    let (sort, rest) = rest.split_once(' ')?;
    let name = rest.split(['\t', '\n']).next()?.trim_end();
    let code = match sort {
        "t" | "T" | "w" | "W" => true,
        "d" | "D" | "b" | "B" | "r" | "R" | "v" | "V" | "a" | "A" => false,
        _ => return None,
    };
    let from = start + line.len() - rest.len();
    let name = u32::try_from(from).ok()?..u32::try_from(from + name.len()).ok()?;
    Some(Symbol { addr, name, code })
}

/// A function's name without what the compiler made of it: `rwsem_wake.isra.0`.
fn plain(name: &str) -> &str {
    match name.find('.') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "ffffffff81000000 T _text\n\
        ffffffff81000100 t rwsem_wake.isra.0\n\
        ffffffff81000100 t alias\n\
        ffffffff81000180 T up_write\n\
        ffffffff81000200 T end\n\
        ffffffff82000000 D tasklist_lock\n\
        ffffffff82000008 d table\n\
        ffffffffc0000000 t module_function\t[module]\n\
        nonsense\n\
        ffffffffc0000040 t last\t[module]\n";

    #[test]
    fn addresses_have_names() {
        let symbols = Kallsyms::parse(TEXT.to_owned()).unwrap();
        assert_eq!(symbols.function(0xffff_ffff_8100_0110), Some("rwsem_wake"));
        assert_eq!(symbols.function(0xffff_ffff_8100_0180), Some("up_write"));
        assert_eq!(symbols.function(0xffff_ffff_c000_0001), Some("module_function"));
        assert_eq!(symbols.function(0xffff_ffff_c000_0041), None, "beyond the last nothing is known");
        assert_eq!((symbols.function(5), symbols.function(0xffff_ffff_8200_0000)), (None, None));
        assert_eq!(symbols.variable(0xffff_ffff_8200_0000).as_deref(), Some("tasklist_lock"));
        assert_eq!(symbols.variable(0xffff_ffff_8200_0018).as_deref(), Some("table+0x10"));
        assert_eq!(symbols.variable(0xffff_ffff_8300_0000), None);
        assert_eq!(symbols.variable(0xffff_ffff_8100_0180), None);
    }

    #[test]
    fn spans() {
        let symbols = Kallsyms::parse(TEXT.to_owned()).unwrap();
        assert_eq!(symbols.address("up_write"), Some(0xffff_ffff_8100_0180));
        let span = symbols.span(|name| name == "alias" || name == "up_write");
        assert_eq!(span, Some(0xffff_ffff_8100_0100..0xffff_ffff_8100_0200));
        assert_eq!(symbols.span(|name| name == "missing"), None);
    }

    #[test]
    fn hidden_addresses_are_an_error() {
        let hidden = "0000000000000000 T _text\n0000000000000000 D tasklist_lock\n";
        assert!(matches!(Kallsyms::parse(hidden.to_owned()), Err(KallsymsError::Hidden)));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed(text in ".{0,200}", addr: u64) {
            if let Ok(symbols) = Kallsyms::parse(text) {
                let _ = (symbols.function(addr), symbols.variable(addr));
            }
        }
    }
}
