//! Opens a bundle and resolves it for one run.

use std::path::{Path, PathBuf};

use crate::config::Bundle;
use crate::config::variables::Given;
use crate::failure::{Code, Failure};

/// A bundle as written: opened and read, for no particular run yet.
#[derive(Debug, Clone)]
pub struct Written {
    root: PathBuf,
    name: String,
    version: String,
}

/// What a bundle is resolved with.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// The instance worked on; none for `install`.
    pub instance: Option<String>,
    /// The name of the kubeconfig's context.
    pub kube_context: String,
    /// The run's own kubeconfig, with that context alone.
    pub kubeconfig: PathBuf,
    /// The run's id.
    pub run_id: String,
    /// Variables and secrets from outside.
    pub given: Given,
}

impl Bundle {
    /// Opens a bundle: a folder, or a `.tar.gz` that is unpacked into `scratch`, a folder that is empty or not there.
    pub fn open(path: &Path, _scratch: &Path) -> Result<Written, Failure> {
        Err(Failure::new(Code::BundleInvalid, format!("the bundle {} cannot be read yet", path.display())))
    }
}

impl Written {
    /// The bundle's folder: absolute, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `metadata.version`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Expands placeholders, checks every value and path, and finds the secrets.
    pub fn resolve(&self, _inputs: &Inputs) -> Result<Bundle, Failure> {
        Err(Failure::new(Code::BundleInvalid, "a bundle cannot be resolved yet"))
    }
}
