//! What each CI system and each init system does to a run that it cancels, done to a real run, and what comes of it.
//!
//! [`systems`] has one small program for each: it signals the same processes in the same order and ends what the system ends.
//! [`matrix`] plays each against a real apply and against a command, and holds the page `docs/reference/cancel-matrix.md` against
//! what was seen. [`attack`] draws sequences of such signals by lot.

mod attack;
pub(crate) mod job;
mod matrix;
mod systems;
