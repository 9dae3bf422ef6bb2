//! Which function does which step.

use crate::config::Bundle;
use crate::failure::Failure;
use crate::pipeline::{Action, Verb};
use crate::step::{
    Kit, Outcome, Part, apply_planned, apply_root, build_images, declaration, destroy_root, destroying, guard,
    install_chart, manifests, operator, plan_root, readiness, record, refuse_local_state, uninstall_chart,
    upgrade_chart, verify,
};

/// Does one step of a bundle. The claim and the look at the surroundings are the run's own.
pub async fn perform(kit: &Kit, action: Action) -> Outcome {
    match action {
        Action::BuildImages => build_images(kit).await,
        Action::InstallOperator => manifests::install_operator(kit).await,
        Action::ApplyPrerequisites => apply_root(kit, Part::Prerequisites).await,
        Action::RecordInstall => record::record_install(kit).await,
        Action::CheckCluster => guard::check_cluster(kit).await,
        Action::CheckOperator => operator::check_operator(kit).await,
        Action::PlanInfrastructure => plan_root(kit).await,
        Action::UpgradeChart => upgrade_chart(kit).await,
        Action::RecordRelease => declaration::record_release(kit).await,
        Action::DeclareInstance => declaration::declare_instance(kit).await,
        Action::ApplyInfrastructure if kit.verb == Verb::Upgrade => apply_planned(kit).await,
        Action::ApplyInfrastructure => apply_root(kit, Part::Infrastructure).await,
        Action::InstallChart => install_chart(kit).await,
        Action::WaitForReadiness => readiness::wait_for_readiness(kit).await,
        Action::Verify if kit.verb == Verb::Upgrade && kit.course.is_as_it_was() => {
            Outcome::Nothing("nothing was changed".to_owned())
        }
        Action::Verify => verify(kit).await,
        Action::RecordPhase => record::record_phase(kit).await,
        Action::MarkDestroying => destroying::mark_destroying(kit).await,
        Action::UninstallChart => uninstall_chart(kit).await,
        Action::DestroyInfrastructure => destroy_root(kit).await,
        Action::DeleteNamespace => destroying::delete_namespace(kit).await,
        Action::ReleaseDeclaration => destroying::release_declaration(kit).await,
        Action::CheckSurroundings | Action::ClaimCluster => unreachable!("the run itself does {}", action.title()),
        Action::RunCommand => unreachable!("a bundle has no step \"{}\"", action.title()),
    }
}

/// Refuses, in CI, to keep OpenTofu's state where the job's end takes it away.
///
/// # Errors
/// When a root keeps its state on this machine and nobody said where.
pub fn refuse_local_state_in_ci(bundle: &Bundle, ci: bool, given: bool) -> Result<(), Failure> {
    if ci && !given { refuse_local_state(bundle) } else { Ok(()) }
}
