//! The verbs with a bundle that has everything, on a real cluster.

mod bootstrap;
mod bundle;
mod claims;
mod destroy;
mod dry_run;
mod elsewhere;
mod environment;
mod inputs;
mod install;
mod instances;
mod killed;
mod lives;
mod others;
pub(crate) mod rig;
mod schema;
mod upgrade;
