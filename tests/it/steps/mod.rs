//! The steps that talk to the API server, against a real one.

mod bench;
mod instance;
mod operator;
mod record;
mod refusals;
