//! The substrate `direct`: the lock in a folder, from outside, without any cluster.

mod both_killed;
mod crash;
mod exec;
mod files;
mod folders;
mod foreign;
mod inherited;
mod kept;
mod left;
mod left_unseen;
mod names;
mod options;
mod reclaim;
mod run_dir;
mod runs;
mod status;
mod streams;
mod together;
mod users;
mod waiting;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bed::child::Mark;
use crate::bed::dcctl::Running;
use crate::bed::{Dcctl, wait};

/// The holder of the documents.
const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";
/// A time that looks stale.
const LONG_AGO: &str = "2020-01-01T00:00:00.000000Z";
/// The file that is the lock.
const LEASE: &str = "dcctl.lease.json";

/// A folder that keeps a lock, beside a folder in which commands leave their marks.
struct Rig {
    scratch: TempDir,
}

impl Rig {
    fn new() -> Rig {
        let rig = Rig { scratch: tempfile::tempdir().expect("the temporary folder can be written") };
        fs::create_dir(rig.lock_dir()).expect("the test's folder can be written");
        rig
    }

    /// A file of the test's folder.
    fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn lock_dir(&self) -> PathBuf {
        self.file("lock")
    }

    /// The options that name the lock, as messages give them.
    fn options(&self) -> String {
        format!("--substrate direct --lock-dir {}", self.lock_dir().display())
    }

    fn mark_of_all(&self) -> Mark {
        Mark::of(self.scratch.path())
    }

    /// This command about the lock, not started yet. A kubeconfig that anybody opened would hold them up for ever.
    fn dcctl(&self, words: &[&str]) -> Dcctl {
        let trap = self.file("kubeconfig");
        if !trap.exists() {
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::mknodat(rustix::fs::CWD, &trap, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        }
        self.bare(words).args(["--substrate", "direct", "--lock-dir"]).arg(self.lock_dir()).env("KUBECONFIG", trap)
    }

    /// A command that is told nothing about a lock.
    fn bare(&self, words: &[&str]) -> Dcctl {
        Dcctl::without_cluster(self.scratch.path(), &self.mark_of_all(), words)
    }

    /// A script of the shell under the lock, with events on standard output. `@` in it is the test's folder.
    fn sh(&self, options: &[&str], script: &str) -> Dcctl {
        let script = script.replace('@', &self.scratch.path().display().to_string());
        let run = self.dcctl(&["exec", "--output", "jsonl"]).args(options);
        run.args(["--", "sh", "-c", &script])
    }

    /// A file of the test's folder, when it is there.
    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.file(name)).ok()
    }

    /// A run that has the lock, and whose command works until it is left the mark `go`.
    fn hold(&self) -> Running {
        let run = self.sh(&[], ": > @/up; until [ -e @/go ]; do sleep 0.05; done").start();
        self.wait_for("up");
        run
    }

    /// Waits until a command has left this mark.
    fn wait_for(&self, name: &str) -> String {
        wait::fact(&format!("a command to make {name}"), || self.read(name))
    }

    /// Leaves a mark for a command.
    fn mark(&self, name: &str) {
        fs::write(self.file(name), "").expect("the test's folder can be written");
    }

    fn lease_path(&self) -> PathBuf {
        self.lock_dir().join(LEASE)
    }

    /// The Lease, if there is one. It is whole at every moment.
    fn lease(&self) -> Option<Value> {
        lease_in(&self.lock_dir())
    }

    /// The Lease of a run whose command has begun, with everything noted that there is to note: nothing changes it until
    /// it is renewed, ten seconds later.
    fn settled(&self) -> Value {
        let children = |lease: &Value| lease["metadata"]["annotations"].get("dcctl.devicechain.io/children").is_some();
        wait::fact("the command to be noted", || self.lease().filter(children))
    }

    /// Somebody else holds the lock, and renewed it at this time.
    fn other_holds(&self, renewed: &str) -> Value {
        let lease = lease_of(ALICE, renewed);
        fs::write(self.lease_path(), lease.to_string()).expect("the lock folder can be written");
        lease
    }

    /// What is in the lock folder, by name.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.lock_dir()).expect("the lock folder can be read");
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.mark_of_all().sweep();
    }
}

fn lease_in(folder: &Path) -> Option<Value> {
    let text = fs::read_to_string(folder.join(LEASE)).ok()?;
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in a Lease:\n{text}")))
}

fn lease_of(holder: &str, renewed: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": "dcctl", "namespace": "dc-k8s-system", "uid": "5f0c7c1e-0000-4000-8000-000000000001",
            "resourceVersion": "7", "annotations": { "core.devicechain.io/instance": "prod" },
        },
        "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 60, "acquireTime": renewed, "renewTime": renewed,
            "leaseTransitions": 0,
        },
    })
}

/// This moment, as a Lease has it.
fn now() -> String {
    format!("{:.6}", dcctl::clock::Clock::wall(&dcctl::clock::System))
}

/// The events of one type.
fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Whether the long forms of the tests are asked for.
#[expect(clippy::disallowed_methods, reason = "the tests' own setting, read where it is used")]
fn soak() -> bool {
    std::env::var_os("DCCTL_SOAK").is_some()
}
