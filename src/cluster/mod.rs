//! To be written.
/// The API server.
#[derive(Debug, Clone)]
pub struct Cluster;
