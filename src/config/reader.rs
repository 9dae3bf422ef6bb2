//! Reads fields from a tree: the right kind of value or a mistake with its place, never both and never neither.
//!
//! Every function answers `None` when there is nothing to use, and has then told the [`Reader`] why, unless the value
//! is open (see [`Kind::Open`]) and nobody needs it.

use std::time::Duration;

use crate::config::placeholder::{element, entry};
use crate::config::problem::{Mend, Place, Problem, Problems};
use crate::config::tree::{Key, Kind, Node, Position};
use crate::config::{span, suggest};
use crate::failure::Code;

/// Collects the mistakes of one file.
#[derive(Debug)]
pub(crate) struct Reader<'p> {
    pub(crate) file: String,
    pub(crate) problems: &'p mut Problems,
}

/// A value, and how to get to it.
#[derive(Debug, Clone)]
pub(crate) struct Field<'a> {
    pub(crate) node: &'a Node,
    pub(crate) path: String,
}

/// A map whose keys are known.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    entries: &'a [(Key, Node)],
    path: String,
    at: Position,
}

impl<'a> Field<'a> {
    /// The top of a file.
    pub(crate) fn top(node: &'a Node) -> Field<'a> {
        Field { node, path: String::new() }
    }

    fn is_open(&self) -> bool {
        self.node.kind == Kind::Open
    }
}

impl<'a> Section<'a> {
    /// The value of a key that may be left out or be nothing.
    pub(crate) fn optional(&self, name: &str) -> Option<Field<'a>> {
        let (_, node) = self.entries.iter().find(|(key, _)| key.name == name)?;
        (node.kind != Kind::Null).then(|| Field { node, path: entry(&self.path, name) })
    }

    /// The value of a key that has to be there.
    pub(crate) fn required(&self, reader: &mut Reader<'_>, name: &str) -> Option<Field<'a>> {
        let field = self.optional(name);
        if field.is_none() {
            let at = self.entries.iter().find(|(key, _)| key.name == name).map_or(self.at, |(key, _)| key.at);
            reader.wrong(Code::BundleInvalid, at, &entry(&self.path, name), "is missing".to_owned());
        }
        field
    }
}

impl Reader<'_> {
    /// Notes a mistake of the bundle at a field.
    pub(crate) fn mistake(&mut self, field: &Field<'_>, what: impl Into<String>) {
        self.wrong(Code::BundleInvalid, field.node.at, &field.path, what.into());
    }

    /// Notes a mistake anywhere in the file.
    pub(crate) fn wrong(&mut self, code: Code, at: Position, path: &str, what: String) {
        let place = Place::File { file: self.file.clone(), at: Some(at), field: path.to_owned() };
        let missing = code == Code::VariableInvalid;
        let mend = if missing { Mend::GiveVariable } else { Mend::AsCoded };
        self.problems.add(Problem::new(code, place, what).mended_by(mend));
    }

    /// A secret that the field asks for is not there.
    pub(crate) fn lacks_secret(&mut self, at: Position, path: &str, what: String) {
        let place = Place::File { file: self.file.clone(), at: Some(at), field: path.to_owned() };
        self.problems.add(Problem::new(Code::VariableInvalid, place, what).mended_by(Mend::GiveSecret));
    }

    /// A map with no other keys than these.
    pub(crate) fn section<'a>(&mut self, field: &Field<'a>, known: &[&str]) -> Option<Section<'a>> {
        let entries = self.raw_entries(field)?;
        for (key, _) in entries.iter().filter(|(key, _)| !known.contains(&key.name.as_str())) {
            let what = match suggest::nearest(&key.name, known.iter().copied()) {
                Some(near) => format!("unknown key; did you mean `{near}`?"),
                None => format!("unknown key; known are {}", known.join(", ")),
            };
            self.wrong(Code::BundleInvalid, key.at, &entry(&field.path, &key.name), what);
        }
        Some(Section { entries, path: field.path.clone(), at: field.node.at })
    }

    /// A map with any keys.
    pub(crate) fn entries<'a>(&mut self, field: &Field<'a>) -> Option<Vec<(&'a Key, Field<'a>)>> {
        let entries = self.raw_entries(field)?;
        Some(entries.iter().map(|(key, node)| (key, Field { node, path: entry(&field.path, &key.name) })).collect())
    }

    /// A list of anything.
    pub(crate) fn items<'a>(&mut self, field: &Field<'a>) -> Option<Vec<Field<'a>>> {
        match &field.node.kind {
            Kind::List(items) => {
                let one = |(index, node)| Field { node, path: element(&field.path, index) };
                Some(items.iter().enumerate().map(one).collect())
            }
            Kind::Null
            | Kind::Bool(_)
            | Kind::Number(_)
            | Kind::Text(_)
            | Kind::Untyped(_)
            | Kind::Map(_)
            | Kind::Open => self.misfit(field, "a list"),
        }
    }

    /// A text that is not empty.
    pub(crate) fn text(&mut self, field: &Field<'_>) -> Option<String> {
        match &field.node.kind {
            Kind::Text(text) | Kind::Untyped(text) if text.is_empty() => {
                self.mistake(field, "is empty");
                None
            }
            Kind::Text(text) | Kind::Untyped(text) => Some(text.clone()),
            Kind::Number(_) | Kind::Bool(_) => self.misfit(field, "text in quotes"),
            Kind::Null | Kind::List(_) | Kind::Map(_) | Kind::Open => self.misfit(field, "text"),
        }
    }

    /// A text that passes a check; the check answers the end of a sentence that begins with the text.
    pub(crate) fn checked(&mut self, field: &Field<'_>, check: fn(&str) -> Result<(), String>) -> Option<String> {
        let text = self.text(field)?;
        match check(&text) {
            Ok(()) => Some(text),
            Err(wrong) => {
                self.mistake(field, format!("`{}` {wrong}", text.escape_debug()));
                None
            }
        }
    }

    /// A whole number from 1 to `most`.
    pub(crate) fn number(&mut self, field: &Field<'_>, most: u32) -> Option<u32> {
        let number = match &field.node.kind {
            Kind::Number(number) => number.as_u64(),
            Kind::Untyped(text) => text.parse().ok(),
            Kind::Null | Kind::Bool(_) | Kind::Text(_) | Kind::List(_) | Kind::Map(_) | Kind::Open => {
                return self.misfit(field, "a number");
            }
        };
        let number = number.and_then(|number| u32::try_from(number).ok()).filter(|number| (1..=most).contains(number));
        if number.is_none() {
            self.mistake(field, format!("a whole number from 1 to {most} belongs here"));
        }
        number
    }

    /// A duration.
    pub(crate) fn duration(&mut self, field: &Field<'_>) -> Option<Duration> {
        let read = match &field.node.kind {
            Kind::Text(text) | Kind::Untyped(text) => span::parse(text),
            Kind::Number(_) => Err("a duration needs its unit, like 90s, 10m or 1h30m"),
            Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) | Kind::Open => {
                return self.misfit(field, "a duration");
            }
        };
        read.map_err(|wrong| self.mistake(field, wrong)).ok()
    }

    fn raw_entries<'a>(&mut self, field: &Field<'a>) -> Option<&'a [(Key, Node)]> {
        field.node.map().or_else(|| self.misfit(field, "a map"))
    }

    fn misfit<T>(&mut self, field: &Field<'_>, wanted: &str) -> Option<T> {
        if !field.is_open() {
            self.mistake(field, format!("{wanted} belongs here, not {}", field.node.noun()));
        }
        None
    }
}
