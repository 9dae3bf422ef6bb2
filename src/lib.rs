//! `dcctl` changes a Kubernetes cluster unattended, under the one lock of that cluster.
//!
//! # The tour: what happens in `dcctl bootstrap demo`
//! 1. [`commands`] reads the command line with [`cli`], then the bundle, the variables and the environment with
//!    [`config`], and the kubeconfig with [`cluster`]. All of it becomes one [`run::Spec`]. What is wrong so far is a
//!    refusal: a [`failure::Failure`], told by [`front::refuse`], and nothing was started.
//! 2. [`front`] starts the same program once more as the supervisor ([`process::spawn`]), hands it the spec over a
//!    socket, follows the journal and shows it with [`report`]. Its [`signal`]s become one request to stop.
//! 3. The supervisor ([`run::supervise`]) works through the plan of [`pipeline`]: what is next decides
//!    [`run::machine`], and each action is done by a function of [`step`], which gets a kit and a stop token.
//! 4. Three islands know nothing of one another. [`lock`] keeps the Lease, on a thread of its own. [`process`] runs the
//!    tools, and ends what they leave behind. [`event`] is what can be said.
//! 5. [`run`] alone hears all three. It turns what they say into events, numbers them, hides what [`redact`] knows, and
//!    writes them into the journal; every report is made from that.
//! 6. [`run::verdict`] decides the exit code, and the last event says it. The front ends with it.
//!
//! Who may import whom is in `docs/architecture.md`, and a test holds the code to it.

// Leaves: they import nothing of ours, but for a signal's clock.
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
