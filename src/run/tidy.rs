//! Removes what a run made for its tools and nobody may find later: the kubeconfig, variables, values, saved plans,
//! and the raw output of tools unless it was to be kept.
//!
//! Whoever writes the verdict does this, after every tool was seen to end. Steps put such files under [`PRIVATE`];
//! what has to stay for a person (`errored.tfstate`) lies elsewhere.

use std::path::Path;

use crate::run::journal::BALLAST;
use crate::step::PRIVATE;

/// Removes it all; says what could not be removed.
pub(crate) fn tidy(run_dir: &Path, kubeconfig: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let mut note = |path: &Path, result: std::io::Result<()>| match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            left.push(format!("{} could not be removed: {error}", path.display()));
        }
        Ok(()) | Err(_) => {}
    };
    let private = run_dir.join(PRIVATE);
    note(kubeconfig, std::fs::remove_file(kubeconfig));
    note(&private, std::fs::remove_dir_all(&private));
    note(&run_dir.join(BALLAST), std::fs::remove_file(run_dir.join(BALLAST)));
    left
}
