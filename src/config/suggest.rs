//! "Did you mean …?": the known word that a mistyped one is nearest to.

/// The nearest of the known words, if it is near enough to be what was meant.
pub(crate) fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = plain(typed);
    let limit = (typed.len() / 3).max(1);
    known
        .into_iter()
        .map(|word| (distance(&typed, &plain(word)), word))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, word)| word)
}

/// Case, spaces, hyphens and underscores are what people mix up first: `max-connections`, `maxconnections`.
fn plain(word: &str) -> Vec<char> {
    word.chars().filter(|letter| !matches!(letter, ' ' | '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// How many letters have to be put in, left out, replaced, or swapped with their neighbour.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, letter) in left.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, other) in right.iter().enumerate() {
            let replaced = row[j] + usize::from(letter != other);
            let mut best = replaced.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *letter == right[j - 1] && left[i - 1] == *other {
                best = best.min(before[j - 1] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood_and_a_guess_is_not_made() {
        let known = ["path", "release", "namespace", "values", "maxConnections"];
        let cases = [
            ("pth", Some("path")),
            ("paht", Some("path")),
            ("Path", Some("path")),
            ("name_space", Some("namespace")),
            ("max-connections", Some("maxConnections")),
            ("valuse", Some("values")),
            ("timeout", None),
            ("", None),
        ];
        for (typed, expected) in cases {
            assert_eq!(nearest(typed, known), expected, "{typed}");
        }
    }
}
