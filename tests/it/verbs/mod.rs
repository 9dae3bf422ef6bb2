//! The verbs with a bundle that has everything, on a real cluster.

mod bootstrap;
mod bundle;
mod claims;
mod destroy;
mod dry_run;
mod inputs;
mod install;
mod instances;
mod killed;
mod lives;
pub(crate) mod rig;
mod schema;
mod upgrade;
