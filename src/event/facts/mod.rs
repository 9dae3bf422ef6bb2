//! The facts: one struct per event, with its level and its sentence beside it.
//!
//! The doc comment of a struct is its documentation: when the event is sent and what comes next. The reference page
//! and the schema are made from these comments, so they speak to readers of events, not of this code.

pub mod cluster;
pub mod lock;
pub mod process;
pub mod remark;
pub mod resource;
pub mod run;
pub mod step;
pub mod stop;
