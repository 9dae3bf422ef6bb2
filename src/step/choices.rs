//! What the caller of a run chose, where a guard would refuse or the tools leave a choice.

use serde::{Deserialize, Serialize};

/// The choices of one run. What is chosen by default destroys nothing unasked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices {
    /// What a destroy does about the instance's infrastructure.
    pub infrastructure: Fate,
}

/// What becomes of the infrastructure of an instance that is destroyed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// OpenTofu destroys it.
    #[default]
    Destroyed,
    /// It is left where it is, and named.
    Abandoned,
}
