//! Durations as people write them: `90s`, `10m`, `1h30m`.

use std::time::Duration;

/// Reads a duration: whole hours, minutes and seconds, each at most once and in this order.
///
/// The error says what was expected.
pub(crate) fn parse(text: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "write a duration like 90s, 10m or 1h30m";
    let mut seconds: u64 = 0;
    let mut rest = text;
    let mut units = [('h', 3600), ('m', 60), ('s', 1)].into_iter();
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().map_err(|_| EXPECTED)?;
        let unit = rest[digits..].chars().next().ok_or(EXPECTED)?;
        let (_, each) = units.find(|(name, _)| *name == unit).ok_or(EXPECTED)?;
        seconds = number.checked_mul(each).and_then(|more| seconds.checked_add(more)).ok_or(EXPECTED)?;
        rest = &rest[digits + unit.len_utf8()..];
    }
    match seconds {
        0 if text.is_empty() => Err(EXPECTED),
        0 => Err("a duration has to be longer than nothing"),
        1..=LONGEST => Ok(Duration::from_secs(seconds)),
        _ => Err("a duration may be at most 168h"),
    }
}

/// A week. What is longer is a slip, and sums of durations must not overflow anywhere.
const LONGEST: u64 = 7 * 24 * 3600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let cases = [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1h0m5s", 3605), ("168h", 604_800)];
        for (text, seconds) in cases {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let refused = [
            "",
            "0s",
            "0",
            "10",
            "m",
            "10 m",
            "1.5h",
            "-1s",
            "10m1h",
            "1s1s",
            "169h",
            "10ms",
            "1h30",
            "99999999999999999999h",
            "10é",
        ];
        for text in refused {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
