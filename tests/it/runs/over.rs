//! Runs that are over, or that nobody can tell anything of any more.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::child::command;
use crate::bed::dcctl::Running;
use crate::bed::wait;
use crate::runs::{AT_WORK, Rig, ended, text, told};

#[test]
fn a_run_that_was_killed_is_said_to_be_cut_off_with_what_is_still_at_work() {
    let rig = Rig::new();
    let id = rig.at_work();
    rig.kill(&id);
    let waited = rig.runs(&["wait", &id]).run().expect_code(1);
    assert!(waited.stderr.contains("was cut off without a verdict, and sh ("), "{}", waited.stderr);
    assert!(waited.stderr.contains("the lock may still bear its name"), "{}", waited.stderr);
    let stop = rig.runs(&["stop", &id]).run().expect_code(1);
    assert!(stop.stderr.contains("nobody is there who would hear it"), "{}", stop.stderr);
    let listed = rig.runs(&["list"]).run().expect_code(0);
    assert!(
        text(&listed).contains(&format!("{id}  ")) && text(&listed).contains(" still at work"),
        "{}",
        listed.stdout
    );
    // Each line that a script reads is an event. Into a file: what the test reads itself has to end with a verdict.
    let show = rig.runs(&["show", &id, "--output", "jsonl"]).by_shell("\"$@\" > \"$SHOWN\"").with_pipes();
    let shown = show.env("SHOWN", rig.bed.file("shown")).run().expect_code(0);
    let lines = fs::read_to_string(rig.bed.file("shown")).expect("the shell made it");
    let is_event = |line: &str| serde_json::from_str(line).is_ok_and(|event: Value| event["type"].is_string());
    assert!(lines.lines().count() > 1 && lines.lines().all(is_event), "{lines}");
    assert!(shown.stderr.contains(&format!("run {id} ")), "{}", shown.stderr);
    let kept = rig.runs(&["prune", "--older-than", "0s"]).run().expect_code(0);
    assert!(text(&kept).starts_with("kept "), "{}", kept.stdout);
    rig.let_go();
    wait::fact("the command to end", || {
        let said = rig.runs(&["show", &id]).run().expect_code(0).stdout;
        said.contains("its processes are gone without a verdict").then_some(())
    });
    rig.runs(&["prune", "--older-than", "0s"]).run().expect_code(0);
    assert_eq!(rig.list().len(), 0);
}

/// Puts this text in the place of another in a file of a run.
#[track_caller]
fn replace(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).expect("a run has written it");
    assert!(text.contains(from), "{from} is not in {text}");
    fs::write(file, text.replace(from, to)).expect("the folder is the test's");
}

/// A home that two machines share has the runs of both.
#[test]
fn of_a_run_that_another_machine_began_nothing_is_said_but_where_to_ask() {
    let rig = Rig::new();
    let id = rig.at_work();
    let journal = rig.journal(&id).path().to_owned();
    let about = journal.parent().expect("it lies in a folder").join("run.json");
    rig.kill(&id);
    rig.let_go();
    wait::fact("the command to end", || rig.bed.mark().pids().is_empty().then_some(()));
    let holder = rig.list()[0]["holder"].as_str().expect("it has one").to_owned();
    let (user, rest) = holder.split_once('@').expect("an identity");
    let (_, rest) = rest.split_once('/').expect("an identity");
    for file in [&journal, &about] {
        replace(file, &holder, &format!("{user}@build-02/{rest}"));
    }
    let listed = rig.list();
    assert_eq!(told(&listed[0]), [json!("elsewhere"), Value::Null, Value::Null, Value::Null], "{listed:?}");
    let says = "was begun on build-02; what it does now is not known here";
    assert!(text(&rig.runs(&["list"]).run().expect_code(0)).contains(says));
    for (words, hint) in [(["wait", &id], "ask there"), (["stop", &id], "ask it there")] {
        let said = rig.runs(&words).run().expect_code(1).stderr;
        assert!(said.contains(says) && said.contains(hint), "{said}");
    }
    // It may be at work.
    let kept = rig.runs(&["prune", "--older-than", "0s"]).run().expect_code(0);
    assert!(text(&kept).starts_with("kept ") && text(&kept).contains(says), "{}", kept.stdout);
    assert_eq!(rig.list().len(), 1);
}

/// What a boot changes: the processes are gone, their numbers are those of others, and what was written down names another
/// start of the machine.
#[test]
fn after_a_reboot_a_run_is_cut_off_and_a_process_that_has_its_number_is_not_taken_for_it() {
    let rig = Rig::new();
    let id = rig.at_work();
    let supervisor = rig.supervisor(&id).as_raw_nonzero();
    let journal = rig.journal(&id).path().to_owned();
    let folder = journal.parent().expect("it lies in a folder").to_owned();
    let records = fs::read_dir(folder.join("tools")).expect("a run keeps records").flatten();
    let records: Vec<_> = records.map(|entry| (entry.path(), fs::read(entry.path()).unwrap_or_default())).collect();
    rig.kill(&id);
    rig.let_go();
    wait::fact("the command to end", || rig.bed.mark().pids().is_empty().then_some(()));
    let own = format!("/{}/", std::process::id());
    for file in [&journal, &folder.join("run.json")] {
        replace(file, &format!("/{supervisor}/"), &own);
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the kernel has it");
    let mut told = 0;
    for (path, record) in records {
        let Ok(mut record) = serde_json::from_slice::<Value>(&record) else { continue };
        told += usize::from(record["boot"] == boot.trim());
        record["boot"] = json!("00000000-0000-4000-8000-000000000000");
        record["pid"] = json!(std::process::id());
        fs::write(path, record.to_string()).expect("the folder is the test's");
    }
    assert!(told > 0, "nothing was written down of the command");

    let listed = rig.list();
    assert_eq!((&listed[0]["state"], &listed[0]["tools"]), (&json!("cut_off"), &json!([])));
    let waited = rig.runs(&["wait", &id]).run().expect_code(1);
    assert!(waited.stderr.contains("its processes are gone without a verdict"), "{}", waited.stderr);
    let stop = rig.runs(&["stop", &id]).run().expect_code(0);
    assert!(text(&stop).contains("there is nothing to stop"), "{}", stop.stdout);
    // The lock is for reclaiming, and the next run names what was killed and nothing that lives.
    let next = rig.bed.dcctl(["exec", "--kube-context", "bed", "--", "true"]).run().expect_code(20);
    assert!(!next.stderr.contains(&format!("({})", std::process::id())), "{}", next.stderr);
    assert!(rig.lease().is_some_and(|lease| lease["spec"]["holderIdentity"].to_string().contains(&id)));
    rig.runs(&["prune", "--older-than", "0s"]).run().expect_code(0);
    assert!(!folder.exists());
}

/// A run whose supervisor was killed, with its id, and its command, which does not end when it is asked to.
fn taken_over(rig: &Rig) -> (Running, String) {
    let folder = rig.bed.scratch().display().to_string();
    let script =
        format!("trap ': > {folder}/asked' TERM; : > {folder}/up; until [ -e {folder}/go ]; do sleep 0.05; done");
    // The longest time that may be given to a stop.
    let run = rig.bed.dcctl(["exec", "--kube-context", "bed", "--output", "jsonl", "--stop-after", "8760h"]);
    let run = run.args(["--", "sh", "-c", &script]).start();
    rig.wait_for("up");
    let id = rig.ids().pop().expect("there is a run");
    rig.kill(&id);
    (run, id)
}

#[test]
fn a_run_that_its_front_has_taken_over_is_said_to_go_on() {
    let rig = Rig::new();
    let (run, _) = taken_over(&rig);
    rig.wait_for("asked");
    assert_eq!(rig.list()[0]["state"], "running");
    rig.let_go();
    run.finish().expect_code(1);
    assert_eq!(told(&rig.list()[0]), ended("failed", 1, "released"));
}

/// The supervisor's door is gone with it. Whoever asks in the moment before the front opens another one is heard, too.
#[test]
fn a_run_that_its_front_has_taken_over_is_asked_to_stop_and_forced_like_any_other() {
    let rig = Rig::new();
    let (run, id) = taken_over(&rig);
    let asked = rig.runs(&["stop", &id]).run().expect_code(0);
    assert!(text(&asked).contains(&format!("run {id} was asked to stop")), "{}", asked.stdout);
    rig.wait_for("asked");
    let forced = rig.runs(&["stop", "--force", &id]).run().expect_code(0);
    assert!(text(&forced).contains("was asked to end at once"), "{}", forced.stdout);
    let finished = run.finish().expect_code(12);
    let events = finished.events();
    let heard = events.iter().filter(|event| event["type"] == "signal.received").map(|event| &event["data"]);
    let heard: Vec<_> = heard.map(|data| (&data["signal"], &data["effect"])).collect();
    assert_eq!(heard, [(&json!("runs stop"), &json!("nothing")), (&json!("runs stop --force"), &json!("force"))]);
    let asked = events.iter().filter(|event| event["type"] == "stop.requested").map(|event| &event["data"]);
    let asked: Vec<_> = asked.map(|data| (&data["cause"], &data["manner"])).collect();
    let expected =
        [("supervisor_gone", "graceful"), ("command", "force")].map(|(cause, manner)| (json!(cause), json!(manner)));
    assert!(asked.iter().copied().eq(expected.iter().map(|(cause, manner)| (cause, manner))), "{asked:?}");
    assert_eq!(told(&rig.list()[0]), ended("forced", 12, "left"));
    let over = rig.runs(&["stop", &id]).run().expect_code(0);
    assert!(text(&over).contains("there is nothing to stop"), "{}", over.stdout);
}

/// Somebody's editor has put another file in the place of its journal, or a copy was made of its folder.
#[test]
fn a_run_whose_journal_was_replaced_goes_on_and_can_be_asked_to_stop() {
    let rig = Rig::new();
    let id = rig.at_work();
    let journal = rig.journal(&id).path().to_owned();
    let folder = journal.parent().expect("it lies in a folder").to_owned();
    let other = folder.join("another");
    fs::copy(&journal, &other).and_then(|_| fs::rename(&other, &journal)).expect("the folder is the test's");
    assert_eq!(rig.list()[0]["state"], "running");
    // The next run takes it for no dead one, and its credentials not away.
    let next = rig.bed.dcctl(["exec", "--kube-context", "bed", "--", "true"]).run().expect_code(20);
    assert!(!next.stderr.contains("was killed with both") && folder.join("kubeconfig").exists(), "{}", next.stderr);
    let copy = rig.bed.file("copy");
    let copied = command(Path::new("cp")).arg("-a").args([&folder, &copy]).status().expect("the system has it");
    assert!(copied.success());
    let at = copy.display().to_string();
    let unheard = rig.runs(&["stop", &at]).run().expect_code(1);
    assert!(!unheard.stderr.contains("cut off"), "it goes on: {}", unheard.stderr);
    rig.runs(&["stop", &id]).run().expect_code(0);
    wait::fact("the lock to be given back", || rig.lease().is_none().then_some(()));
}

/// A pipe that nobody writes to, a link to something without an end, and a copy of a run.
#[test]
fn whatever_lies_in_the_folder_of_runs_the_others_are_listed_and_found() {
    let rig = Rig::new();
    let id = rig.at_work();
    let own = rig.journal(&id).path().parent().expect("it lies in a folder").to_owned();
    let runs = own.parent().expect("it lies among others").to_owned();
    for name in ["pipe", "endless"] {
        fs::create_dir(runs.join(name)).expect("the folder is the test's");
    }
    let pipe = runs.join("pipe/events.jsonl");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).expect("the folder is the test's");
    symlink("/dev/zero", runs.join("endless/events.jsonl")).expect("the folder is the test's");
    let copied = command(Path::new("cp")).arg("-a").args([&own, &runs.join("copy")]).status();
    assert!(copied.expect("the system has it").success());
    assert_eq!(rig.list().len(), 2, "the run and its copy");
    rig.let_go();
    rig.runs(&["wait", &id]).run().expect_code(0);
}

#[test]
fn a_run_whose_journal_was_cut_short_can_be_asked_to_stop() {
    let rig = Rig::new();
    let folder = rig.bed.file("run").display().to_string();
    // Given by the shell, so that nobody holds this journal against the rules.
    let by = format!("DCCTL_RUN_DIR={folder} exec \"$@\"");
    rig.detached(&["--output", "human"], AT_WORK).by_shell(&by).with_pipes().run().expect_code(0);
    rig.wait_for("up");
    // What was put in its place is the end of another one.
    let verdict = r#"{"v":1,"seq":99,"time":"2026-11-30T12:00:00.000000Z","type":"run.finished","level":"info","msg":"exec true succeeded","run":"0123456789abcdef","elapsed_ms":9,"data":{"subject":"exec true","outcome":"succeeded","exit_code":0,"lock":"released","counts":{"steps":{"done":3,"failed":0,"cut_off":0,"skipped":0},"resources":{"created":0,"changed":0,"destroyed":0,"failed":0},"warnings":0,"renewal_gaps":0},"dry_run":false,"duration_ms":9}}"#;
    let journal = rig.bed.file("run/events.jsonl");
    let cut = fs::File::options().write(true).open(&journal).and_then(|file| file.set_len(0));
    let appended = fs::File::options().append(true).open(&journal).and_then(|mut file| writeln!(file, "{verdict}"));
    assert!(cut.and(appended).is_ok());
    let asked = rig.runs(&["stop", &folder]).run().expect_code(0);
    assert!(text(&asked).contains("was asked to stop"), "{}", asked.stdout);
    wait::fact("the lock to be given back", || rig.lease().is_none().then_some(()));
}

/// The one who asks is told that nobody answers. What stood still and goes on later does not do it after all.
#[test]
fn a_request_that_nobody_answered_is_void() {
    let rig = Rig::new();
    let id = rig.at_work();
    rig.signal(&id, Signal::STOP);
    let asked = rig.runs(&["stop", "--force", &id]).run().expect_code(1);
    assert!(asked.stderr.contains("could not be asked"), "{}", asked.stderr);
    rig.signal(&id, Signal::CONT);
    // A word that was heard would be in the journal before this one.
    rig.runs(&["stop", &id]).run().expect_code(0);
    assert_eq!(rig.runs(&["wait", &id]).run().code(), Some(10));
    let forced = |event: &Value| event["data"]["manner"] == "force";
    assert!(!rig.journal(&id).events().iter().any(forced));
    assert_eq!(rig.lease(), None);
}

#[test]
fn only_what_is_over_and_old_enough_is_removed_and_never_the_last_state() {
    let rig = Rig::new();
    rig.detached(&[], "exit 0").run().expect_code(0);
    rig.runs(&["wait", "latest"]).run().expect_code(0);
    let first = rig.list()[0]["directory"].as_str().expect("a path").to_owned();
    let young = rig.runs(&["prune"]).run().expect_code(0);
    assert_eq!((text(&young), rig.list().len()), ("", 1));
    let told = rig.runs(&["prune", "--older-than", "0s", "--dry-run"]).run().expect_code(0);
    assert_eq!((text(&told), rig.list().len()), (format!("would remove {first}").as_str(), 1));
    // As it is called where a state really finds no room, see `stopping::disks`.
    let state = format!("{first}/infrastructure.errored.tfstate");
    fs::write(&state, "{}").expect("ours");
    let kept = rig.runs(&["prune", "--older-than", "0s"]).run().expect_code(0);
    assert!(text(&kept).contains("infrastructure.errored.tfstate"), "{}", kept.stdout);
    fs::remove_file(state).expect("it is there");
    let gone = rig.runs(&["prune", "--older-than", "0s"]).run().expect_code(0);
    assert_eq!((text(&gone), rig.list().len()), (format!("removed {first}").as_str(), 0));
}

#[test]
fn a_run_that_is_not_there_is_named_with_where_it_was_looked_for() {
    let rig = Rig::new();
    for words in [&["show", "latest"][..], &["wait", "abc"], &["stop", "/nowhere/at/all"], &["attach", "abc"]] {
        let refused = rig.runs(words).run().expect_code(3);
        assert!(refused.stderr.contains("dcctl runs list"), "{}", refused.stderr);
    }
    assert!(text(&rig.runs(&["list"]).run().expect_code(0)).starts_with("no runs in "));
}

#[test]
fn a_dry_run_is_listed_as_one() {
    let rig = Rig::new();
    for options in [&["--dry-run"][..], &[]] {
        rig.bed.dcctl(["exec", "--kube-context", "bed"]).args(options).args(["--", "true"]).run().expect_code(0);
    }
    let lines = rig.runs(&["list"]).run().expect_code(0).stdout;
    let said: Vec<bool> = lines.lines().map(|line| line.contains("  dry run of exec true on bed: ")).collect();
    assert_eq!(said, [true, false], "{lines}");
    let listed = rig.list().iter().map(|run| run["dry_run"].as_bool()).collect::<Vec<_>>();
    assert_eq!(listed, [Some(true), Some(false)]);
}

/// A line that begins with `::` is a word to the runner of a CI system.
#[test]
fn what_is_said_of_a_folder_is_one_line_whatever_its_name_has_in_it() {
    let rig = Rig::new();
    let name = "a\n\u{1b}[31m::error::x";
    let left = rig.detached(&["--output", "human", "--run-dir", name], "exit 0").run().expect_code(0);
    rig.runs(&["wait", "latest"]).run().expect_code(0);
    let gone = rig.runs(&["prune", "--older-than", "0s"]).run().expect_code(0);
    assert!(left.stderr.contains("goes on without this command") && gone.stdout.starts_with("no longer listed: "));
    for said in [&left.stderr, &left.stdout, &gone.stdout] {
        assert!(!said.contains('\u{1b}') && !said.lines().any(|line| line.starts_with("::")), "{said:?}");
    }
}
