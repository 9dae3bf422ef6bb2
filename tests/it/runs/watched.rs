//! Those who look on while a run is at work: however many, however slow, and whatever becomes of its directory.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::bed::dcctl::{Journal, Running};
use crate::bed::junit::Report;
use crate::bed::wait;
use crate::runs::{AT_WORK, REPORTING, Rig};

#[test]
fn any_number_of_viewers_see_it_and_their_going_stops_nothing() {
    let rig = Rig::new();
    let id = rig.at_work();
    let stays = rig.runs(&["attach", &id, "--output", "jsonl"]).start();
    let late = rig.runs(&["attach", &id, "--from-now"]).start();
    let goes = rig.runs(&["attach", &id]).start();
    goes.wait_for_line("begun");
    goes.signal(Signal::INT);
    let gone = goes.finish().expect_code(30);
    assert!(gone.stderr.contains("no longer watching; run "), "{}", gone.stderr);
    stays.wait_for("process.output", |event| event["data"]["text"] == "begun");
    assert_eq!(rig.list()[0]["state"], "running");
    rig.let_go();
    let whole = stays.finish().expect_code(0);
    assert_eq!(whole.verdict()["data"]["exit_code"], 0);
    let rest = late.finish().expect_code(0);
    assert!(
        rest.stdout.contains("exec sh succeeded")
            && rest.stdout.contains(": exit code 0, ")
            && !rest.stdout.contains("begun"),
        "{}",
        rest.stdout
    );
}

/// It prints more than a pipe takes.
#[test]
fn a_viewer_that_reads_nothing_and_one_that_is_killed_hold_up_nothing() {
    let rig = Rig::new();
    let flood = "i=0; while [ $i -lt 5000 ]; do printf '%0100d\\n' $i; i=$((i+1)); done; : > @/flooded";
    let script = format!("echo begun; : > @/up; until [ -e @/go ]; do sleep 0.05; done; {flood}");
    rig.detached(&["--output", "human"], &script).run().expect_code(0);
    rig.wait_for("up");
    let id = rig.ids().pop().expect("there is a run");
    // What the shell starts writes to a pipe whose reader waits for the end of the test.
    let by = "\"$@\" | { read first; : > looks; until [ -e seen ]; do sleep 0.05; done; cat > rest; }";
    let slow = rig.runs(&["attach", &id, "--output", "jsonl"]).by_shell(by).with_pipes().start();
    rig.wait_for("looks");
    let killed = rig.runs(&["attach", &id]).start();
    killed.wait_for_line("begun");
    killed.signal(Signal::KILL);
    assert_eq!(killed.finish().killed_by(), Some(9));
    rig.let_go();
    rig.wait_for("flooded");
    rig.runs(&["wait", &id]).run().expect_code(0);
    assert_eq!(rig.lease(), None);
    assert!(!rig.bed.file("rest").exists(), "the slow one was not slow");
    rig.bed.write("seen", "");
    slow.finish();
    let rest = fs::read_to_string(rig.bed.file("rest")).expect("it read on");
    assert!(rest.trim_end().lines().last().is_some_and(|last| last.contains("\"run.finished\"")), "it saw no end");
}

/// Waits until this process has the file open.
fn wait_until_open(viewer: &Running, file: &Path) {
    let folder = format!("/proc/{}/fd", viewer.pid());
    wait::fact("the viewer to open the journal", || {
        let open = fs::read_dir(&folder).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|to| to == file).then_some(())
    });
}

#[test]
fn a_run_that_was_left_goes_on_without_its_directory_and_whoever_watched_sees_its_end() {
    let rig = Rig::new();
    rig.detached(&["--output", "human"], AT_WORK).by_shell(REPORTING).with_pipes().run().expect_code(0);
    rig.wait_for("up");
    let id = rig.ids().pop().expect("there is a run");
    let (journal, supervisor) = (rig.journal(&id).path().to_owned(), rig.supervisor(&id));
    let waits = rig.runs(&["wait", &id]).start();
    wait_until_open(&waits, &journal);
    let shows = rig.runs(&["attach", &id]).start();
    shows.wait_for_line("begun");
    let folder = journal.parent().expect("it lies in a folder");
    wait::fact("the folder to be gone", || {
        let _ = fs::remove_dir_all(folder);
        (!folder.exists()).then_some(())
    });
    // Nobody finds it any more, and it has the lock.
    for words in [&["show", &id][..], &["wait", &id], &["stop", &id]] {
        rig.runs(words).run().expect_code(3);
    }
    assert!(rig.list().is_empty() && rig.lease().is_some());
    let named = rig.lease().map(|lease| lease["spec"]["holderIdentity"].to_string()).unwrap_or_default();
    assert!(named.contains(&format!("/{}/", supervisor.as_raw_nonzero())), "{named}");
    rustix::process::kill_process(supervisor, Signal::TERM).expect("it runs");
    waits.finish().expect_code(10);
    let shown = shows.finish().expect_code(10);
    assert!(shown.stdout.contains("exec sh was stopped") || shown.stdout.contains("exit code 10"), "{}", shown.stdout);
    assert_eq!(rig.lease(), None);
    let events = Journal::at(rig.bed.file("left.jsonl")).events();
    assert_eq!(events.last().expect("there are some")["data"]["exit_code"], 10);
    Report::read(&rig.bed.file("left.xml"));
}
