//! Chart values by their dotted key: `ingress.hosts` is `hosts` in `ingress`.
//!
//! A dot that belongs to a name is written `\.`, as with Helm's `--set`: `podAnnotations.prometheus\.io/scrape`.
//! Unlike `--set`, an element of a list has no key of its own: a list is given whole.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde_json::{Map, Value};

/// How deep a value may lie.
const DEEPEST: usize = 32;

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
    if names.len() > DEEPEST {
        return Err("has more than 32 names in it");
    }
    if names.iter().any(|name| name.ends_with(']')) {
        return Err("names an element of a list; give the whole list");
    }
    Ok(names)
}

/// Keys of which none overwrites another, each with something about it.
#[derive(Debug)]
pub(crate) struct Distinct<T>(BTreeMap<Vec<String>, T>);

impl<T> Default for Distinct<T> {
    fn default() -> Distinct<T> {
        Distinct(BTreeMap::new())
    }
}

impl<T> Distinct<T> {
    /// What is there about a key that overwrites this one or is overwritten by it: they are the same, or one is above
    /// the other.
    pub(crate) fn collides(&self, names: &[String]) -> Option<&T> {
        let same_or_above = (1..=names.len()).find_map(|length| self.0.get(&names[..length]));
        same_or_above.or_else(|| {
            // What is below a key comes right behind it.
            let behind = self.0.range::<[String], _>((Bound::Excluded(names), Bound::Unbounded)).next();
            behind.filter(|(below, _)| below.starts_with(names)).map(|(_, about)| about)
        })
    }

    /// Adds a key.
    pub(crate) fn insert(&mut self, names: Vec<String>, about: T) {
        self.0.insert(names, about);
    }
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
        assert!(segments(&["a"; DEEPEST].join(".")).is_ok());
        assert!(segments(&["a"; DEEPEST + 1].join(".")).is_err());
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
        let mut keys = Distinct::default();
        for key in ["a.b", "c.d.e", "c.d.f", "ab.c", "z"] {
            keys.insert(segments(key).expect("good"), key);
        }
        let collides = |key| keys.collides(&segments(key).expect("good")).copied();
        for (key, with) in
            [("a.b", "a.b"), ("a", "a.b"), ("a.b.c", "a.b"), ("c", "c.d.e"), ("c.d", "c.d.e"), ("z.y", "z")]
        {
            assert_eq!(collides(key), Some(with), "{key}");
        }
        for key in ["a.c", "ab", "abc", "c.d.g", "c.de", "x"] {
            assert_eq!(collides(key).filter(|_| key != "ab"), None, "{key}");
        }
    }
}
