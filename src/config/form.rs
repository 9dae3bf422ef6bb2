//! The form of `bundle.yaml`, for people and for editors: each field with its type and what it means.
//!
//! The program reads a bundle by [`crate::config::decode`], which knows places and placeholders; nothing here is in it. The
//! JSON Schema made of these types and the page that lists the fields are compared with what that reader accepts, key
//! by key, so neither can tell of another format.

#![expect(dead_code, reason = "the types are read by their derive, and no value of them is ever made")]

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::config::written::{API_VERSION, KIND};

/// The `$id` of the schema.
pub(crate) const ID: &str = "urn:dcctl:bundle:1";

/// A release of the thing that is deployed.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct Bundle {
    /// The version of this format.
    api_version: ApiVersion,
    /// What this file is.
    kind: KindOfFile,
    /// What is deployed, and which release of it.
    metadata: Metadata,
    /// The images that the release is made of.
    images: Option<Images>,
    /// What `install` applies to the cluster.
    operator: Option<Operator>,
    /// What all instances share, an OpenTofu root; applied by `install`.
    prerequisites: Option<Root>,
    /// What belongs to one instance.
    instance: Option<Instance>,
    /// What the instances share of the cluster.
    cluster: Option<Cluster>,
    /// Defaults of `${var.NAME}`.
    vars: Option<Defaults>,
    /// Commands that show that the instance works.
    verify: Option<Vec<Verification>>,
}

/// What is deployed. No placeholders here.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Metadata {
    /// What is deployed.
    name: PlainName,
    /// The release; `${version}` elsewhere.
    version: Version,
}

/// The images that the release is made of.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Images {
    /// Builds them; run by `bootstrap --build` alone, before the lock.
    build: Command,
}

/// The operator, which serves all instances.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Operator {
    /// A folder or a file: every `.yaml`, `.yml` and `.json` below it is applied as it is.
    manifests: Path,
    /// The operator's Deployment: it is stamped with the release and waited for.
    deployment: Option<Deployment>,
}

/// A Deployment among the manifests.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Deployment {
    /// Its namespace.
    namespace: DnsLabel,
    /// Its name.
    name: DnsName,
}

/// An OpenTofu root.
#[expect(clippy::struct_field_names, reason = "the fields are the keys of the bundle")]
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Root {
    /// Its folder.
    root: Path,
    /// Its variables, with their types.
    vars: Option<RootVariables>,
    /// Which of its variables are secrets: the variable, and the name of the secret that is given from outside.
    secrets: Option<RootSecrets>,
}

/// What belongs to one instance.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Instance {
    /// Its namespace, made before the chart; `dci-${instance}` if absent.
    namespace: Option<InstanceNamespace>,
    /// Its own OpenTofu root.
    infrastructure: Option<Root>,
    /// Its Helm chart.
    chart: Option<Chart>,
    /// How long its workloads may take.
    readiness: Option<Readiness>,
    /// The `Instance` object that stands for it on the cluster.
    declaration: Option<Declaration>,
    /// What it takes from what all instances share.
    claims: Option<Claims>,
}

/// The Helm chart of an instance.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Chart {
    /// Its folder, or its `.tgz`.
    path: Path,
    /// The name of the Helm release, at most 53 characters.
    release: DnsName,
    /// Where the release's record lives; the instance's namespace if absent.
    namespace: Option<DnsLabel>,
    /// Values files, in order.
    values: Option<Vec<Path>>,
    /// Single values, with their types.
    set: Option<ChartValues>,
    /// Values from outputs of `instance.infrastructure`; a sensitive output stays secret.
    outputs: Option<ChartOutputs>,
    /// Values from secrets that are given from outside.
    secrets: Option<ChartSecrets>,
    /// How long Helm may wait; 10m if absent.
    timeout: Option<Duration>,
}

/// How long the workloads of an instance may take.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Readiness {
    /// How long they may take to become ready; 5m if absent.
    timeout: Option<Duration>,
}

/// The `Instance` object.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct Declaration {
    /// A version of `core.devicechain.io` that the cluster serves.
    api_version: InstanceApi,
    /// Its `spec`, the bundle's alone: `dcctl` adds nothing to it.
    spec: Spec,
}

/// What an instance takes from what all of them share.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct Claims {
    /// The host name that the instance serves.
    ingress_host: Option<DnsName>,
    /// The MQTT port it has on the cluster's own machine.
    local_mqtt_port: Option<Port>,
    /// How many database connections it needs.
    connections: Option<Count>,
}

/// What the instances share of the cluster.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
struct Cluster {
    /// How many connections all instances together may claim.
    max_connections: Option<Count>,
}

/// A command that shows that the instance works.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Verification {
    /// What people call it; no second one has the name.
    name: Text,
    /// What is run.
    run: Command,
    /// How long it may take; 2m if absent.
    timeout: Option<Duration>,
}

/// A kind of value that has a name in the schema and a line in the page: what people call it, what it is, and its schema.
macro_rules! kinds {
    ($($name:ident, $title:literal, $what:literal, $schema:expr;)+) => {$(
        #[doc = $what]
        struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let mut schema: Schema = $schema;
                schema.insert("title".to_owned(), $title.into());
                schema.insert("description".to_owned(), $what.into());
                schema
            }
        }
    )+};
}

const LABEL: &str = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";
const VARIABLE: &str = "[A-Za-z_][A-Za-z0-9_]*";
const IDENTIFIER: &str = r"[\p{Alphabetic}_][\p{Alphabetic}\p{N}_-]*";

kinds! {
    ApiVersion, "API version", "This format has one version so far.", json_schema!({ "const": API_VERSION });
    KindOfFile, "kind", "A file of another kind is none of ours.", json_schema!({ "const": KIND });
    PlainName, "plain DNS name", "Labels of lower-case letters, digits and hyphens, joined by dots; no placeholders.",
        whole(&format!(r"{LABEL}(\.{LABEL})*"));
    Version, "version", "Letters, digits and `.-_+`, a letter or digit first, at most 128 characters; no placeholders.",
        whole("[A-Za-z0-9][A-Za-z0-9._+-]{0,127}");
    Text, "text", "Text that is not empty.", json_schema!({ "type": "string", "minLength": 1 });
    Path, "path", "A path in the bundle, relative to its folder; it may not lead out.",
        json_schema!({ "type": "string", "pattern": "^[^/]" });
    Duration, "duration", "Hours, minutes and seconds with their units: `90s`, `10m`, `1h30m`; at most `168h`.",
        expandable("(?=.*[1-9])([0-9]+h)?([0-9]+m)?([0-9]+s)?");
    DnsLabel, "DNS label", "Lower-case letters, digits and hyphens, a letter or digit at both ends, at most 63.",
        expandable(LABEL);
    DnsName, "DNS name", "DNS labels, joined by dots.", expandable(&format!(r"{LABEL}(\.{LABEL})*"));
    InstanceNamespace, "namespace of an instance",
        "A DNS label; none of `default`, `dc-system`, `dc-k8s-system` and those that begin with `kube-`.",
        reserved(expandable(LABEL));
    InstanceApi, "API version of an instance", "`core.devicechain.io/` and a version.",
        expandable(&format!("core[.]devicechain[.]io/{LABEL}"));
    Port, "port", "A whole number from 1 to 65535, or the placeholder of a variable that is one.", number(u32::from(u16::MAX));
    Count, "number", "A whole number from 1 to 4294967295, or the placeholder of a variable that is one.", number(u32::MAX);
    Command, "command", "A list: a program and its arguments. No shell reads it.", json_schema!({
        "type": "array",
        "minItems": 1,
        "prefixItems": [{ "type": "string", "minLength": 1 }],
        "items": { "type": ["string", "number", "boolean"] },
    });
    Defaults, "map of defaults", "The name of a variable: its value, of any type. No variable is made from another.", json_schema!({
        "type": "object",
        "propertyNames": { "pattern": format!("^{VARIABLE}$") },
    });
    RootVariables, "map of OpenTofu variables", "The name of an OpenTofu variable: its value, of any type.", json_schema!({
        "type": "object",
        "propertyNames": { "pattern": format!("^{IDENTIFIER}$") },
    });
    RootSecrets, "map of OpenTofu secrets", "The name of an OpenTofu variable: the name of a secret.", json_schema!({
        "type": "object",
        "propertyNames": { "pattern": format!("^{IDENTIFIER}$") },
        "additionalProperties": expandable(VARIABLE),
    });
    ChartValues, "map of chart values", r"A dotted key of the chart's values: its value, of any type. A dot that belongs to a name is written `\.`.",
        json_schema!({ "type": "object", "propertyNames": { "minLength": 1 } });
    ChartOutputs, "map of chart outputs", "A dotted key of the chart's values: the name of an output of `instance.infrastructure`.", json_schema!({
        "type": "object",
        "propertyNames": { "minLength": 1 },
        "additionalProperties": expandable(IDENTIFIER),
    });
    ChartSecrets, "map of chart secrets", "A dotted key of the chart's values: the name of a secret.", json_schema!({
        "type": "object",
        "propertyNames": { "minLength": 1 },
        "additionalProperties": expandable(VARIABLE),
    });
    Spec, "map", "Any keys and values; the definition on the cluster says which.", json_schema!({ "type": "object" });
}

/// A text that has this form.
fn whole(pattern: &str) -> Schema {
    json_schema!({ "type": "string", "pattern": format!("^{pattern}$") })
}

/// A text that has this form, or will have it when its placeholders stand for something.
fn expandable(pattern: &str) -> Schema {
    json_schema!({ "type": "string", "pattern": format!(r"^({pattern}|.*\$\{{.*)$") })
}

fn reserved(mut namespace: Schema) -> Schema {
    namespace.insert("not".to_owned(), json!({ "pattern": "^(default|dc-system|dc-k8s-system|kube-.*)$" }));
    namespace
}

/// A number; a text is one only if it is the placeholder of a variable and nothing else, which keeps its type.
fn number(most: u32) -> Schema {
    json_schema!({ "anyOf": [
        { "type": "integer", "minimum": 1, "maximum": most },
        { "type": "string", "pattern": format!(r"^\$\{{var\.{VARIABLE}\}}$") },
    ]})
}

/// The schema (draft 2020-12) that every `bundle.yaml` satisfies.
pub(crate) fn schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = false;
    let mut schema = settings.into_generator().into_root_schema_for::<Bundle>();
    schema.insert("$id".to_owned(), ID.into());
    schema.insert("title".to_owned(), "bundle.yaml of dcctl".into());
    let mut schema = schema.to_value();
    let kinds = schema["$defs"].clone();
    for (name, definition) in schema["$defs"].as_object_mut().into_iter().flatten() {
        let fields = definition.get_mut("properties").and_then(Value::as_object_mut);
        for (_, field) in fields.into_iter().flatten().filter(|_| name != "Metadata") {
            if !takes_text(field, &kinds) {
                admit_a_variable(field);
            }
        }
    }
    schema["$defs"]["Placeholder"] = json!({
        "title": "placeholder of a variable",
        "description": "A list or a map may come from a variable as a whole.",
        "type": "string",
        "pattern": format!(r"^\$\{{var\.{VARIABLE}\}}$"),
    });
    schema
}

/// Whether a field has a form for text already, which knows of placeholders.
fn takes_text(field: &Value, kinds: &Value) -> bool {
    let options = field["anyOf"].as_array().into_iter().flatten().chain([field]);
    let mut names = options.filter_map(|option| option["$ref"].as_str()?.strip_prefix("#/$defs/"));
    names.any(|name| kinds[name]["type"] == "string" || kinds[name].get("anyOf").is_some())
}

/// Lets a field also be the placeholder of a variable, which keeps its type.
fn admit_a_variable(field: &mut Value) {
    let placeholder = json!({ "$ref": "#/$defs/Placeholder" });
    if let Some(options) = field.get_mut("anyOf").and_then(Value::as_array_mut) {
        options.push(placeholder);
        return;
    }
    let mut own = field.take();
    let description = own["description"].take();
    if let Some(own) = own.as_object_mut() {
        own.remove("description");
    }
    *field = json!({ "description": description, "anyOf": [own, placeholder] });
}

/// The text of `docs/reference/bundle.schema.json`, which `dcctl schema bundle` prints.
///
/// # Panics
/// Never: a schema is plain JSON.
pub fn schema_page() -> String {
    let text = serde_json::to_string_pretty(&schema()).expect("a schema is plain JSON");
    format!("{text}\n")
}
