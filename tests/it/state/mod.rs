//! OpenTofu's state from outside: its own lock after an OpenTofu was killed, states that are kept elsewhere, and states that
//! are lost, older, another's, named by nobody, into which nothing ever came, or that could not be saved.

mod begun;
mod locked;
mod unlocked;
mod lost;
mod older;
mod remote;
mod rig;
mod shared;
mod traces;
mod unnamed;
