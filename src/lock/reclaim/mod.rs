//! Reclaiming, carried out: one request at a time, one person at a terminal, and a clock that is read once a second.
//!
//! No decision is made here; they are all in [`protocol::reclaim`](crate::lock::protocol::reclaim). The person is a seam:
//! the terminal is one, and a script in tests the other. What they are shown is in [`evidence`], what they are told in
//! [`words`].

pub mod evidence;
pub mod words;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::clock::Clock;
use crate::lock::driver::perform;
use crate::lock::observation::Observation;
use crate::lock::protocol::reclaim::{Effect, Input, Reclaim};
use crate::lock::protocol::{Answer, Now};
use crate::lock::record::Request;
use crate::lock::store::LeaseStore;
use crate::lock::timing::Timing;

pub use crate::lock::protocol::reclaim::{Changed, End, Progress, Window};

/// What a person does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// They typed a line, given without its end. The end of all input is an empty one.
    Typed(String),
    /// They want to stop, or their terminal is gone.
    Interrupted,
}

/// The person who reclaims, at a terminal.
pub trait Person {
    /// Waits for what they do next. Safe to drop at any point.
    fn next(&mut self) -> impl Future<Output = Act>;
    /// Shows them who holds the lock, and asks for the holder to be typed. It must not wait.
    fn show(&mut self, seen: &Observation);
    /// Tells them how far it is. It must not wait.
    fn tell(&mut self, progress: &Progress);
}

type Pending<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// What woke the loop.
enum Woke {
    Answer(Answer),
    Act(Act),
    Time,
}

/// Reclaims, or finds out why not. It ends only when nothing of ours is left to be done: before the take at once when
/// the person interrupts, after it when the lock was given back or its budget is over.
pub async fn reclaim<S: LeaseStore>(
    store: &S,
    request: Request,
    timing: Timing,
    clock: &dyn Clock,
    person: &mut impl Person,
) -> End {
    let (mut machine, mut effects) = Reclaim::begin(request, timing);
    let mut pending: Option<Pending<'_>> = None;
    loop {
        for effect in effects {
            match effect {
                Effect::Ask(ask) => pending = Some(Box::pin(perform(store, ask))),
                Effect::Show(seen) => person.show(&seen),
                Effect::Tell(progress) => person.tell(&progress),
                Effect::Ended(end) => return end,
            }
        }
        let pause = pause(&machine, timing, clock);
        let woke = tokio::select! {
            biased;
            act = person.next() => Woke::Act(act),
            answer = answered(&mut pending) => Woke::Answer(answer),
            () = tokio::time::sleep(pause) => Woke::Time,
        };
        let input = match woke {
            Woke::Act(Act::Typed(line)) => Input::Typed(line),
            Woke::Act(Act::Interrupted) => Input::Interrupted,
            Woke::Answer(answer) => {
                pending = None;
                Input::Answer(answer)
            }
            Woke::Time => Input::Tick,
        };
        effects = machine.advance(input, Now::read(clock));
    }
}

/// Until something is due, and never longer than the clock may go unread: a timer of tokio's stands still while the
/// machine is suspended.
fn pause(machine: &Reclaim, timing: Timing, clock: &dyn Clock) -> Duration {
    let longest = timing.poll_clock_every();
    machine.due().map_or(longest, |due| due.since(clock.now()).min(longest))
}

async fn answered(pending: &mut Option<Pending<'_>>) -> Answer {
    match pending {
        Some(request) => request.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
