//! `dcctl install` and `dcctl bootstrap` with a bundle that has everything, on a real cluster.

mod bootstrap;
mod by_hand;
mod bundle;
mod claims;
mod dry_run;
mod inputs;
mod install;
pub(crate) mod rig;
mod schema;
