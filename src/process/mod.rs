//! To be written.
/// The stop token.
#[derive(Debug, Clone)]
pub struct StopWatch;
/// What happened to a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Update;
