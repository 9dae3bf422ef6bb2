//! How a secret may be written: pure data, in two halves.
//!
//! [`needles`] are the texts that stand for a secret: its lines, its base64, its hexadecimal digits. [`ways`] are the
//! spellings that an encoding may give to one character: `"` is `\"` in JSON, `%22` in a URL, `&quot;` in XML. Letters
//! and digits have no other spelling. What is searched for is every needle with every character in any of its ways, and
//! the characters of these again in any of theirs: JSON in a URL is not another case.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use crate::redact::{SHORTEST, without_noise};

/// The shortest part of a secret that is searched for in encoded text that was broken into lines, in bytes.
const SHORTEST_PART: usize = 6;

/// A text to search for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Needle {
    /// The text.
    pub(super) text: String,
    /// At which of its characters an occurrence may begin, in order.
    pub(super) starts: Vec<usize>,
    /// How many characters from there are enough. All of them, or a part of an encoded text.
    pub(super) least: usize,
    /// Where it may stand.
    pub(super) occurs: Occurs,
}

/// Where a needle may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Occurs {
    /// Anywhere.
    Anywhere,
    /// In the last word of a line.
    AtLineEnd,
}

impl Needle {
    fn whole(text: impl Into<String>) -> Option<Needle> {
        let text = text.into();
        let least = text.chars().count();
        (least >= SHORTEST).then(|| Needle { text, starts: vec![0], least, occurs: Occurs::Anywhere })
    }
}

/// Everything to search for when this value is secret.
pub(super) fn needles(value: &str) -> BTreeSet<Needle> {
    let whole = value.trim();
    let mut plain = BTreeSet::from([whole]);
    plain.extend(value.lines().map(str::trim).filter(|line| line.chars().count() >= SHORTEST && !is_armour(line)));
    let mut needles: BTreeSet<Needle> = plain.iter().filter_map(|text| Needle::whole(*text)).collect();
    // What a tool prints loses its control characters on the way here.
    needles.extend(plain.iter().filter_map(|text| Needle::whole(without_noise(text))));
    // With and without what is around it, as `echo` and a file end differ.
    for alone in plain.iter().chain([&value]) {
        let bytes = alone.as_bytes();
        let hex = hex(bytes);
        let texts = [
            STANDARD.encode(bytes),
            STANDARD_NO_PAD.encode(bytes),
            URL_SAFE.encode(bytes),
            URL_SAFE_NO_PAD.encode(bytes),
            hex.to_uppercase(),
            hex,
        ];
        needles.extend(texts.into_iter().filter_map(Needle::whole));
    }
    needles.extend(base64_parts(value));
    needles.extend(hex_parts(value));
    needles
}

/// The first and last line of a key say nothing about it.
fn is_armour(line: &str) -> bool {
    line.starts_with("-----BEGIN ") || line.starts_with("-----END ")
}

/// The spellings of some numbers in a row.
fn each<T: Copy>(numbers: &[T], spell: impl Fn(T) -> String) -> String {
    numbers.iter().flat_map(|number| spell(*number).into_bytes()).map(char::from).collect()
}

fn hex(bytes: &[u8]) -> String {
    each(bytes, |byte| format!("{byte:02x}"))
}

/// Base64 of the value inside something longer (`user:password`), in both alphabets, whole or in lines of any length.
///
/// Base64 turns three bytes into four characters, so what a value looks like inside something longer depends on where
/// it begins, modulo three; the characters that it shares with its neighbours are left out. Lines are broken between
/// fours.
fn base64_parts(value: &str) -> BTreeSet<Needle> {
    let telling = Telling::of(value);
    let mut parts = BTreeSet::new();
    for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
        for before in 0..3 {
            let mut longer = vec![0; before];
            longer.extend_from_slice(value.as_bytes());
            let first = (before * 8).div_ceil(6);
            let last = longer.len() * 8 / 6;
            let least = SHORTEST_PART * 8 / 6;
            let begins = |at: &usize| at + least <= last && telling.from((at * 6).div_ceil(8) - before);
            let fours = (0..last).step_by(4).filter(|four| *four > first);
            let starts: Vec<_> = [first].into_iter().chain(fours).filter(begins).map(|at| at - first).collect();
            let text = engine.encode(&longer).get(first..last).unwrap_or_default().to_owned();
            parts.extend(Needle::whole(text.clone()).filter(|whole| whole.least >= least));
            parts.insert(Needle { text, starts, least, occurs: Occurs::AtLineEnd });
        }
    }
    parts
}

/// The hexadecimal digits of the value, whole or in lines of any length.
fn hex_parts(value: &str) -> [Needle; 2] {
    let telling = Telling::of(value);
    let text = hex(value.as_bytes());
    let starts: Vec<_> = (0..value.len()).filter(|byte| telling.from(*byte)).map(|byte| 2 * byte).collect();
    let least = 2 * SHORTEST_PART;
    let part = |text| Needle { text, starts: starts.clone(), least, occurs: Occurs::AtLineEnd };
    [part(text.to_uppercase()), part(text)]
}

/// Which bytes of a value tell something of it: those of armour do not.
struct Telling<'v> {
    value: &'v [u8],
    armour: Vec<bool>,
}

impl Telling<'_> {
    fn of(value: &str) -> Telling<'_> {
        let lines = value.split_inclusive('\n');
        let armour = lines.flat_map(|line| std::iter::repeat_n(is_armour(line.trim()), line.len())).collect();
        Telling { value: value.as_bytes(), armour }
    }

    /// Whether a part that begins at this byte is worth looking for: not in armour, and not one byte again and again,
    /// like the spaces of an indentation, which many texts have.
    fn from(&self, byte: usize) -> bool {
        let part = byte..byte + SHORTEST_PART;
        let (Some(bytes), Some(armour)) = (self.value.get(part.clone()), self.armour.get(part)) else { return false };
        !armour.contains(&true) && bytes.iter().any(|byte| *byte != bytes[0])
    }
}

/// Whether encodings leave this character as it is.
pub(super) fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric()
}

/// Whether a character is one of those that a run of them, in any number and mixture, may stand for: tools put
/// sentences on one line, with one space between the words, or break them.
pub(super) fn is_space(character: char) -> bool {
    SPACES.contains(&character)
}

/// The characters of [`is_space`].
pub(super) const SPACES: [char; 4] = [' ', '\n', '\t', '\r'];

/// Whether a byte belongs to base64, in either alphabet, or to hexadecimal digits.
pub(super) fn is_of_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_=".contains(&byte)
}

/// How an encoding may spell this character, beside as it is.
pub(super) fn ways(character: char) -> BTreeSet<String> {
    let mut ways = BTreeSet::new();
    if is_plain(character) {
        return ways;
    }
    let code = u32::from(character);
    // JSON, shells, and most languages put a backslash before it, or before a letter that stands for it.
    if character.is_ascii() && !character.is_ascii_control() {
        ways.insert(format!("\\{character}"));
    }
    ways.extend(letters(character).iter().map(|letter| format!("\\{letter}")));
    let mut units = [0; 2];
    let units = character.encode_utf16(&mut units);
    let mut bytes = [0; 4];
    let bytes = character.encode_utf8(&mut bytes).as_bytes();
    // By its number, with hexadecimal digits of both cases.
    let numbered = [
        each(units, |unit| format!("\\u{unit:04x}")),
        each(units, |unit| format!("%u{unit:04x}")),
        format!("\\u{{{code:x}}}"),
        format!("\\U{code:08x}"),
        format!("&#x{code:x};"),
        format!("&#x{code:04x};"),
        each(bytes, |byte| format!("\\x{byte:02x}")),
        each(bytes, |byte| format!("%{byte:02x}")),
    ];
    ways.extend(numbered.iter().flat_map(|way| [way.clone(), with_capital_digits(way)]));
    if code < 0x100 {
        ways.extend([
            format!("\\x{code:02x}"),
            format!("\\x{code:02X}"),
            format!("%{code:02x}"),
            format!("%{code:02X}"),
        ]);
    }
    ways.insert(each(bytes, |byte| format!("\\{byte:03o}")));
    ways.extend([format!("&#{code};"), format!("&#{code:03};")]);
    ways.extend(names(character).iter().map(|name| (*name).to_owned()));
    ways
}

/// The letters that stand for a control character behind a backslash.
fn letters(character: char) -> &'static [&'static str] {
    match character {
        '\0' => &["0"],
        '\u{7}' => &["a"],
        '\u{8}' => &["b"],
        '\t' => &["t"],
        '\n' => &["n"],
        '\u{b}' => &["v"],
        '\u{c}' => &["f"],
        '\r' => &["r"],
        '\u{1b}' => &["e", "E"],
        _ => &[],
    }
}

/// Spellings that only this character has: the names of XML and HTML, quotes that are doubled (YAML, CSV, SQL) or for
/// which a shell leaves its own quotes, doubled signs of templates (HCL, `printf`), the space of a form.
fn names(character: char) -> &'static [&'static str] {
    match character {
        '&' => &["&amp;"],
        '<' => &["&lt;"],
        '>' => &["&gt;"],
        '"' => &["&quot;", "\"\""],
        '\'' => &["&apos;", "''", "'\\''", "'\"'\"'"],
        '$' => &["$$"],
        '%' => &["%%"],
        ' ' => &["+"],
        _ => &[],
    }
}

/// The same with its hexadecimal digits in capitals: of a spelling by number, all but its `u` and `x`.
fn with_capital_digits(way: &str) -> String {
    way.chars().map(|letter| if ('a'..='f').contains(&letter) { letter.to_ascii_uppercase() } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_begins_with_an_escape() {
        for character in (1..0x200).chain([0x2028, 0x1_f600]).filter_map(char::from_u32) {
            for way in ways(character) {
                assert!(
                    way.starts_with(['\\', '%', '&']) || names(character).contains(&way.as_str()),
                    "{character:?} is {way}"
                );
                assert!(way.chars().count() > 1 || character == ' ', "{character:?} is {way}");
            }
        }
    }

    #[test]
    fn parts_begin_where_the_secret_tells_something() {
        let key = "-----BEGIN KEY-----\nsecret body\n-----END KEY-----\n";
        let body = key.find("secret").expect("it is there");
        for part in hex_parts(key) {
            assert_eq!(part.starts.first(), Some(&(2 * body)));
            assert_eq!(part.starts.last(), Some(&(2 * (body + "secret body\n".len() - SHORTEST_PART))));
        }
        assert!(hex_parts("        ").iter().all(|part| part.starts.is_empty()), "an indentation is no secret");
        for part in base64_parts("short") {
            assert!(part.starts.is_empty(), "a part has six bytes");
        }
    }
}
