//! Text as it may be shown: without escape sequences and control characters, and not longer than there is room for.

use std::borrow::Cow;
use std::time::Duration;

/// The text without terminal escape sequences; every other control character becomes `U+FFFD`, except tab and line
/// feed. A carriage return before a line feed is dropped, another one becomes a line feed: a progress bar that
/// redraws its line becomes several lines. Borrowed when there was nothing to do.
pub fn plain(text: &str) -> Cow<'_, str> {
    if first_unusual(text.as_bytes(), 0).is_none() || !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let tail = &rest[letter.len_utf8()..];
        rest = match letter {
            '\u{1b}' => after_escape(tail),
            '\u{9b}' => after_csi(tail),
            '\r' if tail.starts_with('\n') => tail,
            '\r' => {
                clean.push('\n');
                tail
            }
            _ => {
                clean.push(if is_control(letter) { char::REPLACEMENT_CHARACTER } else { letter });
                tail
            }
        };
    }
    Cow::Owned(clean)
}

/// [`plain`], on one line: line feeds and tabs become spaces.
pub fn one_line(text: &str) -> Cow<'_, str> {
    let text = plain(text);
    if first_unusual(text.as_bytes(), 0).is_none() || !text.contains(['\n', '\t']) {
        return text;
    }
    Cow::Owned(text.trim().replace(['\n', '\t'], " "))
}

/// The longest beginning of at most `most` bytes that ends with a whole character.
pub fn beginning(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let mut end = most;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The longest end of at most `most` bytes that begins with a whole character.
pub fn ending(text: &str, most: usize) -> &str {
    let mut start = text.len().saturating_sub(most);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Cut to `most` bytes, with `…` as the last character when something was cut.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    const MARK: &str = "…";
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}{MARK}", beginning(text, most.saturating_sub(MARK.len())).trim_end()))
}

/// A duration as people read it: `0.3s`, `4s`, `6m12s`, `1h2m`.
pub fn span(ms: u64) -> String {
    let duration = Duration::from_millis(ms);
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("0.{}s", ms / 100),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        _ => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A count with its noun: `1 step`, `3 steps`.
pub fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Where the first byte at or after `from` is that needs a closer look before it goes into JSON or onto a screen: a
/// control character, what a C1 control character begins with, a quote, a backslash or a hash. Looks at eight bytes
/// at a time: every string of every line comes through here, and most have none.
pub(crate) fn first_unusual(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        if has_unusual(u64::from_le_bytes(*eight)) {
            break;
        }
        at += 8;
    }
    // The rest is shorter than eight bytes, or has one. Eight bytes that end where the text ends are looked at first.
    if at + 8 > bytes.len() && bytes.last_chunk::<8>().is_some_and(|eight| !has_unusual(u64::from_le_bytes(*eight))) {
        return None;
    }
    bytes[at.min(bytes.len())..].iter().position(|&byte| is_unusual(byte)).map(|position| at + position)
}

const UNUSUAL: [u8; 5] = [b'"', b'\\', b'#', 0x7f, 0xc2];

fn is_unusual(byte: u8) -> bool {
    byte < 0x20 || UNUSUAL.contains(&byte)
}

/// Whether one of eight bytes is unusual, by arithmetic on all of them at once: a byte below `n` borrows from its
/// highest bit when `n` is taken away, and a byte equal to `b` is below one after exclusive or with `b`.
fn has_unusual(eight: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    let below = |value: u64, limit: u8| value.wrapping_sub(ONES * u64::from(limit)) & !value;
    let equal = UNUSUAL.iter().fold(0, |found, &byte| found | below(eight ^ (ONES * u64::from(byte)), 1));
    (below(eight, 0x20) | equal) & HIGHS != 0
}

fn is_control(letter: char) -> bool {
    letter.is_control() && letter != '\n' && letter != '\t'
}

/// What follows an escape sequence whose ESC was already taken.
fn after_escape(tail: &str) -> &str {
    let mut letters = tail.chars();
    match letters.next() {
        Some('[') => after_csi(letters.as_str()),
        // Strings (window titles, hyperlinks) end at BEL or at ESC \; one that does not end is not one.
        Some(']' | 'P' | 'X' | '^' | '_') => after_string(letters.as_str()),
        Some('(' | ')' | '#' | ' ' | '%') => {
            letters.next();
            letters.as_str()
        }
        Some('@'..='~' | '0'..='9' | '=' | '>' | '<') => letters.as_str(),
        _ => tail,
    }
}

/// What follows a control sequence: parameters, then one final character.
fn after_csi(tail: &str) -> &str {
    let end = tail.find(|letter: char| !matches!(letter, ' '..='?'));
    match end {
        Some(end) if tail[end..].starts_with(|letter: char| matches!(letter, '@'..='~')) => &tail[end + 1..],
        Some(end) => &tail[end..],
        None => "",
    }
}

fn after_string(tail: &str) -> &str {
    match tail.find(['\u{7}', '\u{1b}', '\n']) {
        Some(end) if tail[end..].starts_with('\u{7}') => &tail[end + 1..],
        Some(end) if tail[end..].starts_with("\u{1b}\\") => &tail[end + 2..],
        Some(_) | None => tail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_control_characters_are_taken_out() {
        for (text, clean) in [
            ("plain ü \t x\ny", "plain ü \t x\ny"),
            ("\u{1b}[1;31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}text", "text"),
            ("\u{1b}]8;;x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}(Bcharset \u{9b}31mc1", "charset c1"),
            ("a\r\nb\rc", "a\nb\nc"),
            ("nul\0 bel\u{7} del\u{7f} c1\u{85}", "nul\u{fffd} bel\u{fffd} del\u{fffd} c1\u{fffd}"),
            ("cut off \u{1b}[12", "cut off "),
            ("\u{1b}", ""),
        ] {
            assert_eq!(plain(text), clean, "{text:?}");
        }
    }

    #[test]
    fn nothing_that_is_cleaned_is_ever_control_again() {
        let alphabet = ['\u{1b}', '[', ']', '\u{7}', '\\', '3', 'm', '\r', '\n', '\u{9b}', 'ü', '\0'];
        let mut dice = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let text: String = (0..8).map(|_| alphabet[dice.usize(..alphabet.len())]).collect();
            assert!(!plain(&text).chars().any(is_control), "{text:?}");
        }
    }

    #[test]
    fn the_fast_look_sees_what_a_slow_one_sees() {
        for byte in 0..=255 {
            for place in 0..20 {
                let mut bytes = [b'a'; 20];
                bytes[place] = byte;
                assert_eq!(first_unusual(&bytes, 0), is_unusual(byte).then_some(place), "{byte} at {place}");
                assert_eq!(first_unusual(&bytes, place + 1), None);
            }
        }
    }

    #[test]
    fn cuts_fall_between_characters() {
        assert_eq!(beginning("aüb", 2), "a");
        assert_eq!(ending("aüb", 2), "b");
        assert_eq!(ending("aüb", 9), "aüb");
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdefg", 6), "abc…");
        assert_eq!(one_line("a\nb\tc\n"), "a b c");
    }

    #[test]
    fn spans_read_like_speech() {
        assert_eq!([0, 340, 4_000, 372_000, 3_720_000].map(span), ["0.0s", "0.3s", "4s", "6m12s", "1h2m"]);
        assert_eq!([count(1, "step"), count(0, "step")], ["1 step", "0 steps"]);
    }
}
