//! Secrets never leave: the type that holds one, and the filter that everything said goes through.
//!
//! [`Secret`] cannot be printed by accident: its `Debug` and `Display` say `[redacted]`, and it reaches a serialiser
//! only where a field names [`exposed`]. [`Redactor`] knows every secret of the run and replaces it by
//! [`REPLACEMENT`], in whatever form a tool may print it: `forms` says which these are, `filter` finds them, and
//! `noise` is what may stand in the middle of one and not be seen: the colour codes of a terminal.
//!
//! # Promise
//! No byte of an occurrence of a registered value survives, also where two secrets overlap: every occurrence of every
//! value is found, and what they cover together is replaced. A longer secret therefore hides a shorter one in it.
//!
//! What nobody registered is hidden only where its place gives it away: the password in an address, what follows
//! `Bearer`, the value of a header. `context` knows these places.
//!
//! # Not promised
//! Values shorter than four characters are not searched for: they would blot out half of any text. [`Redactor::add`]
//! says so, and the run says it at its start. Of base64 and hexadecimal text that a tool broke into lines, less than
//! six bytes of the secret may stay at the end of one line and at the beginning of the next. Of what only its place gives
//! away, the part behind the border of two pieces of a very long line stays.

mod context;
mod filter;
mod forms;
mod keys;
mod noise;
mod secret;
mod speller;
#[cfg(test)]
mod tests;

pub use keys::is_secret_key;
pub use noise::without_noise;
pub use secret::{Secret, exposed, exposed_map};

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use crate::redact::filter::{Filter, Shape, Span, Text};
use crate::redact::noise::Quiet;

/// What stands where a secret was.
pub const REPLACEMENT: &str = "[redacted]";

/// The shortest value that is searched for, in characters.
const SHORTEST: usize = 4;

/// Whether a value is searched for from now on. Of several, the greatest is what has to be said of them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Added {
    /// It is.
    Kept,
    /// It is not: it has fewer than four characters.
    TooShort,
}

/// Whether a value is too short to be hidden wherever it stands: hiding every `a` would hide everything.
pub fn is_too_short(value: &str) -> bool {
    value.trim().chars().count() < SHORTEST
}

/// Knows the secrets of a run and replaces them. Clones share what they know.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Arc<RwLock<Known>>,
}

#[derive(Default)]
struct Known {
    names: BTreeSet<String>,
    values: BTreeSet<String>,
    filter: Filter,
}

impl Redactor {
    /// Registers a secret: the value, each line of it that has four characters or more, and the forms in which a tool
    /// may print these. The name is for people and is never matched.
    pub fn add(&self, name: &str, value: &str) -> Added {
        if is_too_short(value) {
            return Added::TooShort;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.names.insert(name.to_owned());
        if known.values.insert(value.to_owned()) {
            for needle in &forms::needles(value) {
                known.filter.insert(needle);
            }
        }
        Added::Kept
    }

    /// The text without secrets, also those that only their place gives away. Borrowed if and only if there was none in it.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut found = self.found(text.as_bytes());
        found.extend(context::covered(text));
        match replaced(text.as_bytes(), found) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(clean) => Cow::Owned(String::from_utf8(clean).expect("whole characters were replaced")),
        }
    }

    /// The bytes without the secrets of the run, whatever else they are. Borrowed if and only if there was none in them.
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        replaced(bytes, self.found(bytes))
    }

    /// The largest place at or before `limit` where `bytes` may be cut so that no secret is divided: neither one that
    /// lies across the place, nor one that may go on after the end of `bytes`. Zero when there is no such place.
    pub fn safe_cut(&self, bytes: &[u8], limit: usize) -> usize {
        let mut cut = limit.min(bytes.len());
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut whole = Vec::new();
        each_reading(bytes, |text, place| {
            let spans = known.filter.spans_and_beginnings(text);
            whole.extend(spans.into_iter().map(|Span { start, end }| (place(start), end.map(|end| place(end - 1)))));
        });
        // Moving the cut back may bring another secret across it, hence again until nothing moves.
        let divides =
            |&&(start, last): &&(usize, Option<usize>), cut| start < cut && last.is_none_or(|last| last >= cut);
        while let Some((start, _)) = whole.iter().filter(|span| divides(span, cut)).min() {
            cut = *start;
        }
        cut
    }

    /// The ranges that the run's secrets cover, in no order.
    fn found(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<Range<usize>> = Vec::new();
        each_reading(bytes, |text, place| {
            found.extend(
                known.filter.covered(text).into_iter().map(|range| place(range.start)..place(range.end - 1) + 1),
            );
        });
        found
    }
}

/// An address, or another text, without what its place alone shows to be a credential.
pub fn without_credentials(text: &str) -> Cow<'_, str> {
    Redactor::default().text(text)
}

/// The bytes with these ranges replaced; what ranges cover together is replaced once.
fn replaced(bytes: &[u8], mut ranges: Vec<Range<usize>>) -> Cow<'_, [u8]> {
    if ranges.is_empty() {
        return Cow::Borrowed(bytes);
    }
    ranges.sort_by_key(|range| range.start);
    let mut clean = Vec::with_capacity(bytes.len());
    let (mut from, mut open) = (0, None);
    for Range { start, end } in ranges {
        if open.is_some_and(|last| start <= last) {
            from = from.max(end);
        } else {
            clean.extend_from_slice(&bytes[from..start]);
            clean.extend_from_slice(REPLACEMENT.as_bytes());
            from = end;
        }
        open = Some(from);
    }
    clean.extend_from_slice(&bytes[from..]);
    Cow::Owned(clean)
}

/// Looks at bytes as they are, and once more without noise if there is any. The second argument tells where a byte of
/// what is looked at stands in `bytes`.
fn each_reading(bytes: &[u8], mut look: impl FnMut(Text<'_>, &dyn Fn(usize) -> usize)) {
    if noise::is_simple(bytes) {
        return look(Text { bytes, shape: Shape::Simple }, &|at| at);
    }
    look(Text { bytes, shape: Shape::Any }, &|at| at);
    if let Some(Quiet { bytes, places }) = noise::quiet(bytes) {
        look(Text { bytes: &bytes, shape: Shape::Any }, &|at| places[at]);
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Redactor").field("names", &known.names).finish_non_exhaustive()
    }
}
