//! What people and CI systems are shown of a run.
//!
//! Every report is made from the lines of the journal, as [`crate::event::Seen`] reads them back: redacted, shortened
//! and numbered already. So a report cannot say more than the journal does, and a recorded journal gives the same
//! report as a run in progress. A report cannot reach the cluster, the lock or a process; the one thing it can do to a
//! run is fail to be written.

mod account;
pub mod file;
pub mod html;
pub mod human;
pub mod jsonl;
pub mod junit;
mod output;
pub mod recorded;
mod sanitise;
#[cfg(test)]
mod stories;
pub mod summary;
mod visible;
