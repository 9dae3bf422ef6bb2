//! What is run: the life of a tool, from its start until nothing of it is left.
//!
//! A tool (OpenTofu, Helm, a command of the bundle) is started in a process group of its own, with its standard input
//! at `/dev/null`, SIGHUP ignored, a complete environment, and its output in append-only files. No pipe of ours can
//! kill it, block it or outlive it, so it also survives us: a tool whose supervisor was killed runs to its end.
//!
//! # Promise
//! * However often a stop is asked for, a tool gets exactly one interrupt before the budget's end; none if its own
//!   output says that the system already interrupted it.
//! * [`drive`] returns when the tool's process has ended, never at end-of-file, and after everything that it left
//!   behind was named and ended.
//! * Every wait that begins with a stop is bounded by the budget and the watchdog after it. A tool that nobody asked
//!   to stop is waited for as long as it takes.
//!
//! # Not promised
//! A signal that somebody else sends to the tool cannot be prevented, only noticed: the tool's own report of it is
//! counted. A process of another user, or one that cannot be killed, is said and left.
//!
//! # How to read it
//! [`machine`] decides (pure: input and time in, effects out), [`driver`] does it, [`output`] turns files into lines,
//! [`group`] is the only file that talks to the kernel about processes. [`detach`] starts the supervisor itself.

mod child;
mod detach;
mod driver;
mod group;
mod halt;
mod kin;
mod leader;
mod left;
mod machine;
mod orphan;
mod ours;
mod output;
mod outputs;
mod plugins;
mod proc;
mod record;
mod sight;
mod spec;
mod start;
mod stop;
mod update;

pub use child::begin_afresh;
pub use detach::{Detached, Launch, inherit, inherit_pipe, is_tracking, scrub, spawn};
pub use driver::{drive, see_out};
#[cfg(feature = "test-tools")]
pub use group::stand_still;
pub use group::{Life, adopt, is_first, own_group, parent, reap_orphans};
#[cfg(feature = "test-tools")]
pub use halt::halt_at;
pub use kin::{look_up, of_run};
pub use orphan::{Heard, Orphan, orphans};
pub use ours::{Kind, doubt, own_file, own_folder_behind, read_own};
#[cfg(fuzzing)]
pub use output::attack::check as attack_output;
pub use plugins::{end_plugins, end_plugins_of};
pub use proc::{SUPERVISOR, folder_of, place, sees_itself};
pub use record::{Care, Intent, Recorded, recorded, seen_to_end};
pub use sight::Sight;
pub use spec::{Limits, Manner, Sign, Spec, Stdin};
pub use stop::{Directly, Stop, StopWatch, Stopper, stop_channel};
pub use update::{Crowd, Ended, Exit, Fate, Left, Room, Sink, Stream, Tie, ToolSignal, Unread, Update, Why};
