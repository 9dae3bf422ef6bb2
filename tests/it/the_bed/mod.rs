//! The bed itself: what a test may rely on.

mod build;
mod cluster;
mod dcctl;
mod demo;
mod end;
mod fetch;
mod provider;
mod pretend;
mod proxy;
