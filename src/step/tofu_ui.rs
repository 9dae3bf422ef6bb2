//! Reads OpenTofu's machine-readable lines: what they tell about the tool, about resources, and about what went wrong.
//!
//! OpenTofu promises JSON on standard output and does not always keep to it (wrappers, plug-in caches, crashes), so
//! anything that is no such line is handed on as text. Two kinds of line carry secrets in clear: the state that
//! OpenTofu prints when it can save it nowhere, and the diagnostic of a failed `local-exec`, which has the whole
//! command in it. Neither is ever handed on.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::process::{self, Sign, Stream};
use crate::step::{ResourceState, Severity, Update};

/// The major version of the machine-readable form that is known.
const KNOWN_UI: &str = "1.";

/// The longest line that is read as a whole, in bytes. A state of megabytes is not among what has to be read.
const LONGEST_LINE: usize = 1 << 20;

/// What the signal handler of OpenTofu prints, once for the first interrupt and once for the second.
const INTERRUPTED: [&str; 2] = ["Interrupt received", "Two interrupts received"];

/// The summary of the warning that a lock file made from a mirror knows one platform only.
const ONE_PLATFORM: &str = "Incomplete lock file information for providers";

/// The summary of what OpenTofu says about itself when it stopped because it was interrupted.
const HALTED: &str = "execution halted";

/// The summary of a diagnostic whose detail has the whole command in it.
const LOCAL_EXEC: &str = "local-exec provisioner error";

/// What is in such a diagnostic, and in the line that carries a state. The detail of a diagnostic comes before its summary.
const SECRETIVE: [&str; 3] = [LOCAL_EXEC, "Error running command", "\"state\":"];

/// What OpenTofu does with a data source.
const READ: &str = "read";

/// Lines about what is in the state or is to be. OpenTofu gets the lock before it has them.
const AT_WORK: [&str; 5] = ["refresh_start", "planned_change", "resource_drift", "apply_start", "change_summary"];

/// What one line tells about the tool.
pub(crate) fn signs(line: &str) -> Option<Sign> {
    if !line.starts_with('{') {
        return None;
    }
    let Ok(said) = serde_json::from_str::<Brief<'_>>(line) else {
        // The beginning of a line that is longer than a piece: its keys are in alphabetical order.
        return line.starts_with("{\"@level\":\"error\"").then_some(Sign::Concluded);
    };
    match said.kind.as_deref()? {
        "log" if is_interrupt(&said.message) => Some(Sign::Interrupted),
        "apply_start" => Some(Sign::Opened),
        "apply_complete" | "apply_errored" => Some(Sign::Closed),
        "change_summary" => {
            let last = said.changes.is_some_and(|changes| changes.operation != "plan");
            last.then_some(Sign::Concluded)
        }
        "diagnostic" if said.level == "error" => Some(Sign::Concluded),
        _ => None,
    }
}

fn is_interrupt(message: &str) -> bool {
    let message = message.trim_start();
    INTERRUPTED.iter().any(|said| message.starts_with(said))
}

/// What of a line is enough to tell its signs.
#[derive(Deserialize)]
struct Brief<'a> {
    #[serde(rename = "@level", borrow, default)]
    level: Cow<'a, str>,
    #[serde(rename = "@message", borrow, default)]
    message: Cow<'a, str>,
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    changes: Option<Changes>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Changes {
    #[serde(default)]
    operation: String,
}

/// A whole line.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "@level", default)]
    level: String,
    #[serde(rename = "@message")]
    message: String,
    #[serde(rename = "type", default)]
    kind: String,
    ui: Option<String>,
    change: Option<Change>,
    hook: Option<Hook>,
    diagnostic: Option<Diagnostic>,
    changes: Option<Value>,
    outputs: Option<BTreeMap<String, Output>>,
    state: Option<serde::de::IgnoredAny>,
    #[serde(rename = "@timestamp")]
    time: Option<String>,
}

#[derive(Deserialize)]
struct Change {
    resource: Resource,
    action: String,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Hook {
    resource: Resource,
    #[serde(default)]
    action: String,
    #[serde(default)]
    provisioner: String,
    output: Option<String>,
    elapsed_seconds: Option<f64>,
}

#[derive(Deserialize)]
struct Resource {
    addr: String,
}

#[derive(Deserialize)]
struct Diagnostic {
    severity: String,
    summary: String,
    #[serde(default)]
    detail: String,
    address: Option<String>,
    range: Option<Range>,
}

#[derive(Deserialize)]
struct Range {
    filename: String,
    start: Start,
}

#[derive(Deserialize)]
struct Start {
    line: u64,
}

/// An output of the root, as the last lines of an apply tell it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Output {
    /// Whether its value is a secret. Then the line does not have it.
    #[serde(default)]
    pub(crate) sensitive: bool,
    /// Its value, once it is known.
    pub(crate) value: Option<Value>,
}

/// What went wrong, as OpenTofu said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// One sentence.
    pub(crate) summary: String,
    /// The rest of it.
    pub(crate) detail: String,
    /// The resource.
    pub(crate) address: Option<String>,
    /// The time of the first line of the OpenTofu that said it.
    pub(crate) since: Option<Timestamp>,
}

/// Something that a plan would delete or replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doomed {
    /// Its address.
    pub(crate) address: String,
    /// What would happen to it.
    action: String,
    /// Why, in OpenTofu's words, where it says.
    reason: Option<String>,
}

impl fmt::Display for Doomed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = if self.action == "replace" { "replaced" } else { "deleted" };
        write!(f, "{} would be {done}", self.address)?;
        match &self.reason {
            Some(reason) => write!(f, " ({})", reason.replace('_', " ")),
            None => Ok(()),
        }
    }
}

/// Reads the lines of one OpenTofu process and keeps the account of them.
#[derive(Debug, Default, Clone)]
pub(crate) struct Ui {
    /// The parts of a long line, so far.
    parts: String,
    /// The line in `parts` is longer than any that is read.
    too_long: bool,
    /// Changes that were begun and whose completion was not reported, by address.
    open: BTreeMap<String, String>,
    /// The addresses whose change failed.
    failed: Vec<String>,
    /// The addresses of which something new was begun to be made, whatever came of it.
    making: BTreeSet<String>,
    /// Data sources that are being read.
    reading: BTreeSet<String>,
    /// What the plan would delete or replace.
    doomed: Vec<Doomed>,
    /// What is planned, by action.
    planned: BTreeMap<String, u64>,
    /// The final summary in OpenTofu's words.
    summary: Option<String>,
    problems: Vec<Problem>,
    outputs: BTreeMap<String, Output>,
    /// Changes that were begun, ever.
    started: u64,
    /// Lines of OpenTofu's own that were read.
    heard: u64,
    /// The time of the first of them.
    since: Option<Timestamp>,
    state_printed: bool,
    /// It has said what it ended with.
    has_ended: bool,
    /// When it first said something that only who has the lock of the state can say.
    at_work: Option<Timestamp>,
}

/// What a line becomes.
pub(crate) enum Heard {
    /// It is to be handed on as it is.
    Text(process::Update),
    /// It was understood.
    Said(Vec<Update>),
}

impl Ui {
    /// Takes one update of the process. Lines of standard output are read; everything else is handed on.
    pub(crate) fn take(&mut self, update: process::Update) -> Heard {
        match update {
            process::Update::Line { stream: Stream::Stdout, text, lossy, more } => self.line(text, lossy, more),
            other => Heard::Text(other),
        }
    }

    fn line(&mut self, text: String, lossy: bool, more: bool) -> Heard {
        let begins = self.parts.is_empty() && !self.too_long;
        if begins && !text.starts_with('{') {
            return Heard::Text(process::Update::Line { stream: Stream::Stdout, text, lossy, more });
        }
        // A state that is printed in full begins so: its keys are in alphabetical order.
        if begins && more && text.contains("\"state\":") {
            self.state_printed = true;
        }
        if self.too_long || self.parts.len() + text.len() > LONGEST_LINE {
            self.parts.clear();
            self.too_long = more;
            return Heard::Said(Vec::new());
        }
        self.parts.push_str(&text);
        if more {
            return Heard::Said(Vec::new());
        }
        let whole = std::mem::take(&mut self.parts);
        match serde_json::from_str::<Line>(&whole) {
            Ok(line) => self.read(line),
            Err(_) if may_be_secret(&whole) => {
                let detail = "It may have the state or a command with its secrets in it.";
                Heard::Said(vec![error("a line of OpenTofu could not be read, and is left out", detail)])
            }
            // Not cut here: half of a secret in it would not be known for one.
            Err(_) => Heard::Text(process::Update::Line { stream: Stream::Stdout, text: whole, lossy, more: false }),
        }
    }

    fn read(&mut self, line: Line) -> Heard {
        self.heard += 1;
        if self.heard == 1 {
            self.since = line.time.as_deref().and_then(|time| time.parse().ok());
        }
        if line.state.is_some() {
            self.state_printed = true;
            let summary = "OpenTofu could not save its state anywhere and printed it";
            return Heard::Said(vec![error(summary, "The state is left out here.")]);
        }
        if self.at_work.is_none() && AT_WORK.contains(&line.kind.as_str()) {
            self.at_work = line.time.as_deref().and_then(|time| time.parse().ok());
        }
        let said = match line.kind.as_str() {
            "version" => version(line.ui.as_deref()),
            "planned_change" => line.change.map(|change| self.plan(change)).unwrap_or_default(),
            "change_summary" => {
                self.summarise(&line);
                Vec::new()
            }
            "outputs" => {
                self.outputs = line.outputs.unwrap_or_default();
                Vec::new()
            }
            "diagnostic" => line.diagnostic.map(|diagnostic| self.diagnose(diagnostic)).unwrap_or_default(),
            "apply_start" | "apply_progress" | "apply_complete" | "apply_errored" => {
                line.hook.map(|hook| self.change(&line.kind, hook)).unwrap_or_default()
            }
            "resource_drift" => match line.change {
                Some(change) => vec![Update::Note(format!("{} was changed outside of OpenTofu", change.resource.addr))],
                None => Vec::new(),
            },
            "provision_progress" => return line.hook.and_then(provision).unwrap_or(Heard::Said(Vec::new())),
            "log" => return text(&line.message),
            // Lines without a type are what `init` says.
            "" if is_worth_saying(&line.message) || line.level != "info" => return text(&line.message),
            _ => Vec::new(),
        };
        Heard::Said(said)
    }

    fn plan(&mut self, change: Change) -> Vec<Update> {
        if change.action == "noop" {
            return Vec::new();
        }
        *self.planned.entry(change.action.clone()).or_default() += 1;
        let (address, state) = (change.resource.addr, ResourceState::Planned);
        if matches!(change.action.as_str(), "delete" | "replace") {
            let (address, action, reason) = (address.clone(), change.action.clone(), change.reason);
            self.doomed.push(Doomed { address, action, reason });
        }
        vec![Update::Resource { address, action: change.action, state, elapsed: None }]
    }

    fn summarise(&mut self, line: &Line) {
        let operation = line.changes.as_ref().and_then(|changes| changes.get("operation")).and_then(Value::as_str);
        if operation != Some("plan") {
            self.summary = Some(line.message.clone());
        }
    }

    fn change(&mut self, kind: &str, hook: Hook) -> Vec<Update> {
        let address = hook.resource.addr;
        let state = match kind {
            // A data source: nothing is changed, and nothing can be half done.
            "apply_start" if hook.action == READ => {
                self.reading.insert(address.clone());
                ResourceState::Started
            }
            "apply_complete" if self.reading.remove(&address) => ResourceState::Completed,
            "apply_errored" if self.reading.remove(&address) => ResourceState::Failed,
            "apply_start" => {
                self.started += 1;
                self.open.insert(address.clone(), hook.action.clone());
                if matches!(hook.action.as_str(), "create" | "replace") {
                    self.making.insert(address.clone());
                }
                ResourceState::Started
            }
            "apply_progress" => ResourceState::Progressed,
            "apply_complete" => {
                self.open.remove(&address);
                ResourceState::Completed
            }
            _ => {
                self.open.remove(&address);
                self.failed.push(address.clone());
                ResourceState::Failed
            }
        };
        let elapsed = hook.elapsed_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        vec![Update::Resource { address, action: hook.action, state, elapsed }]
    }

    fn diagnose(&mut self, diagnostic: Diagnostic) -> Vec<Update> {
        let severity = if diagnostic.severity == "error" { Severity::Error } else { Severity::Warning };
        let detail = if diagnostic.summary == LOCAL_EXEC {
            let sentence = "OpenTofu puts the whole command into this message, with every secret in it, so it is left out. What the command \
                 printed is in events.jsonl of the run directory.";
            sentence.to_owned()
        } else {
            diagnostic.detail.trim_end().to_owned()
        };
        if severity == Severity::Warning && diagnostic.summary.starts_with(ONE_PLATFORM) {
            // About a lock file that is to be committed. Here it lies in a copy; that none was shipped is said anyway.
            return Vec::new();
        }
        self.has_ended |= severity == Severity::Error;
        if severity == Severity::Error && diagnostic.summary == HALTED {
            // What it says once for each thing that it did not begin. Why is said by whoever asked for the stop.
            return Vec::new();
        }
        if severity == Severity::Error {
            let (summary, address) = (diagnostic.summary.clone(), diagnostic.address.clone());
            self.problems.push(Problem { summary, detail: detail.clone(), address, since: self.since });
        }
        let source = diagnostic.range.map(|range| format!("{}:{}", range.filename, range.start.line));
        let (origin, summary) = ("OpenTofu".to_owned(), diagnostic.summary);
        vec![Update::Diagnostic { severity, origin, summary, detail, address: diagnostic.address, source }]
    }

    /// The end of what was being read when OpenTofu ended, which said nothing of it.
    pub(crate) fn cut_off(&mut self) -> Vec<Update> {
        let reading = std::mem::take(&mut self.reading).into_iter();
        let failed = |address| Update::Resource {
            address,
            action: READ.to_owned(),
            state: ResourceState::Failed,
            elapsed: None,
        };
        reading.map(failed).collect()
    }

    /// Whether OpenTofu said anything at all. Without it, it ended before it began.
    pub(crate) fn has_spoken(&self) -> bool {
        self.heard > 0
    }

    /// Whether its last words were heard: its final summary, or the errors that it ended with.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended || self.summary.is_some()
    }

    /// Whether it printed its state because it could save it nowhere.
    pub(crate) fn has_printed_state(&self) -> bool {
        self.state_printed
    }

    /// When it first showed that it had the lock of its state; none when it did not.
    pub(crate) fn at_work(&self) -> Option<Timestamp> {
        self.at_work
    }

    /// How many changes were begun.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    /// The addresses whose change was begun and did not complete.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let mut addresses: Vec<String> = self.open.keys().chain(&self.failed).cloned().collect();
        addresses.sort();
        addresses.dedup();
        addresses
    }

    /// What the plan would delete or replace, in the order in which it was said.
    pub(crate) fn doomed(&self) -> &[Doomed] {
        &self.doomed
    }

    /// The addresses of which something new was begun to be made, complete or not.
    pub(crate) fn making(&self) -> &BTreeSet<String> {
        &self.making
    }

    /// The errors, in the order they were said.
    pub(crate) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The outputs, by name.
    pub(crate) fn outputs(&self) -> &BTreeMap<String, Output> {
        &self.outputs
    }

    /// What was done, in OpenTofu's words without its exclamation: `2 added, 0 changed, 0 destroyed`.
    pub(crate) fn summary(&self) -> Option<String> {
        let summary = self.summary.as_deref()?;
        let counts = summary.split_once("Resources: ").map_or(summary, |(_, counts)| counts);
        Some(counts.trim_end_matches('.').to_owned())
    }

    /// What would be done: `2 to create, 1 to replace`; none when nothing would be.
    pub(crate) fn planned(&self) -> Option<String> {
        let counts: Vec<String> = self.planned.iter().map(|(action, count)| format!("{count} to {action}")).collect();
        (!counts.is_empty()).then(|| counts.join(", "))
    }
}

/// Whether a line that cannot be read was one of the two kinds that carry secrets: one that was torn when OpenTofu was killed
/// or the disk was full, or one of a form that is not known yet.
fn may_be_secret(line: &str) -> bool {
    line.starts_with("{\"@") && SECRETIVE.iter().any(|part| line.contains(part))
}

/// A message as a line of the tool's output.
fn text(message: &str) -> Heard {
    let words: Vec<&str> = message.split_whitespace().collect();
    Heard::Text(process::Update::Line { stream: Stream::Stdout, text: words.join(" "), lossy: false, more: false })
}

/// Of what `init` says, only what it chose and fetched is worth a line.
fn is_worth_saying(message: &str) -> bool {
    ["Installed ", "Using ", "Downloading "].iter().any(|word| message.starts_with(word))
}

/// What a provisioner printed.
fn provision(hook: Hook) -> Option<Heard> {
    let output = hook.output?;
    let text = format!("{} ({}): {}", hook.resource.addr, hook.provisioner, output.trim_end());
    Some(Heard::Text(process::Update::Line { stream: Stream::Stdout, text, lossy: false, more: false }))
}

fn version(ui: Option<&str>) -> Vec<Update> {
    let Some(ui) = ui.filter(|ui| !ui.starts_with(KNOWN_UI)) else { return Vec::new() };
    vec![Update::Diagnostic {
        severity: Severity::Warning,
        origin: "dcctl".to_owned(),
        summary: format!("OpenTofu speaks version {ui} of its machine-readable form, and only 1.x is known"),
        detail: String::new(),
        address: None,
        source: None,
    }]
}

fn error(summary: &str, detail: &str) -> Update {
    Update::Diagnostic {
        severity: Severity::Error,
        origin: "OpenTofu".to_owned(),
        summary: summary.to_owned(),
        detail: detail.to_owned(),
        address: None,
        source: None,
    }
}

#[cfg(test)]
#[path = "tofu_ui_tests.rs"]
mod tests;

#[cfg(any(test, fuzzing))]
#[path = "tofu_ui_attack.rs"]
pub(super) mod attack;
