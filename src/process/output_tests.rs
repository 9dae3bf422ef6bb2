//! What becomes of everything a tool may print.

use super::*;
use std::io::Write;

/// A line as it was put together again, and whether any piece of it was lossy.
type Whole = (String, bool);

struct Printed {
    file: tempfile::NamedTempFile,
    lines: Lines,
}

impl Printed {
    fn new() -> Printed {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let lines = Lines::open(file.path()).expect("it opens");
        Printed { file, lines }
    }

    fn print(&mut self, bytes: &[u8]) {
        self.file.write_all(bytes).expect("written");
    }

    fn pieces(&mut self) -> Vec<Piece<'static>> {
        let mut pieces = Vec::new();
        let mut keep = |piece: Piece<'_>| {
            pieces.push(Piece { text: Cow::Owned(piece.text.into_owned()), ..piece });
        };
        while self.lines.read(anywhere, &mut keep).expect("readable") > 0 {}
        pieces
    }

    fn finished(mut self) -> Vec<Whole> {
        let mut pieces = self.pieces();
        self.lines.rest(|piece| pieces.push(Piece { text: Cow::Owned(piece.text.into_owned()), ..piece }));
        whole(&pieces)
    }
}

fn whole(pieces: &[Piece<'_>]) -> Vec<Whole> {
    let mut lines: Vec<Whole> = Vec::new();
    let mut open = false;
    for piece in pieces {
        assert_eq!(piece.first, !open, "a piece says whether it begins its line");
        assert!(piece.text.len() <= PIECE * 3, "a piece has an end");
        if piece.first {
            lines.push((String::new(), false));
        }
        let (text, lossy) = lines.last_mut().expect("a first piece came before");
        text.push_str(&piece.text);
        *lossy |= piece.lossy;
        open = piece.more;
    }
    lines
}

fn printed(bytes: &[u8]) -> Vec<Whole> {
    let mut printed = Printed::new();
    printed.print(bytes);
    printed.finished()
}

fn text(bytes: &[u8]) -> Vec<String> {
    printed(bytes).into_iter().map(|(text, _)| text).collect()
}

#[test]
fn lines_come_without_their_ends_and_the_last_one_needs_none() {
    assert_eq!(text(b"one\ntwo\r\n\nthree"), ["one", "two", "", "three"]);
    assert_eq!(text(b""), [""; 0]);
    assert_eq!(text(b"\n"), [""]);
}

#[test]
fn a_line_is_handed_on_when_it_is_finished_and_not_before() {
    let mut printed = Printed::new();
    printed.print(b"{\"half\":");
    assert_eq!(printed.pieces(), []);
    printed.print(b"1}\nnext");
    assert_eq!(whole(&printed.pieces()), [("{\"half\":1}".to_owned(), false)]);
    assert_eq!(printed.finished(), [("next".to_owned(), false)]);
}

#[test]
fn a_progress_bar_is_its_last_state() {
    assert_eq!(text(b"10%\r20%\r30%\r\nnext\n"), ["30%", "next"]);
    assert_eq!(text(b"\r\r\n"), [""]);
}

#[test]
fn control_sequences_are_taken_out() {
    assert_eq!(text(b"\x1b[1;31mred\x1b[0m and \x1b]8;;http://x\x07link\x1b]8;;\x1b\\\n"), ["red and link"]);
    assert_eq!(text("\u{9b}31mc1\u{85}\u{7f} tab\tstays\x08\n".as_bytes()), ["c1 tab\tstays"]);
    assert_eq!(text(b"\x1b(Bcharset \x1b[?25lhidden\x1b7 cut \x1b["), ["charset hidden cut "]);
}

#[test]
fn what_is_not_utf_8_is_shown_and_said() {
    assert_eq!(printed(b"ok\n\xff\xfe bad\n"), [("ok".to_owned(), false), ("\u{fffd}\u{fffd} bad".to_owned(), true)]);
}

#[test]
fn an_endless_line_comes_in_pieces_and_takes_no_memory() {
    let mut printed = Printed::new();
    let long = "x".repeat(100_000);
    printed.print(long.as_bytes());
    let pieces = printed.pieces();
    assert_eq!(pieces.len(), 100_000 / PIECE);
    assert!(pieces.iter().all(|piece| piece.more && piece.text.len() == PIECE));
    assert!(printed.lines.carry.capacity() <= 2 * PIECE);
    printed.print(b"end\nnext\n");
    let rest = printed.pieces();
    assert_eq!(rest.len(), 2);
    assert!(rest[0].text.ends_with("xend") && !rest[0].more && !rest[0].first);
    assert!(rest[1].first);
}

#[test]
fn pieces_are_cut_between_characters_at_every_offset() {
    for shift in 0..8 {
        for character in ["é", "€", "🙂"] {
            let line = format!("{}{}", "x".repeat(shift), character.repeat(PIECE));
            assert_eq!(printed(line.as_bytes()), [(line.clone(), false)], "shift {shift} {character}");
        }
    }
}

#[test]
fn a_control_sequence_is_not_cut_in_two() {
    for shift in 0..12 {
        let line = format!("{}\x1b[38;5;196mred\x1b[0m", "x".repeat(PIECE - shift));
        assert_eq!(text(line.as_bytes()), [format!("{}red", "x".repeat(PIECE - shift))], "shift {shift}");
    }
    let escapes = "\x1b".repeat(3 * PIECE);
    assert_eq!(text(escapes.as_bytes()), [""]);
}

#[test]
fn lines_of_every_length_survive_the_edges_of_blocks() {
    let lengths = [0, 1, PIECE - 1, PIECE, PIECE + 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3];
    let lines: Vec<String> = lengths.iter().map(|length| "y".repeat(*length)).collect();
    assert_eq!(text(lines.join("\n").as_bytes()), lines);
    assert_eq!(text(lines.join("\r\n").as_bytes()), lines);
}

#[test]
fn bytes_without_sense_are_read_to_their_end() {
    let mut dice = fastrand::Rng::with_seed(1);
    for _ in 0..50 {
        let bytes: Vec<u8> = (0..70_000)
            // Few line ends, so that pieces are cut too.
            .map(|_| if dice.u16(..1000) == 0 { b'\n' } else { dice.u8(..) })
            .collect();
        let mut printed = Printed::new();
        printed.print(&bytes);
        for (text, _) in printed.finished() {
            assert!(!text.chars().any(|character| character.is_control() && character != '\t'));
        }
    }
}

#[test]
fn a_secret_with_colour_in_it_is_not_cut_in_two() {
    let redactor = crate::redact::Redactor::default();
    redactor.add("password", "zebra-crossing");
    for colour in ["", "\x1b[1;31m", "\x1b]8;;http://127.0.0.1/\x07", "\0", "\\u001b[0m"] {
        let secret = format!("zebra{colour}-cross{colour}ing");
        for before in (0..=secret.len() + 2).step_by(2) {
            let line = format!("{}{secret}{}\n", "x".repeat(PIECE - before), "y".repeat(100));
            let mut printed = Printed::new();
            printed.print(line.as_bytes());
            let mut pieces: Vec<String> = Vec::new();
            let mut hide = |piece: Piece<'_>| pieces.push(redactor.text(&piece.text).into_owned());
            while printed.lines.read(|line, at| redactor.safe_cut(line, at), &mut hide).expect("readable") > 0 {}
            assert!(pieces.len() > 1, "the line is longer than a piece");
            let shown = pieces.concat();
            assert_eq!(shown.trim_matches(['x', 'y']), "[redacted]", "{colour:?}, {before} bytes before the border");
        }
    }
}

#[test]
fn a_long_line_is_cut_only_where_it_may_be() {
    // Nothing in it may be cut but the places between its letters `b`.
    let cut = |line: &[u8], at: usize| line[..at].iter().rposition(|byte| *byte == b'b').map_or(0, |place| place + 1);
    let read = |bytes: &[u8]| {
        let mut printed = Printed::new();
        printed.print(bytes);
        let mut pieces: Vec<String> = Vec::new();
        while printed.lines.read(cut, |piece| pieces.push(piece.text.into_owned())).expect("readable") > 0 {}
        printed.lines.rest(|piece| pieces.push(piece.text.into_owned()));
        pieces
    };
    let long = "a".repeat(PIECE - 10) + "b" + &"a".repeat(20) + "\n";
    assert_eq!(read(long.as_bytes()).iter().map(String::len).collect::<Vec<_>>(), [PIECE - 9, 20]);
    // What may not be cut at all is one piece, however long, up to a bound.
    let whole = "a".repeat(5 * PIECE);
    assert_eq!(read(whole.as_bytes()), std::slice::from_ref(&whole));
    assert_eq!(read((whole.clone() + "\nb").as_bytes()), [whole, "b".to_owned()]);
    let endless = read(&vec![b'a'; LONGEST + PIECE]);
    assert_eq!(endless.concat().len(), LONGEST + PIECE);
    assert!(endless.iter().all(|piece| piece.len() <= LONGEST), "nothing grows without a bound");
}
