//! What the caller of a run chose, where a guard would refuse or the tools leave a choice.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The choices of one run. What is chosen by default destroys nothing unasked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices {
    /// What a destroy does about the instance's infrastructure.
    pub infrastructure: Fate,
    /// What an upgrade may delete or replace.
    pub replace: Replace,
    /// What is done about a chart whose upgrade failed.
    pub on_chart_failure: OnChartFailure,
    /// Whether an install may put an older release in the place of a newer one.
    pub backwards: Backwards,
}

/// Whether a cluster may be moved to an older release than it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backwards {
    /// It is refused: newer definitions and objects may not fit the older operator.
    #[default]
    Refused,
    /// Somebody has thought about that.
    Allowed,
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

/// What the plan of an upgrade may delete or replace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replace {
    /// Nothing.
    #[default]
    Nothing,
    /// Only what has one of these addresses.
    These(BTreeSet<String>),
    /// Everything.
    Everything,
}

impl Replace {
    /// Whether the resource of this address may go.
    pub fn allows(&self, address: &str) -> bool {
        match self {
            Replace::Nothing => false,
            Replace::These(addresses) => addresses.contains(address),
            Replace::Everything => true,
        }
    }
}

/// What is done about a chart whose upgrade failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnChartFailure {
    /// The release stays as Helm left it, for a person to look at.
    #[default]
    Leave,
    /// It is rolled back to the revision that was deployed before.
    Rollback,
}
