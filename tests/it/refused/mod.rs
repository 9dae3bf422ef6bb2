//! Bad input, from outside: what a run says that cannot begin, is not allowed, is blocked, or fails.
//!
//! Whatever the input, the last line is the verdict, every form of the output says the cause and what to do, nothing
//! secret is said, and no lock is left. [`told`] asks that of each case; the tests add what is particular.

mod broken;
mod bundle;
mod cluster;
mod collisions;
mod command_line;
mod environment;
mod exhausted;
mod failing;
pub(crate) mod forbidden;
mod guard;
mod held;
mod options;
mod own_log;
mod output;
mod reports;
mod run_directory;
mod secrets;
mod spared;
mod tools;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::bed::junit::Report;
use crate::bed::{Bed, Dcctl, LEASE};

/// The value of every secret that these tests give.
const SECRET: &str = "zebra-crossing-4711";

/// The head of every bundle that these tests write.
const HEAD: &str = "apiVersion: dcctl.devicechain.io/v1\nkind: Bundle\nmetadata: { name: small, version: 1.0.0 }\n";

/// A bundle that is fine, and does next to nothing.
fn small_bundle(bed: &Bed) -> PathBuf {
    bed.write("small/bundle.yaml", HEAD).parent().expect("it is in a folder").to_owned()
}

/// An install of this bundle.
fn install(bed: &Bed, bundle: &Path) -> Dcctl {
    bed.dcctl(["install", "--bundle"]).arg(bundle)
}

/// What a run told about why it did not go well.
pub(crate) struct Told {
    events: Vec<Value>,
    report: Report,
    /// The sentence, the causes and what to do, a line each.
    text: String,
    human: String,
}

/// Runs it twice, for machines and for people, and finds the same in every form: this exit code, this failure code, the
/// cause, what to do, and no lock of its own.
#[track_caller]
fn told(bed: &Bed, run: impl Fn() -> Dcctl, exit: i32, code: &str) -> Told {
    let lease = || bed.api().get(LEASE).expect("the API server answers");
    let before = lease();
    let finished = run().with_junit().args(["--output", "jsonl"]).run().expect_code(exit);
    let human = run().with_junit().args(["--output", "human"]).run().expect_code(exit);
    assert_eq!(lease(), before, "a lock was left, or another's was touched");
    let report = finished.junit();
    let verdict = &finished.verdict()["data"];
    let failure = &verdict["failure"];
    assert_eq!(failure["code"], code, "{verdict}");
    let message = failure["message"].as_str().expect("a failure has a sentence");
    let lines = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|line| line.as_str().map(str::to_owned)).collect()
    };
    let next = lines(&verdict["next"]);
    assert!(!next.is_empty(), "nobody says what to do: {verdict}");
    let text = [vec![message.to_owned()], lines(&failure["causes"]), next].concat();
    for line in &text {
        assert!(words(&human.stdout).contains(&words(line)), "people are not told {line:?}:\n{}", human.stdout);
    }
    let last = human.stdout.lines().last().unwrap_or_default();
    assert!(last.contains(&format!("exit code {exit} ({code})")), "the last line is no verdict:\n{}", human.stdout);
    assert!(!human.stdout.contains(char::from(0x1b)), "colour without a terminal:\n{}", human.stdout);
    let events = finished.events();
    assert!(told_before(&events[..events.len() - 1], message), "only the verdict says why:\n{}", finished.stdout);
    for said in [&finished.stdout, &finished.stderr, &human.stdout, &human.stderr, &report.text] {
        assert_nothing_secret(bed, said);
    }
    Told { events, report, text: text.join("\n"), human: human.stdout }
}

/// A text without its line breaks, and without durations and numbers, which differ between two runs.
fn words(text: &str) -> String {
    let is_number = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    text.split_whitespace().filter(|word| !is_number(word)).collect::<Vec<_>>().join(" ")
}

/// Whether an event before the verdict says it: a diagnostic, or the end of a step.
fn told_before(events: &[Value], message: &str) -> bool {
    events.iter().any(|event| match event["type"].as_str() {
        Some("diagnostic") => event["data"]["summary"] == message,
        Some("step.finished") => event["data"]["failure"]["message"] == message,
        _ => false,
    })
}

/// Fails the test when a text has a credential of the bed, or the secret of these tests.
#[track_caller]
fn assert_nothing_secret(bed: &Bed, text: &str) {
    let tokens = bed.described().users.values().map(|user| user.token.as_str());
    for secret in tokens.chain([SECRET]) {
        assert!(!text.contains(secret), "a secret was said:\n{text}");
    }
}

impl Told {
    /// The sentence, the causes or what to do have each of these.
    #[track_caller]
    fn says(self, parts: &[&str]) -> Told {
        for part in parts {
            assert!(self.text.contains(part), "nobody says {part:?}:\n{}", self.text);
        }
        self
    }

    /// It never became a run: three events, and one case, which is an error.
    #[track_caller]
    fn never_began(self) -> Told {
        let types: Vec<&str> = self.events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(types, ["run.started", "diagnostic", "run.finished"]);
        let verdict = &self.events[2]["data"];
        assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"refused".into(), &"never_taken".into()), "{verdict}");
        assert_eq!(self.report.cases.len(), 1, "{}", self.report.text);
        assert_eq!(self.report.only_bad().result, "error", "{}", self.report.text);
        self
    }
}
