//! *Apply infrastructure*, with the real OpenTofu and the bed's provider.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dcctl::clock::{Clock, System};
use dcctl::cluster::MayWrite;
use dcctl::config::{Instance, Root};
use dcctl::failure::Code;
use dcctl::process::{self, Directly, Limits};
use dcctl::redact::Secret;
use dcctl::step::{Mode, Outcome, Part, ResourceState, Severity, Stopped, Update, apply_root};
use serde_json::{Map, Value, json};

use crate::bed::{Bed, Ledger};
use crate::steps::bench::{Bench, connect_with, done, failed};

const PROVIDERS: &str = "terraform {\n  required_providers {\n    bed = { source = \"dcctl/bed\" }\n  }\n}\n";

/// A kit whose bundle has one root with this text behind its providers.
pub(crate) async fn bench<'a>(bed: &'a Bed, text: &str) -> Bench<'a> {
    let mut bench = Bench::new(bed, "admin").await;
    bench.programs().await;
    bench.instance("demo", Value::Null, dcctl::config::Claims::default());
    let dir = bench.kit.bundle.root.join("infra/instance");
    fs::create_dir_all(&dir).expect("the scratch folder can be written");
    fs::write(dir.join("main.tf"), format!("{PROVIDERS}{text}")).expect("the scratch folder can be written");
    instance(&mut bench).infrastructure = Some(Root { dir, vars: Map::new(), secrets: BTreeMap::new() });
    bench
}

pub(crate) fn instance<'a>(bench: &'a mut Bench<'_>) -> &'a mut Instance {
    bench.kit.bundle.instance.as_mut().expect("the bundle has an instance")
}

pub(crate) fn root<'a>(bench: &'a mut Bench<'_>) -> &'a mut Root {
    instance(bench).infrastructure.as_mut().expect("the instance has a root")
}

pub(crate) async fn apply(bench: &Bench<'_>) -> Outcome {
    apply_root(&bench.kit, Part::Infrastructure).await
}

pub(crate) fn state(bench: &Bench<'_>) -> PathBuf {
    bench.kit.state_dir.join("infrastructure.tfstate")
}

fn stopped(outcome: Outcome) -> Stopped {
    match outcome {
        Outcome::Stopped(stopped) => stopped,
        other => panic!("the step was not stopped: {other:?}"),
    }
}

/// Every file below a folder, with its content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type().expect("a type") {
            kind if kind.is_dir() => found.extend(files(&entry.path())),
            _ => drop(found.insert(entry.path(), fs::read(entry.path()).unwrap_or_default())),
        }
    }
    found
}

fn resources(said: &[Update]) -> Vec<(String, ResourceState)> {
    said.iter()
        .filter_map(|update| match update {
            Update::Resource { address, state, .. } => Some((address.clone(), *state)),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn an_apply_is_not_started_when_nothing_may_be_written() {
    let bed = Bed::take();
    let ledger = Ledger::at(bed.file("ledger.jsonl"));
    let text = format!(
        "provider \"bed\" {{ ledger = \"{}\" }}\nresource \"bed_thing\" \"a\" {{ name = \"a\" }}\n",
        ledger.path().display()
    );
    let mut bench = bench(&bed, &text).await;
    bench.kit.cluster = connect_with(&bed, "admin", MayWrite::never()).await;
    bench.kit.may_write = MayWrite::never();
    let failure = failed(apply(&bench).await);
    assert_eq!(failure.message, "this command writes nothing");
    assert_eq!(ledger.created("a"), 0);
    assert!(
        !bench.said().iter().any(|update| matches!(update, Update::Process { program, .. } if program == "tofu apply"))
    );
}

#[tokio::test]
async fn a_root_is_applied_in_a_copy_and_its_outputs_are_known() {
    let bed = Bed::take();
    let text = r#"
variable "name" { type = string }
variable "count_of" { type = number }
variable "db_password" {
  type      = string
  sensitive = true
}
resource "bed_thing" "a" { name = "${var.name}-${var.count_of + 1}" }
module "shared" { source = "../modules/shared" }
output "plain" { value = bed_thing.a.name }
output "secret" {
  value     = { pem = var.db_password }
  sensitive = true
}
"#;
    let mut bench = bench(&bed, text).await;
    let module = bench.kit.bundle.root.join("infra/modules/shared");
    fs::create_dir_all(&module).expect("made");
    fs::write(module.join("main.tf"), "resource \"terraform_data\" \"m\" {}\n").expect("written");
    root(&mut bench).vars = Map::from_iter([("name".to_owned(), json!("x")), ("count_of".to_owned(), json!(1))]);
    root(&mut bench).secrets = [("db_password".to_owned(), Secret::from("hunter22".to_owned()))].into();
    let bundle = files(&bench.kit.bundle.root);
    assert_eq!(done(apply(&bench).await), "2 added, 0 changed, 0 destroyed");
    let said = bench.said();

    assert_eq!(files(&bench.kit.bundle.root), bundle, "the bundle is never written to");
    let thing = |state| ("bed_thing.a".to_owned(), state);
    let moved = resources(&said);
    for state in [ResourceState::Planned, ResourceState::Started, ResourceState::Completed] {
        assert!(moved.contains(&thing(state)), "{moved:?}");
    }
    assert!(moved.iter().any(|(address, _)| address == "module.shared.terraform_data.m"), "{moved:?}");
    assert!(!format!("{said:?}").contains("hunter22"));
    assert_eq!(bench.kit.redactor.text("it is hunter22"), "it is [redacted]");
    let chosen =
        said.iter().any(|update| matches!(update, Update::Note(text) if text.contains("chose dcctl/bed 0.1.0")));
    assert!(chosen, "{said:?}");

    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&bench.kit.state_dir), 0o700);
    let kept = files(&bench.kit.state_dir);
    assert!(kept.keys().all(|path| mode(path) == 0o600), "{:?}", kept.keys());
    assert!(kept.keys().any(|path| path.ends_with("infrastructure.terraform.lock.hcl")), "{:?}", kept.keys());
    let private = files(&bench.kit.run_dir.join("private"));
    let variables = private.iter().find(|(path, _)| path.ends_with("infrastructure.tfvars.json")).expect("there");
    assert_eq!(mode(variables.0), 0o600);
    let leaks: Vec<PathBuf> = files(&bench.kit.run_dir)
        .into_iter()
        .filter(|(path, text)| !private.contains_key(path) && String::from_utf8_lossy(text).contains("hunter22"))
        .map(|(path, _)| path)
        .collect();
    assert!(leaks.is_empty(), "{leaks:?}");
    let state = std::fs::read_to_string(bench.kit.state_dir.join("infrastructure.tfstate")).expect("a state");
    assert!(state.contains("\"lineage\""), "{state}");

    bench.next_run("second");
    assert_eq!(done(apply(&bench).await), "no changes (0 added, 0 changed, 0 destroyed)");
    assert_eq!(resources(&bench.said()), []);
}

#[tokio::test]
async fn a_failed_resource_is_named_and_the_command_of_a_local_exec_is_not() {
    let bed = Bed::take();
    let text = r#"
resource "bed_thing" "half" {
  name      = "half"
  behaviour = "fail_half_way"
}
resource "terraform_data" "script" {
  provisioner "local-exec" { command = "echo hunter22; exit 3" }
}
"#;
    let mut bench = bench(&bed, text).await;
    let failure = failed(apply(&bench).await);
    assert_eq!(failure.code, Code::InfrastructureFailed);
    assert_eq!(failure.message, "OpenTofu could not apply `infra/instance`");
    assert!(failure.causes.iter().any(|cause| cause.starts_with("bed_thing.half: ")), "{failure:?}");
    assert!(failure.causes.iter().any(|cause| cause == "terraform_data.script: local-exec provisioner error"));
    let said = bench.said();
    let errors = said.iter().filter(|update| matches!(update, Update::Diagnostic { severity: Severity::Error, .. }));
    assert_eq!(errors.count(), 2, "{said:?}");
    let place = |update: &Update| matches!(update, Update::Diagnostic { source: Some(place), .. } if place.starts_with("main.tf:"));
    assert!(said.iter().any(place), "{said:?}");
    let told = |update: &&Update| !matches!(update, Update::Process { .. });
    assert!(!format!("{:?}", said.iter().filter(told).collect::<Vec<_>>()).contains("hunter22"));
}

#[tokio::test]
async fn a_provider_that_gives_up_at_the_stop_leaves_a_partial_apply_that_is_named() {
    let bed = Bed::take();
    let ledger = Ledger::at(bed.file("ledger.jsonl"));
    let text = format!(
        "provider \"bed\" {{ ledger = \"{}\" }}\nresource \"bed_thing\" \"slow\" {{\n  name = \"slow\"\n  seconds = 60\n  on_stop = \"honour\"\n}}\n",
        ledger.path().display()
    );
    let bench = bench(&bed, &text).await;
    let stop = async {
        until(|| ledger.created("slow") == 1).await;
        bench.stopper.graceful(System.now(), Directly::No);
    };
    let (outcome, ()) = tokio::join!(apply(&bench), stop);
    let stopped = stopped(outcome);
    assert!(!stopped.clean, "{stopped:?}");
    assert_eq!(stopped.unfinished, ["bed_thing.slow"]);
    assert!(stopped.note.contains("PARTIALLY APPLIED"), "{stopped:?}");
}

#[tokio::test]
async fn a_stop_before_the_apply_begins_applies_nothing() {
    let bed = Bed::take();
    let ledger = Ledger::at(bed.file("ledger.jsonl"));
    let text = format!(
        "provider \"bed\" {{ ledger = \"{}\" }}\nresource \"bed_thing\" \"a\" {{ name = \"a\" }}\n",
        ledger.path().display()
    );
    let bench = bench(&bed, &text).await;
    bench.stopper.graceful(System.now(), Directly::No);
    let stopped = stopped(apply(&bench).await);
    assert!(stopped.clean && stopped.unfinished.is_empty(), "{stopped:?}");
    assert_eq!(ledger.created("a"), 0);
}

#[tokio::test]
async fn the_holder_of_a_providers_output_is_ended_and_not_opentofu() {
    let bed = Bed::take();
    let text = "resource \"bed_thing\" \"a\" {\n  name = \"a\"\n  behaviour = \"hold_stderr\"\n  hold_seconds = 600\n  hold_stubborn = true\n}\n";
    let mut bench = bench(&bed, text).await;
    let second = Duration::from_secs(1);
    bench.kit.limits = Limits { idle_silence: second * 2, sweep_grace: second, ..Limits::default() };
    assert_eq!(done(apply(&bench).await), "1 added, 0 changed, 0 destroyed");
    let said = bench.said();
    let left = |update: &Update| matches!(update, Update::Process { update: process::Update::LeftBehind { .. }, .. });
    assert_eq!(said.iter().filter(|update| left(update)).count(), 1, "{said:?}");
}

#[tokio::test]
async fn a_dry_run_plans_on_a_copy_and_writes_nothing() {
    let bed = Bed::take();
    let text = "variable \"note\" { default = \"one\" }\nresource \"bed_thing\" \"a\" {\n  name = \"a\"\n  note = var.note\n}\n\
                resource \"bed_thing\" \"b\" { name = \"b\" }\n";
    let mut bench = bench(&bed, text).await;
    bench.kit.mode = Mode::DryRun;
    assert_eq!(done(apply(&bench).await), "would change: 2 to create");
    assert!(!bench.kit.state_dir.exists());
    let planned = resources(&bench.said());
    assert_eq!(planned.len(), 2, "{planned:?}");
    assert!(planned.iter().all(|(_, state)| *state == ResourceState::Planned), "{planned:?}");

    bench.kit.mode = Mode::Act;
    bench.next_run("second");
    done(apply(&bench).await);
    let before = files(&bench.kit.state_dir);
    bench.kit.mode = Mode::DryRun;
    bench.next_run("third");
    assert_eq!(done(apply(&bench).await), "no changes");
    root(&mut bench).vars = Map::from_iter([("note".to_owned(), json!("two"))]);
    bench.next_run("fourth");
    assert_eq!(done(apply(&bench).await), "would change: 1 to update");
    assert_eq!(files(&bench.kit.state_dir), before, "neither the state nor anything beside it was written");
}

#[tokio::test]
async fn a_backend_that_init_writes_to_cannot_be_planned() {
    let bed = Bed::take();
    let text =
        "terraform {\n  backend \"kubernetes\" {\n    secret_suffix = \"state\"\n    namespace = \"default\"\n  }\n}\n";
    let mut bench = bench(&bed, text).await;
    bench.kit.mode = Mode::DryRun;
    let Outcome::Nothing(why) = apply(&bench).await else { panic!("it was planned") };
    assert!(why.starts_with("cannot plan without writing: `infra/instance` keeps its state in a `kubernetes` backend"));
    let secrets = bed.api().list("/api/v1/namespaces/default/secrets").expect("an answer");
    assert_eq!(secrets.len(), 0);

    bench.kit.mode = Mode::Act;
    done(apply(&bench).await);
    let secrets = bed.api().list("/api/v1/namespaces/default/secrets").expect("an answer");
    assert_eq!(secrets.len(), 1, "the state is in the cluster");
    assert!(!state(&bench).exists());

    // Now it is initialised, so it can be planned against.
    bench.kit.mode = Mode::DryRun;
    bench.next_run("third");
    assert_eq!(done(apply(&bench).await), "no changes");
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let version = |path: &str| bed.api().list(path).expect("an answer")[0]["metadata"]["resourceVersion"].clone();
    let before = (version("/api/v1/namespaces/default/secrets"), version(leases));
    bench.next_run("fourth");
    done(apply(&bench).await);
    assert_eq!((version("/api/v1/namespaces/default/secrets"), version(leases)), before, "nothing was written");
    bed.api().delete("/api/v1/namespaces/default/secrets/tfstate-default-state").expect("an answer");
}

/// Waits for a fact while something else goes on.
pub(crate) async fn until(fact: impl Fn() -> bool) {
    let mut look = tokio::time::interval(Duration::from_millis(20));
    let waited = tokio::time::timeout(crate::bed::wait::GENEROUS, async {
        while !fact() {
            look.tick().await;
        }
    });
    waited.await.expect("the fact came in time");
}
