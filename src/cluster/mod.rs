//! The API server, as the rest of the program knows it.
//!
//! [`kubeconfig`] finds out which cluster is meant and narrows the configuration to that one, [`proxy`] decides how
//! it is reached, [`client`] makes clients that never guess and never retry behind our back, [`permission`] says whether
//! a write may be sent, and [`error`] turns whatever goes wrong into a failure with a code and one sentence.
//!
//! On top of them: [`document`] reads manifests, [`discovery`] knows which resource a kind is, [`presence`] whether an
//! object is there, [`apply`] applies them server-side in an order that works at the first run, [`wait`] tells why something is not ready yet, and
//! [`instances`], [`namespace`] and [`record`] read and write the objects that dcctl shares with its cluster, [`pod`]
//! looks for the one that a run is in, and [`removal`] takes away what is an instance's. [`access`] asks what this account
//! may do, without doing it.
//!
//! *Invariant:* types of `kube` stop here (and at the lock's store). *Invariant:* "cannot tell" is never "nothing
//! there": every answer that does not prove absence is a failure.

// Which cluster, and how it is reached.
mod certificate;
pub mod credentials;
pub mod kubeconfig;
mod raw_kubeconfig;
pub mod proxy;

// Asking it.
pub mod client;
pub mod error;
pub mod permission;
mod request;

// What it serves, and putting manifests there.
pub mod apply;
pub mod discovery;
pub mod document;
pub mod presence;
pub mod wait;
mod workload;

// What this account may do there.
pub mod access;

// What dcctl shares with it.
pub mod instances;
pub mod namespace;
pub mod pod;
pub mod record;
pub mod release;
pub mod removal;

pub use client::{CONNECT_LIMIT, Cluster, Connection};
pub use kubeconfig::{Kubeconfig, Sources};
pub use permission::{MayWrite, Permission};
pub use proxy::Proxies;
pub use request::{Conflicts, FIELD_MANAGER, Store};
