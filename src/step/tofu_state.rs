//! Where local OpenTofu state lives, whose it is, and what happens to a state that could not be saved.
//!
//! A state folder belongs to one instance of one cluster (or, for what all instances share, to one cluster). It says so
//! in a small file of its own: applied against another cluster, the same state would make OpenTofu believe that
//! everything is there already, or delete what it does not find.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::{Bundle, Root};
use crate::failure::{Code, Failure};
use crate::step::Kit;
use crate::step::invoke::{OUTPUT, PRIVATE, make_folder, write_private};

/// What OpenTofu leaves beside its copy of the root when it can save its state nowhere else.
const ERRORED: &str = "errored.tfstate";

/// Which OpenTofu root of the bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// What all instances share, applied by `install`.
    Prerequisites,
    /// What is one instance's own.
    Infrastructure,
}

impl Part {
    const ALL: [Part; 2] = [Part::Prerequisites, Part::Infrastructure];

    /// The word in the names of its files.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Part::Prerequisites => "prerequisites",
            Part::Infrastructure => "infrastructure",
        }
    }

    /// Its root in this bundle.
    pub(crate) fn root(self, bundle: &Bundle) -> Option<&Root> {
        match self {
            Part::Prerequisites => bundle.prerequisites.as_ref(),
            Part::Infrastructure => bundle.instance.as_ref()?.infrastructure.as_ref(),
        }
    }

    /// Its state in this folder.
    pub(crate) fn state(self, state_dir: &Path) -> PathBuf {
        state_dir.join(format!("{}.tfstate", self.word()))
    }

    /// A state of it that could not be saved, in the state folder or in a run directory.
    pub(crate) fn errored(self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.errored.tfstate", self.word()))
    }

    /// The raw output that carries such a state when even that file could not be written.
    pub(crate) fn errored_output(self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.errored-output.jsonl", self.word()))
    }

    /// Everything that a state and its applies leave in this folder, but for a state that could not be saved.
    pub(crate) fn files(self, state_dir: &Path) -> [PathBuf; 4] {
        let word = self.word();
        let names = [
            format!("{word}.tfstate"),
            format!("{word}.tfstate.backup"),
            format!("{word}.terraform.lock.hcl"),
            format!("{word}.owner.json"),
        ];
        names.map(|name| state_dir.join(name))
    }

    fn owner(self, state_dir: &Path) -> PathBuf {
        state_dir.join(format!("{}.owner.json", self.word()))
    }
}

/// Files that a run leaves for a person to deal with, the most urgent first, each with what it is.
pub fn kept(run_dir: &Path, state_dir: &Path) -> Vec<(String, PathBuf)> {
    let mut kept = Vec::new();
    for part in Part::ALL {
        let unsaved = "the OpenTofu state that could not be saved";
        let printed = "OpenTofu's output, which carries the state that could not be saved";
        let places = [part.errored(state_dir), part.errored(run_dir)];
        if let Some(path) = places.into_iter().find(|path| path.exists()) {
            kept.push((unsaved.to_owned(), path));
        }
        let output = part.errored_output(run_dir);
        if output.exists() {
            kept.push((printed.to_owned(), output));
        }
    }
    kept
}

/// Files of a run directory that carry a state which could not be saved: where they were brought to, and where OpenTofu
/// leaves one when nobody was there to bring it. They may be the only record of what exists.
pub fn unsaved(run_dir: &Path) -> Vec<PathBuf> {
    let places = Part::ALL.into_iter().flat_map(|part| {
        let left = left_in(&run_dir.join(PRIVATE).join(part.word()));
        [part.errored(run_dir), part.errored_output(run_dir)].into_iter().chain(left)
    });
    let found: Vec<PathBuf> = places.filter(|path| fs::symlink_metadata(path).is_ok()).collect();
    found.into_iter().chain(printed(run_dir)).collect()
}

/// The raw outputs of a run directory in which OpenTofu printed a state that it could save nowhere, where they lie as long
/// as nobody has looked at them.
fn printed(run_dir: &Path) -> Option<PathBuf> {
    let outputs = fs::read_dir(run_dir.join(OUTPUT)).into_iter().flatten().flatten();
    let ours = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        ["tofu-apply", "tofu-destroy"].iter().any(|tool| name.starts_with(tool)) && name.ends_with(".stdout")
    };
    outputs.filter(ours).map(|entry| entry.path()).find(|path| carries_a_state(path))
}

/// Whether a line of this output is one of those in which OpenTofu prints its state; it may be torn.
fn carries_a_state(output: &Path) -> bool {
    let Ok(file) = fs::File::open(output) else { return false };
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    lines.filter(|line| line.starts_with(b"{")).any(|line| String::from_utf8_lossy(&line).contains("\"state\":"))
}

/// Refuses to apply while a state that could not be saved waits for a person.
pub(crate) fn refuse_errored(part: Part, state_dir: &Path) -> Result<(), Failure> {
    let path = part.errored(state_dir);
    // A link whose target is gone still says that something was lost.
    if fs::symlink_metadata(&path).is_err() {
        return Ok(());
    }
    let sentence = format!("a state that OpenTofu could not save is waiting in `{}`", path.display());
    let state = part.state(state_dir);
    Err(Failure::new(Code::StateErrored, sentence)
        .cause("applying now would work from an older state and lose what that one has")
        .hint(format!(
            "with local state: compare it with `{}`, move it there if its serial is higher, then run the same command again",
            state.display()
        ))
        .hint("with a remote backend: `tofu state push` it from an initialised copy of the root, then remove the file"))
}

/// Whose a state folder is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    /// The instance; none for what all instances share.
    instance: Option<String>,
    /// The uid of the cluster, if it could be read.
    cluster: Option<String>,
    /// How the cluster was reached: for people.
    server: String,
}

impl Owner {
    /// Whose the state of this run is.
    ///
    /// # Errors
    /// When the cluster cannot say which one it is. An account that may not ask is let through.
    pub(crate) async fn of(kit: &Kit) -> Result<Owner, Failure> {
        let cluster = match kit.cluster.uid().await {
            Ok(uid) => Some(uid),
            Err(failure) if failure.code == Code::Forbidden => None,
            Err(failure) => return Err(failure),
        };
        Ok(Owner { instance: kit.instance.clone(), cluster, server: kit.cluster.server().to_owned() })
    }

    /// Refuses a state folder that is another's.
    pub(crate) fn check(&self, part: Part, state_dir: &Path) -> Result<(), Failure> {
        let path = part.owner(state_dir);
        let Ok(text) = fs::read(&path) else { return Ok(()) };
        let Ok(found) = serde_json::from_slice::<Owner>(&text) else {
            let sentence = format!("`{}` does not say whose state lies beside it", path.display());
            return Err(Failure::new(Code::StateMissing, sentence).hint("look at the file, or use another --state-dir"));
        };
        let other_cluster = matches!((&self.cluster, &found.cluster), (Some(ours), Some(theirs)) if ours != theirs);
        if found.instance == self.instance && !other_cluster {
            return Ok(());
        }
        // One that was made anew often has the address of the one before it.
        let same_address = if found.server == self.server { ", at the same address" } else { "" };
        let cluster = format!("another cluster{same_address} ({})", found.server);
        let whose = match (&found.instance, other_cluster) {
            (None, true) => cluster,
            (Some(name), true) => format!("instance \"{name}\" of {cluster}"),
            (Some(name), false) => format!("instance \"{name}\""),
            (None, false) => "no instance".to_owned(),
        };
        let folder = state_dir.display();
        let sentence = format!("the OpenTofu state in `{folder}` belongs to {whose}");
        let failure = Failure::new(Code::StateMissing, sentence);
        Err(if other_cluster {
            failure
                .hint(format!("if that cluster is gone for good, move `{folder}` away and run the same command again"))
        } else {
            failure
        })
    }

    /// Takes a state folder: makes it, for this user alone, and says whose it is.
    pub(crate) fn take(&self, part: Part, state_dir: &Path) -> Result<(), Failure> {
        let unusable = |failure: Failure| {
            Failure { message: format!("the state folder `{}` cannot be used", state_dir.display()), ..failure.clone() }
                .cause(failure.message)
        };
        make_folder(state_dir).map_err(unusable)?;
        let text = serde_json::to_vec(self).expect("an owner can be written as JSON");
        write_private(&part.owner(state_dir), &text).map_err(unusable)
    }
}

/// What a state file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateFile {
    /// It is not there.
    Missing,
    /// It is there and empty: an apply was killed before it could write.
    Empty,
    /// It is there and is no state.
    Unreadable,
    /// It is a state, with its lineage.
    State(Lineage),
}

/// Which state it is, and how old.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Lineage {
    /// Given once, when the state began.
    pub lineage: String,
    /// Counts its versions.
    pub serial: u64,
}

impl StateFile {
    /// What is wrong with it, when it should be a state.
    pub fn trouble(&self, path: &Path) -> Option<String> {
        let path = path.display();
        match self {
            StateFile::State(_) => None,
            StateFile::Missing => Some(format!("there is no `{path}`")),
            StateFile::Empty => Some(format!("`{path}` is empty")),
            StateFile::Unreadable => Some(format!("`{path}` cannot be read as a state")),
        }
    }

    /// Looks at one.
    pub fn look(path: &Path) -> StateFile {
        match fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => StateFile::Missing,
            Ok(bytes) if bytes.is_empty() => StateFile::Empty,
            Ok(bytes) => serde_json::from_slice(&bytes).map_or(StateFile::Unreadable, StateFile::State),
            Err(_) => StateFile::Unreadable,
        }
    }
}

/// The lineage of a local state, for the declaration; none when there is no state.
pub fn lineage(state_dir: &Path, part: Part) -> Option<Lineage> {
    match StateFile::look(&part.state(state_dir)) {
        StateFile::State(lineage) => Some(lineage),
        StateFile::Missing | StateFile::Empty | StateFile::Unreadable => None,
    }
}

/// Which state this is, and how old; none when it cannot be read.
pub(crate) fn version_in(text: &[u8]) -> Option<Lineage> {
    serde_json::from_slice(text).ok()
}

/// The addresses in a local state; none when there is no state to read.
pub(crate) fn addresses(path: &Path) -> BTreeSet<String> {
    fs::read(path).map(|text| addresses_in(&text)).unwrap_or_default()
}

/// The addresses in this state; none when it cannot be read.
pub(crate) fn addresses_in(text: &[u8]) -> BTreeSet<String> {
    let state: Recorded = serde_json::from_slice(text).unwrap_or_default();
    let all = state.resources.iter().flat_map(|resource| {
        let module = resource.module.as_ref().map_or_else(String::new, |module| format!("{module}."));
        let data = if resource.mode == "data" { "data." } else { "" };
        let name = format!("{module}{data}{}.{}", resource.kind, resource.name);
        resource.instances.iter().map(move |instance| match &instance.index_key {
            // As OpenTofu writes them: `[0]`, `["a"]`.
            Some(key) => format!("{name}[{key}]"),
            None => name.clone(),
        })
    });
    all.collect()
}

/// Of a state, what addresses are made of.
#[derive(Debug, Default, Deserialize)]
struct Recorded {
    #[serde(default)]
    resources: Vec<RecordedResource>,
}

#[derive(Debug, Deserialize)]
struct RecordedResource {
    module: Option<String>,
    #[serde(default)]
    mode: String,
    #[serde(rename = "type")]
    kind: String,
    name: String,
    #[serde(default)]
    instances: Vec<RecordedInstance>,
}

#[derive(Debug, Deserialize)]
struct RecordedInstance {
    index_key: Option<serde_json::Value>,
}

/// Makes every file of a state folder readable by this user alone: OpenTofu makes them for everybody.
pub(crate) fn make_private(state_dir: &Path) {
    let entries = fs::read_dir(state_dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())) {
        let _ = fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o600));
    }
}

/// Brings a state that OpenTofu could not save to where it stays, and returns where that is. None when there is none.
///
/// It is moved within the run directory first, which needs no room on the disk, and then copied beside the state,
/// where the next run finds it. If even a copy cannot be made, a link is left there.
pub(crate) fn rescue(part: Part, cwd: &Path, run_dir: &Path, state_dir: &Path) -> Option<PathBuf> {
    let left = left_in(cwd)?;
    let _ = fs::set_permissions(&left, fs::Permissions::from_mode(0o600));
    let moved = part.errored(run_dir);
    let moved = if fs::rename(&left, &moved).is_ok() { moved } else { left };
    Some(mark(part, &moved, state_dir))
}

/// Where OpenTofu left one in the copy of a bundle, whose root lies anywhere in it. A file of that name in the bundle itself is
/// not copied.
fn left_in(copy: &Path) -> Option<PathBuf> {
    let mut folders = vec![copy.to_owned()];
    while let Some(folder) = folders.pop() {
        let left = folder.join(ERRORED);
        if left.is_file() {
            return Some(left);
        }
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let within = |entry: &fs::DirEntry| {
            entry.file_name() != ".terraform" && entry.file_type().is_ok_and(|kind| kind.is_dir())
        };
        folders.extend(entries.filter(within).map(|entry| entry.path()));
    }
    None
}

/// The same for one that it could only print: its one copy is in the raw output, so that is kept.
pub(crate) fn rescue_printed(part: Part, run_dir: &Path, state_dir: &Path) -> Option<PathBuf> {
    let kept = part.errored_output(run_dir);
    fs::rename(printed(run_dir)?, &kept).ok()?;
    mark(part, &kept, state_dir);
    Some(kept)
}

/// Puts a file that carries an unsaved state where the next run of this part finds it.
pub(crate) fn mark(part: Part, file: &Path, state_dir: &Path) -> PathBuf {
    let beside = part.errored(state_dir);
    let copied = make_folder(state_dir).is_ok() && fs::copy(file, &beside).is_ok();
    if copied {
        return beside;
    }
    let _ = fs::remove_file(&beside);
    if let Err(error) = std::os::unix::fs::symlink(file, &beside) {
        tracing::warn!(path = %beside.display(), %error, "the next run will not find the unsaved state by itself");
    }
    file.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(instance: Option<&str>, cluster: Option<&str>) -> Owner {
        let cluster = cluster.map(str::to_owned);
        Owner { instance: instance.map(str::to_owned), cluster, server: "https://127.0.0.1:6443".to_owned() }
    }

    #[test]
    fn a_state_folder_belongs_to_one_instance_of_one_cluster() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        let demo = owner(Some("demo"), Some("uid-1"));
        assert_eq!(demo.check(Part::Infrastructure, &state), Ok(()));
        demo.take(Part::Infrastructure, &state).expect("taken");
        let check = |owner: Owner| owner.check(Part::Infrastructure, &state).map_err(|failure| failure.message);
        assert_eq!(check(demo), Ok(()));
        assert_eq!(check(owner(Some("demo"), None)), Ok(()));
        let other = check(owner(Some("prod"), Some("uid-1"))).expect_err("it is another's");
        assert!(other.ends_with("belongs to instance \"demo\""), "{other}");
        let elsewhere = check(owner(Some("demo"), Some("uid-2"))).expect_err("it is another's");
        let same = "belongs to instance \"demo\" of another cluster, at the same address (https://127.0.0.1:6443)";
        assert!(elsewhere.ends_with(same), "{elsewhere}");
        let moved = Owner { server: "https://127.0.0.1:7443".to_owned(), ..owner(Some("demo"), Some("uid-2")) };
        let elsewhere = check(moved).expect_err("it is another's");
        assert!(elsewhere.ends_with("\"demo\" of another cluster (https://127.0.0.1:6443)"), "{elsewhere}");
        let shared = owner(None, Some("uid-1"));
        assert_eq!(shared.check(Part::Prerequisites, &state), Ok(()));
        shared.take(Part::Prerequisites, &state).expect("taken");
        let failure = owner(None, Some("uid-2")).check(Part::Prerequisites, &state).expect_err("it is another's");
        let whose = failure.message.split_once("belongs to ").map(|(_, whose)| whose);
        assert_eq!(whose, Some("another cluster, at the same address (https://127.0.0.1:6443)"));
        assert_eq!(fs::metadata(&state).expect("there").permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_state_is_told_from_everything_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = Part::Infrastructure.state(folder.path());
        assert_eq!(StateFile::look(&path), StateFile::Missing);
        for (text, expected) in [("", StateFile::Empty), ("{}", StateFile::Unreadable), ("x", StateFile::Unreadable)] {
            fs::write(&path, text).expect("written");
            assert_eq!(StateFile::look(&path), expected);
            assert_eq!(lineage(folder.path(), Part::Infrastructure), None);
        }
        fs::write(&path, r#"{"version":4,"serial":7,"lineage":"abc","resources":[]}"#).expect("written");
        let expected = Lineage { lineage: "abc".to_owned(), serial: 7 };
        assert_eq!(lineage(folder.path(), Part::Infrastructure), Some(expected));
    }

    #[test]
    fn the_addresses_of_a_state_are_those_that_opentofu_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = Part::Infrastructure.state(folder.path());
        assert!(addresses(&path).is_empty());
        let text = r#"{"serial":1,"lineage":"a","resources":[
            {"mode":"managed","type":"bed_thing","name":"one","instances":[{"attributes":{}}]},
            {"mode":"managed","type":"bed_thing","name":"none","instances":[]},
            {"module":"module.m[\"x\"]","mode":"managed","type":"bed_thing","name":"two","instances":[{"index_key":0},{"index_key":"a"}]},
            {"mode":"data","type":"bed_thing","name":"seen","instances":[{}]}]}"#;
        fs::write(&path, text).expect("written");
        let expected = [
            "bed_thing.one",
            "data.bed_thing.seen",
            "module.m[\"x\"].bed_thing.two[\"a\"]",
            "module.m[\"x\"].bed_thing.two[0]",
        ];
        assert_eq!(addresses(&path).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_unsaved_state_is_kept_and_refuses_the_next_apply() {
        let folder = tempfile::tempdir().expect("a folder");
        let [cwd, run, state] = ["cwd", "run", "state"].map(|name| folder.path().join(name));
        for made in [&cwd, &run] {
            make_folder(made).expect("made");
        }
        assert_eq!(rescue(Part::Infrastructure, &cwd, &run, &state), None);
        assert!(unsaved(&run).is_empty());
        assert_eq!(refuse_errored(Part::Infrastructure, &state), Ok(()));
        fs::write(cwd.join("errored.tfstate"), "state").expect("written");
        let kept_at = rescue(Part::Infrastructure, &cwd, &run, &state).expect("it was there");
        assert_eq!(kept_at, Part::Infrastructure.errored(&state));
        assert_eq!(fs::metadata(&kept_at).expect("there").permissions().mode() & 0o777, 0o600);
        let failure = refuse_errored(Part::Infrastructure, &state).expect_err("it waits");
        assert_eq!(failure.code, Code::StateErrored);
        assert_eq!(refuse_errored(Part::Prerequisites, &state), Ok(()));
        assert_eq!(kept(&run, &state).len(), 1);
        assert_eq!(kept(&run, &state)[0].1, kept_at);
        assert_eq!(unsaved(&run), [Part::Infrastructure.errored(&run)]);
    }

    #[test]
    fn every_file_of_a_run_directory_that_carries_an_unsaved_state_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = folder.path();
        let mut expected = Vec::new();
        for name in [
            "prerequisites.errored.tfstate",
            "private/prerequisites/errored.tfstate",
            "infrastructure.errored-output.jsonl",
            "private/infrastructure/infra/errored.tfstate",
        ] {
            let path = run.join(name);
            make_folder(path.parent().expect("it is in a folder")).expect("made");
            fs::write(&path, "state").expect("written");
            expected.push(path);
            let found: BTreeSet<PathBuf> = unsaved(run).into_iter().collect();
            assert_eq!(found, expected.iter().cloned().collect(), "{name}");
        }
    }

    #[test]
    fn where_no_copy_can_be_made_a_link_still_stops_the_next_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        make_folder(&state).expect("made");
        let gone = folder.path().join("gone");
        assert_eq!(mark(Part::Infrastructure, &gone, &state), gone);
        assert_eq!(
            refuse_errored(Part::Infrastructure, &state).map_err(|failure| failure.code),
            Err(Code::StateErrored)
        );
    }
}
