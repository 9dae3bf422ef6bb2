//! Reaching the API server, and what is said when that does not work.

mod answers;
mod connection;
mod credentials;
