//! `dcctl exec` from outside: any command under the cluster's lock, against the real API server.

mod ends;
mod flood;
mod input;
mod lease;
mod left;
mod nested;
mod output;
mod room;
mod stop;

use std::fs::{self, File};
use std::path::PathBuf;

use serde_json::Value;

use crate::bed::dcctl::Journal;
use crate::bed::{Bed, Dcctl, LEASE, wait};

/// One control plane, and a folder in which commands leave their marks.
struct Rig {
    bed: Bed,
}

impl Rig {
    fn new() -> Rig {
        Rig { bed: Bed::take() }
    }

    /// This command with these options and a JUnit report, not started yet. OpenTofu and Helm are not on its `PATH`.
    fn exec(&self, options: &[&str], words: &[&str]) -> Dcctl {
        let run = self.bed.dcctl(["exec", "--kube-context", "bed"]).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        let run = run.args(options);
        let run = if options.contains(&"--junit") { run } else { run.with_junit() };
        run.arg("--").args(words)
    }

    /// A script of the shell. `@` in it is the test's folder.
    fn sh(&self, options: &[&str], script: &str) -> Dcctl {
        let script = script.replace('@', &self.bed.scratch().display().to_string());
        self.exec(options, &["sh", "-c", &script])
    }

    /// A file of the test's folder, when it is there.
    fn read(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.bed.file(name)).ok()
    }

    /// Waits until the command has left this mark.
    fn wait_for(&self, name: &str) {
        wait::fact(&format!("the command to make {name}"), || self.read(name));
    }

    /// Leaves a mark for the command.
    fn mark(&self, name: &str) {
        self.bed.write(name, "");
    }

    /// A file for an output.
    fn output(&self, name: &str) -> File {
        File::create(self.bed.file(name)).expect("the test's folder can be written")
    }

    /// The Lease, if there is one.
    fn lease(&self) -> Option<Value> {
        self.bed.api().get(LEASE).expect("the API server answers")
    }

    /// A run directory of the test's own, and the journal that will be in it.
    fn run_dir(&self, name: &str) -> (PathBuf, Journal) {
        let folder = self.bed.file(name);
        let journal = Journal::at(folder.join("events.jsonl"));
        (folder, journal)
    }
}

/// The events of one type.
fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}
