//! The one integration binary: the program as people and pipelines see it, and the laws of the tree.

#[path = "../bed/mod.rs"]
mod bed;

#[path = "bed.rs"]
mod bed_itself;
mod docs;
mod laws;
mod layering;
mod process;
mod steps;
mod tree;
