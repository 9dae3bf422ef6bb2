//! Which function does which step.

use std::path::{Path, PathBuf};

use crate::config::Bundle;
use crate::failure::{Code, Failure};
use crate::pipeline::Action;
use crate::step::{Kit, Outcome, Tool};

pub async fn perform(_kit: &Kit, _action: Action) -> Outcome {
    Outcome::Nothing("not there yet".to_owned())
}
pub async fn find_tofu(_kit: &Kit, _given: Option<&Path>) -> Result<Tool, Failure> {
    Err(Failure::new(Code::ToolMissing, "not yet"))
}
pub async fn find_helm(_kit: &Kit, _given: Option<&Path>) -> Result<Tool, Failure> {
    Err(Failure::new(Code::ToolMissing, "not yet"))
}
pub fn kept(_run: &Path, _state: &Path) -> Vec<(String, PathBuf)> {
    Vec::new()
}
pub async fn record_failure(_kit: &Kit) -> Result<(), Failure> {
    Ok(())
}
pub fn refuse_local_state_in_ci(_b: &Bundle, _ci: bool, _given: bool) -> Result<(), Failure> {
    Ok(())
}
