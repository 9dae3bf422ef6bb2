//! What a pipeline is: pure data.
//!
//! A [`Verb`] is what a person asks for, a [`Plan`] is the ordered list of [`Action`]s that it means. Nothing here
//! acts; `step` knows how each action is done, `run` when.

use serde::{Deserialize, Serialize};

/// A pipeline: what a run does to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Prepare a cluster once: the operator, its definitions, and the prerequisites.
    Install,
    /// Build an instance in its own namespace beside others.
    Bootstrap,
    /// Move a live instance to the bundle's release.
    Upgrade,
    /// Remove an instance and everything of it.
    Destroy,
    /// Run any command under the lock.
    Exec,
}

impl Verb {
    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Verb::Install => "install",
            Verb::Bootstrap => "bootstrap",
            Verb::Upgrade => "upgrade",
            Verb::Destroy => "destroy",
            Verb::Exec => "exec",
        }
    }
}

/// One kind of step. Its title is what people, the lock's messages and the reports call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Tools, their versions, and that the cluster answers.
    CheckSurroundings,
    /// The bundle's image build; it needs no lock.
    BuildImages,
    /// Take the cluster's one lock.
    ClaimCluster,
    /// Apply the operator's manifests and wait for it.
    InstallOperator,
    /// Apply the OpenTofu root that all instances share.
    ApplyPrerequisites,
    /// Write down what was installed.
    RecordInstall,
    /// Refuse what would harm another instance.
    CheckCluster,
    /// Write the instance's declaration.
    DeclareInstance,
    /// Apply the instance's OpenTofu root.
    ApplyInfrastructure,
    /// Install or upgrade the instance's Helm chart.
    InstallChart,
    /// Wait until the instance's workloads are ready.
    WaitForReadiness,
    /// Run the bundle's verify commands.
    Verify,
    /// Record on the declaration that the instance is ready.
    RecordPhase,
    /// Refuse to move an instance past the operator of its cluster.
    CheckOperator,
    /// Save a plan of the instance's OpenTofu root.
    PlanInfrastructure,
    /// Upgrade the instance's Helm release.
    UpgradeChart,
    /// Record on the declaration which release the instance is of.
    RecordRelease,
    /// Write on the declaration that the instance is on its way out.
    MarkDestroying,
    /// Uninstall the instance's Helm release.
    UninstallChart,
    /// Destroy everything in the state of the instance's OpenTofu root.
    DestroyInfrastructure,
    /// Delete the instance's namespace and wait until it is gone.
    DeleteNamespace,
    /// Delete the declaration and take its finalizer off.
    ReleaseDeclaration,
    /// Run the command that was given to `exec`.
    RunCommand,
}

impl Action {
    /// The title, as in the documents: `Apply infrastructure`.
    pub fn title(self) -> &'static str {
        match self {
            Action::CheckSurroundings => "Check the surroundings",
            Action::BuildImages => "Build images",
            Action::ClaimCluster => "Claim the cluster",
            Action::InstallOperator => "Install the operator",
            Action::ApplyPrerequisites => "Apply prerequisites",
            Action::RecordInstall => "Record the install",
            Action::CheckCluster => "Check the cluster",
            Action::DeclareInstance => "Declare the instance",
            Action::ApplyInfrastructure => "Apply infrastructure",
            Action::InstallChart => "Install chart",
            Action::WaitForReadiness => "Wait for readiness",
            Action::Verify => "Verify",
            Action::RecordPhase => "Record the phase",
            Action::CheckOperator => "Check the operator's release",
            Action::PlanInfrastructure => "Plan infrastructure",
            Action::UpgradeChart => "Upgrade chart",
            Action::RecordRelease => "Record the release",
            Action::MarkDestroying => "Mark destroying",
            Action::UninstallChart => "Uninstall chart",
            Action::DestroyInfrastructure => "Destroy infrastructure",
            Action::DeleteNamespace => "Delete namespace",
            Action::ReleaseDeclaration => "Release the declaration",
            Action::RunCommand => "Run the command",
        }
    }

    /// The stable id in events and reports: the title in lower case with hyphens, without an apostrophe.
    pub fn id(self) -> String {
        self.title().to_lowercase().replace(' ', "-").replace('\'', "")
    }
}

/// The steps of one pipeline, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The pipeline.
    pub verb: Verb,
    /// Its steps, each at most once.
    pub actions: Vec<Action>,
}

impl Plan {
    /// The plan of a pipeline. An absent section of the bundle is still a step: it says "nothing to do".
    pub fn of(verb: Verb) -> Plan {
        let actions = match verb {
            Verb::Install => vec![
                Action::CheckSurroundings,
                Action::ClaimCluster,
                Action::InstallOperator,
                Action::ApplyPrerequisites,
                Action::RecordInstall,
            ],
            Verb::Bootstrap => vec![
                Action::BuildImages,
                Action::ClaimCluster,
                Action::CheckCluster,
                Action::DeclareInstance,
                Action::ApplyInfrastructure,
                Action::InstallChart,
                Action::WaitForReadiness,
                Action::Verify,
                Action::RecordPhase,
            ],
            Verb::Upgrade => vec![
                Action::CheckOperator,
                Action::ClaimCluster,
                Action::CheckCluster,
                Action::PlanInfrastructure,
                Action::ApplyInfrastructure,
                Action::UpgradeChart,
                Action::WaitForReadiness,
                Action::Verify,
                Action::RecordRelease,
            ],
            Verb::Destroy => vec![
                Action::ClaimCluster,
                Action::MarkDestroying,
                Action::UninstallChart,
                Action::DestroyInfrastructure,
                Action::DeleteNamespace,
                Action::ReleaseDeclaration,
            ],
            Verb::Exec => vec![Action::CheckSurroundings, Action::ClaimCluster, Action::RunCommand],
        };
        Plan { verb, actions }
    }
}
