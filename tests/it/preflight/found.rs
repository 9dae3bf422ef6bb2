//! What is found when all is well, and what of it stays as it was.

use std::fs;

use serde_json::{Value, json};

use crate::bed::{Bed, LEASE, LEASES};
use crate::preflight::{Said, preflight, text};
use crate::verbs::rig::{Demo, files, quiet};

const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";

/// Looks ahead, and shows that nothing of the cluster, of the state and of the home folder is another afterwards.
#[track_caller]
fn looked(demo: &Demo, words: &[&str], state: &str, code: i32) -> Said {
    let folders = [demo.state_dir(state), demo.bed.file("home"), demo.bed.file("tmp")];
    let here = || folders.each_ref().map(|folder| files(folder));
    let (there, before, writes) = (quiet(&demo.bed.api()), here(), demo.writes_of("admin"));
    let said = Said::by(preflight(demo, words, state).run(), code);
    assert_eq!(quiet(&demo.bed.api()), there, "the cluster is another than before");
    assert_eq!(here(), before, "a folder is another than before");
    assert_eq!(demo.writes_of("admin"), writes, "something was written");
    said
}

#[test]
fn before_each_verb_all_is_well_and_nothing_is_changed() {
    let demo = Demo::on(Bed::take());
    let well = |words: &[&str], state: &str| {
        let said = looked(&demo, words, state, 0);
        assert_eq!(said.of_level("failure"), Vec::<&Value>::new());
        let allowed = |check: &&Value| check["id"] == "permission";
        for right in said.checks().iter().filter(allowed) {
            assert_eq!((&right["level"], &right["facts"]["user"]), (&json!("ok"), &json!("admin")), "{right}");
        }
        for id in
            ["ci", "stop_budget", "run_dir", "kubeconfig", "cluster", "account", "clock", "lock_namespace", "lock"]
        {
            assert_eq!(said.check(id)["level"], "ok", "{:#}", said.check(id));
        }
        assert_eq!((&said.0["user"], &said.0["kube_context"]), (&json!("admin"), &json!("bed")));
        said
    };
    let install = well(&["install"], "cluster");
    assert!(text(&install.check("state")["message"]).contains("there is no `"), "{:#}", install.check("state"));
    assert_eq!(install.check("bundle")["facts"]["release"], "0.9.2");
    assert!(install.check("tool.tofu")["facts"]["version"].is_string(), "{:#}", install.check("tool.tofu"));
    demo.install().run().expect_code(0);
    well(&["install"], "cluster");
    let bootstrap = well(&["bootstrap", "one"], "one");
    assert_eq!(bootstrap.check("tool.helm")["facts"]["needed"], true);
    assert!(text(&bootstrap.check("guard.cluster")["message"]).contains("no other instance"));
    demo.bootstrap("one", 1883).run().expect_code(0);
    let upgrade = well(&["upgrade", "one"], "one");
    assert!(upgrade.check("state")["facts"]["lineage"].is_string(), "{:#}", upgrade.check("state"));
    assert_eq!(upgrade.check("guard.operator")["level"], "ok");
    let destroy = well(&["destroy", "one"], "one");
    assert_eq!(destroy.check("guard.destroy")["message"], "\"one\" would be Destroying");
    well(&["exec"], "one");
    well(&[], "one");
    assert_eq!(demo.phase("one").as_deref(), Some("Ready"));
    assert_eq!(demo.bed.api().get(LEASE).expect("an answer"), None);
}

#[test]
fn a_live_instance_is_a_failure_of_a_bootstrap_before_it_begins() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    let said = looked(&demo, &["bootstrap", "one"], "one", 6);
    said.only_failure("guard.cluster", "guard.live_instance");
}

#[test]
fn what_a_guard_could_not_look_at_is_a_warning() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    let run = preflight(&demo, &["bootstrap", "one"], "one").with_kubeconfig(demo.bed.kubeconfig("ops")).run();
    let said = Said::by(run, 0);
    let unseen = "the Helm releases of other namespaces than dci-one were not looked at";
    let is_unseen = |check: &&&Value| check["id"] == "guard.cluster" && text(&check["message"]).contains(unseen);
    assert_eq!(said.of_level("warning").iter().filter(is_unseen).count(), 1, "{:#}", said.0);
}

#[test]
fn state_that_is_not_the_one_to_work_from_is_a_failure() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    let state = |name: &str| demo.state_dir(name).join("infrastructure.tfstate");
    for verb in ["upgrade", "destroy"] {
        let missing = looked(&demo, &[verb, "one"], "elsewhere", 6);
        let line = missing.only_failure("state", "guard.state_missing");
        assert!(text(&line["message"]).contains("is not here: there is no `"), "{line:#}");
    }
    let abandoned = looked(&demo, &["destroy", "one", "--abandon-infrastructure"], "elsewhere", 0);
    assert_eq!(abandoned.check("tool.tofu")["facts"]["needed"], false);
    fs::create_dir_all(demo.state_dir("empty")).expect("the test's folder can be written");
    fs::write(state("empty"), "").expect("the test's folder can be written");
    let empty = looked(&demo, &["upgrade", "one"], "empty", 6);
    assert!(text(&empty.only_failure("state", "guard.state_missing")["message"]).ends_with("is empty"));
    let another = looked_with_another_state(&demo);
    assert!(
        text(&another.only_failure("state", "guard.state_missing")["message"]).contains("is not the OpenTofu state")
    );
    fs::write(demo.state_dir("one").join("infrastructure.errored.tfstate"), "{}").expect("the folder is the test's");
    looked(&demo, &["upgrade", "one"], "one", 6).only_failure("state", "guard.state_errored");
}

fn looked_with_another_state(demo: &Demo) -> Said {
    let folder = demo.state_dir("another");
    fs::create_dir_all(&folder).expect("the test's folder can be written");
    let text = r#"{"version":4,"serial":1,"lineage":"another","resources":[]}"#;
    fs::write(folder.join("infrastructure.tfstate"), text).expect("the test's folder can be written");
    looked(demo, &["upgrade", "one"], "another", 6)
}

#[test]
fn a_lock_that_is_held_is_a_warning_that_names_the_holder_and_is_left_alone() {
    let demo = Demo::on(Bed::take());
    let now = dcctl::clock::rfc3339(dcctl::clock::Clock::wall(&dcctl::clock::System));
    for (renewed, word, fix) in [
        (now.as_str(), "holds the lock", "wait for it"),
        ("2020-01-01T00:00:00.000000Z", "looks stale", "instances reclaim"),
    ] {
        let lease = json!({ "metadata": { "name": "dcctl" }, "spec": { "holderIdentity": ALICE,
            "leaseDurationSeconds": 60, "renewTime": renewed } });
        demo.bed.api().create(LEASES, &lease).expect("the bed may do everything");
        let said = looked(&demo, &["install"], "cluster", 0);
        let lock = said.check("lock");
        assert_eq!((&lock["level"], &said.0["outcome"]), (&json!("warning"), &json!("warning")), "{lock:#}");
        for (part, whole) in [(ALICE, "message"), (word, "message"), (fix, "fix")] {
            assert!(text(&lock[whole]).contains(part), "{part} is not in {lock:#}");
        }
        assert_eq!(lock["facts"]["status"]["holder"]["identity"], ALICE);
        demo.bed.api().delete(LEASE).expect("the bed may do everything");
    }
}

#[test]
fn people_get_a_line_for_each_with_the_fix_below_it() {
    let demo = Demo::on(Bed::take());
    let human = |words: &[&str], state: &str| {
        let run = demo.bed.dcctl(["preflight", "--kube-context", "bed", "--bundle"]).arg(demo.bundle()).args(words);
        run.arg("--state-dir").arg(demo.state_dir(state)).env("DCCTL_VAR_DB_PASSWORD", crate::verbs::rig::PASSWORD)
    };
    let well = human(&["install"], "cluster").run().expect_code(0).stdout;
    assert!(well.starts_with("preflight for `dcctl install` on bed\nok       ci "), "{well}");
    assert!(well.ends_with(" ok, 0 warnings, 0 failures; exit code 0"), "{well}");
    assert!(well.contains("\nok       permission      admin may get configmaps in dc-system\n"), "{well}");
    let wrong = human(&["upgrade", "one"], "one").run().expect_code(6).stdout;
    assert!(wrong.contains("\nFAILURE  guard.operator "), "{wrong}");
    assert!(wrong.contains("fix: ") && wrong.contains("dcctl install"), "{wrong}");
    assert!(wrong.ends_with("; exit code 6"), "{wrong}");
}

#[test]
fn no_secret_is_in_what_is_said() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    let token = demo.bed.described().user("admin").token.clone();
    for output in ["json", "human"] {
        for words in [&["install"][..], &["bootstrap", "one"], &["destroy", "one"]] {
            let run = demo.bed.dcctl(["preflight", "--output", output, "--bundle"]).arg(demo.bundle()).args(words);
            let said = run.env("DCCTL_VAR_DB_PASSWORD", crate::verbs::rig::PASSWORD).run();
            for secret in [crate::verbs::rig::PASSWORD, token.as_str()] {
                assert!(!said.stdout.contains(secret) && !said.stderr.contains(secret), "{}", said.stdout);
            }
        }
    }
    // One in the words of a tool, and one in a name.
    let script = format!("#!/bin/sh\necho 'it is {}'\n", crate::verbs::rig::PASSWORD);
    let tofu = demo.bed.write("loud-tofu", &script);
    fs::set_permissions(&tofu, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    let said = preflight(&demo, &["bootstrap", "one"], "one").arg("--tofu").arg(&tofu).run();
    let said = Said::by(said, 4);
    let line = said.only_failure("tool.tofu", "surroundings.tool_unsuitable");
    assert!(!line.to_string().contains(crate::verbs::rig::PASSWORD) && line.to_string().contains("it is "), "{line:#}");
}

#[test]
fn the_page_has_each_field_and_each_line_that_is_said_with_its_facts() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/preflight.md"));
    let page = page.expect("the page is there");
    let row = |name: &str| {
        let names = |line: &&str| {
            let first = line.strip_prefix("| ").and_then(|line| line.split(" | ").next()).unwrap_or_default();
            first.split(", ").any(|known| known == format!("`{name}`"))
        };
        page.lines().find(names).unwrap_or_else(|| panic!("the page has no row {name}"))
    };
    for words in [&["install"][..], &["bootstrap", "one"], &["upgrade", "one"], &["destroy", "one"], &["exec"]] {
        let said = preflight(&demo, words, "one").run();
        let said: Value = serde_json::from_str(&said.stdout).expect("it is JSON");
        for name in said.as_object().expect("an object").keys() {
            row(name);
        }
        for check in said["checks"].as_array().expect("a list") {
            let line = row(text(&check["id"]));
            for fact in check["facts"].as_object().expect("an object").keys() {
                assert!(line.contains(&format!("`{fact}`")), "{fact} is not in {line}");
            }
            for field in check.as_object().expect("an object").keys() {
                assert!(row("checks").contains(&format!("`{field}`")), "{field} is not in the row of checks");
            }
        }
    }
}
