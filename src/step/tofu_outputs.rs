//! What an OpenTofu root gave, on its way to the chart. What may not be said is known to the redactor before anything else
//! is said.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::failure::{Code, Failure};
use crate::process::Manner;
use crate::redact::{Added, Secret};
use crate::step::invoke::{Raw, Tail, words};
use crate::step::tofu::{End, Work, joined};
use crate::step::tofu_end;
use crate::step::tofu_ui::Ui;
use crate::step::{Kit, Update};

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
        args.push(joined("-var-file=", &self.variables()));
        let mut call = self.call("output", args, cwd, Manner::Query);
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
        if !done.ended.exit.is_success() {
            if self.kit.stop.is_asked() {
                return Ok(());
            }
            let sentence = format!("the outputs of `{}` could not be read", self.name());
            return Err(tofu_end::explain(sentence, &Ui::default(), &tail, &done.ended).into());
        }
        let answer = done.answer()?;
        drop(done);
        let outputs: BTreeMap<String, crate::step::tofu_ui::Output> =
            serde_json::from_slice(&answer).map_err(|error| {
                let sentence = format!("the outputs of `{}` could not be read", self.name());
                Failure::new(Code::InfrastructureFailed, sentence).because(&error)
            })?;
        for (name, output) in outputs {
            let value = output.value.unwrap_or(Value::Null);
            if output.sensitive {
                if hide(self.kit, &name, &value) == Added::TooShort {
                    let text = format!(
                        "what is in the output {name} has fewer than four characters in a place: it is not hidden there"
                    );
                    self.kit.updates.send(Update::Note(text));
                }
                self.kit.outputs.put(&name, Given::Sensitive(Secret::from(value.to_string())));
            } else {
                self.kit.outputs.put(&name, Given::Plain(value));
            }
        }
        Ok(())
    }

    /// A dry run knows none of them.
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
