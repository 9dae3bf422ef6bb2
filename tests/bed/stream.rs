//! What every event line of every test has to be, whatever the test is about: valid by the schema that `dcctl schema`
//! prints, in order, and complete when its run has ended.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::Value;

/// The keys of a line, in their order; `step`, `redacted` and `truncated` may be missing.
const KEYS: [&str; 12] =
    ["v", "seq", "time", "type", "level", "msg", "run", "elapsed_ms", "step", "data", "redacted", "truncated"];

/// Reads lines and holds each against what a line is. Those before `known` were held against it before.
#[track_caller]
pub(crate) fn read(text: &str, known: usize) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    // Only where the disk was full does output make way for the verdict.
    let made_way = text.contains("was out of room for a time");
    let lines: Vec<&str> = text.split_terminator('\n').collect();
    for (index, line) in lines.iter().enumerate() {
        let event: Value = match serde_json::from_str(line) {
            Ok(event) => event,
            // Only a writer that was killed leaves half a line, and whoever goes on after it says so in the verdict.
            Err(_) if is_torn(line) && lines[index..].iter().any(|later| later.contains("supervisor.killed")) => {
                continue;
            }
            Err(error) => panic!("not an event: {line}: {error}"),
        };
        if index >= known {
            check(line, &event, events.last());
        }
        let expected = events.last().and_then(|before| before["seq"].as_u64()).map_or(0, |before| before + 1);
        let seq = event["seq"].as_u64().expect("a number");
        assert!(seq == expected || seq > expected && made_way, "a gap in the numbers, {expected} is missing: {line}");
        events.push(event);
    }
    events
}

/// Half of a line, as a kill leaves it.
fn is_torn(line: &str) -> bool {
    line.starts_with("{\"v\":") || "{\"v\":".starts_with(line)
}

#[track_caller]
fn check(line: &str, event: &Value, before: Option<&Value>) {
    static SCHEMA: OnceLock<Validator> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| jsonschema::validator_for(&dcctl::event::schema()).expect("a valid schema"));
    let errors: Vec<String> = schema.iter_errors(event).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "the schema does not allow {line}: {errors:?}");
    assert!(line.len() < 16_000, "a line of {} bytes", line.len());
    assert!(!line.contains("##") && !line.contains(char::is_control), "a log would act on {line:?}");
    let known = KEYS.iter().copied().filter(|key| event.get(*key).is_some());
    let keys = event.as_object().expect("an object").keys();
    assert!(known.eq(keys.map(String::as_str)), "keys out of order, or unknown: {line}");
    match before {
        None => assert_eq!(event["type"], "run.started", "the first event is another: {line}"),
        Some(before) => {
            assert_ne!(event["type"], "run.started", "a second beginning: {line}");
            assert_ne!(before["type"], "run.finished", "something after the verdict: {line}");
            assert_eq!(event["run"], before["run"], "another run: {line}");
            assert!(event["elapsed_ms"].as_u64() >= before["elapsed_ms"].as_u64(), "time went back: {line}");
        }
    }
}

/// Whether a journal lacks nothing of what was shown but output, which made way for the verdict on a full disk.
pub(crate) fn has_made_way(journal: &[Value], shown: &[Value]) -> bool {
    let was_full = shown.iter().any(|event| event["data"]["text"].to_string().contains("was out of room for a time"));
    let kept = shown.iter().filter(|event| event["type"] != "process.output" || journal.contains(event));
    was_full && kept.eq(journal)
}

/// The verdict of a stream, if it has one.
pub(crate) fn verdict(events: &[Value]) -> Option<&Value> {
    events.last().filter(|event| event["type"] == "run.finished")
}

/// Fails the test unless these events tell of a run from its beginning to its verdict.
#[track_caller]
pub(crate) fn assert_complete(events: &[Value]) {
    let Some(verdict) = verdict(events) else {
        let last = events.last().map_or("nothing", |event| event["msg"].as_str().unwrap_or_default());
        panic!("the last line is no verdict: {last}");
    };
    // Whoever says the verdict in place of a supervisor that was killed, or after it broke, has not seen the end of what
    // it had begun.
    let code = &verdict["data"]["failure"]["code"];
    if code != "supervisor.killed" && code != "internal" {
        assert_everything_ended(events, verdict);
    }
    let (code, failed) = (&verdict["data"]["exit_code"], verdict["data"].get("failure").is_some());
    assert_eq!(*code != 0, failed, "a code other than 0 has a reason, and 0 has none: {verdict}");
}

/// Every `*.started` has one end.
#[track_caller]
fn assert_everything_ended(events: &[Value], verdict: &Value) {
    let mut open: BTreeMap<String, &Value> = BTreeMap::new();
    for event in events {
        let (kind, data) = (event["type"].as_str().expect("a type"), &event["data"]);
        let (noun, verb) = kind.split_once('.').unwrap_or((kind, ""));
        let thing = match noun {
            "step" => &data["id"],
            "process" => &data["program"],
            "resource" => &data["address"],
            _ => continue,
        };
        let name = format!("{noun} {thing}");
        match verb {
            "started" => assert!(open.insert(name, event).is_none(), "begun twice: {event}"),
            "finished" | "completed" | "failed" => {
                // A resource may fail without having begun, for example in the plan.
                let begun = open.remove(&name).is_some() || kind == "resource.failed";
                assert!(begun, "it ended without having begun: {event}");
            }
            _ => {}
        }
    }
    let unfinished = verdict["data"]["unfinished"].as_array().map_or(&[][..], Vec::as_slice);
    open.retain(|_, event| !unfinished.contains(&event["data"]["address"]));
    assert!(open.is_empty(), "nobody says how this ended: {open:?}");
}
