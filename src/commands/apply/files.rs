//! The paths of a run: its own folder, where reports go, where state lives.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;

use crate::commands::apply::{absolute, as_text};
use crate::config::{Environment, Written};
use crate::failure::{Code, Failure};
use crate::process::{self, Kind};
use crate::run::{self, ABOUT, BALLAST, DOOR, JOURNAL, LOG, make_ballast};
use crate::step;

/// The run's own kubeconfig in its folder.
pub(crate) const KUBECONFIG: &str = "kubeconfig";

/// Where a `.tar.gz` is unpacked: among what is removed at the run's end.
pub(crate) fn unpacked(run_dir: &Path) -> PathBuf {
    run_dir.join(step::PRIVATE).join("bundle")
}

/// The names of everything that a run makes in its folder, and what each is.
pub(super) const OWN: [(&str, Kind); 9] = [
    (JOURNAL, Kind::File),
    (KUBECONFIG, Kind::File),
    (BALLAST, Kind::File),
    (ABOUT, Kind::File),
    (LOG, Kind::File),
    (DOOR, Kind::Socket),
    (step::OUTPUT, Kind::Folder),
    (step::PRIVATE, Kind::Folder),
    (step::RECORDS, Kind::Folder),
];

/// A bundle that was unpacked for a run which may not begin: then it is removed again.
#[derive(Debug)]
pub(crate) struct Unpacked(Option<PathBuf>);

impl Unpacked {
    /// What stands in this run directory, if anything was unpacked.
    pub(crate) fn of(bundle: &Written, run_dir: &Path) -> Unpacked {
        Unpacked(bundle.digest().map(|_| unpacked(run_dir)))
    }

    /// The run begins: from here on it is removed with all else that the run has for itself.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            let _ = fs::remove_dir_all(folder);
            // Only when nothing else is in it.
            let _ = folder.parent().map(fs::remove_dir);
        }
    }
}

/// The run's folder. It is removed again when the command never became a run.
#[derive(Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
    found: Found,
    kept: bool,
}

/// Whether a folder was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Made,
    There,
}

impl RunFolder {
    /// Makes the folder, readable by this user alone, with its ballast.
    pub(crate) fn make(
        given: Option<&Path>,
        environment: &Environment,
        now: Timestamp,
        run: &str,
    ) -> Result<RunFolder, Failure> {
        let path = match given {
            Some(path) => absolute("--run-dir", path)?,
            None => default_folder(environment, now, run)?,
        };
        let unusable = |error: &io::Error| unusable(&path, error);
        let found = make_folder(&path).map_err(|error| unusable(&error))?;
        if let Some(failure) = distrusted(&path) {
            if found == Found::Made {
                let _ = fs::remove_dir(&path);
            }
            return Err(failure);
        }
        // Who makes the journal has the folder: of two that begin at once one is the later one.
        let claimed = File::options().append(true).create_new(true).mode(0o600).open(path.join(JOURNAL));
        if let Err(error) = claimed {
            if error.kind() == ErrorKind::AlreadyExists {
                let sentence = format!("--run-dir {} already holds the journal of another run", path.display());
                return Err(Failure::new(Code::OptionInvalid, sentence).hint("give each run a folder of its own"));
            }
            if found == Found::Made {
                let _ = fs::remove_dir(&path);
            }
            return Err(unusable(&error));
        }
        let made = make_ballast(&path).map_err(|error| unusable(&error));
        let folder = RunFolder { path, found, kept: false };
        made.map(|()| folder)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The run begins: from here on the folder stays, whatever becomes of this process.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }

    /// The run did not begin after all: what was written for it goes, also from a folder that was there before.
    pub(crate) fn give_up(&mut self) {
        self.kept = false;
    }

    /// Takes away what was made for the run. A journal that says something stays in a folder that was there before.
    fn clear(&self) {
        let own = |name: &str| self.path.join(name);
        for name in [KUBECONFIG, BALLAST] {
            let _ = fs::remove_file(own(name));
        }
        if own(JOURNAL).metadata().is_ok_and(|journal| journal.len() == 0) {
            let _ = fs::remove_file(own(JOURNAL));
        }
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        self.clear();
        if self.found == Found::Made {
            for own in OWN.map(|(name, _)| self.path.join(name)) {
                let _ = if own.is_dir() { fs::remove_dir_all(&own) } else { fs::remove_file(&own) };
            }
            // What else is in it is a report, which tells why there was no run.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Makes a folder, readable by this user alone, with those above it. Says whether it was there.
fn make_folder(path: &Path) -> io::Result<Found> {
    let make = || DirBuilder::new().mode(0o700).create(path);
    let made = make().or_else(|error| match path.parent() {
        Some(above) if error.kind() == ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(above)?;
            make()
        }
        Some(_) | None => Err(error),
    });
    match made {
        Ok(()) => Ok(Found::Made),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(Found::There),
        Err(error) => Err(error),
    }
}

/// Why a folder that is there is no place for a run: whoever can write to it chooses what is read, overwritten and ended
/// in our name. A part of its path that is a link may be led elsewhere by whoever made it.
fn distrusted(path: &Path) -> Option<Failure> {
    let refused = |what: &str, at: &Path, why: &str| {
        let sentence = format!("the run directory {} cannot be used: {what}{} {why}", path.display(), at.display());
        Failure::new(Code::RunDirUnusable, sentence)
    };
    let ours = rustix::process::geteuid().as_raw();
    let links = path.ancestors().flat_map(hops);
    let is_foreign = |link: &PathBuf| {
        fs::symlink_metadata(link).is_ok_and(|found| found.is_symlink() && ![ours, 0].contains(&found.uid()))
    };
    if let Some(link) = links.into_iter().find(is_foreign) {
        let failure = refused("the link ", &link, "on its way belongs to another user");
        return Some(failure.hint("give a folder without that link in its path with --run-dir"));
    }
    let real = followed(path);
    let doubt = |path: &Path, kind| process::doubt(path, kind).ok().flatten();
    if let Some(why) = doubt(&real, Kind::Folder) {
        let failure = refused("", &real, &why);
        return Some(failure.hint(
            "give a folder that is not there yet with --run-dir, which is then made for this account alone; one of your own \
             will do after `chmod go-w`, where the file system keeps such rights",
        ));
    }
    // Whatever has the journal's name is another run's.
    let mut others = OWN.iter().filter(|(name, _)| *name != JOURNAL).map(|(name, kind)| (real.join(name), *kind));
    // A folder of our own may lie on another disk.
    let is_led = |at: &Path, kind| kind == Kind::Folder && process::own_folder_behind(at).is_some();
    let doubted = |(at, kind): (PathBuf, Kind)| {
        let why = doubt(&at, kind).filter(|_| !is_led(&at, kind))?;
        Some((at, why))
    };
    let (at, why) = others.find_map(doubted)?;
    Some(refused("", &at, &why).hint("remove it, or give another folder with --run-dir"))
}

/// What is to be done depends on why: room helps a disk that is full, and nothing else.
fn unusable(path: &Path, error: &io::Error) -> Failure {
    let sentence = format!("the run directory {} cannot be used", path.display());
    let failure = Failure::new(Code::RunDirUnusable.unless_exhausted(error), sentence).because(error);
    match error.kind() {
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
            failure.hint("It, or a part of its path, is a file: give a folder with --run-dir.")
        }
        ErrorKind::NotFound => failure.hint("No folder can be made there: give another one with --run-dir."),
        ErrorKind::PermissionDenied => failure.hint(
            "Give a folder that this account may write to with --run-dir, and start dcctl with a umask that leaves its \
             owner the right to what is made (`umask 077`).",
        ),
        ErrorKind::ReadOnlyFilesystem => failure.hint("Give a folder that can be written to with --run-dir."),
        ErrorKind::FileTooLarge => {
            failure.hint("Raise the limit on the size of files that dcctl was started with (`ulimit -f`).")
        }
        _ => failure,
    }
}

/// `runs/TIME-RUN` in the user's state folder. A folder that others could have made first has to be ours.
pub(crate) fn default_folder(environment: &Environment, now: Timestamp, run: &str) -> Result<PathBuf, Failure> {
    let state = environment.state_folder();
    let ours = rustix::process::geteuid().as_raw();
    let foreign = fs::metadata(&state).is_ok_and(|state| state.uid() != ours);
    // Whoever made a link may make it lead elsewhere at any time.
    let led_there = fs::symlink_metadata(&state).is_ok_and(|link| ![ours, 0].contains(&link.uid()));
    if foreign || led_there {
        let sentence = format!("the state folder {} belongs to another user", state.display());
        return Err(Failure::new(Code::RunDirUnusable, sentence).hint("give a folder of your own with --run-dir"));
    }
    for folder in [&state, &runs(environment)] {
        if let Ok(Some(why)) = process::doubt(&followed(folder), Kind::Folder) {
            let sentence = format!("the state folder {} cannot be used: it {why}", folder.display());
            return Err(Failure::new(Code::RunDirUnusable, sentence)
                .hint(format!("`chmod go-w {}`, or give a folder of your own with --run-dir", folder.display())));
        }
    }
    as_text("the state folder", &state).map_err(|failure| failure.hint("give another folder with --run-dir"))?;
    Ok(runs(environment).join(run::folder_name(now, run)))
}

/// Where runs have their directories unless they are given another one.
pub(crate) fn runs(environment: &Environment) -> PathBuf {
    environment.state_folder().join("runs")
}

/// A report's path, absolute. Devices and descriptors are refused, by whatever name: they mean another file in the
/// supervisor, and a report that is replaced as a whole would take the device's place.
pub(crate) fn report_path(option: &str, given: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let Some(given) = given else { return Ok(None) };
    let path = absolute(option, given)?;
    let refuse = |why: &str, hint: &str| {
        Err(Failure::new(Code::OptionInvalid, format!("{option} {} {why}", given.display())).hint(hint))
    };
    // A path is looked at as the system follows it, and as it reads once what is missing in it was made.
    let (hops, read) = (hops(&path), hops(&without_dots(&path)));
    let is_device = |path: &PathBuf| path.starts_with("/dev") || path.starts_with("/proc");
    if is_device(&path) || hops.iter().chain(&read).any(is_device) {
        return refuse(
            "is a device or a descriptor of this process, and the report is written by another one",
            "name a file; `--output jsonl` puts the events on standard output",
        );
    }
    let is_link = fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
    match fs::metadata(&path) {
        Ok(found) if found.is_dir() => refuse("is a folder", "name a file in it"),
        Ok(found) if !found.is_file() && option == "--junit" => {
            refuse("is not a file", "the report is replaced as a whole, so it has to be a file")
        }
        // The report takes the place of the file, not of the link to it.
        Ok(_) if is_link => Ok(hops.last().cloned()),
        Ok(_) | Err(_) => Ok(Some(path)),
    }
}

/// Where a path leads, link after link: the last place is that of the file itself. What a descriptor refers to may be a
/// file like any other, so each place on the way counts.
pub(super) fn hops(path: &Path) -> Vec<PathBuf> {
    const MOST: usize = 40;
    let mut hops = Vec::new();
    let mut at = path.to_owned();
    while let (Some(folder), Some(name), true) = (at.parent(), at.file_name(), hops.len() < MOST) {
        let folder = followed(folder);
        let place = folder.join(name);
        let link = fs::read_link(&place);
        hops.push(place);
        let Ok(to) = link else { break };
        at = folder.join(to);
    }
    hops
}

/// A folder without links, as far as it is there.
fn followed(folder: &Path) -> PathBuf {
    let found = folder.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    match found {
        Some((part, real)) if part == folder => real,
        Some((part, real)) => real.join(folder.strip_prefix(part).unwrap_or(folder)),
        None => folder.to_owned(),
    }
}

/// A path without `..`, read as if no part of it were a link.
pub(super) fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}

/// Values files, absolute, each of them there.
pub(crate) fn values(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    given
        .iter()
        .map(|given| {
            let path = absolute("--values", given)?;
            if path.is_file() {
                Ok(path)
            } else {
                Err(Failure::new(Code::OptionInvalid, format!("--values {}: there is no such file", given.display())))
            }
        })
        .collect()
}

/// Where local OpenTofu state lives: `--state-dir`, else a folder of the instance, or of the cluster for what all
/// instances share.
pub(crate) fn state_dir(
    given: Option<&Path>,
    instance: Option<&str>,
    context: &str,
    environment: &Environment,
) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return absolute("--state-dir", given);
    }
    let Some(home) = environment.home() else {
        let sentence = "there is no home folder, so nowhere for OpenTofu state to live";
        return Err(Failure::new(Code::OptionInvalid, sentence).hint("name a folder with --state-dir"));
    };
    let base = home.join(".devicechain");
    Ok(match instance {
        Some(instance) => base.join("instances").join(instance),
        None => base.join("clusters").join(file_name(context)),
    })
}

/// A context's name as a folder's: contexts may hold slashes and colons.
fn file_name(context: &str) -> String {
    let kept = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '_');
    let name: String = context.chars().map(|character| if kept(character) { character } else { '_' }).collect();
    if name.trim_matches('.').is_empty() { "_".to_owned() } else { name }
}

/// This machine's name, for the holder identity.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_makes_a_folder_name() {
        for (context, name) in [("kind-kind", "kind-kind"), ("arn:aws:eks/prod", "arn_aws_eks_prod"), ("..", "_")] {
            assert_eq!(file_name(context), name);
        }
    }

    #[test]
    fn devices_are_refused_as_reports_by_whatever_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev", &link).expect("a link");
        std::os::unix::fs::symlink("link/stdout", folder.path().join("chain")).expect("a link");
        let names = ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/3", "/missing/../dev/stdout"].map(PathBuf::from);
        let around = ["chain", "link/stdout", "../../../../../../dev/stdout", "missing/../link/stdout"];
        for path in names.into_iter().chain(around.map(|path| folder.path().join(path))) {
            for option in ["--events-file", "--junit"] {
                let failure = report_path(option, Some(&path)).expect_err("a device");
                assert_eq!(failure.code, Code::OptionInvalid, "{path:?}");
            }
        }
    }

    #[test]
    fn a_report_is_a_file_and_not_the_link_to_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().canonicalize().expect("it is there").join(name);
        let taken = |name: &str| report_path("--junit", Some(&path(name))).expect("it will do");
        assert_eq!(taken("reports/new.xml"), Some(path("reports/new.xml")));
        fs::write(path("old.xml"), "").expect("a file");
        std::os::unix::fs::symlink(path("old.xml"), path("link.xml")).expect("a link");
        assert_eq!(taken("link.xml"), Some(path("old.xml")));
        assert!(report_path("--junit", Some(folder.path())).is_err());
    }
}
