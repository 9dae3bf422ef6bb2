//! `dcctl runs list`: the runs of this machine, one a line.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::cli::StatusOutput;
use crate::clock;
use crate::commands::{Desk, print, runs, told};
use crate::run::{Past, State};

/// Prints them, the oldest first.
pub(crate) fn list(desk: &Desk, output: StatusOutput) -> u8 {
    let runs = match runs::all(desk) {
        Ok(runs) => runs,
        Err(failure) => return told(&failure),
    };
    let mut text = String::new();
    match output {
        StatusOutput::Json => {
            for past in &runs {
                writeln!(text, "{}", as_json(past)).expect("a String takes everything");
            }
        }
        StatusOutput::Human if runs.is_empty() => {
            writeln!(text, "no runs in {}", runs::home(desk).display()).expect("a String takes everything");
        }
        StatusOutput::Human => {
            for past in &runs {
                let began = past.began.strftime("%Y-%m-%dT%H:%M:%SZ");
                let place = past.place.as_ref().map(|place| format!(" on {place}")).unwrap_or_default();
                writeln!(text, "{}  {began}  {}{place}: {}", past.run, past.title(), how(past))
                    .expect("a String takes everything");
            }
        }
    }
    print(&text)
}

/// How far a run is, in words.
pub(super) fn how(past: &Past) -> String {
    match &past.state {
        State::Running => "goes on".to_owned(),
        State::Ended { outcome, exit_code, .. } => format!("{} ({exit_code})", outcome.said()),
        State::CutOff { tools } if tools.is_empty() => {
            "was cut off: its processes are gone without a verdict".to_owned()
        }
        State::CutOff { tools } => {
            let named: Vec<String> = tools.iter().map(|(pid, name)| format!("{name} ({pid})")).collect();
            let are = if named.len() == 1 { "is" } else { "are" };
            format!("was cut off without a verdict, and {} {are} still at work", named.join(", "))
        }
        State::Elsewhere { host } => format!("was begun on {host}; what it does now is not known here"),
    }
}

fn as_json(past: &Past) -> Value {
    let (state, tools) = match &past.state {
        State::Running => ("running", None),
        State::Ended { .. } => ("ended", None),
        State::CutOff { tools } => ("cut_off", Some(tools)),
        State::Elsewhere { .. } => ("elsewhere", None),
    };
    let (ended, outcome, lock) = match &past.state {
        State::Ended { at, outcome, lock, .. } => (Some(clock::rfc3339(*at)), Some(*outcome), Some(*lock)),
        State::Running | State::CutOff { .. } | State::Elsewhere { .. } => (None, None, None),
    };
    let tools =
        tools.map(|tools| tools.iter().map(|(pid, name)| json!({ "pid": pid, "name": name })).collect::<Vec<_>>());
    json!({
        "run": past.run, "subject": past.subject, "dry_run": past.dry_run, "place": past.place, "directory": past.folder,
        "began": clock::rfc3339(past.began), "holder": past.holder, "state": state, "ended": ended,
        "outcome": outcome, "exit_code": past.exit_code(), "lock": lock, "tools": tools,
    })
}
