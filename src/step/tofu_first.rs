//! The first state of a root: dcctl writes one with nothing in it before the first apply, so that what it belongs to knows
//! its state by name from then on.
//!
//! OpenTofu counts a state's versions from 1 on. So serial 0 has a meaning of its own: an apply was about to begin, and
//! nothing of it came back. Killed in the middle of its first resource, OpenTofu leaves the file as it found it, and a
//! destroy that took it for a state with nothing in it would forget what is there. Where the end of that apply was
//! witnessed, and it made nothing, the same state is written again as serial 1. Whether it was this run that began it is
//! remembered in the run directory, where whoever takes the run over finds it, too.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Code, Failure};
use crate::step::invoke::{PRIVATE, make_folder, write_private};
use crate::step::tofu_lock::Held;
use crate::step::tofu_state::{Lineage, Part, StateFile, addresses, lineage};

/// What OpenTofu has not written into.
const BEGUN: u64 = 0;

/// A state of which it is known that there is nothing in it.
pub(crate) const SETTLED: u64 = 1;

/// Begins a local state, and remembers in the run directory that this run did. OpenTofu keeps the lineage that it finds.
///
/// # Errors
/// [`Code::RunDirUnusable`].
pub(crate) fn begin(part: Part, run_dir: &Path, state_dir: &Path, version: &str) -> Result<Lineage, Failure> {
    let lineage = new_lineage();
    let mark = mark(part, run_dir);
    make_folder(&run_dir.join(PRIVATE))?;
    write_private(&mark, lineage.as_bytes())?;
    make_folder(state_dir)?;
    put(part, state_dir, &empty(version, &lineage, BEGUN))?;
    Ok(Lineage { lineage, serial: BEGUN })
}

/// Puts a state in its place, whole or not at all: half of it would be a state that was lost.
fn put(part: Part, state_dir: &Path, text: &str) -> Result<(), Failure> {
    let (path, whole) = (part.state(state_dir), state_dir.join(format!("{}.first.tfstate", part.word())));
    let moved = write_private(&whole, text.as_bytes()).and_then(|()| {
        fs::rename(&whole, &path).map_err(|error| {
            Failure::new(Code::RunDirUnusable, format!("`{}` cannot be written", path.display())).because(&error)
        })
    });
    if moved.is_err() {
        let _ = fs::remove_file(&whole);
    }
    moved
}

/// Where it is remembered that a run began a state.
fn mark(part: Part, run_dir: &Path) -> PathBuf {
    run_dir.join(PRIVATE).join(format!("{}.begun", part.word()))
}

/// Whether a state is as it was begun: an apply was about to work on it, and nothing of that came back.
pub(crate) fn is_as_begun(path: &Path) -> bool {
    matches!(StateFile::look(path), StateFile::State(state) if state.serial == BEGUN) && addresses(path).is_empty()
}

/// Which states as they were begun are known to be true: nothing was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// The one that this run began: what an earlier apply made on another one nobody knows.
    OwnBeginning,
    /// Whatever is there: everything that is wanted is in it.
    Whole,
}

/// Writes a state that is as it was begun again, as one of which it is known that there is nothing in it.
pub(crate) fn settle(part: Part, run_dir: &Path, state_dir: &Path, known: Known) {
    let path = part.state(state_dir);
    // Of one that is worked on nothing is known.
    if !is_as_begun(&path) || Held::on_this_machine(&path).is_some() {
        return;
    }
    let Some(found) = lineage(state_dir, part) else { return };
    let is_own = || fs::read_to_string(mark(part, run_dir)).is_ok_and(|began| began == found.lineage);
    if known == Known::OwnBeginning && !is_own() {
        return;
    }
    let version = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
    let version = version.and_then(|state| state["terraform_version"].as_str().map(str::to_owned)).unwrap_or_default();
    if let Err(failure) = put(part, state_dir, &empty(&version, &found.lineage, SETTLED)) {
        tracing::warn!(%failure, "that nothing was made could not be written down");
    }
}

/// What an apply means that goes on from a state as it was begun.
pub(crate) fn made_again(why: &str) -> String {
    format!("{why}. What that apply had made is not in the state, so OpenTofu will try to make it again.")
}

/// A lineage that no other state has.
pub(crate) fn new_lineage() -> String {
    let random = || getrandom::u64().expect("the system has a source of randomness");
    let (high, low) = (random(), random());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | (low >> 48) & 0x3fff,
        low & 0xffff_ffff_ffff
    )
}

/// A state with nothing in it.
pub(crate) fn empty(version: &str, lineage: &str, serial: u64) -> String {
    let state = serde_json::json!({ "version": 4, "terraform_version": version, "serial": serial, "lineage": lineage,
        "outputs": {}, "resources": [] });
    state.to_string()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_state_that_is_begun_has_a_lineage_of_its_own_and_nothing_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let [run, state] = ["run", "state"].map(|name| folder.path().join(name));
        let begun = begin(Part::Infrastructure, &run, &state, "1.12.6").expect("written");
        let parts: Vec<usize> = begun.lineage.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{begun:?}");
        let path = Part::Infrastructure.state(&state);
        assert_eq!(StateFile::look(&path), StateFile::State(begun.clone()));
        assert!(addresses(&path).is_empty() && is_as_begun(&path));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(begun.serial, 0);
        assert_ne!(begin(Part::Infrastructure, &run, &state, "1.12.6").expect("written").lineage, begun.lineage);
    }

    #[test]
    fn only_who_began_a_state_or_saw_it_whole_knows_that_there_is_nothing_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let [one, two, state] = ["one", "two", "state"].map(|name| folder.path().join(name));
        let part = Part::Infrastructure;
        let path = part.state(&state);
        let serial = || lineage(&state, part).expect("it is a state").serial;
        let begun = begin(part, &one, &state, "1.12.6").expect("written");
        settle(part, &two, &state, Known::OwnBeginning);
        assert_eq!(serial(), 0, "an earlier run began it");
        settle(part, &one, &state, Known::OwnBeginning);
        assert!(!is_as_begun(&path));
        assert_eq!(StateFile::look(&path), StateFile::State(Lineage { serial: 1, ..begun }));
        begin(part, &one, &state, "1.12.6").expect("written");
        settle(part, &two, &state, Known::Whole);
        assert_eq!(serial(), 1);
        let full = r#"{"version":4,"serial":0,"lineage":"a","resources":[{"type":"t","name":"n","instances":[{}]}]}"#;
        fs::write(&path, full).expect("written");
        assert!(!is_as_begun(&path), "there is something in it");
    }
}
