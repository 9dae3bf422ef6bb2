//! Removes what a run made for its tools and nobody may find later: the kubeconfig, variables, values, saved plans,
//! and the raw output of tools unless it was to be kept.
//!
//! Whoever writes the verdict does this, once no tool of the run lives: the supervisor has seen them end, and the front
//! that takes its place looks for them ([`alive`]). Steps put such files under [`PRIVATE`]; what has to stay for a
//! person (`errored.tfstate`) lies elsewhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::event::Kept;
use crate::process;
use crate::run::door::DOOR;
use crate::run::former::ABOUT;
use crate::run::journal::BALLAST;
use crate::run::spec::{Purpose, Spec};
use crate::step::{self, OUTPUT, PRIVATE};

/// Removes it all; says what could not be removed.
pub(crate) fn tidy(spec: &Spec) -> Vec<String> {
    folder(&spec.run_dir, spec.cluster().map(|cluster| &*cluster.kubeconfig))
}

/// The same for the run of this directory.
pub(crate) fn folder(run_dir: &Path, kubeconfig: Option<&Path>) -> Vec<String> {
    let mut left = Vec::new();
    let mut note = |path: &Path, result: std::io::Result<()>| match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            left.push(format!("{} could not be removed: {error}", path.display()));
        }
        Ok(()) | Err(_) => {}
    };
    let private = run_dir.join(PRIVATE);
    if let Some(kubeconfig) = kubeconfig {
        note(kubeconfig, std::fs::remove_file(kubeconfig));
    }
    note(&private, std::fs::remove_dir_all(&private));
    for name in [BALLAST, ABOUT, DOOR] {
        let path = run_dir.join(name);
        note(&path, std::fs::remove_file(&path));
    }
    left
}

/// What [`tidy`] would remove and a person should know of.
pub(crate) fn untidied(spec: &Spec) -> Vec<String> {
    let kubeconfig = spec.cluster().map(|cluster| cluster.kubeconfig.clone());
    let paths = kubeconfig.into_iter().chain([spec.run_dir.join(PRIVATE)]);
    paths.filter(|path| path.exists()).map(|path| path.display().to_string()).collect()
}

/// What stays for a person to look at, the most urgent first. `untidied` are the files that had to be left.
pub(crate) fn stays(spec: &Spec, untidied: &[String]) -> Vec<Kept> {
    let named = |what: &str, path: PathBuf| Kept { what: what.to_owned(), path: path.display().to_string() };
    let mut kept: Vec<Kept> = match &spec.purpose {
        Purpose::Bundle(with) => {
            let found = step::kept(&spec.run_dir, &with.state_dir).into_iter();
            found.map(|(what, path)| named(&what, path)).collect()
        }
        Purpose::Command(_) => Vec::new(),
    };
    kept.extend(untidied.iter().map(|path| named("what tools of this run may still read", path.into())));
    let output = spec.run_dir.join(OUTPUT);
    if spec.keep_output && output.exists() {
        kept.push(named("the raw output of the tools, with whatever secrets they printed", output));
    }
    if spec.run_dir.exists() {
        kept.push(named("the run directory", spec.run_dir.clone()));
    }
    kept
}

/// The processes of a run that still live, each with its short name: those that carry its tag, and of `known` those that
/// are there under their number.
pub(crate) fn alive(spec: &Spec, known: impl IntoIterator<Item = u32>) -> BTreeMap<u32, String> {
    let known = known.into_iter().filter_map(process::look_up);
    process::of_run(&spec.run).into_iter().chain(known).collect()
}
