//! What a run is told: the bundle, the variables, and the process environment.
//!
//! A bundle is read in three moves. [`load`] opens it (a folder, or a `.tar.gz` that is unpacked first) and reads
//! `bundle.yaml` as written, with the position of every value. [`variables`] gathers what was given from outside.
//! Resolving joins the two into a [`Bundle`]: placeholders expanded, paths absolute and inside the bundle, types
//! checked. Everything that is wrong is said at once, each with file, line, column and field, before any lock.
//!
//! The process environment is read in [`mod@env`] and nowhere else.

pub mod ci;
pub mod digest;
pub mod dotted;
pub mod env;
pub mod grant;
pub mod load;
pub mod resolved;
pub mod variables;

mod archive;
mod decode;
#[cfg(feature = "schema")]
mod form;
#[cfg(feature = "schema")]
mod form_page;
mod name;
mod paths;
mod placeholder;
mod problem;
mod reader;
mod scope;
mod span;
mod suggest;
mod tree;
mod written;

#[cfg(test)]
mod tests;

pub use ci::Job;
pub use digest::Digest;
pub use env::Environment;
#[cfg(feature = "schema")]
pub use form::schema_page;
#[cfg(feature = "schema")]
pub use form_page::config_page;
pub use grant::Grant;
pub use load::{FILE as BUNDLE, Inputs, Written};
pub use name::check_instance;
pub use resolved::{Bundle, Chart, Claims, Command, Declaration, Deployment, Instance, Operator, Root};
pub(crate) use suggest::nearest;
pub use variables::Given;
