//! What happens in a schedule, one thing after the other, and who has to be awake for it.

use std::time::Duration;

use serde_json::Value;

use crate::lock::protocol::schedules::candidate::Stray;
use crate::lock::protocol::schedules::fortune::{Act, Farewell};
use crate::lock::protocol::{Answer, Ask};

/// Who asks the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    Run(usize),
    /// In a reclaim of this number.
    Person(u64),
}

#[derive(Debug, Clone)]
pub(super) enum Event {
    /// The run does something.
    Run(usize, Act),
    /// The machine is due, or was when this was planned.
    Tick(Party),
    Arrives {
        from: Party,
        request: u64,
        ask: Ask,
        body: Option<Value>,
        reply: Option<Duration>,
        /// It is a claim that was doubled, or comes late.
        stray: Option<Stray>,
    },
    Replied {
        to: Party,
        request: u64,
        answer: Answer,
    },
    TimedOut {
        to: Party,
        request: u64,
    },
    /// The person begins to look at the lock.
    Looks,
    /// The person types what is shown, in the reclaim of this number.
    Types(u64, String),
    /// This befalls the person in the reclaim of this number.
    Befalls(u64, Farewell),
}

/// Whether it takes the person's process being awake.
pub(super) fn is_for_the_person(event: &Event) -> bool {
    match event {
        Event::Tick(Party::Person(_))
        | Event::Replied { to: Party::Person(_), .. }
        | Event::TimedOut { to: Party::Person(_), .. }
        | Event::Types(..)
        | Event::Befalls(_, Farewell::Interrupts) => true,
        Event::Run(..)
        | Event::Tick(Party::Run(_))
        | Event::Replied { to: Party::Run(_), .. }
        | Event::TimedOut { to: Party::Run(_), .. }
        | Event::Arrives { .. }
        | Event::Looks
        | Event::Befalls(_, Farewell::Dies | Farewell::Sleeps(_)) => false,
    }
}

/// The run that an event needs to be awake for.
pub(super) fn sleeper(event: &Event) -> Option<usize> {
    match event {
        Event::Run(run, _)
        | Event::Tick(Party::Run(run))
        | Event::Replied { to: Party::Run(run), .. }
        | Event::TimedOut { to: Party::Run(run), .. } => Some(*run),
        Event::Tick(Party::Person(_))
        | Event::Replied { to: Party::Person(_), .. }
        | Event::TimedOut { to: Party::Person(_), .. }
        | Event::Arrives { .. }
        | Event::Looks
        | Event::Types(..)
        | Event::Befalls(..) => None,
    }
}
