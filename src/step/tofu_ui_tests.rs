//! What becomes of everything that OpenTofu may print.

use super::*;
use serde_json::json;

fn line(text: impl Into<String>) -> process::Update {
    process::Update::Line { stream: Stream::Stdout, text: text.into(), lossy: false, more: false }
}

fn part(text: &str) -> process::Update {
    process::Update::Line { stream: Stream::Stdout, text: text.to_owned(), lossy: false, more: true }
}

fn message(kind: &str, rest: &Value) -> String {
    let mut line = json!({ "@level": "info", "@message": "said", "@module": "tofu.ui", "type": kind });
    for (name, value) in rest.as_object().expect("an object") {
        line[name] = value.clone();
    }
    line.to_string()
}

fn hook(kind: &str, address: &str) -> String {
    message(kind, &json!({ "hook": { "resource": { "addr": address }, "action": "create", "elapsed_seconds": 3 } }))
}

/// What is said of these lines, in short.
fn said(ui: &mut Ui, lines: &[String]) -> Vec<String> {
    let mut said = Vec::new();
    for text in lines {
        match ui.take(line(text)) {
            Heard::Text(process::Update::Line { text, .. }) => said.push(format!("text: {text}")),
            Heard::Text(other) => said.push(format!("{other:?}")),
            Heard::Said(updates) => said.extend(updates.into_iter().map(|update| match update {
                Update::Resource { address, action, state, elapsed } => {
                    format!("{address} {action} {state:?} {:?}", elapsed.map(|elapsed| elapsed.as_secs()))
                }
                Update::Diagnostic { severity, summary, detail, address, source, .. } => {
                    format!("{severity:?}: {summary} | {detail} | {address:?} | {source:?}")
                }
                other => format!("{other:?}"),
            })),
        }
    }
    said
}

#[test]
fn a_resource_is_followed_from_plan_to_end() {
    let mut ui = Ui::default();
    let change = |action: &str| json!({ "change": { "resource": { "addr": "a.b" }, "action": action } });
    let lines = [
        message("planned_change", &change("create")),
        message("planned_change", &change("noop")),
        hook("apply_start", "a.b"),
        hook("apply_progress", "a.b"),
        hook("apply_complete", "a.b"),
        hook("apply_start", "c.d"),
        hook("apply_errored", "c.d"),
        hook("apply_start", "e.f"),
        message("refresh_start", &json!({ "hook": { "resource": { "addr": "g.h" } } })),
    ];
    let expected = [
        "a.b create Planned None",
        "a.b create Started Some(3)",
        "a.b create Progressed Some(3)",
        "a.b create Completed Some(3)",
        "c.d create Started Some(3)",
        "c.d create Failed Some(3)",
        "e.f create Started Some(3)",
    ];
    assert_eq!(said(&mut ui, &lines), expected);
    assert_eq!(ui.unfinished(), ["c.d", "e.f"]);
    assert_eq!((ui.started(), ui.planned().as_deref()), (3, Some("1 to create")));
}

#[test]
fn the_command_of_a_failed_local_exec_is_never_said() {
    let mut ui = Ui::default();
    let diagnostic = json!({
        "severity": "error", "summary": "local-exec provisioner error",
        "detail": "Error running command 'echo hunter2': exit status 3. Output: hunter2\n",
        "address": "terraform_data.b", "range": { "filename": "main.tf", "start": { "line": 17 } }
    });
    let said = said(&mut ui, &[message("diagnostic", &json!({ "diagnostic": diagnostic }))]);
    assert_eq!(said.len(), 1);
    let begins = "Error: local-exec provisioner error | OpenTofu puts the whole command into this message";
    assert!(said[0].starts_with(begins) && said[0].contains("is in events.jsonl"), "{said:?}");
    assert!(said[0].ends_with("Some(\"terraform_data.b\") | Some(\"main.tf:17\")"), "{said:?}");
    assert!(!format!("{said:?} {ui:?}").contains("hunter2"));
}

#[test]
fn a_printed_state_is_never_said() {
    let mut ui = Ui::default();
    let state = message("log", &json!({ "state": { "outputs": { "password": { "value": "hunter2" } } } }));
    let lines = said(&mut ui, &[state]);
    assert!(ui.has_printed_state());
    assert!(!lines.iter().any(|line| line.contains("hunter2")), "{lines:?}");

    // One of megabytes comes in pieces, and so large a line is not even put together.
    let mut ui = Ui::default();
    let mut heard =
        vec![ui.take(part("{\"@level\":\"info\",\"@message\":\"Emergency state dump\",\"state\":{\"a\":1,"))];
    heard.extend((0..200).map(|_| ui.take(part(&"hunter2 ".repeat(1000)))));
    heard.push(ui.take(line("}}")));
    assert!(ui.has_printed_state());
    assert!(heard.iter().all(|heard| matches!(heard, Heard::Said(updates) if updates.is_empty())));
    assert_eq!(said(&mut ui, &["next".to_owned()]), ["text: next"]);
}

#[test]
fn a_line_in_pieces_is_put_together() {
    let mut ui = Ui::default();
    let whole = hook("apply_start", "a.b");
    let (first, second) = whole.split_at(30);
    assert!(matches!(ui.take(part(first)), Heard::Said(updates) if updates.is_empty()));
    assert_eq!(said(&mut ui, &[second.to_owned()]), ["a.b create Started Some(3)"]);
}

#[test]
fn what_is_no_line_of_opentofu_is_handed_on() {
    let mut ui = Ui::default();
    let lines = ["Initializing the backend...", "{ not json", "{\"other\":\"json\"}", ""].map(str::to_owned);
    let expected: Vec<String> = lines.iter().map(|line| format!("text: {line}")).collect();
    assert_eq!(said(&mut ui, &lines), expected);
    assert!(!ui.has_spoken());
    let stderr = process::Update::Line { stream: Stream::Stderr, text: "panic".to_owned(), lossy: false, more: false };
    assert!(matches!(ui.take(stderr.clone()), Heard::Text(text) if text == stderr));
}

#[test]
fn of_init_only_what_it_chose_is_worth_a_line() {
    let mut ui = Ui::default();
    let lines = ["Initializing the backend...", "Installed hashicorp/time v0.14.2 (unauthenticated)"]
        .map(|text| json!({ "@level": "info", "@message": text, "@module": "tofu.ui" }).to_string());
    assert_eq!(said(&mut ui, &lines), ["text: Installed hashicorp/time v0.14.2 (unauthenticated)"]);
}

#[test]
fn what_a_provisioner_prints_is_output() {
    let mut ui = Ui::default();
    let hook = json!({ "resource": { "addr": "a.b" }, "provisioner": "local-exec", "output": "hello\n" });
    let lines = [message("provision_progress", &json!({ "hook": hook }))];
    assert_eq!(said(&mut ui, &lines), ["text: a.b (local-exec): hello"]);
}

#[test]
fn a_newer_form_is_warned_about() {
    let mut ui = Ui::default();
    assert_eq!(said(&mut ui, &[message("version", &json!({ "ui": "1.9" }))]), [""; 0]);
    let said = said(&mut ui, &[message("version", &json!({ "ui": "2.0" }))]);
    assert!(said[0].starts_with("Warning: OpenTofu speaks version 2.0"), "{said:?}");
}

#[test]
fn the_last_summary_is_said_in_few_words() {
    let mut ui = Ui::default();
    let summary = |message: &str, operation: &str| {
        json!({ "@level": "info", "@message": message, "type": "change_summary", "changes": { "operation": operation } })
            .to_string()
    };
    said(&mut ui, &[summary("Plan: 2 to add, 0 to change, 0 to destroy.", "plan")]);
    assert_eq!(ui.summary(), None);
    said(&mut ui, &[summary("Apply complete! Resources: 2 added, 0 changed, 0 destroyed.", "apply")]);
    assert_eq!(ui.summary().as_deref(), Some("2 added, 0 changed, 0 destroyed"));
}

#[test]
fn lines_tell_what_the_tool_is_at() {
    let log = |text: &str| message("log", &json!({ "@message": text }));
    let summary = |operation: &str| message("change_summary", &json!({ "changes": { "operation": operation } }));
    let diagnostic = |level: &str| message("diagnostic", &json!({ "@level": level, "diagnostic": {} }));
    let signs_of = [
        (log("\nInterrupt received.\nPlease wait for OpenTofu to exit"), Some(Sign::Interrupted)),
        (log("\nTwo interrupts received. Exiting immediately."), Some(Sign::Interrupted)),
        (log("Stopping operation..."), None),
        (message("provision_progress", &json!({ "@message": "Interrupt received" })), None),
        (hook("apply_start", "a"), Some(Sign::Opened)),
        (hook("apply_complete", "a"), Some(Sign::Closed)),
        (hook("apply_errored", "a"), Some(Sign::Closed)),
        (summary("plan"), None),
        (summary("apply"), Some(Sign::Concluded)),
        (diagnostic("error"), Some(Sign::Concluded)),
        (diagnostic("warn"), None),
        ("{\"@level\":\"error\",\"@message\":\"a diagnostic that is cut".to_owned(), Some(Sign::Concluded)),
        ("{\"@level\":\"info\",\"@message\":\"cut".to_owned(), None),
        ("Interrupt received".to_owned(), None),
        ("{}".to_owned(), None),
    ];
    for (line, expected) in signs_of {
        assert_eq!(signs(&line), expected, "{line}");
    }
}

/// OpenTofu was killed, or its disk was full, in the middle of the line; or the line has a form that is not known.
#[test]
fn a_line_that_cannot_be_read_and_may_carry_secrets_is_left_out() {
    let torn = [
        r#"{"@level":"error","@message":"Error: local-exec provisioner error","diagnostic":{"detail":"Error running command 'curl hunter22"#,
        r#"{"@level":"error","@message":"x","diagnostic":{"detail":"hunter22","severity":1,"summary":"local-exec provisioner error"}}"#,
        r#"{"@level":"info","@message":"The state","state":{"secret":"hunter22""#,
    ];
    for line in torn {
        let line = process::Update::Line { stream: Stream::Stdout, text: line.to_owned(), lossy: false, more: false };
        match Ui::default().take(line) {
            Heard::Text(update) => panic!("it was handed on: {update:?}"),
            Heard::Said(said) => assert!(!format!("{said:?}").contains("hunter22") && said.len() == 1, "{said:?}"),
        }
    }
}

#[test]
fn what_is_only_read_is_no_change_and_its_end_is_told_when_opentofu_says_nothing_of_it() {
    let mut ui = Ui::default();
    let hook = |kind: &str, address: &str| {
        let resource = format!(r#"{{"addr":"{address}"}}"#);
        format!(r#"{{"@message":"m","type":"{kind}","hook":{{"resource":{resource},"action":"read"}}}}"#)
    };
    for line in [hook("apply_start", "data.a"), hook("apply_start", "data.b"), hook("apply_complete", "data.a")] {
        let (stream, lossy, more) = (Stream::Stdout, false, false);
        let heard = ui.take(process::Update::Line { stream, text: line, lossy, more });
        assert!(matches!(heard, Heard::Said(said) if said.len() == 1));
    }
    assert_eq!((ui.started(), ui.unfinished()), (0, Vec::<String>::new()));
    let cut_off = ui.cut_off();
    assert!(
        matches!(&cut_off[..], [Update::Resource { address, state: ResourceState::Failed, .. }] if address == "data.b"),
        "{cut_off:?}"
    );
    assert_eq!(ui.cut_off(), []);
}
