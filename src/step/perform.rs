//! Which function does which step.

use crate::config::Bundle;
use crate::failure::Failure;
use crate::pipeline::Action;
use crate::step::{Kit, Outcome, Part};

/// Does one step.
pub async fn perform(kit: &Kit, action: Action) -> Outcome {
    match action {
        Action::BuildImages => crate::step::build_images(kit).await,
        Action::ApplyPrerequisites => crate::step::apply_root(kit, Part::Prerequisites).await,
        Action::ApplyInfrastructure => crate::step::apply_root(kit, Part::Infrastructure).await,
        Action::InstallChart => crate::step::install_chart(kit).await,
        Action::Verify => crate::step::verify(kit).await,
        _ => Outcome::Nothing("not there yet".to_owned()),
    }
}

/// Nothing yet.
pub async fn record_failure(_kit: &Kit) -> Result<(), Failure> {
    Ok(())
}

/// Nothing yet.
pub fn refuse_local_state_in_ci(bundle: &Bundle, ci: bool, given: bool) -> Result<(), Failure> {
    if ci && !given { crate::step::refuse_local_state(bundle) } else { Ok(()) }
}
