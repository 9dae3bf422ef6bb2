//! YAML as written: every value with the line and column where it stands.
//!
//! serde alone would stop at the first mistake and lose the position of a value once it is read. A tree keeps both,
//! so that everything wrong with a file can be said at once, also what is found out much later: a placeholder deep
//! in a list, a path that is not there.

use std::cell::Cell;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

/// Where a value stands in its file; both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) at: Position,
    pub(crate) kind: Kind,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    /// A text from outside whose type nobody said: it fits a text, and a number or the like that it spells.
    Untyped(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
    /// A text whose placeholders have no value in this run. It fits every type, because nobody uses it.
    Open,
}

/// A key of a map and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Key {
    pub(crate) at: Position,
    pub(crate) name: String,
}

/// How many keys, values and elements a text may have, those that aliases repeat included. What people write by hand
/// has some hundreds.
pub(crate) const MOST_NODES: usize = 20_000;

/// How deep lists and maps may lie in one another, aliases written out. Each level takes some of the stack.
const DEEPEST: usize = 32;
/// What the YAML library is told of a level beyond that; it passes our words on.
const TOO_DEEP: &str = "deeper than anything that is read";
/// What its parser says of brackets that are deeper than it follows at all.
const PARSERS_LIMIT: &str = "recursion limit exceeded";

/// Why a text is not YAML that we can use.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Malformed {
    /// Where, if the parser could tell.
    pub(crate) at: Option<Position>,
    /// What is wrong. It may name a key, but quotes no value: the file may hold secrets.
    pub(crate) why: String,
}

impl Node {
    /// Reads one YAML document; JSON is YAML too.
    pub(crate) fn parse(text: &str) -> Result<Node, Malformed> {
        let options = serde_saphyr::options! {
            with_snippet: false,
            strict_booleans: true,
            leading_zero_numbers_as_strings: true,
            budget: serde_saphyr::budget! { max_nodes: MOST_NODES },
            alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MOST_NODES },
        };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| Malformed::of(&error))
    }

    /// What people call a value of this kind.
    pub(crate) fn noun(&self) -> &'static str {
        match &self.kind {
            Kind::Null => "nothing",
            Kind::Bool(_) => "true or false",
            Kind::Number(_) => "a number",
            Kind::Text(_) | Kind::Untyped(_) => "text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
            Kind::Open => "a value that is not known yet",
        }
    }

    /// The entries, if this is a map.
    pub(crate) fn map(&self) -> Option<&[(Key, Node)]> {
        match &self.kind {
            Kind::Map(entries) => Some(entries),
            Kind::Null
            | Kind::Bool(_)
            | Kind::Number(_)
            | Kind::Text(_)
            | Kind::Untyped(_)
            | Kind::List(_)
            | Kind::Open => None,
        }
    }

    /// The text, if this is one that the bundle itself has.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            Kind::Null
            | Kind::Bool(_)
            | Kind::Number(_)
            | Kind::Untyped(_)
            | Kind::List(_)
            | Kind::Map(_)
            | Kind::Open => None,
        }
    }

    /// The value of a key, if this is a map that has it.
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        self.map()?.iter().find(|(key, _)| key.name == name).map(|(_, node)| node)
    }

    /// The same without positions. What is open becomes null.
    pub(crate) fn value(&self) -> Value {
        match &self.kind {
            Kind::Null | Kind::Open => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(number) => Value::Number(number.clone()),
            Kind::Text(text) | Kind::Untyped(text) => Value::String(text.clone()),
            Kind::List(items) => Value::Array(items.iter().map(Node::value).collect()),
            Kind::Map(entries) => {
                Value::Object(entries.iter().map(|(key, node)| (key.name.clone(), node.value())).collect::<Map<_, _>>())
            }
        }
    }

    /// A value that came from elsewhere and now stands here.
    pub(crate) fn from_value(value: &Value, at: Position) -> Node {
        let kind = match value {
            Value::Null => Kind::Null,
            Value::Bool(value) => Kind::Bool(*value),
            Value::Number(number) => Kind::Number(number.clone()),
            Value::String(text) => Kind::Text(text.clone()),
            Value::Array(items) => Kind::List(items.iter().map(|item| Node::from_value(item, at)).collect()),
            Value::Object(entries) => Kind::Map(
                entries
                    .iter()
                    .map(|(name, value)| (Key { at, name: name.clone() }, Node::from_value(value, at)))
                    .collect(),
            ),
        };
        Node { at, kind }
    }
}

impl Malformed {
    fn of(error: &serde_saphyr::Error) -> Malformed {
        use serde_saphyr::Error;
        use serde_saphyr::budget::BudgetBreach;
        let mut cause = error;
        while let Error::AliasError { error, .. } = cause {
            cause = error;
        }
        let why = match cause {
            Error::DuplicateMappingKey { key: Some(key), .. } => format!("the key `{key}` is there twice"),
            Error::DuplicateMappingKey { key: None, .. } => "a key is there twice".to_owned(),
            Error::MultipleDocuments { .. } => {
                "there is a second YAML document (`---`), and one belongs here".to_owned()
            }
            Error::NonFiniteFloat { .. } => "a number has to be finite".to_owned(),
            Error::NullIntoString { .. } | Error::Unexpected { expected: "string scalar", .. } => {
                "a key has to be text".to_owned()
            }
            Error::Budget { breach: BudgetBreach::Nodes { .. }, .. } | Error::AliasReplayLimitExceeded { .. } => {
                format!("it has more than {MOST_NODES} keys, values and elements, and nothing that large is read")
            }
            Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => too_deep(),
            other if [TOO_DEEP, PARSERS_LIMIT].iter().any(|words| other.to_string().contains(words)) => too_deep(),
            other => plain(&other.to_string()),
        };
        Malformed { at: error.location().map(Position::of).filter(|at| at.line > 0), why }
    }
}

fn too_deep() -> String {
    format!("its lists and maps are more than {DEEPEST} deep in one another, and nothing that deep is read")
}

/// A message of the parser without the position that it ends with.
fn plain(message: &str) -> String {
    let sentence = message.rsplit_once(" at line ").map_or(message, |(sentence, _)| sentence);
    format!("this is not YAML: {sentence}")
}

impl Position {
    fn of(location: serde_saphyr::Location) -> Position {
        Position { line: location.line(), column: location.column() }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        let spanned = Spanned::<Kind>::deserialize(deserializer)?;
        Ok(Node { at: Position::of(spanned.referenced), kind: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        let spanned = Spanned::<String>::deserialize(deserializer)?;
        Ok(Key { at: Position::of(spanned.referenced), name: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

struct KindVisitor;

thread_local! {
    /// In how many lists and maps the value lies that is being read on this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// One list or map that is being read.
struct Level;

impl Level {
    fn enter<E: serde::de::Error>() -> Result<Level, E> {
        if DEPTH.get() == DEEPEST {
            return Err(E::custom(TOO_DEEP));
        }
        DEPTH.set(DEPTH.get() + 1);
        Ok(Level)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

impl<'de> Visitor<'de> for KindVisitor {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_none<E>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
        Kind::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Kind, E> {
        Number::from_f64(value).map(Kind::Number).ok_or_else(|| E::custom("a number has to be finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Kind, E> {
        Ok(Kind::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Kind, A::Error> {
        let _level = Level::enter()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Kind::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Kind, A::Error> {
        let _level = Level::enter()?;
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Kind::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fmt::Write as _;

    fn position(line: u64, column: u64) -> Position {
        Position { line, column }
    }

    #[test]
    fn every_value_keeps_its_type_and_its_place() {
        let text = "a: 1\nb:\n  - x\n  - { c: yes, d: true, e: ~, f: 0755, g: 1.5 }\nh: \"${i}\"\n";
        let tree = Node::parse(text).expect("YAML");
        assert_eq!(
            tree.value(),
            json!({"a": 1, "b": ["x", {"c": "yes", "d": true, "e": null, "f": "0755", "g": 1.5}], "h": "${i}"})
        );
        assert_eq!(tree.get("a").map(|node| node.at), Some(position(1, 4)));
        assert_eq!(tree.get("h").map(|node| node.at), Some(position(5, 4)));
        let Some(Kind::List(items)) = tree.get("b").map(|node| &node.kind) else { panic!("a list") };
        assert_eq!(items[0].at, position(3, 5));
        assert_eq!(items[1].get("d").map(|node| node.at), Some(position(4, 18)));
    }

    #[test]
    fn anchors_and_merges_are_understood() {
        let tree = Node::parse("a: &x { k: 1 }\nb: *x\nc: { <<: *x, m: 2 }\n").expect("YAML");
        assert_eq!(tree.value(), json!({"a": {"k": 1}, "b": {"k": 1}, "c": {"m": 2, "k": 1}}));
    }

    #[test]
    fn what_is_not_yaml_says_where_and_why() {
        let cases = [
            ("a: 1\na: 2\n", (2, 1), "the key `a` is there twice"),
            ("a: [1,\n", (1, 4), "this is not YAML: unclosed bracket '['"),
            ("a: b: c\n", (1, 5), "this is not YAML: mapping values are not allowed in this context"),
            ("a: \"x\nb: 1\n", (1, 4), "this is not YAML: unclosed quote"),
            ("a: 1\n---\nb: 2\n", (3, 1), "there is a second YAML document (`---`), and one belongs here"),
            ("a: .nan\n", (1, 4), "a number has to be finite"),
            ("~: b\n", (1, 1), "a key has to be text"),
            ("{x}: b\n", (1, 1), "a key has to be text"),
            ("a: *nowhere\n", (1, 4), "this is not YAML: alias references unknown anchor"),
        ];
        for (text, (line, column), why) in cases {
            let malformed = Node::parse(text).expect_err(text);
            assert_eq!((malformed.at, malformed.why.as_str()), (Some(position(line, column)), why), "{text}");
        }
    }

    #[test]
    fn what_lies_too_deep_is_refused_and_never_overflows_the_stack() {
        let nested =
            |open: &str, close: &str, levels: usize| format!("a: {}1{}", open.repeat(levels), close.repeat(levels));
        for (open, close) in [("{a: ", "}"), ("[", "]")] {
            assert!(Node::parse(&nested(open, close, DEEPEST - 1)).is_ok());
            for levels in [DEEPEST, 50, 100, 100_000] {
                let malformed = Node::parse(&nested(open, close, levels)).expect_err("it is too deep");
                assert!(malformed.why.contains("more than 32 deep"), "{malformed:?}");
            }
        }
        // Each alias hides some levels.
        let mut text = "a0: &a0 {b: {b: {b: {b: 1}}}}\n".to_owned();
        for level in 1..12 {
            let below = level - 1;
            writeln!(text, "a{level}: &a{level} {{b: {{b: {{b: {{b: *a{below}}}}}}}}}")
                .expect("a String takes every write");
        }
        let malformed = Node::parse(&text).expect_err("it is too deep");
        assert!(malformed.why.contains("more than 32 deep"), "{malformed:?}");
    }
}
