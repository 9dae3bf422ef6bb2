//! dcctl as the first process of a PID namespace, as it is in a container.

use std::fs;
use std::process::Stdio;

use rustix::process::{Pid, Signal};

use crate::bed::child::command;
use crate::bed::{Bed, LEASE, untested, wait};
use crate::cancel::job::{Job, Shape, send};
use crate::stopping::rig::Rig;

/// The children of a process: their numbers, and whether each has ended without being let go of.
fn children(parent: Pid) -> Vec<(i32, bool)> {
    let own = parent.as_raw_nonzero().get().to_string();
    let processes = fs::read_dir("/proc").expect("there are processes").flatten();
    let child = |name: std::ffi::OsString| {
        let pid: i32 = name.to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut words = stat.rsplit_once(") ")?.1.split(' ');
        let state = words.next()?.to_owned();
        (words.next()? == own).then_some((pid, state == "Z"))
    };
    processes.filter_map(|entry| child(entry.file_name())).collect()
}

#[test]
fn as_the_first_process_of_a_container_it_takes_one_sigterm_for_one_stop_and_ends_with_the_code_of_the_run() {
    let rig = Rig::new(3.0);
    let job = Job::start(rig.bed(), rig.own(), Shape::Namespace);
    rig.wait_until_slow(&job.journal);
    let front = job.front().expect("it runs");
    let inside = fs::read_to_string(format!("/proc/{}/status", front.as_raw_nonzero())).expect("it runs");
    let first = |line: &str| line.starts_with("NSpid:") && line.split_whitespace().last() == Some("1");
    assert!(inside.lines().any(first), "{inside}");
    send(front, Signal::TERM);
    let journal = job.journal.clone();
    assert_eq!(job.end(), Some(10));
    rig.assert_clean_stop(&journal.events());
    rig.assert_converges();
}

#[test]
fn as_the_first_process_of_a_container_it_leaves_no_run_to_itself() {
    let bed = Bed::take();
    let events = bed.file("events");
    let words = ["--events-file", events.to_str().expect("a path of text"), "--detach", "--", "sleep", "60"];
    let job = Job::start_with(&bed, bed.dcctl(["exec", "--kube-context", "bed"]), Shape::Namespace, &words);
    assert_eq!(job.end(), Some(3));
    let said = fs::read_to_string(&events).expect("a refusal is told");
    assert!(said.contains("--detach does not go with dcctl as the first process of a container"), "{said}");
    assert!(bed.api().get(LEASE).expect("admin may read it").is_none());
}

#[test]
fn where_proc_is_that_of_another_namespace_nobody_is_taken_for_somebody_else() {
    let bed = Bed::take();
    let run = bed.dcctl(["exec", "--kube-context", "bed", "--output", "jsonl", "--", "sleep", "60"]);
    let run = run.by_shell("exec unshare --user --map-root-user --pid --fork --kill-child \"$@\"").with_pipes().run();
    let failure = run.expect_code(4).verdict()["data"]["failure"].clone();
    assert_eq!(failure["code"], "surroundings.proc", "{failure}");
    assert!(failure["message"].to_string().contains("/proc shows this process as "), "{failure}");
    assert!(bed.api().get(LEASE).expect("admin may read it").is_none());
}

#[test]
fn as_the_first_process_of_a_container_it_lets_go_of_every_orphan() {
    let bed = Bed::take();
    // Ten orphans of the command; it lives on, so that somebody else has to let go of them.
    let script = format!(
        "i=0; while [ $i -lt 10 ]; do sh -c 'setsid sleep 0.2 &'; i=$((i + 1)); done; touch {}; while :; do sleep 0.2; done",
        bed.file("up").display()
    );
    let run = bed.dcctl(["exec", "--kube-context", "bed"]);
    let job = Job::start_with(&bed, run, Shape::Namespace, &["--", "sh", "-c", &script]);
    wait::fact("the command to begin", || bed.file("up").exists().then_some(()));
    let (front, supervisor) = (job.front().expect("it runs"), job.supervisor().expect("it runs"));
    // And one of somebody who has looked into the container: it falls to the first process.
    let looked = command(std::path::Path::new("nsenter"))
        .args(["--target", &front.as_raw_nonzero().to_string(), "--user", "--pid", "--preserve-credentials", "--"])
        .args(["sh", "-c", "setsid sleep 2 &"])
        .env(crate::bed::child::Mark::VARIABLE, bed.mark().value())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if looked.is_ok_and(|status| status.success()) {
        let others =
            || children(front).into_iter().filter(|(pid, _)| *pid != supervisor.as_raw_nonzero().get()).count();
        wait::fact("an orphan of the first process", || (others() == 1).then_some(()));
        wait::fact("the first process to let go of it", || (others() == 0).then_some(()));
    } else {
        untested::say("orphans that fall to the first process of a container", "nsenter may not enter the namespace");
    }
    let over = || children(supervisor).into_iter().filter(|(_, over)| *over).count();
    wait::fact("the supervisor to let go of its orphans", || (over() == 0).then_some(()));
    send(front, Signal::TERM);
    assert_eq!(job.end(), Some(10));
    assert!(bed.api().get(LEASE).expect("admin may read it").is_none());
}
