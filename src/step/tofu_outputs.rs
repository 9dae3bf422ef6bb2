//! What an OpenTofu root gave, on its way to the chart. What may not be said is known to the redactor before anything else
//! is said.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;

use crate::failure::{Code, Failure};
use crate::process::Manner;
use crate::redact::{Added, Secret};
use crate::step::invoke::{Raw, Tail, words};
use crate::step::tofu::{End, Work, joined};
use crate::step::tofu_end;
use crate::step::tofu_ui::{Output, Ui};
use crate::step::{Kit, Part, Update};

/// What an OpenTofu root gave, for the chart that is installed after it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Outputs {
    known: Arc<Mutex<BTreeMap<String, Given>>>,
}

/// One output.
#[derive(Debug, Clone)]
pub(crate) enum Given {
    /// It may be said.
    Plain(Value),
    /// It may not: the value as JSON.
    Sensitive(Secret),
    /// A dry run cannot know it.
    Unknown,
}

/// What is read of a saved plan.
#[derive(Deserialize)]
struct Shown {
    #[serde(default)]
    planned_values: PlannedValues,
}

#[derive(Default, Deserialize)]
struct PlannedValues {
    #[serde(default)]
    outputs: BTreeMap<String, crate::step::tofu_ui::Output>,
}

impl Outputs {
    pub(crate) fn put(&self, name: &str, given: Given) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), given);
    }

    pub(crate) fn get(&self, name: &str) -> Option<Given> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

impl Work<'_> {
    /// Keeps the outputs for the chart. What may not be said is asked for, and known to the redactor before anything
    /// else is said.
    pub(in crate::step) async fn take_outputs(&self, ui: &Ui, cwd: &Path) -> Result<(), End> {
        for (name, output) in ui.outputs() {
            if let (false, Some(value)) = (output.sensitive, &output.value) {
                self.kit.outputs.put(name, Given::Plain(value.clone()));
            }
        }
        let complete = ui.outputs().values().all(|output| !output.sensitive && output.value.is_some());
        // After a stop no step follows that could need them.
        if complete || self.kit.stop.is_asked() {
            return Ok(());
        }
        let mut args = words(&["output", "-json"]);
        if self.has_local_state() {
            args.push(joined("-state=", &self.part.state(&self.kit.state_dir)));
        }
        let Some(answer) = self.ask("output", "the outputs", args, cwd).await? else { return Ok(()) };
        let outputs: BTreeMap<String, Output> = serde_json::from_slice(&answer).map_err(|error| {
            let sentence = format!("the outputs of `{}` could not be read", self.name());
            Failure::new(Code::InfrastructureFailed, sentence).because(&error)
        })?;
        for (name, output) in outputs {
            self.keep(&name, Output { value: Some(output.value.unwrap_or(Value::Null)), ..output });
        }
        Ok(())
    }

    /// Keeps one output for the chart, unless its value is not known yet. A sensitive one is known to the redactor first.
    fn keep(&self, name: &str, output: Output) {
        let Some(value) = output.value else { return };
        if !output.sensitive {
            self.kit.outputs.put(name, Given::Plain(value));
            return;
        }
        if hide(self.kit, name, &value) == Added::TooShort {
            let text = format!(
                "what is in the output {name} has fewer than four characters in a place: it is not hidden there"
            );
            self.kit.updates.send(Update::Note(text));
        }
        self.kit.outputs.put(name, Given::Sensitive(Secret::from(value.to_string())));
    }

    /// Whether the chart takes anything of this root.
    pub(in crate::step) fn feeds_the_chart(&self) -> bool {
        let chart = self.kit.bundle.instance.as_ref().and_then(|instance| instance.chart.as_ref());
        self.part == Part::Infrastructure && chart.is_some_and(|chart| !chart.outputs.is_empty())
    }

    /// Keeps those outputs for the chart that a saved plan knows already: where nothing changes, all of them.
    pub(in crate::step) async fn take_planned(&self, plan: &Path, cwd: &Path) -> Result<(), End> {
        let mut args = words(&["show", "-json"]);
        args.push(plan.into());
        let Some(answer) = self.ask("show", "the plan", args, cwd).await? else { return Ok(()) };
        let shown: Shown = serde_json::from_slice(&answer).map_err(|error| {
            let sentence = format!("the plan of `{}` could not be read", self.name());
            Failure::new(Code::InfrastructureFailed, sentence).because(&error)
        })?;
        for (name, output) in shown.planned_values.outputs {
            self.keep(&name, output);
        }
        Ok(())
    }

    /// Runs an OpenTofu whose standard output is an answer with secrets in it, which nobody hears. None when it was given up
    /// because of a stop.
    pub(in crate::step) async fn ask(
        &self,
        verb: &str,
        what: &str,
        mut args: Vec<OsString>,
        cwd: &Path,
    ) -> Result<Option<Vec<u8>>, End> {
        // What is no option has to stay last.
        args.insert(verb.split(' ').count(), joined("-var-file=", &self.variables()));
        let mut call = self.call(verb, args, cwd, Manner::Query);
        call.raw = Raw::Secret;
        let mut tail = Tail::default();
        let done = call
            .run(self.kit, |update| match update {
                crate::process::Update::Line { stream: crate::process::Stream::Stdout, .. } => None,
                crate::process::Update::Line { ref text, .. } => {
                    tail.push(text);
                    Some(update)
                }
                other => Some(other),
            })
            .await?;
        if done.ended.exit.is_success() {
            return Ok(Some(done.answer()?));
        }
        if self.kit.stop.is_asked() {
            return Ok(None);
        }
        let sentence = format!("{what} of `{}` could not be read", self.name());
        Err(tofu_end::explain(sentence, &Ui::default(), &tail, &done.ended).into())
    }

    /// What a dry run knows nothing of yet.
    pub(in crate::step) fn unknown_outputs(&self) {
        let chart = self.kit.bundle.instance.as_ref().and_then(|instance| instance.chart.as_ref());
        for name in chart.iter().flat_map(|chart| chart.outputs.values()) {
            self.kit.outputs.put(name, Given::Unknown);
        }
    }
}

/// Makes every text in a secret value unsayable, and says whether one of them is too short for that.
fn hide(kit: &Kit, name: &str, value: &Value) -> Added {
    match value {
        Value::Null | Value::Bool(_) => Added::Kept,
        Value::Number(number) => kit.redactor.add(name, &number.to_string()),
        Value::String(text) => kit.redactor.add(name, text),
        Value::Array(items) => items.iter().map(|item| hide(kit, name, item)).max().unwrap_or(Added::Kept),
        Value::Object(fields) => fields.values().map(|field| hide(kit, name, field)).max().unwrap_or(Added::Kept),
    }
}
