//! `dcctl preflight` from outside: what it says of a real control plane, real tools and real folders, and that it leaves
//! all of them as they were.

mod found;
mod rights;
mod surroundings;

use serde_json::Value;

use crate::bed::Dcctl;
use crate::bed::dcctl::Finished;
use crate::verbs::rig::{Demo, PASSWORD};

/// A preflight of the demo for this verb, with what the demo's own runs are given; not started yet.
fn preflight(demo: &Demo, words: &[&str], state: &str) -> Dcctl {
    demo.bed
        .dcctl(["preflight", "--output", "json", "--bundle"])
        .arg(demo.bundle())
        .args(words)
        .arg("--state-dir")
        .arg(demo.state_dir(state))
        .args(["--var", "pause=1ms", "--var", "replicas=1", "--var", "mqtt_port=1883"])
        .env("DCCTL_KUBE_CONTEXT", "bed")
        .env("DCCTL_VAR_DB_PASSWORD", PASSWORD)
}

/// What a preflight printed: one document, and nothing beside it.
#[derive(Debug)]
struct Said(Value);

impl Said {
    #[track_caller]
    fn by(finished: Finished, code: i32) -> Said {
        let finished = finished.expect_code(code);
        assert_eq!(finished.stderr, "");
        let document: Value = serde_json::from_str(&finished.stdout).expect("it is JSON");
        assert_eq!(document["exit_code"], code, "{document}");
        Said(document)
    }

    fn checks(&self) -> &[Value] {
        self.0["checks"].as_array().expect("a list")
    }

    /// Those that are no better than this.
    fn of_level(&self, level: &str) -> Vec<&Value> {
        self.checks().iter().filter(|check| check["level"] == level).collect()
    }

    /// The first of this name.
    #[track_caller]
    fn check(&self, id: &str) -> &Value {
        self.checks().iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no {id} in {:#}", self.0))
    }

    /// The only failure: of this name, with this code.
    #[track_caller]
    fn only_failure(&self, id: &str, code: &str) -> &Value {
        let failures = self.of_level("failure");
        let [only] = failures[..] else { panic!("not one failure: {failures:#?}") };
        assert_eq!((&only["id"], &only["code"]), (&id.into(), &code.into()), "{only:#}");
        assert!(only["fix"].as_str().is_some_and(|fix| !fix.is_empty()), "{only:#}");
        only
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
