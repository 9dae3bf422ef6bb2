//! Lines that fit a terminal, for what is told without a run: whose lock it is, and what is known about its holder.
//!
//! A fact is `  name:   value`. What does not fit goes on below the value, so that the names stay in a column of their
//! own. A command between backquotes is for copying and stays in one piece.

/// The text in lines of at most this many columns, words longer than that excepted.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    text.split('\n').map(|line| wrap(line, width)).collect::<Vec<_>>().join("\n")
}

fn wrap(line: &str, width: usize) -> String {
    let hang = value_column(line);
    let mut wrapped = String::new();
    let mut at = 0;
    for (index, word) in words(line).into_iter().enumerate() {
        let columns = word.chars().count();
        if at > hang && at + 1 + columns > width {
            wrapped.push('\n');
            wrapped.push_str(&" ".repeat(hang));
            at = hang;
        } else if index > 0 {
            wrapped.push(' ');
            at += 1;
        }
        wrapped.push_str(word);
        at += columns;
    }
    wrapped
}

/// Where the value of a fact begins; the beginning of the line when it is none.
fn value_column(line: &str) -> usize {
    let Some((name, value)) = line.split_once(": ").filter(|(name, _)| name.starts_with("  ")) else { return 0 };
    let gap = value.len() - value.trim_start().len();
    name.chars().count() + 2 + gap
}

/// What stands between single spaces; two spaces in a row have an empty word between them. What is between backquotes is
/// one word.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut begin, mut quoted) = (0, false);
    for (place, letter) in line.char_indices() {
        match letter {
            '`' => quoted = !quoted,
            ' ' if !quoted => {
                words.push(&line[begin..place]);
                begin = place + 1;
            }
            _ => {}
        }
    }
    words.push(&line[begin..]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_stays_as_it_is() {
        for text in ["", "the lock is held\n  held by:    alice\n  next:       nothing\n", "a  b"] {
            assert_eq!(wrapped(text, 40), text);
        }
    }

    #[test]
    fn a_value_goes_on_below_itself_and_a_command_stays_whole() {
        let text = "the lock is held\n  looks:      stale: not renewed within its 60 s\n  next:       only then: `dcctl instances reclaim`";
        let expected = "the lock is held\n  looks:      stale: not\n              renewed within\n              its 60 s\n  \
                        next:       only then:\n              `dcctl instances reclaim`";
        assert_eq!(wrapped(text, 28), expected);
    }

    #[test]
    fn a_sentence_goes_on_at_the_beginning() {
        assert_eq!(wrapped("one two three", 8), "one two\nthree");
    }
}
