//! The bed's own provider, run by the real OpenTofu.

use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::bed::child::command;
use crate::bed::{Ledger, Tools, wait};

/// A root with one thing, in a folder of its own.
struct Root {
    folder: TempDir,
    ledger: Ledger,
}

impl Root {
    /// The settings are those of the thing, in OpenTofu's own words.
    fn new(settings: &str) -> Root {
        let folder = tempfile::tempdir().expect("the temporary folder can be written");
        let ledger = Ledger::at(folder.path().join("ledger.jsonl"));
        let text = format!(
            "terraform {{
  required_providers {{
    bed = {{ source = \"dcctl/bed\" }}
  }}
}}
provider \"bed\" {{ ledger = \"{}\" }}
resource \"bed_thing\" \"one\" {{
  name = \"one\"
  {settings}
}}
output \"secret\" {{
  value     = bed_thing.one.secret
  sensitive = true
}}
",
            ledger.path().display()
        );
        std::fs::write(folder.path().join("main.tf"), text).expect("the test's folder can be written");
        let root = Root { folder, ledger };
        root.succeed(&["init", "-input=false", "-no-color"]);
        root
    }

    fn tofu(&self, arguments: &[&str]) -> Command {
        let mut tofu = command(Tools::get().path("tofu"));
        tofu.args(arguments).current_dir(&self.folder).env("TF_CLI_CONFIG_FILE", Tools::get().path("tofurc"));
        tofu.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        tofu
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.tofu(arguments).output().expect("tofu starts")
    }

    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Starts an apply and waits until the creation has begun.
    fn apply_in_flight(&self) -> Child {
        let apply = self.tofu(&APPLY).spawn().expect("tofu starts");
        wait::fact("the creation to begin", || (self.ledger.created("one") == 1).then_some(()));
        apply
    }

    /// The things in the state: their status, which is absent unless they are tainted.
    fn state(&self) -> Vec<Value> {
        let text = self.succeed(&["state", "pull"]);
        let state: Value = serde_json::from_str(&text).unwrap_or_default();
        let resources = state["resources"].as_array().cloned().unwrap_or_default();
        resources.iter().map(|resource| resource["instances"][0]["status"].clone()).collect()
    }
}

const APPLY: [&str; 4] = ["apply", "-auto-approve", "-input=false", "-no-color"];
const DESTROY: [&str; 4] = ["destroy", "-auto-approve", "-input=false", "-no-color"];

fn interrupt(apply: &Child) {
    let pid = i32::try_from(apply.id()).ok().and_then(Pid::from_raw).expect("a process id");
    rustix::process::kill_process(pid, Signal::INT).expect("a child that was not waited for can be signalled");
}

#[test]
fn every_creation_and_destruction_is_counted() {
    let root = Root::new("note = var.note\n}\nvariable \"note\" {\n  default = \"first\"");
    root.succeed(&APPLY);
    root.succeed(&APPLY);
    assert_eq!((root.ledger.created("one"), root.ledger.living("one").len()), (1, 1));
    root.succeed(&["apply", "-auto-approve", "-var=note=second"]);
    root.succeed(&["apply", "-auto-approve", "-var=note=second", "-replace=bed_thing.one"]);
    assert_eq!((root.ledger.created("one"), root.ledger.living("one").len()), (2, 1));
    let secret = root.succeed(&["output", "-raw", "secret"]);
    assert_eq!(secret, format!("secret-of-{}", root.ledger.living("one")[0]));
    root.succeed(&DESTROY);
    assert_eq!(root.ledger.living("one"), [""; 0]);
    let acts: Vec<_> = root.ledger.entries().into_iter().map(|entry| entry.act).collect();
    assert_eq!(acts, ["created", "updated", "deleted", "created", "deleted"]);
}

#[test]
fn a_stop_is_ignored_and_the_thing_is_whole() {
    let root = Root::new("seconds = 2");
    let apply = root.apply_in_flight();
    interrupt(&apply);
    let output = apply.wait_with_output().expect("it is our child");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(root.state(), [Value::Null]);
    root.succeed(&APPLY);
    assert_eq!((root.ledger.created("one"), root.ledger.living("one").len()), (1, 1));
}

#[test]
fn a_stop_is_honoured_when_it_is_asked_for_and_the_thing_is_tainted() {
    let root = Root::new("seconds = 300\non_stop = \"honour\"");
    let apply = root.apply_in_flight();
    interrupt(&apply);
    let output = apply.wait_with_output().expect("it is our child");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(root.state(), ["tainted"]);
}

#[test]
fn a_creation_can_fail_half_way() {
    let root = Root::new("behaviour = \"fail_half_way\"\nnote = \"the reason\"");
    let output = root.run(&APPLY);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the thing one failed half-way") && said.contains("its note is the reason"), "{said}");
    assert_eq!(root.state(), ["tainted"]);
}

#[test]
fn a_provider_can_crash() {
    let root = Root::new("behaviour = \"crash\"");
    let output = root.run(&APPLY);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("Plugin did not respond"), "{said}");
    assert_eq!((root.ledger.created("one"), root.state().len()), (1, 0));
}

#[test]
fn a_child_that_holds_standard_error_delays_the_end_of_opentofu() {
    // Its time to live tells this test's holder from any other.
    let seconds = (1_000_000 + std::process::id()).to_string();
    let root = Root::new(&format!("behaviour = \"hold_stderr\"\nhold_seconds = {seconds}\nhold_stubborn = true"));
    let mut apply = root.apply_in_flight();
    let holder = wait::fact("the holder", || holder(&seconds));
    let held = std::fs::read_link(format!("/proc/{}/fd/2", holder.as_raw_nonzero())).expect("it is ours");
    assert!(held.to_string_lossy().starts_with("pipe:"), "{held:?} is what OpenTofu reads");
    assert!(apply.try_wait().expect("it is our child").is_none(), "it waits for the holder");
    rustix::process::kill_process(holder, Signal::KILL).expect("it is ours");
    assert!(apply.wait().expect("it is our child").success());
}

/// The process that was left behind with this time to live.
fn holder(seconds: &str) -> Option<Pid> {
    let pids = std::fs::read_dir("/proc").expect("there is /proc").flatten();
    let mut pids = pids.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.find(|pid| {
        let words = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        words.split(|byte| *byte == 0).skip(1).eq([b"hold", seconds.as_bytes(), b"stubborn", b""])
    })
}

#[test]
fn a_provider_can_print_megabytes() {
    let root = Root::new("behaviour = \"chatter\"\nchatter_megabytes = 2");
    let said = root.succeed(&["apply", "-auto-approve", "-json"]);
    assert!(said.len() > 2 << 20, "{} bytes", said.len());
}

#[test]
fn a_reading_takes_its_time_and_is_recorded() {
    let root =
        Root::new("note = data.bed_reading.clock.value\n}\ndata \"bed_reading\" \"clock\" {\n  name = \"clock\"");
    root.succeed(&APPLY);
    let acts: Vec<_> = root.ledger.entries().into_iter().map(|entry| entry.act).collect();
    assert_eq!(acts, ["read", "created"]);
}

#[test]
fn a_choice_that_does_not_exist_is_refused_before_anything_is_created() {
    let root = Root::new("on_stop = \"maybe\"");
    let output = root.run(&["validate", "-no-color"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("maybe is not one of ignore, honour"), "{said}");
}
