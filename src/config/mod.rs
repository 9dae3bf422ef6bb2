//! To be written.
/// A bundle.
#[derive(Debug, Clone)]
pub struct Bundle;
