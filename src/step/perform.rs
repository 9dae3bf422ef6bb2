//! Which function does which step.

use std::path::{Path, PathBuf};

use crate::config::Bundle;
use crate::failure::{Code, Failure};
use crate::pipeline::Action;
use crate::step::{Kit, Outcome, Tool, declaration, guard, manifests, readiness, record};

/// Does one step. The claim and the look at the surroundings are the run's own.
pub async fn perform(kit: &Kit, action: Action) -> Outcome {
    match action {
        Action::InstallOperator => manifests::install_operator(kit).await,
        Action::RecordInstall => record::record_install(kit).await,
        Action::CheckCluster => guard::check_cluster(kit).await,
        Action::DeclareInstance => declaration::declare_instance(kit).await,
        Action::WaitForReadiness => readiness::wait_for_readiness(kit).await,
        Action::RecordPhase => record::record_phase(kit).await,
        _ => Outcome::Nothing("not there yet".to_owned()),
    }
}
pub use record::record_failure;
pub async fn find_tofu(_kit: &Kit, _given: Option<&Path>) -> Result<Tool, Failure> {
    Ok(Tool { path: "/bin/true".into(), version: "0".to_owned() })
}
pub async fn find_helm(_kit: &Kit, _given: Option<&Path>) -> Result<Tool, Failure> {
    Ok(Tool { path: "/bin/true".into(), version: "0".to_owned() })
}
pub fn kept(_run: &Path, _state: &Path) -> Vec<(String, PathBuf)> {
    Vec::new()
}
pub fn refuse_local_state_in_ci(_b: &Bundle, _ci: bool, _given: bool) -> Result<(), Failure> {
    Ok(())
}
