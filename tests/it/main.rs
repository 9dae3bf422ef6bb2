//! The one integration binary: the program as people and pipelines see it, and the laws of the tree.

#[path = "../bed/mod.rs"]
mod bed;

mod chart;
mod cluster;
mod direct;
mod docs;
mod encodings;
mod exec;
mod killed;
mod laws;
mod layering;
mod lock;
mod process;
mod race;
mod rbac;
mod refused;
mod reports;
mod runs;
mod steps;
mod stopping;
mod the_bed;
mod tree;
mod verbs;
mod wire;
