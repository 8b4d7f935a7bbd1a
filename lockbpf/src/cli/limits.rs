//! Values on the command line that cannot be meant: each is refused in a sentence.

use std::time::Duration;

/// Nobody observes for longer, and no counter is asked to.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Nothing is observed in less.
const SHORTEST: Duration = Duration::from_millis(1);
/// The shortest interval between two looks at an observation.
const OFTENEST: Duration = Duration::from_millis(100);
/// Bytes that a flight recorder needs.
const LEAST_SIZE: u64 = 1 << 20;
/// Bytes that one has at most, and one more.
const MOST_SIZE: u64 = (1 << 40) + 1;
/// Bytes of a thread's name that the kernel keeps.
const COMM_BYTES: usize = 15;

/// For how long something is done.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let span = time(text)?;
    if span < SHORTEST { Err("nothing can be observed in less than 1ms".to_owned()) } else { Ok(span) }
}

/// The interval between two looks at an observation.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let interval = time(text)?;
    if interval < OFTENEST { Err("nobody reads a table more than ten times a second".to_owned()) } else { Ok(interval) }
}

/// From when on a wait or a hold is told of.
pub(super) fn threshold(text: &str) -> Result<Duration, String> {
    let threshold = time(text)?;
    if threshold < SHORTEST {
        Err("shorter than 1ms nothing can be told while it lasts".to_owned())
    } else {
        Ok(threshold)
    }
}

/// For how long a flight recorder keeps what was.
pub(super) fn keep(text: &str) -> Result<Duration, String> {
    let keep = time(text)?;
    if keep < Duration::from_secs(1) { Err("less than 1s is not worth keeping".to_owned()) } else { Ok(keep) }
}

/// A number of bytes, at least a MiB.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        other => return Err(format!("{other:?} is no unit of size: K, M or G is expected")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{digits:?} is no number of bytes"))?;
    let bytes = number.checked_shl(unit).filter(|bytes| bytes >> unit == number);
    match bytes.ok_or("that is more than any machine has")? {
        0..LEAST_SIZE => Err("less than 1M does not hold an observation's names and sums".to_owned()),
        MOST_SIZE.. => Err("more than 1024G is expected of no flight recorder".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A time that may be none at all.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time > LONGEST { Err("that is longer than a year, the longest time there can be".to_owned()) } else { Ok(time) }
}

/// How many lines a table has.
pub(super) fn top(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a table of no locks tells nothing: 1 or more is expected".to_owned()),
        Ok(top) => Ok(top),
        Err(_) => Err(format!("{text:?} is no number from 1 to {}", usize::MAX)),
    }
}

/// A thread's name as the kernel keeps it.
pub(super) fn comm(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("the name is empty: no thread is called that".to_owned());
    }
    if text.len() > COMM_BYTES {
        let kept = text.floor_char_boundary(COMM_BYTES);
        return Err(format!(
            "the kernel keeps {COMM_BYTES} bytes of a thread's name, and this one has {}: see /proc/PID/task/TID/comm; it may be {:?}",
            text.len(),
            &text[..kept]
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_possible_ones() {
        assert_eq!(span("1h 30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(span("1ms"), Ok(SHORTEST));
        assert_eq!(time("0s"), Ok(Duration::ZERO));
        assert_eq!(interval("100ms"), Ok(OFTENEST));
        assert_eq!(threshold("1ms"), Ok(SHORTEST));
        assert!(threshold("0s").is_err() && threshold("999us").is_err());
        assert!(interval("99ms").is_err() && interval("0s").is_err());
        for text in ["0s", "0", "999us", "-1s", "366d", "1000000000years", "99999999999999999999y", "", "s"] {
            assert!(span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("256M"), Ok(256 << 20));
        assert_eq!((size("1048576"), size("2g"), size("1024KiB")), (Ok(1 << 20), Ok(2 << 30), Ok(1 << 20)));
        for text in ["", "M", "1K", "-1M", "1.5M", "1T", "99999999999999999999M", "9007199254740992K", "2048G"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert_eq!(keep("10m"), Ok(Duration::from_secs(600)));
        assert!(keep("999ms").is_err());
    }

    #[test]
    fn a_table_has_a_line() {
        assert_eq!(top("1"), Ok(1));
        for text in ["0", "-1", "many", "", "99999999999999999999"] {
            assert!(top(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_such_as_the_kernel_keeps() {
        for text in ["a", "fifteen bytes !", "tête"] {
            assert_eq!(comm(text).as_deref(), Ok(text));
        }
        assert!(comm("").is_err());
        assert!(comm("sixteen bytes !!").unwrap_err().contains("\"sixteen bytes !\""));
        assert!(comm("fourteen bytesê").unwrap_err().contains("\"fourteen bytes\""));
    }
}
