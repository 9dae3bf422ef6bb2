//! `${instance}`, `${var.NAME}` and the like in the values of `bundle.yaml`.
//!
//! Pure: a text and a lookup in, a value out. A text that is one placeholder and nothing else becomes what the
//! placeholder stands for, with its type; elsewhere the value is put into the text. `$${` is a plain `${`. What a
//! placeholder brings in is not looked at again, and keys are left as they are.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::config::suggest;
use crate::config::tree::{Kind, Node};
use crate::failure::Code;

/// The placeholders besides `${var.NAME}`.
pub(crate) const KNOWN: [&str; 6] = ["instance", "kube_context", "kubeconfig", "namespace", "version", "run_id"];

/// What a placeholder stands for, here and now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Meaning {
    /// This value.
    Is(Value),
    /// This text, whose type nobody said.
    Untyped(String),
    /// Something that this run neither knows nor needs.
    Open,
    /// Nothing: what is wrong.
    Wrong(Code, String),
}

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Plain(String),
    Name(String),
}

/// Expands every text of a tree. `wrong` is told of each mistake, with the node, and the path of keys to it.
pub(crate) fn expand(
    node: &Node,
    path: &str,
    lookup: &dyn Fn(&str) -> Meaning,
    wrong: &mut dyn FnMut(&Node, &str, Code, String),
) -> Node {
    let kind = match &node.kind {
        Kind::Text(text) => match parts(text) {
            Ok(parts) => {
                return Node {
                    at: node.at,
                    kind: join(parts, node, lookup, &mut |code, what| wrong(node, path, code, what)),
                };
            }
            Err(what) => {
                wrong(node, path, Code::BundleInvalid, what);
                Kind::Open
            }
        },
        Kind::List(items) => {
            let expanded = |(index, item)| expand(item, &element(path, index), lookup, wrong);
            Kind::List(items.iter().enumerate().map(expanded).collect())
        }
        Kind::Map(entries) => {
            let expanded = |(key, value): &(crate::config::tree::Key, Node)| {
                (key.clone(), expand(value, &entry(path, &key.name), lookup, wrong))
            };
            Kind::Map(entries.iter().map(expanded).collect())
        }
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Untyped(_) | Kind::Open => node.kind.clone(),
    };
    Node { at: node.at, kind }
}

/// The names of all placeholders in a tree. Malformed ones are left to [`expand`].
pub(crate) fn names(node: &Node) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(node, &mut found);
    found
}

/// What to say of a name that is no placeholder.
pub(crate) fn unknown(name: &str) -> String {
    let known = KNOWN.map(|name| format!("${{{name}}}")).join(", ");
    match suggest::nearest(name, KNOWN) {
        Some(near) => format!("unknown placeholder `${{{name}}}`; did you mean `${{{near}}}`?"),
        None => format!(
            "unknown placeholder `${{{name}}}`; known are {known} and ${{var.NAME}}, and `$${{` is a plain `${{`"
        ),
    }
}

/// The path of an entry: `instance.chart`, `set["a.b"]`.
pub(crate) fn entry(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-'));
    match (plain, path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[\"{}\"]", key.escape_debug()),
    }
}

/// The path of an element: `verify[0]`.
pub(crate) fn element(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

fn collect(node: &Node, found: &mut BTreeSet<String>) {
    match &node.kind {
        Kind::Text(text) => {
            let parts = parts(text).unwrap_or_default();
            found.extend(parts.into_iter().filter_map(|part| match part {
                Part::Name(name) => Some(name),
                Part::Plain(_) => None,
            }));
        }
        Kind::List(items) => items.iter().for_each(|item| collect(item, found)),
        Kind::Map(entries) => entries.iter().for_each(|(_, value)| collect(value, found)),
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Untyped(_) | Kind::Open => {}
    }
}

fn join(parts: Vec<Part>, node: &Node, lookup: &dyn Fn(&str) -> Meaning, wrong: &mut dyn FnMut(Code, String)) -> Kind {
    if let [Part::Name(name)] = parts.as_slice() {
        return match lookup(name) {
            Meaning::Is(value) => Node::from_value(&value, node.at).kind,
            Meaning::Untyped(text) => Kind::Untyped(text),
            Meaning::Open => Kind::Open,
            Meaning::Wrong(code, what) => {
                wrong(code, what);
                Kind::Open
            }
        };
    }
    let mut text = String::new();
    let mut open = false;
    for part in parts {
        match part {
            Part::Plain(plain) => text.push_str(&plain),
            Part::Name(name) => match lookup(&name) {
                Meaning::Is(value) => match scalar(&value) {
                    Ok(value) => text.push_str(&value),
                    Err(noun) => {
                        wrong(Code::BundleInvalid, format!("`${{{name}}}` is {noun}, which cannot be part of a text"));
                        open = true;
                    }
                },
                Meaning::Untyped(value) => text.push_str(&value),
                Meaning::Open => open = true,
                Meaning::Wrong(code, what) => {
                    wrong(code, what);
                    open = true;
                }
            },
        }
    }
    if open { Kind::Open } else { Kind::Text(text) }
}

fn scalar(value: &Value) -> Result<String, &'static str> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Null => Err("nothing"),
        Value::Array(_) => Err("a list"),
        Value::Object(_) => Err("a map"),
    }
}

/// Cuts a text into its pieces; two plain pieces never follow one another.
fn parts(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find("${") {
        let (before, from) = rest.split_at(dollar);
        let name = &from[2..];
        if let Some(unescaped) = before.strip_suffix('$') {
            plain.push_str(unescaped);
            plain.push_str("${");
            rest = name;
            continue;
        }
        plain.push_str(before);
        let Some(end) = name.find('}') else {
            return Err("a placeholder is not closed: `${` without `}`; a plain `${` is written `$${`".to_owned());
        };
        if !plain.is_empty() {
            parts.push(Part::Plain(std::mem::take(&mut plain)));
        }
        parts.push(Part::Name(name[..end].to_owned()));
        rest = &name[end + 1..];
    }
    plain.push_str(rest);
    if !plain.is_empty() || parts.is_empty() {
        parts.push(Part::Plain(plain));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lookup(name: &str) -> Meaning {
        match name {
            "instance" => Meaning::Is(json!("demo")),
            "var.port" => Meaning::Is(json!(1883)),
            "var.ha" => Meaning::Is(json!(true)),
            "var.list" => Meaning::Is(json!([1, "${instance}"])),
            "var.nothing" => Meaning::Is(Value::Null),
            "var.text" => Meaning::Untyped("7".to_owned()),
            "namespace" => Meaning::Open,
            "var.missing" => Meaning::Wrong(Code::VariableInvalid, "missing".to_owned()),
            _ => Meaning::Wrong(Code::BundleInvalid, unknown(name)),
        }
    }

    fn expanded(yaml: &str) -> (Kind, Vec<String>) {
        let node = Node::parse(yaml).expect("YAML");
        let mut mistakes = Vec::new();
        let node = expand(&node, "", &lookup, &mut |node, path, _, what| {
            mistakes.push(format!("{}:{} {path}: {what}", node.at.line, node.at.column));
        });
        (node.kind, mistakes)
    }

    fn value(yaml: &str) -> Value {
        let (kind, mistakes) = expanded(yaml);
        assert_eq!(mistakes, [""; 0], "{yaml}");
        Node { at: crate::config::tree::Position { line: 1, column: 1 }, kind }.value()
    }

    #[test]
    fn a_placeholder_alone_keeps_the_type_of_what_it_stands_for() {
        assert_eq!(value("${var.port}"), json!(1883));
        assert_eq!(value("${var.ha}"), json!(true));
        assert_eq!(value("${var.nothing}"), Value::Null);
        assert_eq!(value("${var.list}"), json!([1, "${instance}"]));
        assert_eq!(expanded("${var.text}").0, Kind::Untyped("7".to_owned()));
        assert_eq!(expanded("${namespace}").0, Kind::Open);
    }

    #[test]
    fn a_placeholder_among_text_becomes_text() {
        let cases = [
            ("${instance}.example.com", "demo.example.com"),
            ("a-${instance}-${var.port}-${var.ha}-${var.text}", "a-demo-1883-true-7"),
            ("plain", "plain"),
            ("$5 and $$ and $", "$5 and $$ and $"),
            ("$${instance}", "${instance}"),
            ("$${a} ${instance} $${", "${a} demo ${"),
            ("$$${instance}", "$${instance}"),
            ("'{\"a\": \"${instance}\"}'", "{\"a\": \"demo\"}"),
        ];
        for (yaml, expected) in cases {
            assert_eq!(value(yaml), json!(expected), "{yaml}");
        }
        assert_eq!(expanded("dci-${namespace}").0, Kind::Open);
    }

    #[test]
    fn keys_are_left_alone_and_values_at_any_depth_are_expanded() {
        let tree = value("a: [{ '${instance}': '${instance}' }, '${var.port}']\n");
        assert_eq!(tree, json!({"a": [{"${instance}": "demo"}, 1883]}));
    }

    #[test]
    fn mistakes_are_said_with_place_and_path() {
        let yaml = "a:\n  - x\n  - b.c: '${instnce}'\nd: '${'\ne: 'x${var.list}'\nf: 'x${var.missing}'\ng: ${}\n";
        let (_, mistakes) = expanded(yaml);
        let all = "${instance}, ${kube_context}, ${kubeconfig}, ${namespace}, ${version}, ${run_id} and ${var.NAME}";
        assert_eq!(
            mistakes,
            [
                "3:10 a[1][\"b.c\"]: unknown placeholder `${instnce}`; did you mean `${instance}`?".to_owned(),
                "4:4 d: a placeholder is not closed: `${` without `}`; a plain `${` is written `$${`".to_owned(),
                "5:4 e: `${var.list}` is a list, which cannot be part of a text".to_owned(),
                "6:4 f: missing".to_owned(),
                format!("7:4 g: unknown placeholder `${{}}`; known are {all}, and `$${{` is a plain `${{`"),
            ]
        );
    }

    #[test]
    fn all_names_are_found() {
        let node = Node::parse("a: '${x} $${y} ${var.z}'\nb: ['${x}']\n").expect("YAML");
        assert_eq!(names(&node).into_iter().collect::<Vec<_>>(), ["var.z", "x"]);
    }
}
