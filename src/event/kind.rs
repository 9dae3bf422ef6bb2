//! The table of events: every type with its name on the wire and the struct that carries its data.

#[cfg(feature = "schema")]
use schemars::{Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::facts::cluster::{ObjectApplied, ObjectReady, ObjectWaiting};
use crate::event::facts::lock::{
    LockBlocked, LockClaimed, LockLeft, LockLost, LockObserved, LockReleased, LockReleasing, LockRenewalFailed,
    LockRenewed, LockWaiting,
};
use crate::event::facts::process::{
    OutputDropped, ProcessFinished, ProcessInterruptReported, ProcessInterrupted, ProcessKilled, ProcessLeftBehind,
    ProcessOutput, ProcessStarted, ProcessSurvived,
};
use crate::event::facts::remark::{Diagnostic, EnvironmentDropped, NoteMade, ReportFailed, ToolChecked};
use crate::event::facts::resource::{
    ResourceCompleted, ResourceFailed, ResourcePlanned, ResourceProgressed, ResourceStarted,
};
use crate::event::facts::run::{RunFinished, RunPlanned, RunStarted};
use crate::event::facts::step::{StepFinished, StepProgressed, StepStarted};
use crate::event::facts::stop::{SignalReceived, StopRequested};
use crate::event::outcome::Level;

/// What every event's data can do.
pub trait Fact: Serialize + DeserializeOwned {
    /// How grave it is.
    fn level(&self) -> Level;

    /// It in one sentence, for people; of any length, and not yet redacted. [`crate::event::Envelope`] redacts and
    /// shortens it, in this order: a shortened text could hide half a secret from the redactor.
    fn message(&self) -> String;
}

macro_rules! events {
    ($($payload:ident $name:literal;)*) => {
        /// A fact about a run.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "type", content = "data")]
        pub enum Event {
            $(#[doc = concat!("`", $name, "`")] #[serde(rename = $name)] $payload($payload),)*
        }

        impl Event {
            /// Every type, in the order of the reference page.
            pub const TYPES: &[&str] = &[$($name,)*];

            /// The name of its type on the wire.
            pub fn type_name(&self) -> &'static str {
                match self { $(Event::$payload(_) => $name,)* }
            }

            /// How grave it is.
            pub fn level(&self) -> Level {
                match self { $(Event::$payload(fact) => fact.level(),)* }
            }

            /// It in one sentence, see [`Fact::message`].
            pub fn message(&self) -> String {
                match self { $(Event::$payload(fact) => fact.message(),)* }
            }

            /// Reads the data of an event. `None` for a type that this version does not know.
            pub(crate) fn read(type_name: &str, data: Value) -> Option<Result<Event, serde_json::Error>> {
                match type_name {
                    $($name => Some(serde_json::from_value(data).map(Event::$payload)),)*
                    _ => None,
                }
            }

            /// Writes the data alone.
            pub(crate) fn write_data<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self { $(Event::$payload(fact) => fact.serialize(serializer),)* }
            }

            /// The schema of each type's data, by the name of the type.
            #[cfg(feature = "schema")]
            pub(crate) fn data_schemas(generator: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
                vec![$(($name, generator.subschema_for::<$payload>()),)*]
            }
        }

        $(impl From<$payload> for Event {
            fn from(fact: $payload) -> Event {
                Event::$payload(fact)
            }
        })*
    };
}

events! {
    RunStarted "run.started";
    RunPlanned "run.planned";
    RunFinished "run.finished";
    StepStarted "step.started";
    StepFinished "step.finished";
    StepProgressed "step.progressed";
    LockWaiting "lock.waiting";
    LockClaimed "lock.claimed";
    LockRenewed "lock.renewed";
    LockRenewalFailed "lock.renewal_failed";
    LockBlocked "lock.blocked";
    LockLost "lock.lost";
    LockReleasing "lock.releasing";
    LockReleased "lock.released";
    LockLeft "lock.left";
    LockObserved "lock.observed";
    ProcessStarted "process.started";
    ProcessFinished "process.finished";
    ProcessInterrupted "process.interrupted";
    ProcessInterruptReported "process.interrupt_reported";
    ProcessKilled "process.killed";
    ProcessLeftBehind "process.left_behind";
    ProcessSurvived "process.survived";
    ProcessOutput "process.output";
    OutputDropped "output.dropped";
    ObjectApplied "object.applied";
    ObjectWaiting "object.waiting";
    ObjectReady "object.ready";
    ResourcePlanned "resource.planned";
    ResourceStarted "resource.started";
    ResourceProgressed "resource.progressed";
    ResourceCompleted "resource.completed";
    ResourceFailed "resource.failed";
    ToolChecked "tool.checked";
    EnvironmentDropped "environment.dropped";
    StopRequested "stop.requested";
    SignalReceived "signal.received";
    Diagnostic "diagnostic";
    NoteMade "note.made";
    ReportFailed "report.failed";
}
