//! What is said about a run: the one public interface of this program, so the plainest module. It does no I/O.
//!
//! A run is told as a journal of events, one JSON object per line. [`Event`] lists the facts, each with a struct that
//! carries its data ([`facts`]); [`Envelope`] is what the run's journal writes around one, and [`Seen`] is what a
//! reader gets back. Reports are made from `Seen` alone, so they cannot say more than the journal does.
//!
//! # Promise
//! 1. `run.started` is first; exactly one `run.finished` is last, whatever happened. A journal without it tells of a
//!    run that was cut off, whose outcome is unknown.
//! 2. `seq` starts at 0 and has no gaps; the order of the file is the order of `seq`.
//! 3. Every `*.started` has one end: a step's is `step.finished`, a process's `process.finished`; a resource that was
//!    not seen to complete is named in `unfinished` of the verdict.
//! 4. Facts are never dropped. What a tool printed may be, and then `output.dropped` counts it.
//! 5. Within one `v` the schema only grows. Readers ignore types, fields and values that they do not know, and refuse
//!    a `v` that they do not know.
//! 6. No secret and no escape sequence is ever in a line, and no line is longer than [`LONGEST_LINE`] bytes.
//!
//! # How to add an event
//! A struct with its docs under [`facts`] that implements [`Fact`], a row in the table of [`kind`], an example in
//! `examples`. The compiler and the tests name the rest.

pub mod envelope;
#[cfg(feature = "schema")]
pub mod examples;
pub mod facts;
pub mod kind;
mod line;
pub mod outcome;
#[cfg(feature = "schema")]
mod reference;
#[cfg(feature = "schema")]
mod schema;
pub mod seen;
pub mod text;

pub use crate::event::envelope::{Envelope, Hide, LONGEST_LINE, LONGEST_MESSAGE, SCHEMA_ID, SCHEMA_VERSION, VERSION};
#[cfg(feature = "schema")]
pub use crate::event::examples::examples;
pub use crate::event::facts::cluster::{Former, ObjectApplied, ObjectReady, ObjectWaiting};
pub use crate::event::facts::lock::{
    BusyManner, LockAct, LockBlocked, LockClaimed, LockLeft, LockLost, LockObserved, LockReleased, LockReleasing,
    LockRenewalFailed, LockRenewed, LockWaiting, ReleaseManner,
};
pub use crate::event::facts::process::{
    OutputDropped, ProcessFinished, ProcessInterruptReported, ProcessInterrupted, ProcessKilled, ProcessLeftBehind,
    ProcessOutput, ProcessStarted, ProcessSurvived, Relation, Stream,
};
pub use crate::event::facts::remark::{Diagnostic, EnvironmentDropped, NoteMade, ReportFailed, ToolChecked};
pub use crate::event::facts::resource::{
    ResourceCompleted, ResourceFailed, ResourcePlanned, ResourceProgressed, ResourceStarted,
};
pub use crate::event::facts::run::{
    BundleFact, CiFact, CommandEnd, Counts, Kept, PlannedStep, ResourceCounts, RunFinished, RunPlanned, RunStarted,
    StepCounts, StopBudget, StopEnds,
};
pub use crate::event::facts::step::{InFlight, StepFinished, StepProgressed, StepStarted};
pub use crate::event::facts::stop::{SignalEffect, SignalReceived, StopCause, StopManner, StopRequested};
pub use crate::event::kind::{Event, Fact};
pub use crate::event::outcome::{Failed, Level, LockEnd, ObjectChange, RunOutcome, Severity, StepOutcome};
#[cfg(feature = "schema")]
pub use crate::event::reference::reference_page;
#[cfg(feature = "schema")]
pub use crate::event::schema::{schema, schema_page};
pub use crate::event::seen::{Seen, Spoken, Unreadable, spoken};
