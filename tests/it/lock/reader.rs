//! Nothing that reads what the run says, or does not, costs it the lock.

use std::fs::File;
use std::process::Stdio;

use crate::bed::dcctl::Journal;
use crate::bed::wait;
use crate::lock::rig::Rig;

#[test]
fn the_lock_is_renewed_while_nobody_reads_standard_output_or_the_events_file() {
    let rig = Rig::new().gated();
    let gate = rig.gate("one");
    // A pipe of one page that stays full, and a named pipe without a reader.
    let (unread, full) = rustix::pipe::pipe().expect("a pipe can be made");
    rustix::pipe::fcntl_setpipe_size(&full, 4096).expect("a pipe can be small");
    let events = rig.gate("unread-events");
    let run_dir = rig.bed.file("run");
    let mut dcctl = rig.bootstrap("one").arg("--run-dir").arg(&run_dir).arg("--events-file").arg(events.path());
    dcctl.command().stdout(Stdio::from(full));
    let run = dcctl.start();
    let journal = Journal::at(run_dir.join("events.jsonl"));
    journal.wait_for("process.started", |_| true);
    // The first may still be what the step's beginning had to say.
    rig.wait_for_renewal();
    rig.wait_for_renewal();
    gate.open(0);
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!(verdict["data"]["lock"], "released", "{verdict}");
    assert_eq!(rig.lease(), None);
    assert_eq!(verdict["data"]["exit_code"], 40, "the events file was never read");
    // The front waits for its reader a little longer, unless that is gone.
    drop(File::from(unread));
    run.finish().expect_code(40);
    wait::fact("the supervisor to end", || rig.bed.mark().pids().is_empty().then_some(()));
}
