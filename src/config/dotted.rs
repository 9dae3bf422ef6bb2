//! Chart values by their dotted key: `ingress.hosts` is `hosts` in `ingress`.
//!
//! A dot that belongs to a name is written `\.`, as with Helm's `--set`: `podAnnotations.prometheus\.io/scrape`.
//! Unlike `--set`, an element of a list has no key of its own: a list is given whole.

use serde_json::{Map, Value};

/// The names along a dotted key, outermost first. The error ends a sentence that begins with the key.
pub fn segments(key: &str) -> Result<Vec<String>, &'static str> {
    let mut names = vec![String::new()];
    let mut letters = key.chars().peekable();
    while let Some(letter) = letters.next() {
        let last = names.last_mut().expect("there is always a last name");
        match letter {
            '\\' => match letters.next_if(|next| matches!(next, '.' | '\\')) {
                Some(escaped) => last.push(escaped),
                None => last.push('\\'),
            },
            '.' => names.push(String::new()),
            _ => last.push(letter),
        }
    }
    if names.iter().any(String::is_empty) {
        return Err("has an empty name in it");
    }
    if names.iter().any(|name| name.ends_with(']')) {
        return Err("names an element of a list; give the whole list");
    }
    Ok(names)
}

/// Two keys of which one overwrites the other: they are the same, or one is above the other.
pub(crate) fn collide(left: &[String], right: &[String]) -> bool {
    let both = left.len().min(right.len());
    left[..both] == right[..both]
}

/// Puts a value where its key says, among those that are there. What stood in its way is replaced.
pub fn insert(values: &mut Map<String, Value>, names: &[String], value: Value) {
    match names {
        [] => {}
        [name] => {
            values.insert(name.clone(), value);
        }
        [name, rest @ ..] => {
            let below = values.entry(name.clone()).or_insert(Value::Null);
            if !below.is_object() {
                *below = Value::Object(Map::new());
            }
            if let Value::Object(below) = below {
                insert(below, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_key_is_cut_at_its_dots() {
        let read = |key| segments(key).expect("a good key").join("|");
        assert_eq!(read("a"), "a");
        assert_eq!(read("instance.id"), "instance|id");
        assert_eq!(read(r"annotations.prometheus\.io/scrape"), "annotations|prometheus.io/scrape");
        assert_eq!(read(r"a\\.b\c"), r"a\|b\c");
        for bad in ["", ".", "a.", ".a", "a..b", "list[0]", "list[0].name"] {
            assert!(segments(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_land_side_by_side() {
        let mut values = Map::new();
        for (key, value) in [("a.b", json!(1)), ("a.c.d", json!("x")), ("e", json!([2]))] {
            insert(&mut values, &segments(key).expect("a good key"), value);
        }
        assert_eq!(Value::Object(values), json!({"a": {"b": 1, "c": {"d": "x"}}, "e": [2]}));
    }

    #[test]
    fn keys_collide_when_one_is_above_the_other() {
        let collides = |left, right| collide(&segments(left).expect("good"), &segments(right).expect("good"));
        assert!(collides("a.b", "a.b") && collides("a", "a.b") && collides("a.b.c", "a.b"));
        assert!(!collides("a.b", "a.c") && !collides("ab", "a"));
    }
}
