//! `dcctl` changes a Kubernetes cluster unattended, under the one lock of that cluster.

// Leaves: they import nothing of ours.
pub mod clock;
pub mod failure;
pub mod redact;
pub mod signal;

// Three islands that never import one another.
pub mod event;
pub mod lock;
pub mod process;

// The domain.
pub mod cluster;
pub mod config;
pub mod pipeline;
pub mod step;

// The bridge, what watches it, and the edges.
pub mod cli;
pub mod commands;
pub mod front;
pub mod report;
pub mod run;
