//! `--detach` and `dcctl runs` from outside: a run goes on without whoever started it, is watched, waited for, and stopped.

mod detached;
mod over;
mod watched;

use std::path::PathBuf;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::bed::dcctl::{Finished, Journal};
use crate::bed::{Bed, Dcctl, LEASE, wait};

/// A command that works until it is let go or asked to stop.
const AT_WORK: &str = "echo begun; : > @/up; trap 'exit 5' TERM; until [ -e @/go ]; do sleep 0.05; done; echo over";

/// With both reports. Given by the shell, so that nobody reads them while the run that was left still writes them.
const REPORTING: &str = "DCCTL_JUNIT=left.xml DCCTL_EVENTS_FILE=left.jsonl exec \"$@\"";

struct Rig {
    bed: Bed,
}

impl Rig {
    fn new() -> Rig {
        Rig { bed: Bed::take() }
    }

    /// `dcctl exec --detach` of a script, in which `@` is the test's folder.
    fn detached(&self, options: &[&str], script: &str) -> Dcctl {
        let script = script.replace('@', &self.bed.scratch().display().to_string());
        let run = self.bed.dcctl(["exec", "--kube-context", "bed", "--detach"]).args(options);
        run.args(["--", "sh", "-c", &script])
    }

    /// One at work; its id.
    fn at_work(&self) -> String {
        self.detached(&["--output", "human"], AT_WORK).run().expect_code(0);
        self.wait_for("up");
        self.ids().pop().expect("there is a run")
    }

    fn runs(&self, words: &[&str]) -> Dcctl {
        self.bed.dcctl(std::iter::once("runs").chain(words.iter().copied()))
    }

    fn list(&self) -> Vec<Value> {
        let said = self.runs(&["list", "--output", "json"]).run().expect_code(0).stdout;
        said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.list().iter().map(|run| run["run"].as_str().expect("an id").to_owned()).collect()
    }

    fn journal(&self, id: &str) -> Journal {
        let run = self.list().into_iter().find(|run| run["run"] == id).expect("it is listed");
        Journal::at(PathBuf::from(run["directory"].as_str().expect("a path")).join("events.jsonl"))
    }

    fn lease(&self) -> Option<Value> {
        self.bed.api().get(LEASE).expect("the API server answers")
    }

    fn wait_for(&self, name: &str) {
        wait::fact(&format!("the command to make {name}"), || self.bed.file(name).exists().then_some(()));
    }

    fn let_go(&self) {
        self.bed.write("go", "");
    }

    /// Kills the supervisor of this run.
    fn kill(&self, id: &str) {
        self.signal(id, Signal::KILL);
    }

    /// Sends the supervisor of this run a signal.
    fn signal(&self, id: &str, signal: Signal) {
        rustix::process::kill_process(self.supervisor(id), signal).expect("it runs");
    }

    /// The supervisor of this run.
    fn supervisor(&self, id: &str) -> Pid {
        let holder = self.list().into_iter().find(|run| run["run"] == id).expect("it is listed")["holder"].clone();
        let pid = holder.as_str().and_then(|holder| holder.rsplit('/').nth(1)?.parse().ok()).and_then(Pid::from_raw);
        pid.expect("a process")
    }
}

/// The state, outcome, exit code and lock that a line of the list has.
fn told(run: &Value) -> [Value; 4] {
    ["state", "outcome", "exit_code", "lock"].map(|field| run[field].clone())
}

fn ended(outcome: &str, exit_code: u8, lock: &str) -> [Value; 4] {
    [json!("ended"), json!(outcome), json!(exit_code), json!(lock)]
}

fn text(finished: &Finished) -> &str {
    &finished.stdout
}
