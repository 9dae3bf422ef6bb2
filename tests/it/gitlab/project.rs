//! A project whose pipeline includes the component.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::bed::child::command;
use crate::bed::dcctl::Journal;
use crate::bed::tools::own;
use crate::bed::{Bed, Dcctl, Tools, untested, wait};

/// The component, as it is in the repository.
pub(crate) const TEMPLATE: &str = include_str!("../../../gitlab/templates/dcctl.yml");

/// These packages, or nothing, which is said.
pub(crate) fn fetched(names: &[&str], what: &str) -> Option<Tools> {
    Tools::fetch(names).map_err(|error| untested::say(what, &error.to_string())).ok()
}

/// A git repository with a pipeline.
pub(crate) struct Project<'a> {
    bed: &'a Bed,
    program: PathBuf,
    path: std::ffi::OsString,
    pub(crate) folder: PathBuf,
}

impl<'a> Project<'a> {
    /// A project with this `.gitlab-ci.yml`; nothing where its jobs cannot be run.
    pub(crate) fn new(bed: &'a Bed, pipeline: &str) -> Option<Project<'a>> {
        let tools = fetched(&["gitlab-ci-local", "rsync"], "the jobs of the GitLab component")?;
        let folder = bed.file("project");
        bed.write("project/templates/dcctl.yml", TEMPLATE);
        bed.write("project/.gitlab-ci.yml", pipeline);
        let git = |words: &[&str]| {
            let mut git = command(Path::new("git"));
            git.args(["-c", "user.name=Test", "-c", "user.email=test@forge.example"]).args(words).current_dir(&folder);
            let done = git.env("HOME", bed.scratch()).stdin(Stdio::null()).output().expect("git is there");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        };
        git(&["init", "--quiet", "--initial-branch", "main"]);
        git(&["add", "."]);
        git(&["commit", "--quiet", "--message", "A pipeline"]);
        git(&["remote", "add", "origin", "https://forge.example/acme/shop.git"]);
        let folders = [own("dcctl"), tools.path("rsync").to_owned()];
        let folders = folders.iter().filter_map(|program| program.parent().map(Path::to_owned));
        let system = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
        let path = std::iter::once(bed.described().programs.clone()).chain(folders).chain(system);
        let path = std::env::join_paths(path).expect("no folder has a colon in its name");
        Some(Project { bed, program: tools.path("gitlab-ci-local").to_owned(), path, folder })
    }

    /// The pipeline by a runner on this machine, not started. What the shell executor says of itself it says, too.
    pub(crate) fn pipeline(&self) -> Dcctl {
        let words = ["--force-shell-executor", "--no-color", "--variable", "GITLAB_CI=true"];
        let run = self.bed.dcctl(words).args(["--variable", "CI_SHARED_ENVIRONMENT=true"]);
        let mut run = run.by_program(&self.program).env("PATH", &self.path);
        run.command().current_dir(&self.folder);
        run
    }

    /// The only journal there is, of a run of a job; waits for it.
    pub(crate) fn journal(&self) -> Journal {
        let runs = self.bed.file("home/.local/state/dcctl/runs");
        let first = || fs::read_dir(&runs).ok()?.flatten().next().map(|run| run.path().join("events.jsonl"));
        Journal::at(wait::fact("a run of the job", first))
    }

    /// A file among the artifacts of a job; its name may have letters and digits alone.
    pub(crate) fn artifact(&self, job: &str, file: &str) -> PathBuf {
        self.folder.join(".gitlab-ci-local/artifacts").join(job).join(file)
    }

    /// The verdict among the artifacts of a job.
    #[track_caller]
    pub(crate) fn verdict(&self, job: &str) -> Value {
        let events = Journal::at(self.artifact(job, "dcctl-report/events.jsonl")).events();
        let last = events.last().unwrap_or_else(|| panic!("no event is among the artifacts of {job}"));
        assert_eq!(last["type"], "run.finished");
        last["data"].clone()
    }

    /// What GitLab runs after a job that ended so: the component's `after_script`, by a new shell in the same folder.
    pub(crate) fn after_script(&self, status: &str) -> String {
        let script = block(TEMPLATE, "after_script:");
        let mut after = self.bed.dcctl(["-eo", "pipefail", "-c", script.as_str()]).by_program(Path::new("/bin/bash"));
        after.command().current_dir(&self.folder);
        let after = after.env("PATH", &self.path).env("CI_JOB_STATUS", status).run();
        assert_eq!(after.code(), Some(0), "{}{}", after.stdout, after.stderr);
        after.stdout
    }
}

/// The one block of text (`|`) under a key.
fn block(yaml: &str, key: &str) -> String {
    let (_, below) = yaml.split_once(key).expect("the component has it");
    let (_, text) = below.split_once("- |\n").expect("it is a block");
    text.lines().take_while(|line| line.starts_with("      ")).map(str::trim).collect::<Vec<_>>().join("\n")
}

/// An include of the component: `inputs` are lines of YAML.
pub(crate) fn include(inputs: &[(&str, &str)]) -> String {
    let lines = inputs.iter().map(|(name, value)| format!("      {name}: {}\n", Value::from(*value)));
    format!("  - local: templates/dcctl.yml\n    inputs:\n{}", lines.collect::<String>())
}
