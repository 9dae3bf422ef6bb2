//! What can be told from `bundle.yaml` as it is written, before any placeholder stands for anything.

use std::collections::BTreeSet;

use crate::config::placeholder;
use crate::config::problem::{MOST, Problem};
use crate::config::reader::{Field, Reader};
use crate::config::tree::{Kind, Node};
use crate::config::{name, suggest};
use crate::failure::Code;

/// What a bundle says it is.
pub(crate) const API_VERSION: &str = "dcctl.devicechain.io/v1";
pub(crate) const KIND: &str = "Bundle";

/// The keys of `bundle.yaml`.
pub(crate) const KEYS: [&str; 10] =
    ["apiVersion", "kind", "metadata", "images", "operator", "prerequisites", "instance", "cluster", "vars", "verify"];

/// Name and version of a bundle. Whatever is not a bundle gets one mistake and no more: the rest of it would only
/// hide that.
pub(crate) fn identity(tree: &Node, reader: &mut Reader<'_>) -> Option<(String, String)> {
    let says = |name: &str| tree.get(name).and_then(Node::text);
    let wanted = format!("a bundle begins with `apiVersion: {API_VERSION}` and `kind: {KIND}`");
    let wrong = match (&tree.kind, says("kind"), says("apiVersion")) {
        (Kind::Null, _, _) => Some((None, format!("is empty; {wanted}"))),
        (Kind::Map(_), Some(KIND), Some(API_VERSION)) => None,
        (Kind::Map(_), Some(KIND), Some(other)) => {
            Some((Some("apiVersion"), format!("this dcctl reads `{API_VERSION}`, not `{}`", other.escape_debug())))
        }
        (Kind::Map(_), Some(other), _) if other != KIND => {
            Some((Some("kind"), format!("this is not a bundle but `{}`; {wanted}", other.escape_debug())))
        }
        (
            Kind::Map(_)
            | Kind::Bool(_)
            | Kind::Number(_)
            | Kind::Text(_)
            | Kind::Untyped(_)
            | Kind::List(_)
            | Kind::Open,
            _,
            _,
        ) => Some((None, format!("this is not a bundle; {wanted}"))),
    };
    if let Some((key, what)) = wrong {
        let node = key.and_then(|key| tree.get(key)).unwrap_or(tree);
        reader.wrong(Code::BundleInvalid, node.at, key.unwrap_or_default(), what);
        return None;
    }
    let Some(metadata) = tree.get("metadata").filter(|node| node.kind != Kind::Null) else {
        reader.wrong(Code::BundleInvalid, tree.at, "metadata", "is missing".to_owned());
        return None;
    };
    let metadata = Field { node: metadata, path: "metadata".to_owned() };
    for placeholder in placeholder::names(metadata.node) {
        reader.mistake(
            &metadata,
            format!("`${{{placeholder}}}` is not known here: name and version say what the bundle is"),
        );
    }
    let metadata = reader.section(&metadata, &["name", "version"])?;
    let name = metadata.required(reader, "name").and_then(|field| reader.checked(&field, name::subdomain));
    let version = metadata.required(reader, "version").and_then(|field| reader.checked(&field, name::version));
    name.zip(version)
}

/// The `secrets` maps of a bundle.
pub(crate) fn secret_maps(tree: &Node) -> impl Iterator<Item = &Node> {
    const PLACES: [&[&str]; 3] =
        [&["prerequisites", "secrets"], &["instance", "infrastructure", "secrets"], &["instance", "chart", "secrets"]];
    PLACES.into_iter().filter_map(|place| at(tree, place))
}

/// The maps of OpenTofu variables of a bundle.
pub(crate) fn root_variables(tree: &Node) -> impl Iterator<Item = &Node> {
    const PLACES: [&[&str]; 2] = [&["prerequisites", "vars"], &["instance", "infrastructure", "vars"]];
    PLACES.into_iter().filter_map(|place| at(tree, place))
}

/// The names of all placeholders.
pub(crate) fn placeholders(tree: &Node) -> BTreeSet<String> {
    placeholder::names(tree)
}

/// The keys of a map whose values hold the cluster that the run is on. Nobody may give them another value: every
/// tool of a run acts on the cluster that the run has locked.
pub(crate) fn pinned(map: &Node) -> BTreeSet<String> {
    let Kind::Map(entries) = &map.kind else { return BTreeSet::new() };
    let holds_cluster = |node: &Node| {
        let names = placeholder::names(node);
        names.contains("kubeconfig") || names.contains("kube_context")
    };
    entries.iter().filter(|(_, node)| holds_cluster(node)).map(|(key, _)| key.name.clone()).collect()
}

/// What to say of a pinned variable that was given all the same.
pub(crate) fn pinned_problem(name: &str) -> Problem {
    let what = "the bundle makes it from `${kubeconfig}` or `${kube_context}`, and a run acts on the cluster that it locks: \
                use --kube-context";
    Problem::elsewhere(format!("the variable {name}"), what)
}

/// What to say of a variable that the bundle does not ask for, as the so-manieth of its kind.
pub(crate) fn unasked(name: &str, asked: &BTreeSet<String>, before: usize) -> String {
    if before >= MOST {
        return format!("this bundle asks for no variable `{name}`");
    }
    match suggest::nearest(name, asked.iter().map(String::as_str)) {
        Some(near) => format!("this bundle asks for no variable `{name}`; did you mean `{near}`?"),
        None if asked.is_empty() => format!("this bundle asks for no variable `{name}`; it asks for none"),
        None => {
            let mut all: Vec<_> = asked.iter().take(MOST).map(String::as_str).collect();
            if asked.len() > MOST {
                all.push("and others");
            }
            format!("this bundle asks for no variable `{name}`; it asks for {}", all.join(", "))
        }
    }
}

fn at<'a>(tree: &'a Node, place: &[&str]) -> Option<&'a Node> {
    place.iter().try_fold(tree, |node, key| node.get(key))
}
