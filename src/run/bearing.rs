//! What each kind of step means for the rest of the run: for a stop, for the verdict, and for what may be half done.

use crate::pipeline::Action;
use crate::run::machine::StepEnd;
use crate::step::Outcome;

/// Whether a step changes nothing on the cluster.
pub(crate) fn only_looks(action: Action) -> bool {
    match action {
        Action::CheckSurroundings
        | Action::BuildImages
        | Action::CheckOperator
        | Action::ClaimCluster
        | Action::CheckCluster
        | Action::PlanInfrastructure => true,
        Action::InstallOperator
        | Action::ApplyPrerequisites
        | Action::RecordInstall
        | Action::DeclareInstance
        | Action::ApplyInfrastructure
        | Action::InstallChart
        | Action::WaitForReadiness
        | Action::Verify
        | Action::RecordPhase
        | Action::UpgradeChart
        | Action::RecordRelease
        | Action::MarkDestroying
        | Action::UninstallChart
        | Action::DestroyInfrastructure
        | Action::DeleteNamespace
        | Action::ReleaseDeclaration
        | Action::RunCommand => false,
    }
}

/// What the machine needs of an outcome.
pub(crate) fn step_end(action: Action, outcome: Outcome) -> StepEnd {
    let changing = matches!(
        action,
        Action::InstallOperator
            | Action::ApplyPrerequisites
            | Action::ApplyInfrastructure
            | Action::InstallChart
            | Action::UpgradeChart
            | Action::UninstallChart
            | Action::DestroyInfrastructure
            | Action::DeleteNamespace
    );
    match outcome {
        Outcome::Done(_) | Outcome::Nothing(_) => StepEnd::Done,
        Outcome::Stopped(stopped) => StepEnd::Stopped { clean: stopped.clean, unfinished: stopped.unfinished },
        Outcome::Failed(failure) => StepEnd::Failed { failure, changing },
    }
}
