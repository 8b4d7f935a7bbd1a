//! Call stacks as a person reads them.
//!
//! The kernel collects a stack by following frame pointers from the interrupted instruction. At the entry of a lock
//! function no frame has been set up, so the frame pointer is still the caller's: the stack lists the lock function and
//! then its caller's *caller*. The caller itself is known from the return address (the site). And since the C library
//! is mostly built without frame pointers, a stack taken deeper inside it may begin anywhere.
#![forbid(unsafe_code)]

/// What a frame is to a reader who asks where a lock was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The program's own code, or a library's.
    #[default]
    Program,
    /// A function that is part of locking: of the C library, or of a language's runtime.
    Locking,
    /// Any other code of the C library.
    Libc,
    /// Not code: the frame pointer led astray.
    Nothing,
}

/// The call stack from the place that requested a lock outwards.
///
/// `raw` is the kernel's stack, innermost first, beginning with the interrupted instruction. `site` is the return address of the lock
/// call if it is known; it then comes first, wherever the lock function's own frames were, unless it is part of locking itself: then
/// that which called it does. Without a site, leading frames of the C library and of locking functions are left out; if no others are
/// left, all stay. The stack ends where it leaves code.
pub fn call_stack(raw: &[u64], site: Option<u64>, mut role: impl FnMut(u64) -> Role) -> Vec<u64> {
    let Some(site) = site else {
        let code: Vec<_> = raw.iter().copied().take_while(|&addr| role(addr) != Role::Nothing).collect();
        let own = code.iter().position(|&addr| role(addr) == Role::Program).unwrap_or(0);
        return code.get(own..).unwrap_or_default().to_vec();
    };
    // The lock function had set up a frame, or was not yet entered at all: the site is in its place already.
    let callers = match raw.iter().position(|&addr| addr == site) {
        Some(at) => raw.get(at + 1..).unwrap_or_default(),
        None => {
            let outer = raw.get(1..).unwrap_or_default();
            let locking = outer.iter().take_while(|&&addr| role(addr) == Role::Locking).count();
            outer.get(locking..).unwrap_or_default()
        }
    };
    let callers = callers.iter().copied().take_while(|&addr| role(addr) != Role::Nothing);
    let stack: Vec<_> = std::iter::once(site).chain(callers).collect();
    // A runtime takes its locks through functions of its own; without any caller beyond them they are better than nothing.
    let own = stack.iter().position(|&addr| role(addr) != Role::Locking).unwrap_or(0);
    stack.get(own..).unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Addresses by hundreds: 1xx the program, 2xx locking functions, 3xx the C library, the rest no code.
    fn role(addr: u64) -> Role {
        match addr / 100 {
            1 => Role::Program,
            2 => Role::Locking,
            3 => Role::Libc,
            _ => Role::Nothing,
        }
    }

    #[track_caller]
    fn check(raw: &[u64], site: Option<u64>, expected: &[u64]) {
        assert_eq!(call_stack(raw, site, role), expected);
    }

    #[test]
    fn entry_of_a_lock_function_misses_the_caller() {
        check(&[200, 111, 112, 301], Some(110), &[110, 111, 112, 301]);
        // the caller is a thread's start function
        check(&[200, 301, 302], Some(110), &[110, 301, 302]);
        // a frame pointer that is no such thing: nothing but the site is certain
        check(&[200, 999, 111], Some(110), &[110]);
        check(&[200], Some(110), &[110]);
        check(&[], Some(110), &[110]);
    }

    #[test]
    fn deeper_inside_the_caller_is_listed_already() {
        check(&[200, 110, 111], Some(110), &[110, 111]);
        check(&[300, 201, 202, 110, 111], Some(110), &[110, 111]);
        check(&[110, 111], Some(110), &[110, 111]);
        // the lock function kept no frame but its helper did: the helper's frames are no callers
        check(&[300, 201, 111], Some(110), &[110, 111]);
        // a runtime's own functions around the one that is probed
        check(&[300, 201, 202, 110, 111], Some(201), &[110, 111]);
        check(&[300, 201, 202], Some(201), &[201, 202]);
        // recursion: the same place in two callers stays twice
        check(&[200, 111, 111, 112], Some(110), &[110, 111, 111, 112]);
    }

    #[test]
    fn without_a_site_the_first_own_frame_leads() {
        check(&[300, 201, 301, 110, 302], None, &[110, 302]);
        // a system call in the program itself
        check(&[110, 111], None, &[110, 111]);
        // nothing but the C library: better than nothing
        check(&[300, 201], None, &[300, 201]);
        check(&[300, 999, 110], None, &[300]);
        check(&[], None, &[]);
    }

    proptest! {
        #[test]
        fn the_site_leads_and_only_code_follows(raw in prop::collection::vec(50u64..450, 0..12), site in prop::option::of(100u64..200)) {
            let stack = call_stack(&raw, site, role);
            prop_assert!(site.is_none() || stack.first().copied() == site);
            prop_assert!(stack.iter().all(|&a| role(a) != Role::Nothing));
            prop_assert!(stack.len() <= raw.len() + 1);
        }
    }
}
