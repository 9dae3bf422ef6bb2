//! The cluster's one lock, from outside: what everybody can read in the Lease, and what the API server was asked.

mod away;
mod claim;
mod disk;
mod doubt;
mod ends;
mod held;
mod lost;
mod permissions;
mod reader;
mod reclaim;
pub(crate) mod rig;
mod status;
mod together;
mod waiting;
mod without;
mod writes;
