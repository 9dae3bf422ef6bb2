//! Credentials that nobody gave to dcctl, and that what stands before them gives away: the password in an address, and
//! what follows `Bearer` or, in a header, `Basic`.
//!
//! Tools print these in their errors: a state backend its address, a client the headers of the request that failed.
//! Nobody knows such a value beforehand, so it is told by its place alone; and as English has the same words, what follows
//! them has to look like a credential.

use std::ops::Range;

/// A bearer token has at least this many characters, one of which is a digit.
const SHORTEST_TOKEN: usize = 16;

/// How far before `Basic` the name of its header may begin.
const HEADER: usize = 20;

/// Where such credentials stand in a text, in no particular order.
pub(super) fn covered(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    // Each is one quick look at a text that has none of it, as nearly every text.
    if text.contains("://") {
        found.extend(text.match_indices("://").filter_map(|(at, sign)| password(text, at + sign.len())));
    }
    for (word, is_credential) in [("earer ", is_token as fn(&str, usize, &str) -> bool), ("asic ", is_basic)] {
        if text.contains(word) {
            let after = |(at, _)| {
                credential(text, at, word.len()).filter(|range| is_credential(text, at, &text[range.clone()]))
            };
            found.extend(text.match_indices(word).filter_map(after));
        }
    }
    found
}

/// The password of an address whose part after `://` begins here.
fn password(text: &str, begin: usize) -> Option<Range<usize>> {
    let ends = |letter: char| letter.is_whitespace() || "/?#\"'<>`\\".contains(letter);
    let rest = &text[begin..];
    let authority = &rest[..rest.find(ends).unwrap_or(rest.len())];
    let user = &authority[..authority.rfind('@')?];
    let colon = user.find(':')?;
    (colon + 1 < user.len()).then(|| begin + colon + 1..begin + user.len())
}

/// What follows a word that begins with a `B` of either size before `at`.
fn credential(text: &str, at: usize, length: usize) -> Option<Range<usize>> {
    let begins = at.checked_sub(1).is_some_and(|first| matches!(text.as_bytes()[first], b'B' | b'b'));
    let rest = text[at + length..].trim_start_matches(' ');
    let begin = text.len() - rest.len();
    let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && !"-._~+/=".contains(letter));
    let range = begin..begin + end.unwrap_or(rest.len());
    (begins && !range.is_empty()).then_some(range)
}

fn is_token(_: &str, _: usize, value: &str) -> bool {
    value.len() >= SHORTEST_TOKEN && value.bytes().any(|byte| byte.is_ascii_digit())
}

/// `Basic` is a word of every day, unless a header begins with it.
fn is_basic(text: &str, at: usize, _: &str) -> bool {
    let before = &text.as_bytes()[at.saturating_sub(HEADER)..at];
    before.windows("uthorization".len()).any(|seen| seen == b"uthorization")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_a_credential_gives_it_away() {
        for (text, hidden) in [
            ("GET https://ci:hunter2@forge.example/state: 401", Some("hunter2")),
            ("postgres://app:p%40ss:w@db/main?x=a@b", Some("p%40ss:w")),
            ("\"http://u:pw@x\"", Some("pw")),
            ("Authorization:[Bearer eyJhbGciOi.J9.x-_]", Some("eyJhbGciOi.J9.x-_")),
            ("bearer  0123456789abcdef is wrong", Some("0123456789abcdef")),
            ("Authorization: Basic dTpw", Some("dTpw")),
            ("\"authorization\": \"basic dTpw=\"", Some("dTpw=")),
            ("https://forge.example/a:b@c and ssh://git@forge.example", None),
            ("https://[::1]:6443/x http://u:@x ://", None),
            ("the Bearer authenticationscheme, a bearer token, forbearer 1", None),
            ("Basic configuration1, basically ü://ü:ü", None),
        ] {
            let found: Vec<&str> = covered(text).into_iter().map(|range| &text[range]).collect();
            assert_eq!(found, hidden.into_iter().collect::<Vec<_>>(), "{text}");
        }
    }
}
