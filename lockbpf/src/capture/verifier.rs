//! Loading a program while signals arrive: the kernel's verifier gives up as soon as one is pending for its thread, whatever is to be done
//! at it, and says "try again" (EAGAIN). A terminal that changes its size or an observer that is stopped and continued is enough.

use aya::programs::ProgramError;
use std::io;

/// How often a program is loaded anew at most: signals that come faster than the verifier ends, for longer than that, are no accident.
const ATTEMPTS: u32 = 100;

/// An error by which the kernel can say so.
pub(super) trait Refusal {
    /// Whether it is that.
    fn asks_for_another(&self) -> bool;
}

impl Refusal for io::Error {
    fn asks_for_another(&self) -> bool {
        self.kind() == io::ErrorKind::WouldBlock
    }
}

impl Refusal for ProgramError {
    fn asks_for_another(&self) -> bool {
        matches!(self, Self::LoadError { io_error, .. } if io_error.asks_for_another())
    }
}

/// Loads until the verifier has come to its end.
pub(super) fn to_the_end<T, E: Refusal>(mut load: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for _ in 1..ATTEMPTS {
        match load() {
            Err(error) if error.asks_for_another() => {}
            ended => return ended,
        }
    }
    load()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;

    /// What becomes of loading that is disturbed so often, and how often it was tried.
    fn disturbed(times: u32, then: Result<u32, Errno>) -> (Result<u32, io::Error>, u32) {
        let mut tried = 0;
        let outcome = to_the_end(|| {
            tried += 1;
            if tried <= times { Err(Errno::EAGAIN.into()) } else { then.map_err(io::Error::from) }
        });
        (outcome, tried)
    }

    #[test]
    fn a_disturbed_verifier_is_asked_again() {
        let (outcome, tried) = disturbed(3, Ok(7));
        assert_eq!((outcome.unwrap(), tried), (7, 4));
    }

    #[test]
    fn what_it_refuses_is_refused_at_once() {
        let (outcome, tried) = disturbed(0, Err(Errno::EINVAL));
        assert_eq!((outcome.unwrap_err().raw_os_error(), tried), (Some(Errno::EINVAL as i32), 1));
    }

    #[test]
    fn it_is_not_asked_for_ever() {
        let (outcome, tried) = disturbed(u32::MAX, Ok(7));
        assert_eq!((outcome.unwrap_err().raw_os_error(), tried), (Some(Errno::EAGAIN as i32), ATTEMPTS));
    }
}
