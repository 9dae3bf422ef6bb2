//! Reads a character however it is spelled.
//!
//! The spellings of a character are a tree, so that what they begin with in common is read once; and each of their own
//! characters may be spelled in turn, in as many layers as encodings lie in one another.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::redact::forms::{SPACES, is_plain, ways};

/// How many encodings may lie in one another.
const LAYERS: usize = 3;

/// How many characters one run of spaces may be spelled with.
const LONGEST_GAP: usize = 64;

/// The bytes by which needles are looked up. No needle has a spelling with fewer.
pub(super) const BEGINNING: usize = 4;

/// One or more characters of a needle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// This one.
    One(char),
    /// A run of spaces and ends of lines.
    Gap,
}

impl Mark {
    /// Whether it has no other spelling than itself.
    pub(super) fn is_plain(self) -> bool {
        match self {
            Mark::One(letter) => is_plain(letter),
            Mark::Gap => false,
        }
    }

    /// Whether it is this byte and has no other spelling.
    pub(super) fn is_plainly(self, byte: u8) -> bool {
        self == Mark::One(char::from(byte)) && is_plain(char::from(byte))
    }
}

/// The bytes of the first four marks, if these have no other spelling.
pub(super) fn plain_bytes(marks: &[Mark]) -> Option<[u8; BEGINNING]> {
    let byte = |mark: Mark| match mark {
        Mark::One(letter) if is_plain(letter) => u8::try_from(letter).ok(),
        Mark::One(_) | Mark::Gap => None,
    };
    let [a, b, c, d] = *marks.first_chunk()?;
    Some([byte(a)?, byte(b)?, byte(c)?, byte(d)?])
}

/// A part of a spelling, and how it goes on.
struct Twig {
    letter: char,
    is_end: bool,
    next: Vec<Twig>,
}

/// Up to four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Stem {
    bytes: [u8; BEGINNING],
    length: usize,
}

/// Knows the spellings of every character of every needle, and of every character of a spelling.
#[derive(Default)]
pub(super) struct Speller {
    trees: HashMap<char, Arc<[Twig]>>,
    /// By character, layers, and the bytes that there is room for.
    stems: HashMap<(char, usize, usize), Arc<[Stem]>>,
}

impl Speller {
    /// Learns a character and what its spellings are spelled with.
    pub(super) fn learn(&mut self, letter: char) {
        if is_plain(letter) || self.trees.contains_key(&letter) {
            return;
        }
        let ways = ways(letter);
        let tree = tree(ways.iter().map(String::as_str));
        self.trees.insert(letter, tree.into());
        ways.iter().flat_map(|way| way.chars()).for_each(|letter| self.learn(letter));
    }

    /// Adds where this mark ends that begins at `at`, once for each spelling that it may have there. Says whether the
    /// bytes end in the middle of one.
    pub(super) fn read(&self, mark: Mark, bytes: &[u8], at: usize, ends: &mut Vec<usize>) -> bool {
        match mark {
            Mark::One(letter) => self.read_letter(letter, bytes, at, LAYERS, ends),
            Mark::Gap => self.read_gap(bytes, at, ends),
        }
    }

    fn read_letter(&self, letter: char, bytes: &[u8], at: usize, layers: usize, ends: &mut Vec<usize>) -> bool {
        let rest = &bytes[at..];
        let Some(first) = rest.first() else { return true };
        let mut buffer = [0; 4];
        let raw = letter.encode_utf8(&mut buffer).as_bytes();
        let is_raw = rest.starts_with(raw);
        if is_raw {
            ends.push(at + raw.len());
        }
        let cut_off = !is_raw && raw.starts_with(rest);
        let Some(tree) = self.trees.get(&letter).filter(|_| layers > 0) else { return cut_off };
        // Every spelling of every character begins with one of the few that its own tree begins with.
        if tree.iter().all(|twig| twig.letter != char::from(*first)) {
            return cut_off;
        }
        cut_off | self.read_twigs(tree, bytes, at, layers - 1, ends)
    }

    fn read_twigs(&self, twigs: &[Twig], bytes: &[u8], at: usize, layers: usize, ends: &mut Vec<usize>) -> bool {
        let mut cut_off = false;
        for twig in twigs {
            let mut places = Vec::new();
            cut_off |= self.read_letter(twig.letter, bytes, at, layers, &mut places);
            for place in places {
                if twig.is_end {
                    ends.push(place);
                }
                cut_off |= self.read_twigs(&twig.next, bytes, place, layers, ends);
            }
        }
        cut_off
    }

    fn read_gap(&self, bytes: &[u8], at: usize, ends: &mut Vec<usize>) -> bool {
        let mut cut_off = false;
        let mut here = vec![at];
        for _ in 0..LONGEST_GAP {
            let mut next = Vec::new();
            for place in here {
                for space in SPACES {
                    cut_off |= self.read_letter(space, bytes, place, LAYERS, &mut next);
                }
            }
            next.retain(|end| !ends.contains(end));
            next.sort_unstable();
            next.dedup();
            if next.is_empty() {
                break;
            }
            ends.extend_from_slice(&next);
            here = next;
        }
        cut_off
    }

    /// The first bytes that these marks may have.
    pub(super) fn beginnings(&mut self, marks: &[Mark]) -> BTreeSet<[u8; BEGINNING]> {
        if let Some(plain) = plain_bytes(marks) {
            return BTreeSet::from([plain]);
        }
        let mut grown = BTreeSet::from([Stem::default()]);
        // No spelling has no bytes, so no more marks than bytes matter.
        for mark in marks.iter().take(BEGINNING) {
            let mut longer = BTreeSet::new();
            for stem in grown {
                self.grow(stem, *mark, &mut longer);
            }
            grown = longer;
        }
        grown.into_iter().filter(|stem| stem.length == BEGINNING).map(|stem| stem.bytes).collect()
    }

    /// Adds this stem with every spelling of the mark behind it.
    fn grow(&mut self, stem: Stem, mark: Mark, grown: &mut BTreeSet<Stem>) {
        let room = BEGINNING - stem.length;
        if room == 0 {
            grown.insert(stem);
            return;
        }
        let letters = match &mark {
            Mark::One(letter) => std::slice::from_ref(letter),
            Mark::Gap => SPACES.as_slice(),
        };
        for letter in letters {
            for spelled in self.stems(*letter, LAYERS, room).iter() {
                let longer = stem.and(*spelled);
                if grown.insert(longer) && mark == Mark::Gap {
                    self.grow(longer, mark, grown);
                }
            }
        }
    }

    /// The spellings of a character, cut to this many bytes.
    fn stems(&mut self, letter: char, layers: usize, room: usize) -> Arc<[Stem]> {
        if let Some(known) = self.stems.get(&(letter, layers, room)) {
            return known.clone();
        }
        let mut buffer = [0; 4];
        let raw = letter.encode_utf8(&mut buffer).as_bytes();
        let mut stems = BTreeSet::from([Stem::default().with(&raw[..raw.len().min(room)])]);
        if let Some(tree) = self.trees.get(&letter).filter(|_| layers > 0).cloned() {
            self.stems_along(&tree, Stem::default(), (layers - 1, room), &mut stems);
        }
        let stems: Arc<[Stem]> = stems.into_iter().collect();
        self.stems.insert((letter, layers, room), stems.clone());
        stems
    }

    fn stems_along(&mut self, twigs: &[Twig], stem: Stem, limits: (usize, usize), stems: &mut BTreeSet<Stem>) {
        let (layers, room) = limits;
        for twig in twigs {
            for spelled in self.stems(twig.letter, layers, room - stem.length).iter() {
                let longer = stem.and(*spelled);
                if twig.is_end || longer.length == room {
                    stems.insert(longer);
                }
                if longer.length < room {
                    self.stems_along(&twig.next, longer, limits, stems);
                }
            }
        }
    }
}

/// The tree of these texts, which are in order.
fn tree<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<Twig> {
    let mut twigs: Vec<Twig> = Vec::new();
    for text in texts {
        let mut twigs = &mut twigs;
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            if twigs.last().is_none_or(|twig| twig.letter != letter) {
                twigs.push(Twig { letter, is_end: false, next: Vec::new() });
            }
            let twig = twigs.last_mut().expect("one was pushed if there was none");
            twig.is_end |= letters.peek().is_none();
            twigs = &mut twig.next;
        }
    }
    twigs
}

impl Stem {
    fn and(self, other: Stem) -> Stem {
        self.with(&other.bytes[..other.length])
    }

    fn with(mut self, bytes: &[u8]) -> Stem {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        self
    }
}
