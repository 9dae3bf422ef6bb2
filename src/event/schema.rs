//! The JSON Schema of a line, from the types.
//!
//! Closed over `type`: a line is of exactly one of the types. Open to more fields: a later version may add some, and a
//! reader ignores what it does not know.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::event::envelope::{LONGEST_MESSAGE, SCHEMA_ID, SCHEMA_VERSION, VERSION};
use crate::event::kind::Event;

/// The schema (draft 2020-12) that every line satisfies.
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let data = Event::data_schemas(&mut generator);
    let mut definitions = generator.take_definitions(true);
    let one_of: Vec<Value> = data
        .into_iter()
        .map(|(name, schema)| {
            json!({
                "title": name,
                "properties": { "type": { "const": name }, "data": schema },
                "required": ["type", "data"],
            })
        })
        .collect();
    tidy(&mut definitions);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "An event of dcctl",
        "description": format!("One line of the journal of a run, version {SCHEMA_VERSION}."),
        "type": "object",
        "properties": envelope(),
        "required": ["v", "seq", "time", "type", "level", "msg", "run", "elapsed_ms", "data"],
        "oneOf": one_of,
        "$defs": definitions,
    })
}

/// The text of the schema's file, which `dcctl schema` prints.
///
/// # Panics
/// Never: a schema is plain JSON.
pub fn schema_page() -> String {
    let text = serde_json::to_string_pretty(&schema()).expect("a schema is plain JSON");
    format!("{text}\n")
}

fn envelope() -> Value {
    json!({
        "v": { "description": "The major version; a reader refuses one that it does not know.", "const": VERSION },
        "seq": { "description": "Its place in the journal, from 0, without gaps.", "type": "integer", "minimum": 0 },
        "time": {
            "description": "The wall clock, for people: RFC 3339, UTC, six digits.",
            "type": "string",
            "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$",
        },
        "type": { "description": "What happened.", "type": "string" },
        "level": { "description": "How grave it is.", "enum": ["debug", "info", "warn", "error"] },
        "msg": {
            "description": "It in one sentence, for people; never the only carrier of a fact.",
            "type": "string",
            "maxLength": LONGEST_MESSAGE,
        },
        "run": { "description": "The id of the run.", "type": "string" },
        "elapsed_ms": {
            "description": "Milliseconds since the run began, suspended time included; the only time to reckon with.",
            "type": "integer",
            "minimum": 0,
        },
        "step": { "description": "The id of the step that it belongs to, if it belongs to one.", "type": "string" },
        "data": { "description": "The fact; its fields depend on the type.", "type": "object" },
        "redacted": {
            "description": "JSON Pointers of the strings in which a secret was replaced by [redacted].",
            "type": "array",
            "items": { "type": "string" },
        },
        "truncated": {
            "description": "JSON Pointers of what was shortened, with the length before: bytes of a string, entries of \
                            a list.",
            "type": "object",
            "additionalProperties": { "type": "integer", "minimum": 0 },
        },
    })
}

/// Takes out what only Rust knows: the widths of integers.
fn tidy(definitions: &mut Map<String, Value>) {
    for definition in definitions.values_mut() {
        tidy_value(definition);
    }
}

fn tidy_value(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("format").and_then(Value::as_str).is_some_and(|format| format.contains("int")) {
                fields.remove("format");
            }
            fields.values_mut().for_each(tidy_value);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy_value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::examples::{examples, line};

    #[test]
    fn every_example_satisfies_it() {
        let validator = jsonschema::validator_for(&schema()).expect("a valid schema");
        for (seq, event) in (0..).zip(examples()) {
            let line: Value = serde_json::from_str(&line(seq, &event)).expect("JSON");
            let errors: Vec<String> = validator.iter_errors(&line).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{line}: {errors:?}");
        }
    }

    #[test]
    fn it_is_closed_over_types_and_open_to_fields() {
        let validator = jsonschema::validator_for(&schema()).expect("a valid schema");
        let example = examples().pop().expect("an example");
        let mut line: Value = serde_json::from_str(&line(0, &example)).expect("JSON");
        line["new"] = json!(1);
        line["data"]["new"] = json!({"a": 1});
        assert!(validator.is_valid(&line));
        line["type"] = json!("moon.landed");
        assert!(!validator.is_valid(&line));
        line["type"] = json!("run.planned");
        assert!(!validator.is_valid(&line), "data of another type");
    }

    #[test]
    fn every_type_and_every_field_is_described() {
        let schema = schema();
        let definitions = schema["$defs"].as_object().expect("an object");
        for (name, definition) in definitions {
            assert!(definition["description"].is_string(), "{name}");
            let fields = definition["properties"].as_object().into_iter().flatten();
            for (field, described) in fields {
                assert!(described["description"].is_string(), "{name}.{field}: {described}");
            }
        }
    }
}
