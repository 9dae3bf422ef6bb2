//! What every line of events has to be, whichever test makes it.

use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::Value;

/// The lines of a text as events; each has to be one by the schema that `dcctl schema` prints.
#[track_caller]
pub(crate) fn parse(text: &str) -> Vec<Value> {
    text.lines().map(parse_line).collect()
}

#[track_caller]
fn parse_line(line: &str) -> Value {
    static SCHEMA: OnceLock<Validator> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| jsonschema::validator_for(&dcctl::event::schema()).expect("a good schema"));
    let event = serde_json::from_str(line).unwrap_or_else(|error| panic!("not an event: {line}: {error}"));
    if let Err(error) = schema.validate(&event) {
        panic!("not an event by the schema: {error}, at {:?}, in {line}", error.instance_path());
    }
    assert!(line.len() < 16_000, "a line of {} bytes", line.len());
    assert!(!line.contains("##"), "{line}");
    event
}

/// What a whole stream has to be: numbered without gaps, `run.started` first, one `run.finished`, and that last.
#[track_caller]
pub(crate) fn check_whole(events: &[Value]) {
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], number, "{event}");
        assert_eq!(event["type"] == "run.started", number == 0, "{event}");
        assert_eq!(event["type"] == "run.finished", number + 1 == events.len(), "{event}");
    }
}
