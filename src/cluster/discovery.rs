//! Which resource a kind is, as the API server says.

/// What was learnt so far.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Discovery;
