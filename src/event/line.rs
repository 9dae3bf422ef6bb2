//! Writes the data of an event as JSON, in one pass: redacted, without escape sequences, shortened where it must be.
//!
//! A serialiser of its own, for three reasons. Redaction has to see every string before anything escapes or shortens
//! it, and only strings that came from outside: dcctl's own words (the variants of enums) arrive by another method and
//! stay. The places of what was replaced or shortened have to be recorded as JSON Pointers. And a million lines of tool
//! output must not cost a tree of values each.

use std::fmt::{self, Write as _};

use serde::ser::{self, Impossible, Serialize};

use crate::event::envelope::Hide;
use crate::event::text::{beginning, first_unusual, plain};

/// The most that one string or list may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of a string.
    pub(crate) string: usize,
    /// Entries of a list or a map.
    pub(crate) list: usize,
}

/// Where the JSON goes, and what was done to it on the way.
pub(crate) struct Writer<'a> {
    out: &'a mut String,
    hide: &'a dyn Hide,
    limits: Limits,
    /// The JSON Pointer of the value being written.
    pointer: String,
    /// JSON Pointers of what was redacted.
    pub(crate) redacted: Vec<String>,
    /// JSON Pointers of what was shortened, with the length before: bytes of a string, entries of a list.
    pub(crate) truncated: Vec<(String, usize)>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut String, hide: &'a dyn Hide, limits: Limits, pointer: &str) -> Writer<'a> {
        Writer { out, hide, limits, pointer: pointer.to_owned(), redacted: Vec::new(), truncated: Vec::new() }
    }

    fn string(&mut self, text: &str) {
        let hidden = clean(text, self.hide);
        if hidden.redacted {
            self.redacted.push(self.pointer.clone());
        }
        let kept = beginning(&hidden.text, self.limits.string);
        if kept.len() < hidden.text.len() {
            self.truncated.push((self.pointer.clone(), hidden.text.len()));
        }
        quote(self.out, kept);
    }

    /// Runs `write` with the pointer one level deeper.
    fn under<T>(&mut self, key: &str, write: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.pointer.len();
        self.pointer.push('/');
        if key.contains(['~', '/']) {
            self.pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
        } else {
            self.pointer.push_str(key);
        }
        let result = write(self);
        self.pointer.truncate(length);
        result
    }
}

/// A text from outside, made fit to be said.
pub(crate) struct Cleaned<'a> {
    pub(crate) text: std::borrow::Cow<'a, str>,
    pub(crate) redacted: bool,
}

/// Redacts a text and takes escape sequences out of it. Taking one out can join two halves of a secret, so what was
/// changed is redacted again.
pub(crate) fn clean<'a>(text: &'a str, hide: &dyn Hide) -> Cleaned<'a> {
    use std::borrow::Cow;

    let hidden = hide.value(text);
    let redacted = matches!(hidden, Cow::Owned(_));
    match plain(&hidden) {
        Cow::Borrowed(_) => Cleaned { text: hidden, redacted },
        Cow::Owned(joined) => match hide.value(&joined) {
            Cow::Owned(again) => Cleaned { text: Cow::Owned(again), redacted: true },
            Cow::Borrowed(_) => Cleaned { text: Cow::Owned(joined), redacted },
        },
    }
}

/// Writes a JSON string. `##` becomes `#\u0023`, the same to every JSON reader: GitHub's runner looks for `##[command]`
/// anywhere in a line and would obey what a tool printed.
pub(crate) fn quote(out: &mut String, text: &str) {
    let bytes = text.as_bytes();
    out.reserve(text.len() + 2);
    out.push('"');
    let (mut written, mut from) = (0, 0);
    let mut last_hash = None;
    while let Some(at) = first_unusual(bytes, from) {
        from = at + 1;
        let byte = bytes[at];
        match byte {
            b'#' if at == 0 || last_hash != Some(at - 1) => {
                last_hash = Some(at);
                continue;
            }
            0..0x20 | b'"' | b'\\' | b'#' => {}
            _ => continue,
        }
        out.push_str(&text[written..at]);
        written = from;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'\r' => out.push_str("\\r"),
            other => write!(out, "\\u{other:04x}").expect("a String takes every write"),
        }
    }
    out.push_str(&text[written..]);
    out.push('"');
}

/// The data of an event has a shape that JSON lines do not use. No fact has; the test of all examples proves it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unsupported(String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot be said in an event: {}", self.0)
    }
}

impl std::error::Error for Unsupported {}

impl ser::Error for Unsupported {
    fn custom<T: fmt::Display>(message: T) -> Unsupported {
        Unsupported(message.to_string())
    }
}

fn unsupported<T>(what: &str) -> Result<T, Unsupported> {
    Err(Unsupported(what.to_owned()))
}

macro_rules! as_printed {
    ($($method:ident $type:ty;)*) => {
        $(fn $method(self, value: $type) -> Result<(), Unsupported> {
            write!(self.out, "{value}").expect("a String takes every write");
            Ok(())
        })*
    };
}

type Never = Impossible<(), Unsupported>;

impl<'w, 'a> ser::Serializer for &'w mut Writer<'a> {
    type Ok = ();
    type Error = Unsupported;
    type SerializeSeq = List<'w, 'a>;
    type SerializeTuple = Never;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeMap = Object<'w, 'a>;
    type SerializeStruct = Object<'w, 'a>;
    type SerializeStructVariant = Never;

    as_printed! {
        serialize_bool bool;
        serialize_i8 i8; serialize_i16 i16; serialize_i32 i32; serialize_i64 i64;
        serialize_u8 u8; serialize_u16 u16; serialize_u32 u32; serialize_u64 u64;
    }

    fn serialize_str(self, text: &str) -> Result<(), Unsupported> {
        self.string(text);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Unsupported> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Unsupported> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Unsupported> {
        self.out.push_str("null");
        Ok(())
    }

    /// One of dcctl's own words: never redacted.
    fn serialize_unit_variant(self, _: &'static str, _: u32, word: &'static str) -> Result<(), Unsupported> {
        quote(self.out, word);
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Unsupported> {
        value.serialize(self)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<List<'w, 'a>, Unsupported> {
        self.out.push('[');
        Ok(List { writer: self, written: 0, seen: 0, length })
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Object<'w, 'a>, Unsupported> {
        self.out.push('{');
        Ok(Object { writer: self, written: 0, seen: 0, length, key: String::new() })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Object<'w, 'a>, Unsupported> {
        self.serialize_map(None)
    }

    fn serialize_f32(self, _: f32) -> Result<(), Unsupported> {
        unsupported("a fraction")
    }

    fn serialize_f64(self, _: f64) -> Result<(), Unsupported> {
        unsupported("a fraction")
    }

    fn serialize_char(self, letter: char) -> Result<(), Unsupported> {
        self.serialize_str(letter.encode_utf8(&mut [0; 4]))
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), Unsupported> {
        unsupported("bytes")
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<(), Unsupported> {
        unsupported(name)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Unsupported> {
        unsupported(name)
    }

    fn serialize_tuple(self, _: usize) -> Result<Never, Unsupported> {
        unsupported("a tuple")
    }

    fn serialize_tuple_struct(self, name: &'static str, _: usize) -> Result<Never, Unsupported> {
        unsupported(name)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, Unsupported> {
        unsupported(name)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, Unsupported> {
        unsupported(name)
    }
}

/// A list being written.
pub(crate) struct List<'w, 'a> {
    writer: &'w mut Writer<'a>,
    written: usize,
    seen: usize,
    length: Option<usize>,
}

impl ser::SerializeSeq for List<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unsupported> {
        self.seen += 1;
        if self.written == self.writer.limits.list {
            return Ok(());
        }
        if self.written > 0 {
            self.writer.out.push(',');
        }
        let index = self.written.to_string();
        self.written += 1;
        self.writer.under(&index, |writer| value.serialize(writer))
    }

    fn end(self) -> Result<(), Unsupported> {
        debug_assert!(self.length.is_none_or(|length| length == self.seen));
        if self.written < self.seen {
            self.writer.truncated.push((self.writer.pointer.clone(), self.seen));
        }
        self.writer.out.push(']');
        Ok(())
    }
}

/// A struct or a map being written.
pub(crate) struct Object<'w, 'a> {
    writer: &'w mut Writer<'a>,
    written: usize,
    seen: usize,
    length: Option<usize>,
    /// Of a map: the key whose value comes next.
    key: String,
}

impl Object<'_, '_> {
    fn comma(&mut self) {
        if self.written > 0 {
            self.writer.out.push(',');
        }
        self.written += 1;
    }
}

impl ser::SerializeStruct for Object<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Unsupported> {
        self.comma();
        self.writer.out.push('"');
        self.writer.out.push_str(key);
        self.writer.out.push_str("\":");
        self.writer.under(key, |writer| value.serialize(writer))
    }

    fn end(self) -> Result<(), Unsupported> {
        self.writer.out.push('}');
        Ok(())
    }
}

/// A map comes from outside: its keys are redacted like any text, and a key may say that its value is secret.
impl ser::SerializeMap for Object<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unsupported> {
        let mut quoted = String::new();
        let everything = Limits { string: usize::MAX, list: usize::MAX };
        key.serialize(&mut Writer::new(&mut quoted, self.writer.hide, everything, ""))?;
        self.key = serde_json::from_str(&quoted).map_err(ser::Error::custom)?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unsupported> {
        self.seen += 1;
        if self.written == self.writer.limits.list {
            return Ok(());
        }
        self.comma();
        let key = std::mem::take(&mut self.key);
        quote(self.writer.out, &key);
        self.writer.out.push(':');
        let secret = self.writer.hide.key(&key);
        self.writer.under(&key, |writer| {
            if secret {
                writer.redacted.push(writer.pointer.clone());
                quote(writer.out, "[redacted]");
                Ok(())
            } else {
                value.serialize(writer)
            }
        })
    }

    fn end(self) -> Result<(), Unsupported> {
        debug_assert!(self.length.is_none_or(|length| length == self.seen));
        if self.written < self.seen {
            self.writer.truncated.push((self.writer.pointer.clone(), self.seen));
        }
        self.writer.out.push('}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::event::envelope::Open;

    fn quoted(text: &str) -> String {
        let mut out = String::new();
        quote(&mut out, text);
        out
    }

    #[test]
    fn quoting_reads_back_and_never_has_two_hashes() {
        for text in ["", "#", "##", "###", "a##[error]b", "\\##\\", "q\"\n\r\t\u{1}\u{7f}ü", "# # ## ####"] {
            let written = quoted(text);
            assert!(!written.contains("##"), "{written}");
            assert_eq!(serde_json::from_str::<String>(&written).expect("JSON"), text);
        }
        assert_eq!(quoted("###"), "\"#\\u0023#\"");
    }

    #[test]
    fn strings_lists_and_maps_are_shortened_and_that_is_recorded() {
        let mut out = String::new();
        let limits = Limits { string: 3, list: 2 };
        let mut writer = Writer::new(&mut out, &Open, limits, "/data");
        let value = json!({"a": "äöü", "b/c": ["x", "long", "y"], "d": 1});
        value.serialize(&mut writer).expect("plain values");
        assert_eq!(
            writer.truncated,
            [
                ("/data/a".to_owned(), 6),
                ("/data/b~1c/1".to_owned(), 4),
                ("/data/b~1c".to_owned(), 3),
                ("/data".to_owned(), 3)
            ]
        );
        assert_eq!(serde_json::from_str::<Value>(&out).expect("JSON"), json!({"a": "ä", "b/c": ["x", "lon"]}));
    }
}
