//! `dcctl lock status` of a lock in a folder.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::dcctl::Running;
use crate::direct::{ALICE, LONG_AGO, Rig, lease_of, now};

fn status(rig: &Rig, options: &[&str]) -> crate::bed::Dcctl {
    rig.dcctl(&["lock", "status"]).args(options)
}

#[test]
fn it_says_who_holds_it_and_what_to_do_next_in_words_of_the_folder() {
    let rig = Rig::new();
    let head = format!("the lock of this folder (Lease dcctl.lease.json in {})", rig.lock_dir().display());
    let free = status(&rig, &["--exit-code"]).run().expect_code(0);
    assert_eq!(free.stdout, format!("{head} is free\n  next:       nothing: the next run can claim it"));
    rig.other_holds(LONG_AGO);
    let stale = status(&rig, &["--exit-code"]).run().expect_code(21).stdout;
    assert!(stale.starts_with(&format!("{head} is held\n  held by:    {ALICE}\n")), "{stale}");
    assert!(stale.contains(&format!("only if it is gone: `dcctl instances reclaim {}`", rig.options())), "{stale}");
    rig.other_holds(&now());
    status(&rig, &["--exit-code"]).run().expect_code(20);
    status(&rig, &[]).run().expect_code(0);
    let seen = status(&rig, &["--output", "json", "--exit-code"]).run().expect_code(20).stdout;
    let seen: Value = serde_json::from_str(&seen).expect("one object");
    assert_eq!((&seen["state"], &seen["holder"]["identity"]), (&json!("held"), &json!(ALICE)));
    assert_eq!(rig.names(), ["dcctl.lease.json"], "looking makes nothing");
}

/// Waits for a line of JSON with these members.
#[track_caller]
fn wait_for(run: &Running, state: &str, looks: &Value) -> Value {
    let part = format!("{{\"state\":\"{state}\",");
    let line = run.wait_for_last_line(&part, |line| line["looks"] == *looks);
    serde_json::from_str(&line).expect("it is an object")
}

#[test]
fn a_watch_tells_every_change_as_it_comes() {
    let rig = Rig::new();
    let run = status(&rig, &["--watch", "--output", "json", "--exit-code"]).start();
    wait_for(&run, "free", &Value::Null);
    rig.other_holds(LONG_AGO);
    let held = wait_for(&run, "held", &json!("stale"));
    assert_eq!(held["work"]["instance"], "prod");
    // As a holder changes it: by a new file under the old name.
    fs::write(rig.file("next"), lease_of(ALICE, &now()).to_string()).expect("the test's folder can be written");
    fs::rename(rig.file("next"), rig.lease_path()).expect("the lock folder can be written");
    wait_for(&run, "held", &json!("live"));
    fs::remove_file(rig.lease_path()).expect("the lock folder can be written");
    wait_for(&run, "free", &Value::Null);
    rig.other_holds(LONG_AGO);
    wait_for(&run, "held", &json!("stale"));
    run.signal(Signal::INT);
    let ended = run.finish().expect_code(21);
    assert!(ended.stdout.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{}", ended.stdout);
    assert_eq!(ended.stderr, "");
}

#[test]
fn a_watch_survives_a_folder_that_is_away_and_ends_at_a_file_that_is_no_lease() {
    let rig = Rig::new();
    let run = status(&rig, &["--watch", "--output", "json"]).start();
    wait_for(&run, "free", &Value::Null);
    fs::rename(rig.lock_dir(), rig.file("away")).expect("the test's folder can be written");
    let other = rig.file("away").join("dcctl.lease.json");
    fs::write(other, lease_of(ALICE, LONG_AGO).to_string()).expect("the test's folder can be written");
    fs::rename(rig.file("away"), rig.lock_dir()).expect("the test's folder can be written");
    wait_for(&run, "held", &json!("stale"));
    fs::write(rig.lease_path(), "").expect("the lock folder can be written");
    let ended = run.finish().expect_code(4);
    assert!(ended.stderr.contains("it is empty"), "{}", ended.stderr);
}

#[test]
fn who_may_only_read_may_look() {
    let rig = Rig::new();
    rig.other_holds(LONG_AGO);
    let open = |path: &std::path::Path, mode| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    open(&rig.lock_dir(), 0o755);
    let Some(reader) = crate::direct::users::User::other(&rig, 40_003) else { return };
    reader.dcctl(&rig, &["lock", "status", "--exit-code"]).run().expect_code(21);
    let run = reader.dcctl(&rig, &["exec", "--output", "jsonl"]).args(["--", "true"]).run().expect_code(4);
    assert!(run.verdict().to_string().contains("cannot write to the lock folder"), "{}", run.stdout);
}

/// Makes something in the lock folder.
type Make = fn(&Rig);

/// What lies in the way of every run, by what is made of the folder.
fn unusable() -> Vec<(&'static str, Make, &'static str)> {
    fn pipe(rig: &Rig) {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let path = rig.lock_dir().join("dcctl.flock");
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).expect("the folder is ours");
    }
    fn folder(rig: &Rig) {
        fs::create_dir(rig.lock_dir().join("dcctl.flock")).expect("the folder is ours");
    }
    fn link(rig: &Rig) {
        std::os::unix::fs::symlink("elsewhere", rig.lock_dir().join("dcctl.flock")).expect("the folder is ours");
    }
    fn next(rig: &Rig) {
        fs::create_dir(rig.lock_dir().join("dcctl.lease.tmp")).expect("the folder is ours");
    }
    vec![
        ("dcctl.flock", pipe, "it is no file"),
        ("dcctl.flock", folder, "it is a folder"),
        ("dcctl.flock", link, "it is a symbolic link"),
        ("dcctl.lease.tmp", next, "it is a folder"),
    ]
}

#[test]
fn a_folder_in_which_every_run_is_refused_is_free_for_nobody() {
    for (name, make, says) in unusable() {
        let rig = Rig::new();
        make(&rig);
        let path = rig.lock_dir().join(name).display().to_string();
        let said = format!("{path} is in the way of the lock: {says}");
        let shown = status(&rig, &["--exit-code"]).run().expect_code(4).stdout;
        assert!(shown.contains("is free, but a run of this account could not claim it"), "{shown}");
        assert!(shown.contains(&said) && !shown.contains("the next run can claim it"), "{shown}");
        assert!(shown.contains(&format!("`mv {path} {path}.away`")), "{shown}");
        status(&rig, &[]).run().expect_code(0);
        let seen = status(&rig, &["--output", "json"]).run().expect_code(0).stdout;
        let seen: Value = serde_json::from_str(&seen).expect("one object");
        assert_eq!((&seen["state"], &seen["cannot_claim"]["code"]), (&json!("free"), &json!("surroundings.lock_dir")));
        let run = status(&rig, &["--watch", "--exit-code"]).start();
        run.wait_for_line("is free, but a run of this account could not claim it");
        run.signal(Signal::INT);
        run.finish().expect_code(4);
        // So it is for a run, at once and with what to do; nothing was tried again and again.
        let events = rig.sh(&[], "true").run().expect_code(4).events();
        let types: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(types, ["run.started", "diagnostic", "run.finished"]);
        let failure = &events[2]["data"]["failure"];
        assert_eq!(failure["message"], said);
        assert!(failure["hints"].to_string().contains("mv "), "{failure}");
    }
}

#[test]
fn a_folder_that_this_account_may_only_read_is_free_for_others() {
    let rig = Rig::new();
    let Some(reader) = crate::direct::users::User::other(&rig, 40_004) else { return };
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(rig.lock_dir(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let shown = reader.dcctl(&rig, &["lock", "status", "--exit-code"]).run().expect_code(4).stdout;
    assert!(shown.contains("a run of this account could not claim it"), "{shown}");
    assert!(shown.contains(&format!("`chmod g+rws {}`", rig.lock_dir().display())), "{shown}");
    status(&rig, &["--exit-code"]).run().expect_code(0);
}

#[test]
fn a_validity_that_is_not_believed_is_said() {
    let rig = Rig::new();
    let mut lease = lease_of(ALICE, LONG_AGO);
    lease["spec"]["leaseDurationSeconds"] = json!(86_400);
    fs::write(rig.lease_path(), lease.to_string()).expect("the lock folder can be written");
    let shown = status(&rig, &[]).run().expect_code(0).stdout;
    let said = "not renewed within its 600 s (it claims 86400 s, which is not believed)";
    assert!(shown.split_whitespace().collect::<Vec<_>>().join(" ").contains(said), "{shown}");
    let seen: Value = serde_json::from_str(&status(&rig, &["--output", "json"]).run().stdout).expect("one object");
    assert_eq!((&seen["valid_seconds"], &seen["valid_seconds_claimed"]), (&json!(600), &json!(86_400)));
}

/// A Lease is anybody's text.
#[test]
fn a_lease_with_more_to_say_than_a_screen_has_is_cut() {
    let rig = Rig::new();
    let mut lease = lease_of(&"x".repeat(40_000), LONG_AGO);
    for name in ["core.devicechain.io/instance", "dcctl.devicechain.io/job-url", "dcctl.devicechain.io/step"] {
        lease["metadata"]["annotations"][name] = json!("prod ".repeat(8_000));
    }
    fs::write(rig.lease_path(), lease.to_string()).expect("the lock folder can be written");
    let shown = status(&rig, &[]).run().expect_code(0).stdout;
    let human = rig.dcctl(&["exec", "--output", "human"]).args(["--", "true"]).run().expect_code(21);
    let events = rig.sh(&[], "true").run().expect_code(21).stdout;
    for said in [shown, human.stdout, human.stderr, events] {
        assert!(said.len() < 20_000 && said.lines().count() < 100, "{} bytes: {said:.2000}", said.len());
    }
}

#[test]
fn what_a_message_repeats_acts_on_no_terminal_and_looks_like_no_line_of_its_own() {
    let rig = Rig::new();
    let kubeconfig = rig.file("config");
    fs::write(&kubeconfig, "{ apiVersion: v1, kind: Config, contexts: [], clusters: [], users: [] }").expect("ours");
    let nasty = "x\u{1b}[31m\ndcctl: all is well";
    let run = |words: &[&str]| rig.bare(words).env("KUBECONFIG", &kubeconfig);
    let folder = rig.file("a\u{1b}[31m\nb");
    let missing = ["lock", "status", "--substrate", "direct", "--lock-dir"];
    for run in [
        run(&["lock", "status", "--kube-context", nasty]),
        run(&["lock", "status"]).env("KUBECONFIG", rig.file(nasty)),
        run(&missing).arg(&folder),
        run(&["explain", nasty]),
        run(&["lock", nasty]),
    ] {
        let finished = run.run();
        assert_ne!(finished.code(), Some(0));
        let said = &finished.stderr;
        assert!(said.starts_with("dcctl: ") && !said.contains('\u{1b}'), "{said:?}");
        assert!(said.lines().skip(1).all(|line| line.starts_with("  ")), "{said:?}");
    }
    // And what is told to be typed can be.
    let said = run(&missing).arg(&folder).run().stderr;
    assert!(said.contains(r"a\x1b[31m\x0ab'`"), "{said}");
}

#[test]
fn a_kubeconfig_without_contexts_has_none_to_choose_from() {
    let rig = Rig::new();
    fs::write(rig.file("empty"), "").expect("the test's folder can be written");
    for words in [&["lock", "status"][..], &["lock", "status", "--kube-context", "prod"]] {
        let said = rig.bare(words).args(["--kubeconfig", "empty"]).run().expect_code(4).stderr;
        assert!(said.contains("it has none") && said.contains("that has a context"), "{said}");
        assert!(!said.contains("name one of them"), "{said}");
    }
}
