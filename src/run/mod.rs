//! One run, from its first event to its verdict: the bridge between the islands.
//!
//! A run is two processes of the same program. The front hands a [`Spec`] to the supervisor ([`start()`]); the supervisor
//! ([`supervise()`]) owns everything else: the lock, the tools, the journal, the reports.
//!
//! # How to read it
//! [`machine`] decides what is next and [`verdict`] how it ended, both pure. `engine` is the select loop, `work` does
//! one activity at a time, `translate` turns the islands' words into events, `tally` counts them, [`Journal`] writes
//! them. A lost lock reaches a tool only because this room hears of the one and tells the other, and a write needs the
//! lock only because `while_held` stands between the two.

mod bearing;
mod chronicle;
mod door;
pub mod drill;
mod engine;
mod exec;
mod former;
mod journal;
mod keeping;
mod granted;
mod link;
pub mod machine;
mod mishap;
mod owned;
mod past;
mod reports;
mod spec;
mod start;
mod supervise;
mod surroundings;
mod takeover;
mod tally;
mod tidy;
mod translate;
pub mod verdict;
mod waiting;
mod while_held;
mod work;

pub use chronicle::Chronicle;
pub use door::{DOOR, knock};
pub use former::{ABOUT, folder_name, let_go};
pub use journal::{BALLAST, Journal, Settled, Voice, make_ballast};
#[cfg(fuzzing)]
pub use link::attack::check as attack_messages;
pub use link::{Answer, Asked, Ear, Finished, Link, Mouth, Word};
pub use mishap::caught;
pub use past::{Past, State, Watched, all};
pub use reports::{GoingOn, Matter, Paths, Report, Reports, Roll, Unwritten};
pub use spec::{ForBundle, ForCommand, JOURNAL, Mode, OnBusy, OnCluster, Purpose, Spec, Substrate, Wait};
pub use start::{LOG, Started, let_go_of_strays, start};
pub use supervise::{supervise, unwritable};
pub use takeover::{Gone, complete, take_over, verdict_of};
pub use tally::Tally;
use tidy::{alive, tidy, untidied};
pub use translate::{millis, opening};
pub use verdict::Verdict;

pub use crate::step::look_first;
pub(crate) use granted::budget;
pub(crate) use keeping::lease_store;
