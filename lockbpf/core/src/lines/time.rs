//! Times as JSON numbers, to ticks and back, without a detour through floating point.

use super::error::Problem;
use std::io::{self, Write};

/// Decimals that a tick can express where there are 1,000 of them in a nanosecond.
const DECIMALS: i64 = 3;

/// Beyond this, exponents make no difference any more.
const LARGEST_EXPONENT: i64 = 1 << 40;

/// What a number came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ticks {
    /// So many ticks.
    Are(u64),
    /// It has decimals, and a tick is a whole nanosecond.
    HaveDecimals,
}

/// Reads a JSON number of nanoseconds.
pub(super) fn parse(text: &str, ticks_per_ns: u64) -> Result<Ticks, Problem> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: String = [whole, fraction].concat();
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Ok(Ticks::Are(0));
    }
    if negative {
        return Err(Problem::NegativeTime);
    }
    let trailing_zeros = digits.len() - digits.trim_end_matches('0').len();
    // An exponent that does not fit is as good as the largest that does.
    let exponent = exponent.parse().unwrap_or(if exponent.starts_with('-') { i64::MIN } else { i64::MAX });
    let exponent = exponent.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT);
    // The number is `significant` · 10^`power`, and `significant` does not end in 0.
    let power = exponent - fraction.len() as i64 + trailing_zeros as i64;
    if power < -DECIMALS {
        return Err(Problem::TooFine);
    }
    if power < 0 && ticks_per_ns == 1 {
        return Ok(Ticks::HaveDecimals);
    }
    let shift = if ticks_per_ns == 1 { power } else { power + DECIMALS };
    let factor = u32::try_from(shift).ok().and_then(|shift| 10u64.checked_pow(shift));
    let significant = significant.parse::<u64>().ok();
    significant.zip(factor).and_then(|(n, factor)| n.checked_mul(factor)).map(Ticks::Are).ok_or(Problem::TooLarge)
}

/// Writes ticks as a JSON number of nanoseconds.
pub(super) fn write(out: &mut Vec<u8>, ticks: u64, ticks_per_ns: u64) -> io::Result<()> {
    match ticks_per_ns {
        0 | 1 => write!(out, "{ticks}"),
        _ => {
            write!(out, "{}", ticks / ticks_per_ns)?;
            let thousandths = ticks % ticks_per_ns;
            if thousandths > 0 {
                let decimals = format!("{thousandths:03}");
                write!(out, ".{}", decimals.trim_end_matches('0'))?;
            }
            Ok(())
        }
    }
}

/// Ticks as text in ns.
#[cfg(test)]
pub(super) fn text(ticks: u64, ticks_per_ns: u64) -> String {
    let mut out = Vec::new();
    match write(&mut out, ticks, ticks_per_ns) {
        Ok(()) => String::from_utf8_lossy(&out).into_owned(),
        Err(_) => ticks.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_exactly() {
        for (text, whole, thousandths) in [
            ("0", Ok(Ticks::Are(0)), Ok(Ticks::Are(0))),
            ("-0.0", Ok(Ticks::Are(0)), Ok(Ticks::Are(0))),
            ("17", Ok(Ticks::Are(17)), Ok(Ticks::Are(17_000))),
            ("1e3", Ok(Ticks::Are(1_000)), Ok(Ticks::Are(1_000_000))),
            ("1.5E+1", Ok(Ticks::Are(15)), Ok(Ticks::Are(15_000))),
            ("120e-1", Ok(Ticks::Are(12)), Ok(Ticks::Are(12_000))),
            ("2.000", Ok(Ticks::Are(2)), Ok(Ticks::Are(2_000))),
            ("2.5", Ok(Ticks::HaveDecimals), Ok(Ticks::Are(2_500))),
            ("1e-3", Ok(Ticks::HaveDecimals), Ok(Ticks::Are(1))),
            ("0.1230000", Ok(Ticks::HaveDecimals), Ok(Ticks::Are(123))),
            ("0.1234", Err(Problem::TooFine), Err(Problem::TooFine)),
            ("1e-999999999999999999999", Err(Problem::TooFine), Err(Problem::TooFine)),
            ("-1", Err(Problem::NegativeTime), Err(Problem::NegativeTime)),
            ("18446744073709551615", Ok(Ticks::Are(u64::MAX)), Err(Problem::TooLarge)),
            ("18446744073709551616", Err(Problem::TooLarge), Err(Problem::TooLarge)),
            ("10e9223372036854775807", Err(Problem::TooLarge), Err(Problem::TooLarge)),
            ("1e999999999999999999999", Err(Problem::TooLarge), Err(Problem::TooLarge)),
        ] {
            assert_eq!(parse(text, 1), whole, "{text}");
            assert_eq!(parse(text, 1_000), thousandths, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(ticks: u64, fine: bool) {
            let per_ns = if fine { 1_000 } else { 1 };
            prop_assert_eq!(parse(&text(ticks, per_ns), per_ns), Ok(Ticks::Are(ticks)));
        }
    }
}
