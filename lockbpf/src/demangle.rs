//! Names as programmers write them: Rust paths without their hash, C++ names without parameters and return types.

use crate::untrusted::{cleaned, shown};
use cpp_demangle::{DemangleOptions, Symbol};
use std::fmt::{self, Write};

/// Bytes of a demangled name. C++ mangling can fold an exponentially long name into a few hundred bytes.
pub(crate) const MAX_LEN: usize = 4_096;

/// What compilers call a namespace without a name.
const ANONYMOUS: &str = "_GLOBAL__N_1";

/// Text that refuses to grow beyond [`MAX_LEN`].
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_LEN {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// A symbol's name, demangled where it is mangled, without the symbol version (`environ@GLIBC_2.2.5`).
pub(crate) fn demangle(symbol: &str) -> String {
    let name = symbol.split_once('@').map_or(symbol, |(name, _)| if name.is_empty() { symbol } else { name });
    let mut out = Bounded::default();
    let done = if let Ok(rust) = rustc_demangle::try_demangle(name) {
        write!(out, "{rust:#}").is_ok()
    } else if name.starts_with("_Z") {
        let options = DemangleOptions::new().no_params().no_return_type();
        Symbol::new(name).is_ok_and(|symbol| symbol.structured_demangle(&mut out, &options).is_ok())
    } else {
        false
    };
    if !done {
        return shown(clip(name)).into_owned();
    }
    cleaned(if out.0.contains(ANONYMOUS) { out.0.replace(ANONYMOUS, "(anonymous namespace)") } else { out.0 })
}

/// The beginning of a name, as long as names may be.
pub(crate) fn clip(name: &str) -> &str {
    name.get(..name.floor_char_boundary(MAX_LEN)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_scheme() {
        for (symbol, name) in [
            ("cache_lock", "cache_lock"),
            ("environ@@GLIBC_2.2.5", "environ"),
            ("@odd", "@odd"),
            ("", ""),
            ("lock.0", "lock.0"),
            ("_ZN5cache5TABLE17h0123456789abcdefE", "cache::TABLE"),
            ("_RNvCs15kBYyAo9fc_7mycrate7example", "mycrate::example"),
            ("_ZN5Cache4lockE", "Cache::lock"),
            ("_ZN5Cache3getERKSsi", "Cache::get"),
            ("_ZZ4workvE4lock", "work()::lock"),
            ("_ZN5cache12_GLOBAL__N_14lockE", "cache::(anonymous namespace)::lock"),
            ("_Z12not_quite", "_Z12not_quite"),
        ] {
            assert_eq!(demangle(symbol), name, "{symbol}");
        }
    }

    #[test]
    fn an_exponential_name_stays_mangled() {
        // f<pair<int, int>, pair<that, that>, pair<that, that>, …>: each argument is twice as long as the one before.
        let number = |n: u32| char::from_digit(n, 36).unwrap().to_ascii_uppercase();
        let arguments: String = (1..16).map(number).map(|n| format!("S0_IS{n}_S{n}_E")).collect();
        let symbol = format!("_Z1fISt4pairIiiE{arguments}Evv");
        assert!(Symbol::new(&symbol).unwrap().demangle().unwrap().len() > 100 * MAX_LEN);
        assert_eq!(demangle(&symbol), symbol);
    }

    #[test]
    fn names_are_bounded_and_harmless() {
        assert_eq!(demangle(&"ä".repeat(1 << 20)).len(), MAX_LEN);
        assert_eq!(demangle("a\x1b[2J\nlockbpf: forged"), r"a\u{1b}[2J\u{a}lockbpf: forged");
    }

    proptest! {
        #[test]
        fn no_symbol_is_a_panic(tail in "[A-Za-z0-9_.$@]{0,60}", prefix in "(_Z|_ZN|_R|)") {
            demangle(&format!("{prefix}{tail}"));
        }
    }
}
