//! Each step by itself: against a real API server, with the real OpenTofu and Helm.

mod bench;
mod instance;
mod operator;
mod record;
mod refusals;
mod tofu;
mod tofu_state;
mod tools;
