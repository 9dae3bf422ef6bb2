//! Requests to stop, and the signals that carry them.

use serde::{Deserialize, Serialize};

use crate::event::kind::Fact;
use crate::event::outcome::Level;
use crate::event::text::span;

/// The run was asked to stop. Sent once for a graceful stop, and once more when it becomes one by force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopRequested {
    /// What asked.
    pub cause: StopCause,
    /// The signals seen so far, `SIGTERM`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<String>,
    /// The process that sent the signal, when the system says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_pid: Option<u32>,
    /// The user that sent the signal, when the system says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_uid: Option<u32>,
    /// How the run stops.
    pub manner: StopManner,
    /// How long a graceful stop may take from now, in milliseconds.
    pub budget_ms: u64,
    /// Until when, as the wall clock of this machine shows it (RFC 3339); for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
}

/// What asked a run to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// A signal.
    Signal,
    /// The process that showed the run is gone without a word.
    FrontGone,
    /// The process that shows the run broke: a bug in dcctl.
    FrontBroke,
    /// The process that owned the run is gone, and the one that shows it goes on in its place.
    SupervisorGone,
    /// The process that had started it is gone, in a CI job.
    ParentGone,
    /// Another dcctl command, on request of a person or a script.
    Command,
    /// The lock was lost.
    LockLost,
    /// The run took longer than it may.
    MaxRunTime,
}

/// How a run stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopManner {
    /// Tools finish the operation in flight and write their state; the lock is given back.
    Graceful,
    /// Tools are ended at once, and the lock is left behind.
    Force,
}

/// What force does to tools, and how long that takes.
pub const FORCE_ENDS_TOOLS: &str = "tools are asked once more to end, and killed after 8 s at most";

/// `SIGINT and SIGTERM`; one that came several times is named once: `SIGINT, twice`.
fn counted(signals: &[String]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for signal in signals {
        match counts.iter_mut().find(|(name, _)| name == signal) {
            Some((_, times)) => *times += 1,
            None => counts.push((signal, 1)),
        }
    }
    let said = counts.iter().map(|(name, times)| match times {
        1 => (*name).to_owned(),
        2 => format!("{name}, twice"),
        more => format!("{name}, {more} times"),
    });
    said.collect::<Vec<_>>().join(" and ")
}

impl StopRequested {
    /// Who asked, as the end of a sentence: `by SIGTERM from process 812 of user 1000`.
    pub fn by_whom(&self) -> String {
        match self.cause {
            StopCause::Signal => {
                let signals = if self.signals.is_empty() { "a signal".to_owned() } else { counted(&self.signals) };
                format!("by {signals}{}", sender(self.sender_pid, self.sender_uid))
            }
            StopCause::FrontGone => "because the process that showed this run is gone".to_owned(),
            StopCause::FrontBroke => "because the process that shows this run broke".to_owned(),
            StopCause::SupervisorGone => "because the process that owned this run is gone".to_owned(),
            StopCause::ParentGone => "because the process that had started it is gone".to_owned(),
            StopCause::Command => "by another dcctl command".to_owned(),
            StopCause::LockLost => "because the lock was lost".to_owned(),
            StopCause::MaxRunTime => "because the run took longer than it may (--max-run-time)".to_owned(),
        }
    }
}

impl Fact for StopRequested {
    fn level(&self) -> Level {
        Level::Warn
    }

    fn message(&self) -> String {
        match self.manner {
            StopManner::Graceful => {
                format!("asked to stop {}; stopping gracefully, within {}", self.by_whom(), span(self.budget_ms))
            }
            StopManner::Force => {
                format!(
                    "asked to stop at once {}; {FORCE_ENDS_TOOLS}, and a lock that is held is left behind",
                    self.by_whom()
                )
            }
        }
    }
}

/// A signal reached one of the two processes of this run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SignalReceived {
    /// The signal, `SIGTERM`.
    pub signal: String,
    /// The process that sent it, when the system says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_pid: Option<u32>,
    /// The user that sent it, when the system says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_uid: Option<u32>,
    /// What it changed.
    pub effect: SignalEffect,
}

/// What a signal changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SignalEffect {
    /// It is the request to stop; `stop.requested` follows.
    Stop,
    /// It is the request to stop at once; `stop.requested` follows.
    Force,
    /// Nothing: the run is stopping already.
    Nothing,
}

impl Fact for SignalReceived {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        let effect = match self.effect {
            SignalEffect::Stop => "the run stops gracefully",
            SignalEffect::Force => "the run stops at once",
            SignalEffect::Nothing => "this changes nothing, the run is stopping already",
        };
        format!("{} was received{}: {effect}", self.signal, sender(self.sender_pid, self.sender_uid))
    }
}

fn sender(pid: Option<u32>, uid: Option<u32>) -> String {
    match (pid, uid) {
        (Some(pid), Some(uid)) => format!(" from process {pid} of user {uid}"),
        (Some(pid), None) => format!(" from process {pid}"),
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_came_several_times_is_named_once() {
        for (signals, said) in [
            (vec!["SIGINT"], "SIGINT"),
            (vec!["SIGINT", "SIGTERM"], "SIGINT and SIGTERM"),
            (vec!["SIGINT", "SIGINT"], "SIGINT, twice"),
            (vec!["SIGINT", "SIGTERM", "SIGINT", "SIGINT"], "SIGINT, 3 times and SIGTERM"),
        ] {
            let signals: Vec<String> = signals.into_iter().map(str::to_owned).collect();
            assert_eq!(counted(&signals), said);
        }
    }
}
