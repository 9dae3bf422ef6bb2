//! What a terminal obeys and does not show: control characters, and the sequences that ESC begins.
//!
//! A tool that colours its output may put a sequence into the middle of a secret; a reader of the text sees the secret
//! all the same. Inside JSON or a quoted string such a sequence is written out, `\u001b[1m`, and becomes one again
//! when somebody reads the string; so both count. Tabs and the ends of lines are no noise.

use std::borrow::Cow;

/// Bytes without their noise.
pub(super) struct Quiet {
    /// What is left.
    pub(super) bytes: Vec<u8>,
    /// Where each of them stood.
    pub(super) places: Vec<usize>,
}

/// The same without noise; none when there is none in it. Slow: ask [`is_simple`] first.
pub(super) fn quiet(bytes: &[u8]) -> Option<Quiet> {
    let first = (0..bytes.len()).find(|&at| length(bytes, at) > 0)?;
    let mut quiet = Quiet { bytes: bytes[..first].to_vec(), places: (0..first).collect() };
    let mut at = first;
    while at < bytes.len() {
        match length(bytes, at) {
            0 => {
                quiet.bytes.push(bytes[at]);
                quiet.places.push(at);
                at += 1;
            }
            noise => at += noise,
        }
    }
    Some(quiet)
}

/// A text without control sequences, and without control characters other than tabs and the ends of lines. What is
/// written out stays: it is text.
pub fn without_noise(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let noise = |at: usize| if bytes[at] == b'\\' { 0 } else { length(bytes, at) };
    if is_simple(bytes) || !(0..bytes.len()).any(|at| noise(at) > 0) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let (mut from, mut at) = (0, 0);
    while at < bytes.len() {
        let length = noise(at);
        if length > 0 {
            kept.push_str(&text[from..at]);
            from = at + length;
        }
        at += length.max(1);
    }
    kept.push_str(&text[from..]);
    Cow::Owned(kept)
}

/// Whether these bytes are plainly one line without noise: printable ASCII, and no backslash. Looks at eight bytes at
/// once, as nearly every text is simple.
pub(super) fn is_simple(bytes: &[u8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    // Of a byte below `n` the highest bit is set when `n` is taken away from it, of 0x7f when one is added.
    let is_suspect = |eight: u64| {
        let is_backslash = (eight ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
        let is_control = eight.wrapping_sub(ONES * 0x20) | eight.wrapping_add(ONES);
        (eight | is_control | is_backslash) & HIGHS != 0
    };
    let (eights, rest) = bytes.as_chunks::<8>();
    let mut last = [b' '; 8];
    last[..rest.len()].copy_from_slice(rest);
    !is_suspect(u64::from_le_bytes(last)) && !eights.iter().any(|eight| is_suspect(u64::from_le_bytes(*eight)))
}

/// What noise begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lead {
    /// ESC.
    Escape,
    /// The one character for `ESC [`.
    Csi,
    /// A control character that is alone.
    Alone,
}

/// How long the noise is that begins here; 0 when none does. Always whole characters.
fn length(bytes: &[u8], at: usize) -> usize {
    let Some((lead, after)) = lead(bytes, at) else { return 0 };
    let end = match lead {
        Lead::Alone => after,
        Lead::Csi => after_parameters(bytes, after),
        Lead::Escape => match bytes.get(after) {
            Some(b'[') => after_parameters(bytes, after + 1),
            Some(b']' | b'P' | b'X' | b'^' | b'_') => after_string(bytes, after + 1),
            // These have one character more.
            Some(b'(' | b')' | b'*' | b'+' | b'#' | b'%' | b' ') => {
                after + 1 + usize::from(bytes.get(after + 1).is_some_and(u8::is_ascii_graphic))
            }
            Some(other) => after + usize::from(other.is_ascii_graphic()),
            None => after,
        },
    };
    end - at
}

fn lead(bytes: &[u8], at: usize) -> Option<(Lead, usize)> {
    match bytes[at] {
        b'\t' | b'\n' | b'\r' => None,
        0x1b => Some((Lead::Escape, at + 1)),
        0..0x20 | 0x7f => Some((Lead::Alone, at + 1)),
        0xc2 => match bytes.get(at + 1) {
            Some(0x9b) => Some((Lead::Csi, at + 2)),
            Some(0x80..=0x9f) => Some((Lead::Alone, at + 2)),
            Some(_) => None,
            None => Some((Lead::Alone, at + 1)),
        },
        b'\\' => written_out(bytes, at),
        _ => None,
    }
}

/// A sequence's beginning as strings have it, behind any number of backslashes: the string may stand in another. What
/// the end of the bytes cuts off may be one.
fn written_out(bytes: &[u8], at: usize) -> Option<(Lead, usize)> {
    const SPELLINGS: [(&str, Lead); 7] = [
        ("u001b", Lead::Escape),
        ("x1b", Lead::Escape),
        ("033", Lead::Escape),
        ("u{1b}", Lead::Escape),
        ("e[", Lead::Csi),
        ("u009b", Lead::Csi),
        ("u{9b}", Lead::Csi),
    ];
    let name = after_backslashes(bytes, at);
    let is = |spelling: &str| starts_with(&bytes[name..], spelling.as_bytes());
    if SPELLINGS.iter().any(|(spelling, _)| starts_with(spelling.as_bytes(), &bytes[name..])) {
        return Some((Lead::Alone, bytes.len()));
    }
    SPELLINGS.iter().find(|(spelling, _)| is(spelling)).map(|(spelling, lead)| (*lead, name + spelling.len()))
}

fn after_backslashes(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..].iter().take_while(|byte| **byte == b'\\').count()
}

/// Whether bytes begin with others, in capitals or not.
fn starts_with(bytes: &[u8], others: &[u8]) -> bool {
    bytes.get(..others.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(others))
}

/// Behind parameters and one final character. What is cut off may go on.
fn after_parameters(bytes: &[u8], from: usize) -> usize {
    let end = from + bytes[from..].iter().take_while(|byte| matches!(byte, 0x20..=0x3f)).count();
    end + usize::from(matches!(bytes.get(end), Some(0x40..=0x7e)))
}

/// Behind a string (the title of a window, the target of a link), which ends at BEL or at `ESC \`. One that ends at
/// neither before its line does is none: `from` then. What is cut off may go on.
fn after_string(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(&byte) = bytes.get(at) {
        let spelled = if byte == b'\\' { after_backslashes(bytes, at) } else { at };
        let bell = ["u0007", "x07", "007", "a"].iter().find(|bell| starts_with(&bytes[spelled..], bell.as_bytes()));
        match (byte, bell, lead(bytes, at)) {
            (0x07, ..) => return at + 1,
            (b'\n', ..) => return from,
            (b'\\', Some(bell), _) => return spelled + bell.len(),
            (_, _, Some((Lead::Escape, after))) if bytes.get(after) == Some(&b'\\') => {
                return if byte == 0x1b { after + 1 } else { after_backslashes(bytes, after) };
            }
            (_, _, Some((Lead::Escape, after))) => return if after == bytes.len() { after } else { from },
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let quiet = quiet(text.as_bytes()).map_or_else(|| text.as_bytes().to_vec(), |quiet| quiet.bytes);
        String::from_utf8(quiet).expect("whole characters were taken out")
    }

    #[test]
    fn control_sequences_are_noise_as_they_are_and_written_out() {
        for (text, seen) in [
            ("plain ü\t│ \r\n", "plain ü\t│ \r\n"),
            ("a\u{1b}[1;31mb\u{1b}[0mc", "abc"),
            ("a\u{9b}31mb\u{85}c\u{7f}d\u{0}e", "abcde"),
            ("a\u{1b}]8;;http://x\u{7}b\u{1b}]8;;\u{1b}\\c", "abc"),
            ("a\u{1b}(Bb\u{1b}7c\u{1b}", "abc"),
            ("a\u{1b}[12", "a"),
            ("a\u{1b}]0;title", "a"),
            ("a\u{1b}]0;title\nb", "a0;title\nb"),
            (r"a\u001b[1mb\u001B[0mc\\u001b[0md", "abcd"),
            (r"a\x1b[1mb\033[0mc\e[1md\E[0me", "abcde"),
            (r"a\u001b]8;;x\u0007b\u001b]8;;x\u001b\\c", "abc"),
            (r"C:\extra \everything \u0041", r"C:\extra \everything \u0041"),
        ] {
            assert_eq!(shown(text), seen, "{text:?}");
        }
    }

    #[test]
    fn what_is_left_is_known_by_its_place() {
        let bytes = b"a\x1b[1mb\x1b[0mc";
        let quiet = quiet(bytes).expect("there is noise");
        assert_eq!(quiet.places, [0, 5, 10]);
    }

    #[test]
    fn a_text_loses_its_noise_and_keeps_what_is_written_out() {
        assert!(matches!(without_noise("C:\\e[x] plain"), Cow::Borrowed(_)));
        assert_eq!(without_noise("a\u{1b}[1mb \\u001b[0m"), "ab \\u001b[0m");
    }

    #[test]
    fn whatever_stands_there_whole_characters_are_taken_out() {
        let alphabet = ["\u{1b}", "[", "]", "\u{7}", "\\", "u001b", "3", "m", "\r", "\n", "\u{9b}", "ü", "\0", " "];
        let mut dice = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let text: String = (0..8).map(|_| alphabet[dice.usize(..alphabet.len())]).collect();
            let kept = without_noise(&text);
            assert!(!kept.chars().any(|letter| letter.is_control() && !"\t\r\n".contains(letter)), "{text:?}");
            shown(&text);
        }
    }
}
