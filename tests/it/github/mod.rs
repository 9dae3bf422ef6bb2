//! The GitHub Action as jobs use it: whole workflows, run by act against the real control plane, and the entry points of the
//! action under the signals that GitHub's own runner sends.
//!
//! act differs from GitHub in one thing that matters here: it kills a cancelled step at once, where GitHub sends SIGINT first.
//! [`runner`] does what GitHub does.

mod act;
mod files;
mod runner;
pub(crate) mod workflow;
