//! Many processes at one lock folder, and a witness that never sees two of them at once.

use std::process::Stdio;

use crate::bed::child::{Mark, command};
use crate::bed::tools::own;
use crate::direct::{Rig, soak};

/// Each `begin` is followed by the `end` of the same, so many times.
#[track_caller]
pub(super) fn assert_one_at_a_time(witness: &str, times: usize) {
    let lines: Vec<&str> = witness.lines().collect();
    assert_eq!(lines.len(), 2 * times, "{witness}");
    for pair in lines.chunks(2) {
        let name = |line: &str, word: &str| line.strip_prefix(word).map(str::to_owned);
        let (begins, ends) = (name(pair[0], "begin "), name(pair[1], "end "));
        assert!(begins.is_some() && begins == ends, "two held the lock at once: {pair:?} in\n{witness}");
    }
}

#[test]
fn eight_processes_that_claim_as_fast_as_they_can_never_overlap() {
    let rig = Rig::new();
    let claims = if soak() { 400 } else { 25 };
    let witness = rig.file(&format!("witness.{claims}"));
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let mut writer = command(&own("bed"));
            writer.arg("leases").arg(rig.lock_dir()).arg(&witness).env(Mark::VARIABLE, rig.mark_of_all().value());
            writer.stderr(Stdio::piped()).spawn().expect("Cargo built the bed")
        })
        .collect();
    for writer in writers {
        let ended = writer.wait_with_output().expect("it is our child");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
    let witness = std::fs::read_to_string(witness).expect("they wrote it");
    assert_one_at_a_time(&witness, 8 * claims);
    assert_eq!(rig.names(), ["dcctl.flock"]);
}

/// The same by the program itself: of those that begin at once one gets it, and the others are told who.
#[test]
fn of_eight_runs_that_begin_at_once_no_two_hold_the_lock_together() {
    let rig = Rig::new();
    let rounds = if soak() { 25 } else { 2 };
    let mut held = 0;
    for _ in 0..rounds {
        let script = "echo begin $$ >> @/witness; sleep 0.3; echo end $$ >> @/witness";
        let runs: Vec<_> = (0..8).map(|_| rig.sh(&[], script).start()).collect();
        for run in runs {
            let finished = run.finish();
            match finished.code() {
                Some(0) => held += 1,
                Some(20) => {}
                other => panic!("{other:?}: {}", finished.stdout),
            }
        }
        assert_eq!(rig.names(), ["dcctl.flock"]);
    }
    assert!(held >= rounds, "nobody got it");
    assert_one_at_a_time(&rig.read("witness").expect("they wrote it"), held);
}
