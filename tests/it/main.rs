//! The one integration binary: the program as people and pipelines see it, and the laws of the tree.

#[path = "../bed/mod.rs"]
mod bed;

mod canaries;
mod cancel;
mod chart;
mod cluster;
mod cron;
mod direct;
mod docs;
mod encodings;
mod exec;
mod github;
mod gitlab;
mod killed;
mod laws;
mod layering;
mod lock;
mod preflight;
mod process;
mod race;
mod rbac;
mod recorded;
mod refused;
mod reports;
mod runs;
mod state;
mod steps;
mod stopping;
mod the_bed;
mod tree;
mod verbs;
mod wire;
