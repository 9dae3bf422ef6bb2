//! To be written.
/// What must never be said.
#[derive(Debug, Clone, Default)]
pub struct Redactor;
