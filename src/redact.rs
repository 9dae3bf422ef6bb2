//! Secrets never leave: the type that holds one, and the filter that everything said goes through.
//!
//! [`Secret`] cannot be printed by accident: its `Debug` and `Display` say `[redacted]`, and it reaches a serialiser
//! only where a field names [`exposed`]. [`Redactor`] knows every secret of the run and replaces it by
//! [`REPLACEMENT`], in whatever form a tool may print it: as it is, line by line, quoted for JSON or a URL, in base64
//! alone or as part of a longer base64 text.
//!
//! # Promise
//! No byte of an occurrence of a registered value survives, also where two secrets overlap: every occurrence of every
//! value is found, and what they cover together is replaced. A longer secret therefore hides a shorter one in it.
//!
//! # Not promised
//! Values shorter than four characters are not searched for: they would blot out half of any text. [`Redactor::add`]
//! says so, and the run says it at its start.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;

/// What stands where a secret was.
pub const REPLACEMENT: &str = "[redacted]";

/// The shortest value that is searched for, in characters.
const SHORTEST: usize = 4;

/// The shortest piece of a longer base64 text that is searched for: six bytes of the secret.
const SHORTEST_BASE64_PIECE: usize = 8;

/// The columns at which `base64` breaks its lines.
const BASE64_COLUMNS: usize = 76;

/// Whether a value is searched for from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It is.
    Kept,
    /// It is not: it has fewer than four characters.
    TooShort,
}

/// Knows the secrets of a run and replaces them. Clones share what they know.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Arc<RwLock<Needles>>,
}

impl Redactor {
    /// Registers a secret: the value, each line of it that has four characters or more, and the forms in which a tool
    /// may print these. The name is for people and is never matched.
    pub fn add(&self, name: &str, value: &str) -> Added {
        if value.trim().chars().count() < SHORTEST {
            return Added::TooShort;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.names.insert(name.to_owned());
        for form in forms(value) {
            known.insert(form);
        }
        Added::Kept
    }

    /// The text without secrets. Borrowed when there was none in it.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => Cow::Owned(
                String::from_utf8(bytes).expect("whole characters were replaced: needle and text are both UTF-8"),
            ),
        }
    }

    /// The bytes without secrets, whatever their encoding. Borrowed when there was none in them.
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let covered = known.covered(bytes);
        if covered.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut clean = Vec::with_capacity(bytes.len());
        let mut from = 0;
        for (start, end) in covered {
            clean.extend_from_slice(&bytes[from..start]);
            clean.extend_from_slice(REPLACEMENT.as_bytes());
            from = end;
        }
        clean.extend_from_slice(&bytes[from..]);
        Cow::Owned(clean)
    }

    /// Replaces secrets in a JSON value, by value and by key, and returns the JSON Pointers of what was replaced.
    pub fn json(&self, value: &mut Value) -> Vec<String> {
        let mut replaced = Vec::new();
        self.json_at(value, &mut String::new(), &mut replaced);
        replaced
    }

    /// The largest place at or before `limit` where `bytes` may be cut so that no secret is divided: neither one that
    /// lies across the place, nor one that may go on after the end of `bytes`. Zero when there is no such place.
    pub fn safe_cut(&self, bytes: &[u8], limit: usize) -> usize {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut cut = limit.min(bytes.len());
        // Moving the cut back may bring another secret across it, hence again until nothing moves.
        while let Some(start) = known.divided_by(bytes, cut) {
            cut = start;
        }
        cut
    }

    fn json_at(&self, value: &mut Value, pointer: &mut String, replaced: &mut Vec<String>) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                if let Cow::Owned(clean) = self.text(&number.to_string()) {
                    *value = Value::String(clean);
                    replaced.push(pointer.clone());
                }
            }
            Value::String(text) => {
                if let Cow::Owned(clean) = self.text(text) {
                    *text = clean;
                    replaced.push(pointer.clone());
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let length = pointer.len();
                    pointer.push('/');
                    pointer.push_str(&index.to_string());
                    self.json_at(item, pointer, replaced);
                    pointer.truncate(length);
                }
            }
            Value::Object(fields) => {
                let old = std::mem::take(fields);
                for (key, mut item) in old {
                    let key = self.text(&key).into_owned();
                    let length = pointer.len();
                    pointer.push('/');
                    pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
                    if is_secret_key(&key) && !matches!(item, Value::Null | Value::Bool(_)) {
                        item = Value::String(REPLACEMENT.to_owned());
                        replaced.push(pointer.clone());
                    } else {
                        self.json_at(&mut item, pointer, replaced);
                    }
                    pointer.truncate(length);
                    fields.insert(key, item);
                }
            }
        }
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Redactor").field("names", &known.names).finish_non_exhaustive()
    }
}

/// Whether a key says that its value is secret: one of its words is `password`, `token` and the like, or two or three
/// in a row are `api key`, `client key data` and the like. Words end at punctuation and at a change to upper case.
pub fn is_secret_key(key: &str) -> bool {
    const ALONE: &[&str] = &[
        "password",
        "passwords",
        "passwd",
        "passphrase",
        "secret",
        "secrets",
        "token",
        "tokens",
        "authorization",
        "credential",
        "credentials",
        "apikey",
        "privatekey",
        "accesskey",
    ];
    const TOGETHER: &[&[&str]] = &[
        &["private", "key"],
        &["api", "key"],
        &["access", "key"],
        &["root", "key"],
        &["client", "key", "data"],
        &["encryption", "key"],
        &["signing", "key"],
    ];
    let words = words(key);
    words.iter().any(|word| ALONE.contains(&word.as_str()))
        || TOGETHER.iter().any(|run| words.windows(run.len()).any(|seen| seen.iter().eq(run.iter())))
}

/// The words of a key, in lower case: `clientKeyData`, `client-key-data` and `CLIENT_KEY_DATA` are the same three.
fn words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for letter in key.chars() {
        if !letter.is_alphanumeric() || letter.is_uppercase() && after_lower {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().expect("there is always a last word").extend(letter.to_lowercase());
        }
        after_lower = letter.is_lowercase() || letter.is_numeric();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Everything to search for when this value is secret.
fn forms(value: &str) -> BTreeSet<String> {
    let mut plain = vec![value.trim()];
    let is_armour = |line: &str| line.starts_with("-----BEGIN ") || line.starts_with("-----END ");
    plain.extend(value.lines().map(str::trim).filter(|line| line.chars().count() >= SHORTEST && !is_armour(line)));
    let mut forms = BTreeSet::new();
    for text in plain {
        forms.extend([text.to_owned(), json_escaped(text), go_json_escaped(text), percent_encoded(text)]);
        // Sentences of tools are put on one line, with one space between their words.
        forms.insert(text.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    // With and without what is around it, as `echo` and a file end differ.
    for whole in [value, value.trim()] {
        forms.extend(base64_forms(whole.as_bytes()));
    }
    forms
}

/// As it stands between the quotes of JSON.
fn json_escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// As Go writes it into JSON: its encoder also escapes what HTML would misread.
fn go_json_escaped(text: &str) -> String {
    json_escaped(text).replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// As it stands in the user part or the query of a URL.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let hex = format!("%{byte:02X}");
            encoded.push_str(&hex);
        }
    }
    encoded
}

/// Base64 of the value alone and of the value inside something longer (`user:password`), in both alphabets.
///
/// Base64 turns three bytes into four characters, so what a value looks like inside something longer depends on where
/// it begins, modulo three; the characters that it shares with its neighbours are left out.
fn base64_forms(value: &[u8]) -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
        let alone = engine.encode(value);
        // As `base64` wraps it.
        forms.extend(alone.as_bytes().chunks(BASE64_COLUMNS).map(|line| String::from_utf8_lossy(line).into_owned()));
        for padding in ["", "=", "=="] {
            forms.insert(format!("{alone}{padding}"));
        }
        for before in 0..3 {
            let mut longer = vec![0; before];
            longer.extend_from_slice(value);
            let encoded = engine.encode(&longer);
            let first = (before * 8).div_ceil(6);
            let last = longer.len() * 8 / 6;
            if last >= first + SHORTEST_BASE64_PIECE {
                forms.insert(encoded[first..last].to_owned());
            }
        }
    }
    forms.retain(|form| form.len() >= SHORTEST);
    forms
}

/// All that is searched for, arranged by the first four bytes, which every needle has.
#[derive(Default)]
struct Needles {
    names: BTreeSet<String>,
    /// Longest first within one beginning.
    by_beginning: HashMap<u32, Vec<Box<[u8]>>>,
    skips: Skips,
    longest: usize,
}

impl Needles {
    fn insert(&mut self, needle: String) {
        let needle = needle.into_bytes().into_boxed_slice();
        let Some(beginning) = beginning(&needle) else { return };
        self.skips.learn(&needle);
        self.longest = self.longest.max(needle.len());
        let same = self.by_beginning.entry(beginning).or_default();
        if !same.contains(&needle) {
            same.push(needle);
            same.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
        }
    }

    /// The ranges that secrets cover, in order, apart from one another.
    fn covered(&self, bytes: &[u8]) -> Vec<(usize, usize)> {
        let mut covered: Vec<(usize, usize)> = Vec::new();
        if self.by_beginning.is_empty() {
            return covered;
        }
        let mut start = 0;
        while let Some(window) = bytes.get(start..start + 4) {
            let skip = self.skips.after(window[2], window[3]);
            if skip > 0 {
                start += skip;
                continue;
            }
            if let Some(end) = self.longest_at(bytes, start) {
                match covered.last_mut() {
                    Some(last) if last.1 >= start => last.1 = last.1.max(end),
                    _ => covered.push((start, end)),
                }
            }
            start += 1;
        }
        covered
    }

    fn longest_at(&self, bytes: &[u8], start: usize) -> Option<usize> {
        let same = self.by_beginning.get(&beginning(&bytes[start..])?)?;
        same.iter().find(|needle| bytes[start..].starts_with(needle)).map(|needle| start + needle.len())
    }

    /// Where the first secret begins that a cut at `cut` would divide, counting those that the end of `bytes` cuts.
    fn divided_by(&self, bytes: &[u8], cut: usize) -> Option<usize> {
        let first = cut.saturating_sub(self.longest.saturating_sub(1));
        (first..cut).find(|&start| {
            let rest = &bytes[start..];
            let is_divided = |needle: &[u8]| {
                let seen = needle.len().min(rest.len());
                start + needle.len() > cut && rest[..seen] == needle[..seen]
            };
            match beginning(rest) {
                Some(beginning) => {
                    self.by_beginning.get(&beginning).is_some_and(|same| same.iter().any(|needle| is_divided(needle)))
                }
                None => self.by_beginning.values().flatten().any(|needle| is_divided(needle)),
            }
        })
    }
}

/// The first four bytes as a number.
fn beginning(needle: &[u8]) -> Option<u32> {
    needle.first_chunk::<4>().map(|first| u32::from_le_bytes(*first))
}

/// How far the search may skip, by the last two of the four bytes under it: as far as the next place where these two
/// could belong to the beginning of a needle. Most texts are crossed three bytes at a time.
struct Skips {
    by_pair: Box<[u8]>,
}

impl Default for Skips {
    fn default() -> Skips {
        Skips { by_pair: vec![3; 1 << 16].into_boxed_slice() }
    }
}

impl Skips {
    fn place(first: u8, second: u8) -> usize {
        usize::from(u16::from_le_bytes([first, second]))
    }

    fn learn(&mut self, needle: &[u8]) {
        for (before, pair) in needle[..4].windows(2).enumerate() {
            let skip = &mut self.by_pair[Skips::place(pair[0], pair[1])];
            *skip = (*skip).min(2 - u8::try_from(before).expect("four bytes have three pairs"));
        }
    }

    fn after(&self, first: u8, second: u8) -> usize {
        usize::from(self.by_pair[Skips::place(first, second)])
    }
}

/// A value that is never printed. `Debug` and `Display` say `[redacted]`; serialisers see it only through [`exposed`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The value itself. Whoever calls this answers for where it goes.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Secret {
        Secret(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REPLACEMENT)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REPLACEMENT)
    }
}

/// For `#[serde(with = "crate::redact::exposed")]`: this field carries the secret itself, because it goes from one of
/// our processes to the other and nowhere else.
pub mod exposed {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::redact::Secret;

    /// Writes the value.
    pub fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(secret.expose())
    }

    /// Reads the value.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        String::deserialize(deserializer).map(Secret::from)
    }
}

/// [`exposed`], for a map of names to secrets.
pub mod exposed_map {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::redact::Secret;

    /// Writes the values.
    pub fn serialize<S: Serializer>(secrets: &BTreeMap<String, Secret>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(secrets.iter().map(|(name, secret)| (name, secret.expose())))
    }

    /// Reads the values.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Secret>, D::Error> {
        let values = BTreeMap::<String, String>::deserialize(deserializer)?;
        Ok(values.into_iter().map(|(name, value)| (name, Secret::from(value))).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn knowing(values: &[&str]) -> Redactor {
        let redactor = Redactor::default();
        for value in values {
            assert_eq!(redactor.add("a", value), Added::Kept, "{value}");
        }
        redactor
    }

    #[test]
    fn a_value_is_replaced_wherever_it_stands() {
        let redactor = knowing(&["hunter2"]);
        assert_eq!(redactor.text("hunter2, hunter2hunter2 and hunter"), "[redacted], [redacted] and hunter");
        assert!(matches!(redactor.text("nothing here"), Cow::Borrowed(_)));
        assert_eq!(redactor.bytes(b"\xff hunter2 \xfe").as_ref(), b"\xff [redacted] \xfe");
    }

    #[test]
    fn overlapping_secrets_leave_no_byte() {
        let redactor = knowing(&["abcdef", "defghi", "cdef", "ghijkl"]);
        assert_eq!(redactor.text("xabcdefghijklx"), "x[redacted]x");
        assert_eq!(redactor.text("cdefg abcdef"), "[redacted]g [redacted]");
    }

    #[test]
    fn short_values_are_not_searched_for_and_that_is_said() {
        let redactor = Redactor::default();
        for short in ["", "abc", "  a \n", "äöü"] {
            assert_eq!(redactor.add("short", short), Added::TooShort);
        }
        assert_eq!(redactor.text("abc"), "abc");
    }

    #[test]
    fn each_line_of_a_longer_secret_is_one() {
        let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\n  indented line\nab\n-----END PRIVATE KEY-----\n";
        let redactor = knowing(&[key]);
        assert_eq!(redactor.text("> MIIEvQIBADAN"), "> [redacted]");
        assert_eq!(redactor.text("indented line"), "[redacted]");
        assert_eq!(redactor.text("-----BEGIN PRIVATE KEY-----"), "-----BEGIN PRIVATE KEY-----");
        assert_eq!(redactor.text(&json_escaped(key)), "[redacted]\\n");
    }

    #[test]
    fn quoted_forms_are_found() {
        let secret = r#"p"a\s<s&@ü"#;
        let redactor = knowing(&[secret]);
        for form in [json_escaped(secret), go_json_escaped(secret), percent_encoded(secret)] {
            assert_eq!(redactor.text(&format!("a{form}b")), "a[redacted]b", "{form}");
        }
    }

    #[test]
    fn base64_is_found_alone_padded_wrapped_and_inside_something_longer() {
        let secret = "correct horse battery staple";
        let redactor = knowing(&[secret]);
        let engine = base64::engine::general_purpose::STANDARD;
        assert_eq!(redactor.text(&engine.encode(secret)), "[redacted]");
        for before in ["", "a", "ab", "abc", "user:"] {
            for after in ["", "\n", "xy", "xyz"] {
                let said = redactor.text(&engine.encode(format!("{before}{secret}{after}"))).into_owned();
                assert!(said.contains(REPLACEMENT) && said.len() < 30, "{before:?} {after:?}: {said}");
            }
        }
        let long = secret.repeat(9);
        let redactor = knowing(&[&long]);
        for line in engine.encode(&long).as_bytes().chunks(BASE64_COLUMNS) {
            assert_eq!(redactor.bytes(line).as_ref(), REPLACEMENT.as_bytes());
        }
    }

    #[test]
    fn json_is_redacted_by_value_and_by_key() {
        let redactor = knowing(&["hunter2", "123456"]);
        let mut value = json!({
            "a/b": ["x", {"c~": "say hunter2"}], "n": 123_456, "ok": 12,
            "dbPassword": "unknown", "token": {"deep": 1}, "secret": null, "auth": true, "tokenize": "fine",
        });
        let replaced = redactor.json(&mut value);
        assert_eq!(replaced, ["/a~1b/1/c~0", "/n", "/dbPassword", "/token"]);
        assert_eq!(
            value,
            json!({
                "a/b": ["x", {"c~": "say [redacted]"}], "n": "[redacted]", "ok": 12,
                "dbPassword": "[redacted]", "token": "[redacted]", "secret": null, "auth": true, "tokenize": "fine",
            })
        );
    }

    #[test]
    fn keys_are_judged_by_whole_words() {
        for secret in ["password", "DB_PASSWD", "client-key-data", "apiKey", "X-Authorization", "my.private.key"] {
            assert!(is_secret_key(secret), "{secret}");
        }
        for open in ["compass", "tokenizer", "key", "api_keyboard", "secretary", "authority", "resource_key"] {
            assert!(!is_secret_key(open), "{open}");
        }
    }

    #[test]
    fn a_cut_never_divides_a_secret() {
        let redactor = knowing(&["hunter2", "ter2abcd"]);
        assert_eq!(redactor.safe_cut(b"say hunter2 now", 7), 4);
        assert_eq!(redactor.safe_cut(b"say hunter2abcd", 12), 4);
        assert_eq!(redactor.safe_cut(b"say hunt", 8), 4);
        assert_eq!(redactor.safe_cut(b"say something else", 8), 8);
        assert_eq!(redactor.safe_cut(b"done.", 80), 5);
    }

    #[test]
    fn nothing_prints_a_secret() {
        let redactor = knowing(&["hunter2"]);
        let secret = Secret::from("hunter2".to_owned());
        assert_eq!(
            format!("{secret} {secret:?} {redactor:?}"),
            "[redacted] [redacted] Redactor { names: {\"a\"}, .. }"
        );
    }

    #[test]
    fn random_texts_never_keep_an_occurrence() {
        // A small alphabet makes secrets overlap in every way that they can.
        let mut seed: u64 = 1;
        let mut letter = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'x' + u8::try_from((seed >> 33) % 3).expect("below three"))
        };
        for round in 0..2000 {
            let secrets: Vec<String> = (4..7).map(|length| (0..length).map(|_| letter()).collect()).collect();
            let redactor = knowing(&secrets.iter().map(String::as_str).collect::<Vec<_>>());
            let text: String = (0..60).map(|_| letter()).collect();
            let clean = redactor.text(&text);
            assert!(secrets.iter().all(|secret| !clean.contains(secret)), "round {round}: {secrets:?} in {text}");
        }
    }
}
