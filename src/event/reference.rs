//! Writes `docs/reference/events.md`: the contract of the journal, and one section per type with its fields and an
//! example. What enumerates is generated, so it cannot rot.

use serde_json::{Map, Value};

use crate::event::envelope::{LONGEST_LINE, LONGEST_MESSAGE};
use crate::event::envelope::{SCHEMA_ID, SCHEMA_VERSION};
use crate::event::examples::{examples, line};
use crate::event::kind::Event;
use crate::event::schema::schema;

/// The text of `docs/reference/events.md`.
pub fn reference_page() -> String {
    let schema = schema();
    let mut page = introduction();
    page.push_str("\n## The fields of every line\n\n");
    page.push_str(&fields(&schema));
    page.push_str(CONTRACT);
    page.push_str("\n## Types\n\n");
    let definitions: Vec<&Value> = data_of_types(&schema).collect();
    for (name, definition) in Event::TYPES.iter().zip(&definitions) {
        page.push_str(&in_the_list(name, definition));
    }
    for (seq, (event, definition)) in (0..).zip(examples().iter().zip(&definitions)) {
        page.push_str(&section(definition, event, seq));
    }
    page.push_str("\n## Parts of events\n");
    for (name, definition) in parts(&schema) {
        page.push_str(&part(name, definition));
    }
    page
}

fn introduction() -> String {
    format!(
        "# Events\n\n\
         <!-- Generated from the types in src/event/. Change them there and run `make docs`. -->\n\n\
         A run is told as a journal: one JSON object per line, UTF-8, in the order in which things happened. \
         `--output jsonl` prints it, `--events-file FILE` writes it, and every run keeps it as `events.jsonl` in \
         its run directory. `dcctl schema` prints the JSON Schema (`{SCHEMA_ID}`, version {SCHEMA_VERSION}) that every \
         line satisfies.\n\n\
         A line has at most {LONGEST_LINE} bytes, its line feed included, and is written at once. The first five \
         fields and `msg` come first, so that a line that something cut off still says what happened. `msg` has at \
         most {LONGEST_MESSAGE} bytes.\n"
    )
}

const CONTRACT: &str = "
## What a reader can rely on

- The first event is `run.started`, also of a run that is refused at once. `run.planned` comes before any work and
  names every step, so that what never ran can be listed.
- The last event is `run.finished`, exactly once: outcome, exit code, where the lock is. **A journal that ends without
  it tells of a run that was cut off: its outcome is not known.** The last line of such a journal may be torn.
- `seq` starts at 0 and has no gaps. A gap means that whatever carried the lines lost some, or that output made way for
  the verdict on a full disk.
- Every `step.started` has its `step.finished`, every `process.started` its `process.finished`; a stop does not change
  this. Only a run whose supervisor was killed or broke (`supervisor.killed`, `internal`) may lack them: nobody saw the end.
  A resource that started and was not seen to complete is named in `unfinished` of `step.finished` and `run.finished`.
- Facts are never dropped. What tools printed (`process.output`) may be when the disk of the run directory has
  no room, and then `output.dropped` says how many lines are missing at that place. Where it is only slow, what tools print
  waits in their files.
- `elapsed_ms` counts on a clock that also counts suspended time, and is the only time to reckon with. `time` is for
  people.
- Correlate by `run`, by `step` and by the ids in `data`, never by titles or sentences. `msg` may be worded anew at any
  time.

## How to read what you do not know

- Ignore fields that you do not know, in `data` as well as beside it.
- Ignore types that you do not know. Show `msg` if you show anything.
- Treat a word that you do not know in a field with a list of words (`outcome`, `lock`, `action`) as you treat an
  unknown type. Lists of words may grow, as may the list of types: that is a new minor version of the schema.
- Refuse a `v` that you do not know: it means that something here is no longer true.

## What was done to a line

- **Redaction.** Every value that came from a secret was replaced by `[redacted]` before the line was made, and
  `redacted` names the places as JSON Pointers. So was everything under a key that names a secret.
- **Escape sequences** of terminals were taken out of every string. Other control characters became `U+FFFD`.
- **Length.** A string or a list that was too long was shortened, and `truncated` names it with the length that it had:
  bytes of a string, entries of a list. `msg` is shortened with `…` and not named: it never carries a fact alone.
- **Hashes.** Two hashes in a row are written `#\\u0023`, which every JSON reader reads as two hashes. GitHub's runner
  would otherwise obey a `##[command]` that a tool printed.
";

/// The schemas of the data of all types, in their order.
fn data_of_types(schema: &Value) -> impl Iterator<Item = &Value> {
    array(&schema["oneOf"]).map(|of_type| resolve(schema, &of_type["properties"]["data"]))
}

/// A type in the list of types, with the first sentence about it.
fn in_the_list(name: &str, definition: &Value) -> String {
    let prose = prose(definition);
    let sentence = prose.split_inclusive(". ").next().unwrap_or_default().trim_end();
    format!("- [`{name}`](#{}): {sentence}\n", name.replace('.', ""))
}

fn section(definition: &Value, event: &Event, seq: u64) -> String {
    format!(
        "\n### `{}`\n\n{} Level `{}` in the example.\n\n{}\n```json\n{}\n```\n",
        event.type_name(),
        prose(definition),
        event.level(),
        fields(definition),
        line(seq, event)
    )
}

/// Structs and lists of words that events are made of, in alphabetical order.
fn parts(schema: &Value) -> Vec<(&String, &Value)> {
    let of_types: Vec<&Value> = data_of_types(schema).collect();
    let mut parts: Vec<_> = object(&schema["$defs"])
        .iter()
        .filter(|(_, definition)| !of_types.iter().any(|known| std::ptr::eq(*known, *definition)))
        .collect();
    parts.sort_by_key(|(name, _)| *name);
    parts
}

fn part(name: &str, definition: &Value) -> String {
    let mut text = format!("\n### {name}\n\n{}\n\n", prose(definition));
    let words: Vec<&Value> = array(&definition["oneOf"]).collect();
    if words.is_empty() {
        text.push_str(&fields(definition));
    }
    for word in words {
        let names = array(&word["enum"]).chain(word.get("const"));
        for name in names.filter_map(Value::as_str) {
            let description = word["description"].as_str().unwrap_or_default();
            let line = format!("- `{name}`: {}\n", description.replace('\n', " "));
            text.push_str(&line);
        }
    }
    text
}

/// The fields of a struct as a table.
fn fields(definition: &Value) -> String {
    let required: Vec<&str> = array(&definition["required"]).filter_map(Value::as_str).collect();
    let mut table = "| field | | what |\n|---|---|---|\n".to_owned();
    for (name, field) in object(&definition["properties"]) {
        let optional = if required.contains(&name.as_str()) { "" } else { ", may be missing" };
        let row = format!("| `{name}` | {}{optional} | {} |\n", kind(field), prose(field).replace('|', "\\|"));
        table.push_str(&row);
    }
    table
}

/// What a field holds, in a word.
fn kind(field: &Value) -> String {
    if let Some(name) = field["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(known) = field.get("const") {
        return format!("`{known}`");
    }
    if field.get("enum").is_some() {
        let words: Vec<String> =
            array(&field["enum"]).map(|word| format!("`{}`", word.as_str().unwrap_or("?"))).collect();
        return words.join(", ");
    }
    if let Some(some) = array(&field["anyOf"]).find(|option| option["type"] != "null") {
        return kind(some);
    }
    let name = match &field["type"] {
        Value::Array(names) => names.iter().find_map(|name| name.as_str().filter(|name| *name != "null")),
        other => other.as_str(),
    };
    match name {
        Some("array") => format!("list of {}", kind(&field["items"])),
        Some("boolean") => "true or false".to_owned(),
        Some(other) => other.to_owned(),
        None => "anything".to_owned(),
    }
}

fn prose(definition: &Value) -> String {
    definition["description"].as_str().unwrap_or_default().replace('\n', " ")
}

fn resolve<'a>(schema: &'a Value, reference: &Value) -> &'a Value {
    let name = reference["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"));
    &schema["$defs"][name.expect("the data of a type is a named struct")]
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("a schema of a struct has properties")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_section_and_every_link_a_target() {
        let page = reference_page();
        for name in Event::TYPES {
            assert!(page.contains(&format!("\n### `{name}`\n\n")), "{name}");
        }
        let titles = page.lines().filter_map(|line| line.strip_prefix("### "));
        let targets: Vec<String> = titles.map(|title| title.to_lowercase().replace(['`', '.'], "")).collect();
        for link in page.split("](#").skip(1) {
            let target = link.split(')').next().expect("the end of a link");
            assert!(targets.iter().any(|known| known == target), "{target}");
        }
    }
}
