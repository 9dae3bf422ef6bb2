//! The integration tests: dcctl from outside, against the real tools.

#[path = "../bed/mod.rs"]
mod bed;

mod the_bed;
