//! Text of strangers as it may stand in a page: nothing in it acts, hides, or turns the text around it.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::event::text::plain;

/// The text without escape sequences and control characters, and with a name in the place of each character that changes
/// the direction of what follows: such a one makes a line read as what it is not.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let text = plain(text);
    if text.is_ascii() || !text.contains(turns) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if turns(letter) {
            write!(shown, "[U+{:04X}]", u32::from(letter)).expect("a String takes everything");
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

fn turns(letter: char) -> bool {
    matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_turn_the_text_around_is_named() {
        assert_eq!(visible("a\u{202e}b\u{2066}c"), "a[U+202E]b[U+2066]c");
        assert_eq!(visible("\u{1b}[31mred\u{1b}[0m\u{7}"), "red\u{fffd}");
        assert!(matches!(visible("ü ✓ 中"), Cow::Borrowed(_)));
    }
}
