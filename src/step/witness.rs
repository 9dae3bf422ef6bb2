//! What is known of a tool when the process that ran its step has ended: read from the tool's own output, by whoever goes
//! on with it.
//!
//! No step is finished here and nothing of one is repeated. A tool is seen to its end, and then this says what that end
//! means. Its exit status only its parent could have learned, so its last words decide.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::config::Bundle;
use crate::process::{self, Care, Ended, Exit, Fate, Manner, Sign, Stream};
use crate::redact::Redactor;
use crate::step::helm_says::{self, Says};
use crate::step::invoke::{Kept, OUTPUT, PRIVATE, Tail};
use crate::step::tofu::is_local;
use crate::step::tofu_end::{self, Afterwards, Applied};
use crate::step::tofu_root::declared_backend;
use crate::step::tofu_state::{self, Part, StateFile};
use crate::step::tofu_ui::{self, Ui};
use crate::step::{Severity, Stopped, Update, tofu_first};

/// How a tool is looked after of which nothing but the second part of its tag is known: the disk took no record of it.
pub fn guess(run_dir: &Path, step: &str) -> (String, Care) {
    let manner = match step {
        _ if ["tofu-apply", "tofu-destroy", "tofu-plan"].iter().any(|name| step.starts_with(name)) => Manner::OpenTofu,
        _ if step.starts_with("helm-upgrade") => Manner::Helm,
        _ if step.starts_with("helm-rollback") || step.starts_with("helm-uninstall") => Manner::Unsignalled,
        _ if step.starts_with("tofu-") || step.starts_with("helm-") => Manner::Query,
        _ => Manner::Group,
    };
    let output = |ending: &str| run_dir.join(OUTPUT).join(format!("{step}.{ending}"));
    let name = if manner == Manner::Group { step.to_owned() } else { step.replacen('-', " ", 1) };
    (name, Care { manner, stdout: output("stdout"), stderr: output("stderr") })
}

/// Teaches what the run's chart got from OpenTofu: the step that knew which of it is secret has ended.
pub fn learn(bundle: &Bundle, run_dir: &Path, redactor: &Redactor) {
    let Some(chart) = bundle.instance.as_ref().and_then(|instance| instance.chart.as_ref()) else { return };
    let values = std::fs::read(run_dir.join(PRIVATE).join("values.json")).ok();
    if let Some(values) = values.and_then(|text| serde_json::from_slice(&text).ok()) {
        learn_from(&values, &chart.outputs, redactor);
    }
}

fn learn_from(values: &Value, outputs: &BTreeMap<String, String>, redactor: &Redactor) {
    for (key, output) in outputs {
        let given = key.split('.').try_fold(values, |value, part| value.get(part));
        teach(output, given.unwrap_or(&Value::Null), redactor);
    }
}

fn teach(name: &str, value: &Value, redactor: &Redactor) {
    match value {
        Value::String(text) => drop(redactor.add(name, text)),
        Value::Array(items) => items.iter().for_each(|item| teach(name, item, redactor)),
        Value::Object(fields) => fields.values().for_each(|field| teach(name, field, redactor)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Brings a state that OpenTofu could not save to where it stays, before the copies of the roots are removed.
pub fn rescue(run_dir: &Path, state_dir: &Path) -> Option<PathBuf> {
    let copy = |part: Part| run_dir.join(PRIVATE).join(part.word());
    let parts = [Part::Infrastructure, Part::Prerequisites];
    let saved = parts.into_iter().find_map(|part| tofu_state::rescue(part, &copy(part), run_dir, state_dir));
    // Which root printed its state the output does not say. A run has one of them.
    let part = parts.into_iter().find(|part| copy(*part).is_dir()).unwrap_or(Part::Infrastructure);
    let rescued = saved.or_else(|| tofu_state::rescue_printed(part, run_dir, state_dir));
    tofu_state::make_private(state_dir);
    rescued
}

/// Where to look for what an OpenTofu root left.
#[derive(Debug, Clone, Copy)]
pub struct Root<'a> {
    /// The bundle.
    pub bundle: &'a Bundle,
    /// Which root of it.
    pub part: Part,
    /// The run's directory.
    pub run_dir: &'a Path,
    /// Where local state lives.
    pub state_dir: &'a Path,
    /// A state that could not be saved.
    pub unsaved: Option<&'a Path>,
}

/// Hears one tool.
pub struct Witness {
    program: String,
    manner: Manner,
    redactor: Redactor,
    /// Its lines may be secret, or are an answer to a question that nobody asks any more.
    silent: bool,
    ui: Ui,
    tail: Tail,
    says: Says,
    kept: Kept,
    /// The last that Helm said on standard output of its release.
    status: Option<String>,
    halted: bool,
}

impl Witness {
    /// A witness of this tool.
    pub fn of(program: &str, manner: Manner, redactor: Redactor) -> Witness {
        Witness {
            program: program.to_owned(),
            manner,
            redactor,
            silent: manner == Manner::Query,
            ui: Ui::default(),
            tail: Tail::default(),
            says: Says::default(),
            kept: Kept::default(),
            status: None,
            halted: false,
        }
    }

    /// What a line of such a tool tells.
    pub fn signs(manner: Manner) -> fn(&str) -> Option<Sign> {
        match manner {
            Manner::OpenTofu => tofu_ui::signs,
            Manner::Helm | Manner::Unsignalled => helm_says::signs,
            Manner::Query | Manner::Group => |_| None,
        }
    }

    /// Takes what happened to it; gives back what a step would have said.
    pub fn take(&mut self, update: process::Update) -> Vec<Update> {
        if !matches!(update, process::Update::Line { .. }) {
            return vec![self.of_process(update)];
        }
        if self.silent {
            return Vec::new();
        }
        match self.manner {
            Manner::OpenTofu => self.of_tofu(update),
            Manner::Helm | Manner::Unsignalled => self.of_helm(update),
            Manner::Query | Manner::Group => vec![self.of_process(update)],
        }
    }

    fn of_process(&self, update: process::Update) -> Update {
        Update::Process { program: self.program.clone(), update }
    }

    fn of_tofu(&mut self, update: process::Update) -> Vec<Update> {
        if let process::Update::Line { text, .. } = &update {
            self.halted |= tofu_ui::signs(text) == Some(Sign::Concluded);
        }
        match self.ui.take(update) {
            tofu_ui::Heard::Said(said) => said,
            tofu_ui::Heard::Text(update) => {
                if let process::Update::Line { text, .. } = &update {
                    self.tail.push(text);
                }
                vec![self.of_process(update)]
            }
        }
    }

    fn of_helm(&mut self, update: process::Update) -> Vec<Update> {
        let line = self.kept.take(&self.redactor, &update);
        if let process::Update::Line { stream: Stream::Stdout, .. } = update {
            let status = line.as_deref().and_then(|line| line.strip_prefix("STATUS: ")).map(str::to_owned);
            self.status = status.or(self.status.take());
            return vec![self.of_process(update)];
        }
        let Some(text) = line else { return vec![self.of_process(update)] };
        match self.says.take(&text) {
            helm_says::Heard::Text => vec![self.of_process(update)],
            helm_says::Heard::Said(said) => said.into_iter().collect(),
        }
    }

    /// What it said last, or left unsaid, and has not been told yet.
    pub fn last_words(&mut self) -> Vec<Update> {
        self.says.diagnostic(Severity::Warning).into_iter().chain(self.ui.cut_off()).collect()
    }

    /// What its end means, so long after it was asked to stop.
    pub fn judge(&self, ended: &Ended, root: Option<Root<'_>>, waited: Duration) -> Stopped {
        let program = &self.program;
        let left = ended.left_behind.iter().any(|left| left.fate == Fate::Alive);
        let whole = !ended.killed && !left && ended.exit != Exit::Unseen;
        match (self.manner, root) {
            (Manner::OpenTofu, Some(root)) => self.of_root(ended, root, waited),
            (Manner::Helm | Manner::Unsignalled, root) => self.of_release(ended.exit != Exit::Unseen, whole, root),
            (Manner::OpenTofu | Manner::Query, _) => {
                let note = match ended.exit {
                    Exit::Unseen => format!("nobody saw the end of `{program}`"),
                    Exit::Unknown | Exit::Code(_) | Exit::Signal(_) => format!("`{program}` has ended"),
                };
                Stopped { clean: whole, unfinished: Vec::new(), note }
            }
            (Manner::Group, _) => {
                let note = match (ended.exit, ended.killed, ended.interrupts_sent) {
                    (Exit::Unseen, _, _) => format!("nobody saw the end of `{program}`"),
                    (_, true, _) => format!("`{program}` had to be killed"),
                    (_, false, 0) => format!("`{program}` has ended; nobody knows with which exit status"),
                    (_, false, _) => {
                        format!("`{program}` ended when it was asked to stop; nobody knows with which exit status")
                    }
                };
                // What it had done by then, nobody but itself knows.
                Stopped { clean: false, unfinished: Vec::new(), note }
            }
        }
    }

    fn of_root(&self, ended: &Ended, root: Root<'_>, waited: Duration) -> Stopped {
        let concluded = if self.halted { tofu_end::Account::Ended } else { tofu_end::Account::BrokenOff };
        let dir = directory(root);
        let name = dir.strip_prefix(&root.bundle.root).unwrap_or(&dir).display().to_string();
        let state = (keeps_a_file(root) && self.ui.started() > 0).then(|| {
            let path = root.part.state(root.state_dir);
            Afterwards { trouble: StateFile::look(&path).trouble(&path), recorded: tofu_state::addresses(&path) }
        });
        let applied = Applied { name: &name, state, ..self.applied(ended, root) };
        tofu_end::seen_out(&applied, concluded, waited)
    }

    /// What an apply or a destroy tells of itself, without a name and whatever became of its state.
    fn applied<'a>(&'a self, ended: &'a Ended, root: Root<'a>) -> Applied<'a> {
        let (ui, tail, unsaved) = (&self.ui, &self.tail, root.unsaved);
        Applied { deed: self.deed(), name: "", ui, tail, ended, unsaved, state: None }
    }

    fn deed(&self) -> &str {
        self.program.rsplit(' ').next().unwrap_or("apply")
    }

    /// Writes down that an apply made nothing, where its words show that. It is for after [`Witness::judge`].
    pub fn settle(&self, ended: &Ended, root: Root<'_>) {
        if self.manner == Manner::OpenTofu
            && self.deed() == "apply"
            && keeps_a_file(root)
            && let Some(known) = self.applied(ended, root).tells_of_the_beginning()
        {
            tofu_first::settle(root.part, root.run_dir, root.state_dir, known);
        }
    }

    /// Helm's own words are all there is: its record is read by the next run, under the lock.
    fn of_release(&self, is_seen: bool, whole: bool, root: Option<Root<'_>>) -> Stopped {
        let program = &self.program;
        let instance = root.and_then(|root| root.bundle.instance.as_ref());
        let release = instance.and_then(|instance| instance.chart.as_ref()).map(|chart| chart.release.clone());
        let release = release.unwrap_or_else(|| format!("of `{program}`"));
        let said = match self.says.summary() {
            _ if !is_seen => Some(format!("nobody saw the end of `{program}`")),
            summary => summary.map(|summary| format!("`{program}` ended: {summary}")),
        };
        match (said, &self.status) {
            (None, Some(status)) if whole && status == "deployed" => Stopped {
                clean: true,
                unfinished: Vec::new(),
                note: format!("`{program}` had finished: it says that release {release} is deployed"),
            },
            (said, _) => {
                let ended = said.unwrap_or_else(|| format!("`{program}` has ended without a last word"));
                let note =
                    format!("{ended}; the next run looks at the release, and repairs it if it was left half done");
                Stopped { clean: false, unfinished: vec![format!("release {release}")], note }
            }
        }
    }
}

fn directory(root: Root<'_>) -> PathBuf {
    root.part.root(root.bundle).map(|root| root.dir.clone()).unwrap_or_default()
}

/// Whether the state of a root is a file of dcctl's.
fn keeps_a_file(root: Root<'_>) -> bool {
    is_local(declared_backend(&directory(root)).as_ref())
}

/// What the last words of a tool tell whose end nobody of its run saw; none when they tell nothing that may be said. Only
/// what OpenTofu says about its own work is, and the addresses in it.
pub fn last_words(program: &str, care: &Care) -> Option<String> {
    if care.manner != Manner::OpenTofu {
        return None;
    }
    let mut witness = Witness::of(program, care.manner, Redactor::default());
    for line in BufReader::new(File::open(&care.stdout).ok()?).split(b'\n').map_while(Result::ok) {
        let text = String::from_utf8_lossy(&line).into_owned();
        witness.take(process::Update::Line { stream: Stream::Stdout, text, lossy: false, more: false });
    }
    let ui = &witness.ui;
    let unfinished = ui.unfinished();
    Some(match (ui.summary(), unfinished.is_empty()) {
        (Some(summary), true) if ui.problems().is_empty() => format!("it came to its end ({summary})"),
        (_, _) if !ui.has_spoken() => "it had said nothing".to_owned(),
        (_, true) if witness.halted => "it says that it stopped before all was done".to_owned(),
        (_, true) => "it ended without a last word".to_owned(),
        (_, false) => format!("these were begun and not seen to complete: {}", unfinished.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ended() -> Ended {
        Ended {
            pid: 7,
            exit: Exit::Unknown,
            interrupts_sent: 1,
            interrupts_reported: 0,
            why: None,
            killed: false,
            left_behind: Vec::new(),
            took: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_tool_without_a_record_is_treated_as_its_kind_is() {
        let rows = [
            ("tofu-apply", "tofu apply", Manner::OpenTofu),
            ("tofu-destroy", "tofu destroy", Manner::OpenTofu),
            ("tofu-plan-2", "tofu plan-2", Manner::OpenTofu),
            ("tofu-init", "tofu init", Manner::Query),
            ("helm-upgrade", "helm upgrade", Manner::Helm),
            ("helm-rollback", "helm rollback", Manner::Unsignalled),
            ("helm-uninstall", "helm uninstall", Manner::Unsignalled),
            ("helm-template", "helm template", Manner::Query),
            ("verify-api-answers", "verify-api-answers", Manner::Group),
            ("command", "command", Manner::Group),
        ];
        for (step, name, manner) in rows {
            let (known, care) = guess(Path::new("/run"), step);
            assert_eq!((known.as_str(), care.manner), (name, manner), "{step}");
            assert_eq!(care.stdout, Path::new("/run/output").join(format!("{step}.stdout")));
        }
    }

    #[test]
    fn what_the_chart_got_from_opentofu_is_hidden() {
        let values =
            json!({ "broker": { "ca": "zebra-crossing", "ports": ["giraffe-neck", 1883] }, "plain": "okapi-plain" });
        let outputs = [("broker.ca", "nats_ca"), ("broker.ports", "ports"), ("not.there", "none")];
        let outputs = outputs.map(|(key, output)| (key.to_owned(), output.to_owned())).into_iter().collect();
        let redactor = Redactor::default();
        learn_from(&values, &outputs, &redactor);
        let said = redactor.text("zebra-crossing giraffe-neck okapi-plain").into_owned();
        assert_eq!(said, "[redacted] [redacted] okapi-plain");
    }

    #[test]
    fn helm_s_last_words_are_all_that_is_claimed_of_its_release() {
        let heard = |lines: &[(Stream, &str)]| {
            let mut witness = Witness::of("helm upgrade", Manner::Helm, Redactor::default());
            for (stream, text) in lines {
                let (stream, text) = (*stream, (*text).to_owned());
                witness.take(process::Update::Line { stream, text, lossy: false, more: false });
            }
            witness.judge(&ended(), None, Duration::ZERO)
        };
        let deployed = heard(&[(Stream::Stdout, "NAME: dc-one"), (Stream::Stdout, "STATUS: deployed")]);
        assert!(deployed.clean && deployed.note.contains("is deployed"), "{deployed:?}");
        let cancelled = heard(&[(Stream::Stderr, "Error: UPGRADE FAILED: context canceled")]);
        assert!(!cancelled.clean && cancelled.note.contains("context canceled"), "{cancelled:?}");
        let silent = heard(&[]);
        assert!(!silent.clean && silent.note.contains("without a last word"), "{silent:?}");
        assert_eq!(silent.unfinished.len(), 1);
    }

    #[test]
    fn a_tool_that_nobody_saw_end_is_not_said_to_have_ended() {
        for manner in [Manner::Query, Manner::Helm, Manner::Unsignalled, Manner::Group] {
            let witness = Witness::of("helm upgrade", manner, Redactor::default());
            let told = witness.judge(&Ended { exit: Exit::Unseen, ..ended() }, None, Duration::ZERO);
            assert!(!told.clean && told.note.starts_with("nobody saw the end of `helm upgrade`"), "{told:?}");
        }
    }

    #[test]
    fn a_question_that_nobody_asks_any_more_has_no_answer() {
        let mut witness = Witness::of("tofu output", Manner::Query, Redactor::default());
        let (stream, text) = (Stream::Stdout, "{\"password\":\"hunter2\"}".to_owned());
        assert_eq!(witness.take(process::Update::Line { stream, text, lossy: false, more: false }), []);
    }
}
