//! Every end of OpenTofu, and what is said of it.

use super::*;
use crate::process::{Directly, Left, Stream, Tie, Update, Why};
use crate::step::tofu_lock::NOT_LOCKED;
use serde_json::json;

fn at(seconds: u64) -> Instant {
    Instant::since_boot(Duration::from_secs(1000 + seconds))
}

const STOP: fn() -> Stop = || Stop::Graceful { since: at(0), directly: Directly::No };

fn ended(exit: Exit) -> Ended {
    Ended {
        pid: 42,
        exit,
        interrupts_sent: 0,
        interrupts_reported: 0,
        why: None,
        killed: false,
        left_behind: Vec::new(),
        took: Duration::from_secs(5),
    }
}

fn interrupted(exit: Exit) -> Ended {
    Ended { interrupts_sent: 1, interrupts_reported: 1, why: Some(Why::StopRequested), ..ended(exit) }
}

fn ui(lines: &[serde_json::Value]) -> Ui {
    let mut ui = Ui::default();
    for line in lines {
        let text = line.to_string();
        ui.take(Update::Line { stream: Stream::Stdout, text, lossy: false, more: false });
    }
    ui
}

fn hook(kind: &str, address: &str) -> serde_json::Value {
    json!({ "@message": "m", "type": kind, "hook": { "resource": { "addr": address }, "action": "create" } })
}

fn error(summary: &str, detail: &str) -> serde_json::Value {
    let diagnostic = json!({ "severity": "error", "summary": summary, "detail": detail, "address": "a.b" });
    json!({ "@level": "error", "@message": "m", "type": "diagnostic", "diagnostic": diagnostic })
}

fn outcome(ui: &Ui, ended: &Ended, stop: Stop) -> Outcome {
    let tail = Tail::default();
    judge(&applied(ui, &tail, ended, None), stop, at(1261))
}

fn applied<'a>(ui: &'a Ui, tail: &'a Tail, ended: &'a Ended, state: Option<Afterwards>) -> Applied<'a> {
    Applied { deed: "apply", name: "infra/instance", ui, tail, ended, unsaved: None, state }
}

fn stop_of(ui: &Ui, ended: &Ended) -> Stopped {
    match outcome(ui, ended, STOP()) {
        Outcome::Stopped(stopped) => stopped,
        other => panic!("not a stop: {other:?}"),
    }
}

#[test]
fn one_interrupt_after_which_everything_begun_is_complete_is_clean() {
    let whole = ui(&[hook("apply_start", "a.b"), hook("apply_complete", "a.b"), error("execution halted", "")]);
    let stopped = stop_of(&whole, &interrupted(Exit::Code(1)));
    assert!(stopped.clean && stopped.unfinished.is_empty(), "{stopped:?}");
    assert_eq!(stopped.note, "OpenTofu finished what was in flight and wrote its state");
}

#[test]
fn a_stop_before_anything_was_applied_is_clean() {
    let planned = ui(&[json!({ "@message": "m", "type": "version", "ui": "1.2" }), error("execution halted", "")]);
    assert!(stop_of(&planned, &interrupted(Exit::Code(1))).clean);
    let waiting = ui(&[hook("version", "x"), error("Error acquiring the state lock", "")]);
    assert!(stop_of(&waiting, &interrupted(Exit::Code(1))).clean);
}

#[test]
fn anything_else_after_a_stop_is_partial_and_named() {
    let halted = || error("execution halted", "");
    let begun = || ui(&[hook("apply_start", "a.b"), halted()]);
    let whole = || ui(&[hook("apply_start", "a.b"), hook("apply_complete", "a.b"), halted()]);
    let errored = ui(&[hook("apply_start", "a.b"), hook("apply_errored", "a.b"), halted()]);
    let unsaved = ui(&[
        hook("apply_start", "a.b"),
        hook("apply_complete", "a.b"),
        error("Failed to persist state to backend", ""),
    ]);
    let twice = Ended { interrupts_reported: 2, ..interrupted(Exit::Code(1)) };
    let killed = Ended { killed: true, interrupts_sent: 2, ..interrupted(Exit::Signal(9)) };
    let cases = [
        (begun(), interrupted(Exit::Code(1)), "before everything that it had begun was complete", true),
        (errored, interrupted(Exit::Code(1)), "before everything that it had begun was complete", true),
        (whole(), twice, "interrupted twice, not by dcctl alone", false),
        (begun(), killed, "had to be killed", true),
        (unsaved, interrupted(Exit::Code(1)), "could not save all of its state", false),
        (whole(), interrupted(Exit::Signal(11)), "before everything", false),
    ];
    for (ui, ended, expected, named) in cases {
        let stopped = stop_of(&ui, &ended);
        assert!(!stopped.clean, "{stopped:?}");
        assert!(stopped.note.contains(expected) && stopped.note.contains("PARTIALLY APPLIED"), "{stopped:?}");
        assert_eq!(stopped.unfinished.contains(&"a.b".to_owned()), named, "{stopped:?}");
    }
}

#[test]
fn silence_is_no_sign_that_nothing_was_done() {
    let unheard = |exit| Ended { interrupts_reported: 0, ..interrupted(exit) };
    let version = || hook("version", "x");
    let cases = [
        // Killed before its first word, or the disk has no room for its output.
        (ui(&[]), Exit::Signal(2), "no word of it was found"),
        (ui(&[]), Exit::Signal(9), "no word of it was found"),
        (ui(&[]), Exit::Code(1), "no word of it was found"),
        (ui(&[version()]), Exit::Code(1), "without a last word"),
        (ui(&[version(), hook("apply_start", "a.b")]), Exit::Code(1), "without a last word"),
        (ui(&[version(), hook("apply_start", "a.b"), hook("apply_complete", "a.b")]), Exit::Signal(9), "last word"),
    ];
    for (ui, exit, expected) in cases {
        let stopped = stop_of(&ui, &unheard(exit));
        assert!(!stopped.clean && stopped.note.contains(expected), "{exit:?} {stopped:?}");
        assert!(stopped.note.contains("PARTIALLY APPLIED"), "{stopped:?}");
    }
    let tail = Tail::default();
    let begun = ui(&[version(), hook("apply_start", "a.b"), hook("apply_complete", "a.b")]);
    let ended = unheard(Exit::Code(1));
    let state = Afterwards::default();
    let stopped = judge(&applied(&begun, &tail, &ended, Some(state)), STOP(), at(1));
    let Outcome::Stopped(stopped) = stopped else { panic!("not a stop: {stopped:?}") };
    assert_eq!(stopped.unfinished, ["a.b"], "what was made and is in no state is named");
    // A plan changes nothing.
    let plan = Applied { deed: PLAN, ..applied(&begun, &tail, &ended, None) };
    let Outcome::Stopped(stopped) = judge(&plan, STOP(), at(1)) else { panic!("not a stop") };
    assert!(stopped.clean, "{stopped:?}");
}

#[test]
fn giving_up_says_what_was_witnessed_and_how_long_it_waited() {
    let left = |pid, fate| {
        let (name, ties) = ("provider".to_owned(), vec![Tie::Orphan]);
        Left { pid, name, age: Duration::from_secs(9), ties, state: 'D', fate }
    };
    let unseen = Ended { left_behind: vec![left(42, Fate::Alive)], ..interrupted(Exit::Unseen) };
    let note = stop_of(&ui(&[]), &unseen).note;
    assert!(note.starts_with("dcctl stopped waiting for the interrupted OpenTofu command. Nobody saw process 42 end"));
    assert!(note.contains("PARTIALLY APPLIED rather than untouched. What exists and is in no state"), "{note}");
    // As what is to be done first says of the same things.
    let first = look_first(&["a.b".to_owned()]).expect("there is one");
    assert!(note.contains("made a second time") && first.contains("made a second time"), "{note}\n{first}");
    assert!(!note.contains("idempotent"), "{note}");
    assert!(note.ends_with("is the one reading that is not safe (dcctl waited 21m1s after the interrupt)"), "{note}");

    let outlived =
        Ended { left_behind: vec![left(7, Fate::Ended), left(8, Fate::Alive)], ..interrupted(Exit::Code(1)) };
    let note = stop_of(&ui(&[]), &outlived).note;
    assert!(note.contains("outlived it: process 8 (provider, state D)") && !note.contains("process 7"), "{note}");
}

#[test]
fn a_failure_is_not_called_a_stop() {
    let failed = ui(&[error("bad value", "")]);
    let not_stopped = outcome(&failed, &ended(Exit::Code(1)), Stop::None);
    let failed_by_itself = outcome(&failed, &ended(Exit::Code(1)), STOP());
    for outcome in [not_stopped, failed_by_itself] {
        let Outcome::Failed(failure) = outcome else { panic!("not a failure: {outcome:?}") };
        assert_eq!(failure.message, "OpenTofu could not apply `infra/instance`");
        assert_eq!(failure.causes, ["a.b: bad value"]);
    }
    let foreign = outcome(&ui(&[]), &Ended { interrupts_reported: 1, ..ended(Exit::Code(1)) }, Stop::None);
    let Outcome::Failed(failure) = foreign else { panic!("not a failure: {foreign:?}") };
    assert!(failure.message.contains("by somebody else than dcctl"), "{failure}");
}

#[test]
fn a_failure_without_a_diagnostic_has_the_last_lines_or_the_end_itself() {
    let mut tail = Tail::default();
    let why = |tail: &Tail| explain("it failed".to_owned(), &ui(&[]), tail, &ended(Exit::Code(1))).causes;
    assert_eq!(why(&tail), ["it ended with exit status 1"]);
    tail.push("panic: runtime error");
    assert_eq!(why(&tail), ["panic: runtime error"]);
}

#[test]
fn an_unsaved_state_is_named_first() {
    let ui = ui(&[error("Failed to save state", "disk full")]);
    let tail = Tail::default();
    let ended = interrupted(Exit::Code(1));
    let path = Path::new("state/infrastructure.errored.tfstate");
    let applied =
        Applied { deed: "apply", name: "infra", ui: &ui, tail: &tail, ended: &ended, unsaved: Some(path), state: None };
    for stop in [Stop::None, STOP()] {
        let Outcome::Failed(failure) = judge(&applied, stop, at(1)) else { panic!("not a failure") };
        assert!(failure.message.contains("it is kept in `state/infrastructure.errored.tfstate`"), "{failure}");
    }
}

#[test]
fn an_opentofu_that_another_one_keeps_out_is_told_from_one_that_failed() {
    let explained = |detail: &str| {
        explain("f".to_owned(), &ui(&[error(NOT_LOCKED, detail)]), &Tail::default(), &ended(Exit::Code(1)))
    };
    let found = explained("Lock Info:\n  ID:        an-id\n  Who:       bob@laptop\n");
    assert_eq!(found.code, Code::StateLocked);
    assert!(found.hints[1].contains("force-unlock an-id"), "{found:?}");
    assert!(explained("resource temporarily unavailable").hints[0].starts_with("wait"));
    let mut tail = Tail::default();
    let boxed = "╷\n│ Error: Error acquiring the state lock\n│ \n│ Error message: open s:\n│ permission denied\n│ \n│ OpenTofu \
                 acquires a state lock to protect the state\n╵";
    boxed.lines().for_each(|line| tail.push(line));
    let in_a_box = explain("f".to_owned(), &ui(&[]), &tail, &ended(Exit::Code(1)));
    assert_eq!(in_a_box.causes, ["Error acquiring the state lock: open s: permission denied"]);
    let full =
        explained("Error message: write /s: no space left on device\n\nOpenTofu acquires a state lock to protect.");
    assert_eq!((full.code, full.hints.len()), (Code::InfrastructureFailed, 0));
    assert_eq!(full.causes, ["a.b: Error acquiring the state lock: write /s: no space left on device"]);
}

fn failure_of(ui: &Ui, ended: &Ended, state: Option<Afterwards>) -> Failure {
    match judge(&applied(ui, &Tail::default(), ended, state), Stop::None, at(0)) {
        Outcome::Failed(failure) => failure,
        other => panic!("no failure: {other:?}"),
    }
}

fn afterwards(trouble: Option<&str>, recorded: &[&str]) -> Afterwards {
    let recorded = recorded.iter().map(|address| (*address).to_owned()).collect();
    Afterwards { trouble: trouble.map(str::to_owned), recorded }
}

#[test]
fn what_may_exist_outside_of_the_state_is_named_and_comes_first() {
    let making = ui(&[hook("apply_start", "a.b"), hook("apply_complete", "a.b"), hook("apply_start", "c.d")]);
    let lost = ui(&[hook("apply_start", "a.b"), hook("apply_errored", "a.b"), error("Plugin did not respond", "")]);
    let failed = ui(&[hook("apply_start", "a.b"), hook("apply_errored", "a.b"), error("no clay left", "")]);
    let (killed, by_itself) = (ended(Exit::Signal(9)), ended(Exit::Code(1)));
    let there = |recorded: &[&str]| Some(afterwards(None, recorded));
    let rows = [
        (&making, &killed, there(&["a.b"]), Some("c.d")),
        (&making, &killed, Some(afterwards(Some("it is empty"), &[])), Some("a.b, c.d")),
        // Where the state is elsewhere, what is in it is not known here.
        (&making, &killed, None, Some("c.d")),
        (&making, &ended(Exit::Code(11)), there(&[]), Some("a.b, c.d")),
        (&lost, &by_itself, there(&[]), Some("a.b")),
        (&lost, &by_itself, there(&["a.b"]), None),
        (&lost, &by_itself, None, Some("a.b")),
        (&failed, &by_itself, there(&[]), None),
    ];
    for (ui, ended, state, expected) in rows {
        let failure = failure_of(ui, ended, state.clone());
        let named = expected.map(|named| format!("may exist without being in the state: {named}"));
        let said = failure.causes.iter().find(|cause| cause.starts_with("may exist"));
        assert_eq!(said, named.as_ref(), "{ended:?} {state:?}");
        match expected {
            Some(named) => assert!(failure.hints[0].contains(named) && failure.hints.len() == 2, "{failure:?}"),
            None => assert!(failure.hints.is_empty(), "{failure:?}"),
        }
    }
    let signalled = failure_of(&making, &killed, None);
    assert!(signalled.message.contains("ended by signal 9") && signalled.message.contains("dcctl had not sent it"));
}

#[test]
fn a_state_that_is_gone_after_an_apply_is_a_failure_however_opentofu_ended() {
    let made = ui(&[hook("apply_start", "a.b"), hook("apply_complete", "a.b")]);
    let gone = || Some(afterwards(Some("there is no `x`"), &[]));
    for exit in [Exit::Code(0), Exit::Code(1)] {
        let failure = failure_of(&made, &ended(exit), gone());
        assert_eq!(failure.message, "OpenTofu has ended, and the state of `infra/instance` is gone: there is no `x`");
        assert!(failure.causes.contains(&"made by this run, and in no state: a.b".to_owned()), "{failure:?}");
        assert!(failure.hints[0].contains("backup") && failure.hints[1].contains("a.b"), "{failure:?}");
    }
    let tail = Tail::default();
    let stopped = interrupted(Exit::Code(1));
    let outcome = judge(&applied(&made, &tail, &stopped, gone()), STOP(), at(0));
    assert!(matches!(outcome, Outcome::Failed(_)), "a stop that lost the state is not clean: {outcome:?}");
}

#[test]
fn what_a_second_interrupt_tore_away_counts_as_unfinished() {
    let making = ui(&[hook("apply_start", "a.b"), hook("apply_complete", "a.b"), hook("apply_start", "c.d")]);
    let twice = Ended { interrupts_sent: 2, interrupts_reported: 2, ..interrupted(Exit::Code(1)) };
    let tail = Tail::default();
    let outcome = judge(&applied(&making, &tail, &twice, Some(afterwards(None, &[]))), STOP(), at(0));
    let Outcome::Stopped(stopped) = outcome else { panic!("not a stop: {outcome:?}") };
    assert_eq!((stopped.clean, stopped.unfinished), (false, vec!["a.b".to_owned(), "c.d".to_owned()]));
}

/// Nobody could learn its exit status.
fn left(ui: &Ui, ended: &Ended, account: Account) -> (bool, Vec<String>, String) {
    let tail = Tail::default();
    let Stopped { clean, unfinished, note } =
        seen_out(&applied(ui, &tail, ended, None), account, Duration::from_secs(1261));
    (clean, unfinished, note)
}

#[test]
fn the_end_of_a_tool_whose_starter_was_gone_is_told_by_its_last_words() {
    let unknown = || ended(Exit::Unknown);
    let once = || interrupted(Exit::Unknown);
    let whole = || vec![hook("apply_start", "a.b"), hook("apply_complete", "a.b")];
    let with = |more: serde_json::Value| ui(&whole().into_iter().chain([more]).collect::<Vec<_>>());
    let changes = json!({ "operation": "apply" });
    let summary =
        json!({ "@message": "Apply complete! Resources: 1 added.", "type": "change_summary", "changes": changes });
    let begun = ui(&[hook("apply_start", "a.b")]);
    let failing = with(error("it burns", ""));
    let twice = Ended { interrupts_reported: 2, ..once() };
    let killed = Ended { killed: true, ..once() };
    let open = || vec!["a.b".to_owned()];
    let rows = [
        (with(summary), unknown(), Account::Ended, true, vec![], "had come to its end: 1 added"),
        (with(error("execution halted", "")), once(), Account::Ended, true, vec![], "finished what was in flight"),
        // Its output may have been deleted, or had no room.
        (ui(&[]), unknown(), Account::BrokenOff, false, vec![], "no word of it was found"),
        (ui(&[hook("version", "x")]), once(), Account::Ended, true, vec![], "before anything was applied"),
        (begun.clone(), once(), Account::BrokenOff, false, open(), "without a last word"),
        (ui(&whole()), unknown(), Account::BrokenOff, false, vec![], "without a last word"),
        (failing, unknown(), Account::Ended, false, vec![], "OpenTofu failed: it burns"),
        (begun.clone(), twice, Account::Ended, false, open(), "was interrupted twice"),
        (begun, killed, Account::Ended, false, open(), "had to be killed"),
    ];
    for (ui, ended, account, clean, unfinished, said) in rows {
        let judged = left(&ui, &ended, account);
        assert_eq!((judged.0, &judged.1), (clean, &unfinished), "{said}: {judged:?}");
        assert!(judged.2.contains(said), "{said}: {judged:?}");
    }
}

#[test]
fn an_opentofu_that_nobody_saw_end_is_not_said_to_have_ended() {
    let left = |pid| {
        let (name, ties) = ("tofu".to_owned(), vec![Tie::Orphan]);
        vec![Left { pid, name, age: Duration::from_secs(9), ties, state: 'D', fate: Fate::Alive }]
    };
    let tail = Tail::default();
    let begun = ui(&[hook("apply_start", "a.b")]);
    let whole = ui(&[hook("apply_start", "a.b"), hook("apply_complete", "a.b"), error("execution halted", "")]);
    let frozen = Ended { left_behind: left(42), ..interrupted(Exit::Unseen) };
    let outlived = Ended { left_behind: left(7), ..interrupted(Exit::Unknown) };
    let rows = [
        (&begun, &frozen, Account::BrokenOff, "Nobody saw process 42 end; still there: process 42 (tofu, state D)", 1),
        (&ui(&[]), &frozen, Account::BrokenOff, "Nobody saw process 42 end", 0),
        (&whole, &frozen, Account::Ended, "Nobody saw process 42 end", 0),
        (&whole, &outlived, Account::Ended, "something it started outlived it: process 7 (tofu, state D)", 0),
    ];
    for (ui, ended, account, witnessed, unfinished) in rows {
        let first = "dcctl stopped waiting for the interrupted OpenTofu command. ";
        let last =
            "Assuming nothing happened is the one reading that is not safe (dcctl waited 21m1s after the interrupt)";
        let told = seen_out(&applied(ui, &tail, ended, None), account, Duration::from_secs(1261));
        assert!(!told.clean && told.unfinished.len() == unfinished, "{told:?}");
        assert!(told.note.starts_with(first) && told.note.ends_with(last), "{told:?}");
        assert!(told.note.contains(witnessed) && !told.note.contains("OpenTofu ended"), "{told:?}");
        let path = Path::new("state/infrastructure.errored.tfstate");
        let applied = Applied { unsaved: Some(path), ..applied(ui, &tail, ended, None) };
        let told = seen_out(&applied, account, Duration::from_secs(1261));
        assert!(told.note.starts_with("OpenTofu could not save its state; it is kept in `state/"), "{told:?}");
        assert!(told.note.ends_with(last), "{told:?}");
    }
}
