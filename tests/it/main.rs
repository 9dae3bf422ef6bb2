//! The integration tests: dcctl from outside, against the real tools.

#[path = "../bed/mod.rs"]
mod bed;

#[path = "bed.rs"]
mod bed_itself;
