//! Writes `docs/reference/config.md`: every field of `bundle.yaml`, from the types of [`crate::config::form`]. What a bundle is
//! for and how it is read stands in `bundle.md`; this page only lists.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::config::form::schema;

const INTRODUCTION: &str = "# The fields of bundle.yaml

<!-- Generated from src/config/form.rs. Change it there and run `make docs`. -->

What a bundle is and how it is read: [the bundle](bundle.md). This page lists every field; an unknown one is a mistake. A
field that may be absent may also be empty, which is the same.

`dcctl schema bundle` prints a JSON Schema of it, [bundle.schema.json](bundle.schema.json), with which
[editors](bundle.md#in-an-editor) complete fields and mark mistakes.

Text may have [placeholders](bundle.md#placeholders) in it; where a number, a list or a map belongs, the placeholder of a
variable may stand for the whole, as in `localMqttPort: \"${var.mqtt_port}\"`.
";

/// A section of the file: where it stands, and its definition.
struct Place<'a> {
    paths: Vec<String>,
    name: &'a str,
}

/// The text of `docs/reference/config.md`.
pub fn config_page() -> String {
    let schema = schema();
    let mut page = INTRODUCTION.to_owned();
    let places = places(&schema);
    page.push_str("\n## The top\n\n");
    page.push_str(&fields(&schema, &schema, &places));
    for place in &places {
        let definition = &schema["$defs"][place.name];
        write!(page, "\n## {}\n\n{}\n\n", heading(place), prose(definition)).expect("a string grows");
        page.push_str(&fields(definition, &schema, &places));
    }
    page.push_str("\n## Kinds of values\n\n| kind | what it is |\n|---|---|\n");
    for kind in
        object(&schema["$defs"]).values().filter(|kind| kind.get("title").is_some() && kind.get("const").is_none())
    {
        let title = kind["title"].as_str().unwrap_or_default();
        writeln!(page, "| {title} | {} |", prose(kind)).expect("a string grows");
    }
    page
}

/// Every section below the top, in the order of the fields that lead there. One that stands in two places is there once.
fn places(schema: &Value) -> Vec<Place<'_>> {
    fn walk<'a>(schema: &'a Value, definition: &'a Value, above: &str, places: &mut Vec<Place<'a>>) {
        for (field, described) in object(&definition["properties"]) {
            let Some(name) = reference(described) else { continue };
            let below = &schema["$defs"][name];
            if below.get("properties").is_none() {
                continue;
            }
            let path = if above.is_empty() { field.clone() } else { format!("{above}.{field}") };
            if let Some(place) = places.iter_mut().find(|place| place.name == name) {
                place.paths.push(path);
            } else {
                places.push(Place { paths: vec![path.clone()], name });
                walk(schema, below, &path, places);
            }
        }
    }
    let mut places = Vec::new();
    walk(schema, schema, "", &mut places);
    places
}

fn heading(place: &Place<'_>) -> String {
    place.paths.join(" and ")
}

/// The fields of a section as a table.
fn fields(definition: &Value, schema: &Value, places: &[Place<'_>]) -> String {
    let required: Vec<&str> = array(&definition["required"]).filter_map(Value::as_str).collect();
    let mut table = "| field | what it takes | | what it is |\n|---|---|---|---|\n".to_owned();
    for (name, field) in object(&definition["properties"]) {
        let presence = if required.contains(&name.as_str()) { "required" } else { "may be absent" };
        let kind = kind(field, schema, places);
        writeln!(table, "| `{name}` | {kind} | {presence} | {} |", prose(field)).expect("a string grows");
    }
    table
}

/// What a field takes: a link to its section, or the kind of value.
fn kind(field: &Value, schema: &Value, places: &[Place<'_>]) -> String {
    let plural = if items(field).is_some() { "list of " } else { "" };
    let Some(name) = reference(field) else { return "anything".to_owned() };
    if let Some(place) = places.iter().find(|place| place.name == name) {
        let heading = heading(place);
        let anchor: String = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || *c == ' ')
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        return format!("{plural}[{heading}](#{})", anchor.to_lowercase());
    }
    let definition = &schema["$defs"][name];
    match definition["const"].as_str() {
        Some(known) => format!("`{known}`"),
        None => format!("{plural}{}", definition["title"].as_str().unwrap_or(name)),
    }
}

/// The items of a list, if the field takes one.
fn items(field: &Value) -> Option<&Value> {
    array(&field["anyOf"]).chain([field]).find_map(|option| option.get("items"))
}

/// The name of the definition that a field, or each item of its list, has to satisfy.
fn reference(field: &Value) -> Option<&str> {
    let own = array(&field["anyOf"]).chain([field]).find_map(|option| option["$ref"].as_str());
    let found = items(field).map_or(own, |items| items["$ref"].as_str());
    found.and_then(|path| path.strip_prefix("#/$defs/"))
}

fn prose(definition: &Value) -> String {
    definition["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("a schema of a struct has properties")
}
