//! The one integration binary: the program as people and pipelines see it, and the laws of the tree.

mod docs;
mod laws;
mod layering;
mod process;
mod tree;
