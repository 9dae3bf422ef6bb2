//! What placeholders stand for in one run, and where each may be used.
//!
//! A run on an instance needs what the bundle says of an instance; a run on the cluster needs what it says of the
//! cluster. What a run does not need is checked all the same, but nothing has to be given for it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::config::load::Inputs;
use crate::config::placeholder::{self, Meaning};
use crate::config::problem::{MOST, Problems};
use crate::config::reader::{Field, Reader};
use crate::config::suggest;
use crate::config::tree::{Key, Kind, Node};
use crate::config::variables::{Given, Variable, environment_name};
use crate::config::{name, written};
use crate::failure::Code;

/// The part of a bundle that a text belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {
    /// The bundle's own defaults, which come before everything else.
    Vars,
    /// What all instances share.
    Cluster,
    /// The namespace of the instance.
    Namespace,
    /// The rest of what is one instance's.
    Instance,
}

/// Whether this run uses a part of the bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// It does: everything in it has to have a value.
    Now,
    /// It does not: what has no value is left open.
    Later,
}

/// What is known in one run.
pub(crate) struct Scope {
    fixed: BTreeMap<&'static str, Meaning>,
    variables: BTreeMap<String, Meaning>,
    secrets: BTreeSet<String>,
    /// How much the values of variables have brought in so far, in bytes.
    brought_in: Cell<usize>,
    /// How many variables were found to have no value.
    missing: Cell<usize>,
}

/// How much the values of variables may bring in, in bytes: a long value that is used again and again fills any memory.
const MOST_BROUGHT_IN: usize = 16 << 20;

impl Scope {
    /// Joins what the bundle has with what was given.
    pub(crate) fn new(tree: &Node, version: &str, inputs: &Inputs, problems: &mut Problems, file: &str) -> Scope {
        let text = |text: &str| Meaning::Is(Value::String(text.to_owned()));
        let fixed = BTreeMap::from([
            ("instance", inputs.instance.as_deref().map_or(Meaning::Open, text)),
            ("kube_context", text(&inputs.kube_context)),
            ("kubeconfig", text(&inputs.kubeconfig.to_string_lossy())),
            ("version", text(version)),
            ("run_id", text(&inputs.run_id)),
        ]);
        let mut scope = Scope {
            fixed,
            variables: BTreeMap::new(),
            secrets: BTreeSet::new(),
            brought_in: Cell::new(0),
            missing: Cell::new(0),
        };
        scope.secrets = written::secret_maps(tree).flat_map(|map| scope.secret_names(map)).collect();
        let mut reader = Reader { file: file.to_owned(), problems };
        let defaults = scope.defaults(tree, &mut reader);
        let placeholders =
            written::placeholders(tree).into_iter().filter_map(|name| name.strip_prefix("var.").map(str::to_owned));
        let names: BTreeSet<String> = defaults.keys().cloned().chain(placeholders).collect();
        let pinned = tree.get("vars").map(written::pinned).unwrap_or_default();
        for name in names.into_iter().filter(|name| !scope.secrets.contains(name)) {
            let own = defaults.get(&name);
            if let Some(meaning) = settle(&name, own, &pinned, &inputs.given, reader.problems) {
                scope.variables.insert(name, meaning);
            }
        }
        scope
    }

    /// The names of the bundle's secrets.
    pub(crate) fn secrets(&self) -> &BTreeSet<String> {
        &self.secrets
    }

    /// The namespace, once it is known.
    pub(crate) fn set_namespace(&mut self, namespace: Option<&str>) {
        let meaning = namespace.map_or(Meaning::Open, |namespace| Meaning::Is(Value::String(namespace.to_owned())));
        self.fixed.insert("namespace", meaning);
    }

    /// A part of the bundle with its placeholders expanded.
    pub(crate) fn expand(&self, field: &Field<'_>, area: Area, need: Need, reader: &mut Reader<'_>) -> Node {
        let lookup = |name: &str| self.meaning(name, area, need);
        placeholder::expand(field.node, &field.path, &lookup, &mut |node, path, code, what| {
            reader.wrong(code, node.at, path, what);
        })
    }

    fn meaning(&self, name: &str, area: Area, need: Need) -> Meaning {
        let wrong = |what: String| Meaning::Wrong(Code::BundleInvalid, format!("`${{{name}}}` {what}"));
        let found = match name.strip_prefix("var.") {
            Some(_) if area == Area::Vars => {
                return wrong("is itself a variable, and a default cannot be made from one".to_owned());
            }
            Some(variable) if self.secrets.contains(variable) => {
                return wrong("is a secret of this bundle, which may only be named under `secrets`".to_owned());
            }
            Some(variable) => self.variables.get(variable),
            None if name == "instance" && area == Area::Cluster => {
                return wrong("is not known here: this belongs to the cluster, and to no instance".to_owned());
            }
            None if name == "namespace" && area != Area::Instance => {
                return wrong(
                    "is the instance's namespace, which is known under `instance`, `images` and `verify` only"
                        .to_owned(),
                );
            }
            None if !placeholder::KNOWN.contains(&name) => {
                return Meaning::Wrong(Code::BundleInvalid, placeholder::unknown(name));
            }
            None => self.fixed.get(name),
        };
        match (found, need) {
            // With an instance, only a mistake that was said already leaves anything open.
            (Some(Meaning::Open), Need::Now) if area != Area::Vars && !self.on_instance() => {
                wrong("depends on the instance, and this run is on none".to_owned())
            }
            (Some(meaning), _) => {
                let before = self.brought_in.get();
                if before > MOST_BROUGHT_IN {
                    // That was said.
                    return Meaning::Open;
                }
                let brought_in = before + size(meaning);
                self.brought_in.set(brought_in);
                if brought_in > MOST_BROUGHT_IN {
                    return wrong(format!(
                        "is one too many: variables bring in more than {} MiB",
                        MOST_BROUGHT_IN >> 20
                    ));
                }
                meaning.clone()
            }
            (None, Need::Later) => Meaning::Open,
            (None, Need::Now) => Meaning::Wrong(Code::VariableInvalid, self.not_given(name)),
        }
    }

    fn on_instance(&self) -> bool {
        !matches!(self.fixed.get("instance"), None | Some(Meaning::Open))
    }

    fn not_given(&self, placeholder: &str) -> String {
        let name = placeholder.trim_start_matches("var.");
        if let Err(wrong) = name::variable(name) {
            return format!("`${{{placeholder}}}`: `{name}` {wrong}");
        }
        self.missing.update(|missing| missing + 1);
        let worth_it = self.missing.get() <= MOST;
        let near = worth_it.then(|| suggest::nearest(name, self.variables.keys().map(String::as_str))).flatten();
        let near = near.map_or_else(String::new, |near| format!("; did you mean `${{var.{near}}}`?"));
        let environment = environment_name(&name.to_uppercase());
        format!(
            "`${{{placeholder}}}` has no value: give it with --var {name}=…, --var-file or {environment}, or a default under `vars`{near}"
        )
    }

    /// The bundle's own values of its variables; what depends on the instance may be open.
    fn defaults(&self, tree: &Node, reader: &mut Reader<'_>) -> BTreeMap<String, Node> {
        let Some(node) = tree.get("vars").filter(|node| node.kind != Kind::Null) else { return BTreeMap::new() };
        let field = Field { node, path: "vars".to_owned() };
        let expanded = self.expand(&field, Area::Vars, Need::Now, reader);
        let mut defaults = BTreeMap::new();
        for (Key { at, name }, field) in
            reader.entries(&Field { node: &expanded, path: field.path }).unwrap_or_default()
        {
            if self.secrets.contains(name) {
                let what = "is a secret of this bundle, and a bundle carries none; take it out here".to_owned();
                reader.wrong(Code::BundleInvalid, *at, &field.path, what);
            } else if let Err(wrong) = name::variable(name) {
                reader.wrong(Code::BundleInvalid, *at, &field.path, wrong);
            } else {
                defaults.insert(name.clone(), field.node.clone());
            }
        }
        defaults
    }

    /// The names of secrets in one `secrets` map, as far as they can be told without variables.
    fn secret_names(&self, map: &Node) -> Vec<String> {
        let lookup = |name: &str| self.fixed.get(name).cloned().unwrap_or(Meaning::Open);
        let expanded = placeholder::expand(map, "", &lookup, &mut |_, _, _, _| {});
        let Kind::Map(entries) = expanded.kind else { return Vec::new() };
        entries.iter().filter_map(|(_, node)| node.text().map(str::to_owned)).collect()
    }
}

/// How much a value brings in, in bytes, about.
fn size(meaning: &Meaning) -> usize {
    fn of(value: &Value) -> usize {
        let below: usize = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(of).sum(),
            Value::Object(entries) => entries.iter().map(|(key, value)| key.len() + of(value)).sum(),
        };
        below + size_of::<Node>()
    }
    match meaning {
        Meaning::Is(value) => of(value),
        Meaning::Untyped(text) => text.len(),
        Meaning::Open | Meaning::Wrong(..) => 0,
    }
}

/// What a variable stands for: as given, else the bundle's own value.
fn settle(
    name: &str,
    own: Option<&Node>,
    pinned: &BTreeSet<String>,
    given: &Given,
    problems: &mut Problems,
) -> Option<Meaning> {
    let own_value = own.filter(|node| node.kind != Kind::Open).map(Node::value);
    let outside = given.variable(name, own_value.as_ref()).unwrap_or_else(|problem| {
        problems.add(problem);
        None
    });
    match outside {
        Some(_) if pinned.contains(name) => {
            problems.add(written::pinned_problem(name));
            Some(Meaning::Open)
        }
        Some(Variable::Typed(value)) => Some(Meaning::Is(value)),
        Some(Variable::Untyped(text)) => Some(Meaning::Untyped(text)),
        None => own.map(|_| own_value.map_or(Meaning::Open, Meaning::Is)),
    }
}
