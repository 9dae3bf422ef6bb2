//! The test bed: a real control plane and the real tools, on this machine's loopback alone.
//!
//! Nothing that matters is tested against an imitation. [`Tools`] finds or builds the programs. A [`ControlPlane`] is
//! etcd, the API server, the controller manager, the scheduler and kwok; it lives in the `bed serve` process, which
//! ends everything when its standard input closes, and so leaves nothing behind however its caller ends. Tests get
//! one from the `pool`: `Bed::take` for a clean one that others had before, `Bed::fresh` for a new one.
//! `Dcctl` starts the program under test, `Proxy` stands between it and the API server and misbehaves on request.
//!
//! This module is compiled into the integration tests and into the `bed` program.

#![allow(dead_code, unused_imports, reason = "the tests use one part of the bed, its own program another")]

pub(crate) mod child;
pub(crate) mod control_plane;
pub(crate) mod crowd;
#[cfg(test)]
pub(crate) mod dcctl;
pub(crate) mod demo;
pub(crate) mod described;
#[cfg(test)]
pub(crate) mod disk;
pub(crate) mod folder;
#[cfg(test)]
pub(crate) mod freezer;
#[cfg(test)]
pub(crate) mod hand;
pub(crate) mod http;
#[cfg(test)]
pub(crate) mod impostor;
#[cfg(test)]
pub(crate) mod inventory;
#[cfg(test)]
pub(crate) mod junit;
pub(crate) mod keys;
pub(crate) mod kwok;
#[cfg(test)]
pub(crate) mod ledger;
pub(crate) mod leases;
#[cfg(test)]
pub(crate) mod memory;
pub(crate) mod message;
#[cfg(test)]
pub(crate) mod pool;
#[cfg(test)]
pub(crate) mod pretend;
#[cfg(test)]
pub(crate) mod proxy;
#[cfg(test)]
pub(crate) mod reset;
pub(crate) mod serve;
#[cfg(test)]
pub(crate) mod state_backend;
#[cfg(test)]
pub(crate) mod stream;
#[cfg(test)]
pub(crate) mod terminal;
pub(crate) mod tools;
#[cfg(test)]
pub(crate) mod untested;
pub(crate) mod users;
pub(crate) mod wait;

/// The lock.
pub(crate) const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/dc-k8s-system/leases/dcctl";
/// Where locks are made.
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/dc-k8s-system/leases";

#[cfg(test)]
pub(crate) use self::dcctl::Dcctl;
pub(crate) use control_plane::ControlPlane;
#[cfg(test)]
pub(crate) use hand::Bed;
pub(crate) use http::Api;
#[cfg(test)]
pub(crate) use ledger::Ledger;
#[cfg(test)]
pub(crate) use proxy::{Fault, Gate, Proxy, Rule};
pub(crate) use tools::Tools;
