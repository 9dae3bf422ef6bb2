//! An attack on the follower of outputs: however a text arrives, its lines are the same, and nothing in them acts on a
//! terminal.

use std::io::Write;

use crate::process::output::{Lines, PIECE, Piece, anywhere};

#[cfg(test)]
#[allow(clippy::duplicate_mod, reason = "each target has it for itself, so that no module of the crate is for tests")]
#[path = "../../tests/fuzz/mutate.rs"]
mod mutate;

/// A piece, as it was handed on.
type Said = (String, bool, bool, bool);

/// Reads what is there now.
fn read(lines: &mut Lines, said: &mut Vec<Said>, end: bool) {
    let mut keep = |piece: Piece<'_>| said.push((piece.text.into_owned(), piece.lossy, piece.first, piece.more));
    while lines.read(anywhere, &mut keep).expect("it is readable") > 0 {}
    if end {
        lines.rest(keep);
    }
}

/// Lets this arrive in parts, and reads it once more as a whole. A lot is a number up to the one that it is given.
///
/// # Panics
/// When the lines depend on how they arrived, when one was lost or made up, or when one could act on a terminal.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "only the fuzzers are outside"))]
pub fn check(input: &[u8], mut lot: impl FnMut(usize) -> usize) {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let mut bit_by_bit = Lines::open(file.path()).expect("it opens");
    let (mut came, mut whole) = (Vec::new(), Vec::new());
    let mut rest = input;
    while !rest.is_empty() {
        let (part, more) = rest.split_at(1 + lot(rest.len() - 1));
        file.write_all(part).expect("it can be written");
        read(&mut bit_by_bit, &mut came, false);
        rest = more;
    }
    read(&mut bit_by_bit, &mut came, true);
    read(&mut Lines::open(file.path()).expect("it opens"), &mut whole, true);
    assert_eq!(came, whole, "it depends on how it arrives");
    assert_eq!(bit_by_bit.offset(), input.len() as u64);
    let ends = whole.iter().filter(|(_, _, _, more)| !more).count();
    let lines = input.split(|byte| *byte == b'\n').count() - usize::from(input.is_empty() || input.ends_with(b"\n"));
    assert_eq!(ends, lines, "a line was lost, or made up");
    let mut begins = true;
    for (text, _, first, more) in &whole {
        assert!(text.chars().all(|letter| letter == '\t' || !letter.is_control()), "{text:?}");
        // What is not UTF-8 grows by two bytes a byte.
        assert!(text.len() <= 3 * PIECE, "{} bytes in one piece", text.len());
        assert_eq!(*first, begins, "a piece that begins a line says so, and no other");
        begins = !more;
    }
}

#[test]
fn however_an_output_arrives_its_lines_are_the_same_and_harmless() {
    mutate::attack("output", |input, dice| check(input, |most| dice.usize(..=most)));
}
