//! Finds needles, however their characters are spelled.
//!
//! A text is crossed once, nearly always three bytes at a time: where the four bytes that lie there cannot begin a
//! needle in any spelling, it goes on to where the last two of them may. A needle that may begin is followed character
//! by character. A spelling may be ambiguous, so what is followed is the set of all places where the next character
//! may begin; it nearly always has one member.
//!
//! Parts of encoded text are searched for in the last word of each line alone: that is where a tool which breaks such
//! text into lines leaves them, and it is little to look at.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use crate::redact::forms::{Needle, Occurs, SPACES, is_of_base64, is_space};
use crate::redact::speller::{BEGINNING, Mark, Speller, plain_bytes};

/// An occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// Its first byte.
    pub(super) start: usize,
    /// Behind its last byte; none when the text ends before it does.
    pub(super) end: Option<usize>,
}

/// A text to look at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) shape: Shape,
}

/// What is known of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// It is one line of printable ASCII.
    Simple,
    /// It may be anything.
    Any,
}

/// All that is searched for.
#[derive(Default)]
pub(super) struct Filter {
    patterns: Vec<Pattern>,
    speller: Speller,
    whole: Index,
    skips: Skips,
    parts: Index,
}

/// Where a needle may begin, by the first four bytes.
type Index = HashMap<u32, Vec<Start>, BuildHasherDefault<Scattered>>;

/// A needle, ready to be followed.
struct Pattern {
    marks: Vec<Mark>,
    starts: Vec<usize>,
    least: usize,
}

/// A place in a pattern where an occurrence may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Start {
    pattern: usize,
    /// Which of its starts.
    index: usize,
    /// The bytes behind the first four, if they have no other spelling.
    then: Option<[u8; BEGINNING]>,
}

/// How far a pattern could be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Reach {
    end: Option<usize>,
    cut_off: bool,
}

impl Filter {
    pub(super) fn insert(&mut self, needle: &Needle) {
        let Needle { text, starts, least, occurs } = needle;
        text.chars().chain(SPACES).for_each(|letter| self.speller.learn(letter));
        let marks = marks(text);
        let pattern = self.patterns.len();
        let whole = *occurs == Occurs::Anywhere;
        for (index, start) in starts.iter().enumerate() {
            let marks = &marks[*start..];
            let then = plain_bytes(marks).and(marks.get(BEGINNING..).and_then(plain_bytes));
            for beginning in self.speller.beginnings(marks) {
                if whole {
                    self.skips.learn(beginning);
                }
                let starts = if whole { &mut self.whole } else { &mut self.parts };
                starts.entry(u32::from_le_bytes(beginning)).or_default().push(Start { pattern, index, then });
            }
        }
        // A run of spaces is one mark. Only what is searched for as a whole has any.
        let least = (*least).min(marks.len());
        self.patterns.push(Pattern { marks, starts: starts.clone(), least });
    }

    /// The ranges that needles cover, in no order.
    pub(super) fn covered(&self, text: Text<'_>) -> Vec<Range<usize>> {
        let mut covered = Vec::new();
        self.visit(text, |start, reach| covered.extend(reach.end.map(|end| start..end)));
        covered
    }

    /// Every occurrence, and every beginning of one that the end of `bytes` cuts off.
    pub(super) fn spans_and_beginnings(&self, text: Text<'_>) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut take = |start, reach: Reach| {
            let end = if reach.cut_off { None } else { reach.end };
            if reach.cut_off || end.is_some() {
                spans.push(Span { start, end });
            }
        };
        self.visit(text, &mut take);
        let bytes = text.bytes;
        for start in bytes.len().saturating_sub(BEGINNING - 1)..bytes.len() {
            for pattern in &self.patterns {
                for &from in &pattern.starts {
                    take(start, self.follow(pattern, from, bytes, start));
                }
            }
        }
        spans
    }

    /// Tells how far each needle reaches that begins in these bytes.
    fn visit(&self, text: Text<'_>, mut tell: impl FnMut(usize, Reach)) {
        let Text { bytes, shape } = text;
        let mut at = 0;
        while let Some(beginning) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
            let skip = self.skips.after(*beginning);
            if skip == 0 {
                self.try_all(&self.whole, *beginning, bytes, at, &mut tell);
            }
            at += skip.max(1);
        }
        let mut line = 0;
        while line < bytes.len() && !self.parts.is_empty() {
            // What is simple is one line.
            let end = if shape == Shape::Simple { None } else { bytes[line..].iter().position(|byte| *byte == b'\n') };
            let end = end.map_or(bytes.len(), |length| line + length);
            for at in last_word(&bytes[line..end]).map(|at| line + at) {
                if let Some(beginning) = bytes[at..].first_chunk() {
                    self.try_all(&self.parts, *beginning, bytes, at, &mut tell);
                }
            }
            line = end + 1;
        }
    }

    fn try_all(
        &self,
        index: &Index,
        beginning: [u8; BEGINNING],
        bytes: &[u8],
        at: usize,
        tell: &mut impl FnMut(usize, Reach),
    ) {
        let starts = index.get(&u32::from_le_bytes(beginning)).into_iter().flatten();
        for start in starts.filter(|start| !start.is_ruled_out(&bytes[at..])) {
            let pattern = &self.patterns[start.pattern];
            if !pattern.was_passed(start.index, bytes, at) {
                tell(at, self.follow(pattern, pattern.starts[start.index], bytes, at));
            }
        }
    }

    /// Follows a pattern from one of its marks as far as the bytes go with it.
    fn follow(&self, pattern: &Pattern, from: usize, bytes: &[u8], at: usize) -> Reach {
        let marks = &pattern.marks[from..];
        // Nearly always a mark is plain, and nearly always the first ones tell that this is something else.
        let plain = marks.iter().zip(&bytes[at..]).take_while(|(mark, byte)| mark.is_plainly(**byte)).count();
        let mut reach = Reach { end: (plain >= pattern.least).then_some(at + plain), cut_off: false };
        if at + plain < bytes.len() && marks.get(plain).is_some_and(|mark| mark.is_plain()) {
            return reach;
        }
        let (mut here, mut next) = (vec![at + plain], Vec::new());
        for (index, mark) in marks.iter().enumerate().skip(plain) {
            for &place in &here {
                reach.cut_off |= self.speller.read(*mark, bytes, place, &mut next);
            }
            next.sort_unstable();
            next.dedup();
            std::mem::swap(&mut here, &mut next);
            next.clear();
            let Some(&furthest) = here.last() else { break };
            if index + 1 >= pattern.least {
                reach.end = Some(furthest);
            }
        }
        reach
    }
}

impl Start {
    /// Whether it is not what these bytes are. Cheap, for the many whose first four bytes are the same by chance.
    fn is_ruled_out(&self, bytes: &[u8]) -> bool {
        self.then.is_some_and(|then| bytes.get(BEGINNING..2 * BEGINNING).is_some_and(|bytes| *bytes != then))
    }
}

impl Pattern {
    /// Whether an occurrence from this start was told already as the rest of one from the start before it.
    fn was_passed(&self, index: usize, bytes: &[u8], at: usize) -> bool {
        let Some(before) = index.checked_sub(1).map(|index| self.starts[index]) else { return false };
        let between = &self.marks[before..self.starts[index]];
        let Some(from) = at.checked_sub(between.len()) else { return false };
        between.iter().zip(&bytes[from..at]).all(|(mark, byte)| mark.is_plainly(*byte))
    }
}

fn marks(text: &str) -> Vec<Mark> {
    let mut marks = Vec::new();
    for letter in text.chars() {
        match (is_space(letter), marks.last()) {
            (true, Some(Mark::Gap)) => {}
            (true, Some(Mark::One(_)) | None) => marks.push(Mark::Gap),
            (false, _) => marks.push(Mark::One(letter)),
        }
    }
    marks
}

/// Where the last word of a line stands, as far as it could be encoded text.
fn last_word(line: &[u8]) -> Range<usize> {
    let end = line.trim_ascii_end().len();
    let word = line[..end].iter().rev().take_while(|byte| is_of_base64(**byte)).count();
    end - word..end
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

    fn learn(&mut self, beginning: [u8; BEGINNING]) {
        for (skip, pair) in (0..3).rev().zip(beginning.windows(2)) {
            let known = &mut self.by_pair[Skips::place(pair[0], pair[1])];
            *known = (*known).min(skip);
        }
    }

    fn after(&self, beginning: [u8; BEGINNING]) -> usize {
        usize::from(self.by_pair[Skips::place(beginning[2], beginning[3])])
    }
}

/// The hash of a key, for a map whose keys no stranger chooses: neighbours come to lie far apart.
#[derive(Default)]
struct Scattered(u64);

impl Hasher for Scattered {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, key: u32) {
        // Multiplied by 2^64 over the golden ratio. The map takes bits from both ends, and the low ones are few.
        let product = (self.0 ^ u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}
