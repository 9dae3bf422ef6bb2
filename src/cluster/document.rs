//! Manifests as files: reads them into objects, each with the place it came from, and puts them in an order that works.
//!
//! Read as kubectl reads them, YAML 1.1's octal numbers and its `yes` and `off` included: a manifest that works with
//! kubectl means the same here. Everything that can be wrong with a manifest without asking the API server is said
//! with file and line.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::failure::{Code, Failure};

/// One object of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// `apps/v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: String,
    /// As the manifest gives it; whether the kind has one is for the API server to say.
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: String,
    /// The object itself.
    pub object: Value,
    /// Where it came from: `operator/deployment.yaml:12`.
    pub place: String,
}

impl Document {
    /// Kind, namespace and name for people: `Deployment dc-k8s-system/controller`.
    pub fn title(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{}", self.kind, self.name),
            None => format!("{} {}", self.kind, self.name),
        }
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether it defines a kind.
    pub fn is_definition(&self) -> bool {
        self.kind == "CustomResourceDefinition" && self.group() == "apiextensions.k8s.io"
    }

    /// For a definition: group and kind of what it defines.
    pub fn defines(&self) -> Option<(&str, &str)> {
        let spec = self.object.get("spec").filter(|_| self.is_definition())?;
        let kind = spec.get("names")?.get("kind")?;
        Some((spec.get("group")?.as_str()?, kind.as_str()?))
    }

    /// Sets one annotation, replacing what the manifest says.
    pub fn annotate(&mut self, name: &str, value: &str) {
        let metadata = self.object.get_mut("metadata").and_then(Value::as_object_mut);
        let metadata = metadata.expect("a document has metadata, or it would not have been read");
        let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        if !annotations.is_object() {
            *annotations = Value::Object(Map::new());
        }
        annotations[name] = Value::String(value.to_owned());
    }
}

/// Reads manifest files. `root` is the bundle's folder: places are said relative to it.
///
/// Fails with `config.bundle`, naming file and line.
pub fn read(root: &Path, files: &[PathBuf]) -> Result<Vec<Document>, Failure> {
    let mut documents = Vec::new();
    for file in files {
        let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::new(Code::BundleInvalid, format!("the manifest {name} cannot be read")).because(&error)
        })?;
        documents.extend(parse(&name, &text)?);
    }
    Ok(documents)
}

/// Reads the text of one manifest file: any number of YAML or JSON documents, lists flattened.
pub fn parse(file: &str, text: &str) -> Result<Vec<Document>, Failure> {
    let mut documents = Vec::new();
    for (line, part) in parts(text) {
        let value: Value = serde_saphyr::from_str_with_options(part, options()).map_err(|error| {
            let at = error.location().map_or(line, |at| line + usize::try_from(at.line()).unwrap_or(1) - 1);
            Failure::new(Code::BundleInvalid, format!("{file}:{at} is not valid YAML"))
                .cause(error.without_snippet().to_string())
        })?;
        flatten(value, &format!("{file}:{line}"), None, &mut documents)?;
    }
    Ok(documents)
}

/// Puts objects in the order in which they can be applied: namespaces, definitions, then the rest by kind, and what
/// intercepts requests last. Equal kinds stay as they were.
pub fn in_order(mut documents: Vec<Document>) -> Vec<Document> {
    documents.sort_by_key(rank);
    documents
}

/// Kinds in the order in which they are applied. Custom resources come after all of these and before the kinds of
/// [`INTERCEPTORS`]: an operator's own webhook does not answer before the operator runs.
const ORDER: &[&str] = &[
    "Namespace",
    "CustomResourceDefinition",
    "PriorityClass",
    "RuntimeClass",
    "ResourceQuota",
    "LimitRange",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ConfigMap",
    "Secret",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "NetworkPolicy",
    "Service",
    "Endpoints",
    "EndpointSlice",
    "IngressClass",
    "DaemonSet",
    "Deployment",
    "StatefulSet",
    "ReplicaSet",
    "Pod",
    "HorizontalPodAutoscaler",
    "PodDisruptionBudget",
    "Job",
    "CronJob",
    "Ingress",
    "APIService",
];

/// Kinds that intercept the requests for others.
const INTERCEPTORS: &[&str] = &[
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

fn rank(document: &Document) -> usize {
    let group = document.group();
    let is_ours = matches!(group, "" | "apps" | "batch" | "policy" | "autoscaling") || group.ends_with(".k8s.io");
    let position = |kinds: &[&str]| kinds.iter().position(|kind| *kind == document.kind).filter(|_| is_ours);
    let after = ORDER.len();
    position(ORDER).or_else(|| position(INTERCEPTORS).map(|at| after + 1 + at)).unwrap_or(after)
}

fn options() -> serde_saphyr::Options {
    // Snippets quote the file, and a manifest may hold a Secret.
    serde_saphyr::options! { legacy_octal_numbers: true, strict_booleans: false, with_snippet: false }
}

/// Splits a file at its document marks, which YAML allows at the start of a line only; with the line each part
/// starts at. Parts without content are left out.
fn parts(text: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let (mut from, mut from_line, mut at) = (0, 1, 0);
    let mut lines = 0;
    for line in text.split_inclusive('\n') {
        lines += 1;
        let mark =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        if mark && at > from {
            parts.push((from_line, &text[from..at]));
            (from, from_line) = (at, lines);
        }
        at += line.len();
    }
    parts.push((from_line, &text[from..]));
    parts.into_iter().filter_map(|(line, part)| trim(line, part)).collect()
}

/// Leaves out leading lines without content, so that a document's line is that of its first word.
fn trim(mut first: usize, part: &str) -> Option<(usize, &str)> {
    let mut rest = part;
    for line in part.split_inclusive('\n') {
        let bare = line.trim();
        let content = bare.strip_prefix("---").map_or(bare, str::trim);
        // `...` ends a document, `%YAML` precedes one, and a byte order mark is none.
        let is_empty = content.is_empty() || content.starts_with('#') || bare == "..." || bare == "\u{feff}";
        if !is_empty && !line.starts_with('%') {
            return Some((first, rest));
        }
        rest = &rest[line.len()..];
        first += 1;
    }
    None
}

/// Turns a value into documents: one, or those of a list.
fn flatten(value: Value, place: &str, default: Option<(&str, &str)>, into: &mut Vec<Document>) -> Result<(), Failure> {
    let wrong = |what: &str| Failure::new(Code::BundleInvalid, format!("{place}: {what}"));
    let mut object = match value {
        Value::Null => return Ok(()),
        Value::Object(object) => object,
        _ => return Err(wrong("a manifest is a map with apiVersion, kind and metadata")),
    };
    if let Some((api_version, kind)) = default {
        object.entry("apiVersion").or_insert_with(|| api_version.into());
        object.entry("kind").or_insert_with(|| kind.into());
    }
    let text = |value: Option<&Value>, field: &str| match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        // In YAML `n` and `on` are no words, and `012` is a number.
        Some(other) => Err(wrong(&format!("{field} is {other}, and not text; put it in quotes"))),
    };
    let missing = |field: &str| wrong(&format!("{field} is missing"));
    let api_version = text(object.get("apiVersion"), "apiVersion")?.ok_or_else(|| missing("apiVersion"))?;
    let kind = text(object.get("kind"), "kind")?.ok_or_else(|| missing("kind"))?;
    if let (Some(of), Some(Value::Array(items))) = (kind.strip_suffix("List"), object.get("items")) {
        let default = (!of.is_empty()).then_some((api_version.as_str(), of));
        return items.iter().try_for_each(|item| flatten(item.clone(), place, default, into));
    }
    let metadata = object.get("metadata").and_then(Value::as_object);
    let metadata = metadata.ok_or_else(|| missing("metadata"))?;
    let name = text(metadata.get("name"), "metadata.name")?.ok_or_else(|| missing("metadata.name"))?;
    if name.contains('/') || name == "." || name == ".." {
        return Err(wrong("metadata.name cannot be that of an object"));
    }
    let namespace = text(metadata.get("namespace"), "metadata.namespace")?;
    if namespace.as_deref().is_some_and(|namespace| namespace.contains('/') || namespace.starts_with('.')) {
        return Err(wrong("metadata.namespace cannot be that of a namespace"));
    }
    into.push(Document { api_version, kind, namespace, name, object: Value::Object(object), place: place.to_owned() });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(documents: &[Document]) -> Vec<String> {
        documents.iter().map(Document::title).collect()
    }

    #[test]
    fn documents_know_their_line() {
        let text = "# a comment\n---\n# another\napiVersion: v1\nkind: Namespace\nmetadata: { name: a }\n---\n\n---\n\
                    apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n  namespace: a\ndata:\n  text: |\n    ---\n    no mark\n";
        let documents = parse("f.yaml", text).expect("two documents");
        assert_eq!(titles(&documents), ["Namespace a", "ConfigMap a/b"]);
        assert_eq!(documents[0].place, "f.yaml:4");
        assert_eq!(documents[1].place, "f.yaml:10");
        assert_eq!(documents[1].object["data"]["text"], "---\nno mark\n");
    }

    #[test]
    fn an_error_names_the_line_of_the_file() {
        let good = "apiVersion: v1\nkind: Namespace\nmetadata: { name: a }\n";
        let cases = [
            (format!("{good}---\nkind: [\n"), "f.yaml:"),
            (format!("{good}---\na: 1\nb: 2\na: 3\n"), "f.yaml:7 "),
            (format!("{good}---\n\nkind: X\nmetadata: {{ name: x }}\n"), "f.yaml:6: apiVersion"),
            (format!("{good}---\napiVersion: v1\nkind: X\n"), "f.yaml:5: metadata is"),
            (
                format!("{good}---\napiVersion: v1\nkind: X\nmetadata: {{ generateName: x- }}\n"),
                "f.yaml:5: metadata.name",
            ),
            (
                "apiVersion: v1\nkind: X\nmetadata: { name: on }\n".to_owned(),
                "f.yaml:1: metadata.name is true, and not",
            ),
            (format!("{good}---\n- a\n"), "f.yaml:5: a manifest is a map"),
            ("apiVersion: v1\nkind: X\nmetadata: { name: ../x }\n".to_owned(), "f.yaml:1: metadata.name"),
        ];
        for (text, says) in cases {
            let failure = parse("f.yaml", &text).expect_err("it is wrong");
            assert_eq!(failure.code, Code::BundleInvalid);
            assert!(failure.message.starts_with(says), "{}", failure.message);
        }
    }

    #[test]
    fn numbers_and_words_mean_what_kubectl_reads() {
        let text = "apiVersion: v1\nkind: X\nmetadata: { name: x }\nmode: 0644\nnew: 0o644\nyes: yes\noff: off\ntext: \"yes\"\nbig: 1234567890123\nhalf: 0.5\nnone: ~\n";
        let object = &parse("f.yaml", text).expect("one document")[0].object;
        assert_eq!(object["mode"], 420);
        assert_eq!(object["new"], 420);
        assert_eq!(object["off"], false);
        assert_eq!(object["text"], "yes");
        assert_eq!(object["big"], 1_234_567_890_123_i64);
        assert_eq!(object["half"], 0.5);
        assert_eq!(object["none"], Value::Null);
    }

    #[test]
    fn lists_are_flattened() {
        let text = r#"{"apiVersion":"v1","kind":"List","items":[
            {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}},
            {"apiVersion":"v1","kind":"SecretList","items":[{"metadata":{"name":"b","namespace":"n"}}]}]}"#;
        assert_eq!(titles(&parse("f.json", text).expect("a list")), ["ConfigMap a", "Secret n/b"]);
    }

    #[test]
    fn two_json_objects_in_one_file_are_separated_by_marks() {
        let one = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
        assert_eq!(parse("f.json", &format!("{one}\n---\n{one}\n")).expect("two").len(), 2);
        assert_eq!(parse("f.json", "").expect("none").len(), 0);
        assert_eq!(parse("f.json", "%YAML 1.2\n---\n# nothing\n...\n").expect("none").len(), 0);
    }

    #[test]
    fn what_others_need_comes_first_whatever_the_files_are_called() {
        let of = |api_version: &str, kind: &str| Document {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: "x".to_owned(),
            object: Value::Null,
            place: String::new(),
        };
        let documents = in_order(vec![
            of("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
            of("core.devicechain.io/v1beta1", "Instance"),
            of("serving.example.test/v1", "Service"),
            of("apps/v1", "Deployment"),
            of("v1", "Service"),
            of("v1", "Secret"),
            of("rbac.authorization.k8s.io/v1", "ClusterRole"),
            of("v1", "ServiceAccount"),
            of("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            of("v1", "Namespace"),
        ]);
        let kinds: Vec<&str> = documents.iter().map(|document| document.kind.as_str()).collect();
        assert_eq!(
            kinds,
            [
                "Namespace",
                "CustomResourceDefinition",
                "ServiceAccount",
                "ClusterRole",
                "Secret",
                "Service",
                "Deployment",
                "Instance",
                "Service",
                "ValidatingWebhookConfiguration",
            ]
        );
    }
}
