//! Jobs that are cancelled in the middle of something.
//!
//! `gitlab-ci-local` knows no cancel but Ctrl+C, which reaches the job because it is in the group that the terminal signals; GitLab's
//! shell executor signals that group, too. A SIGINT to the program alone ends it at once, and nothing of the job.

use std::os::unix::process::CommandExt;

use rustix::process::Signal;
use serde_json::Value;

use crate::bed::junit::Report;
use crate::bed::{Bed, wait};
use crate::gitlab::project::{Project, include};
use crate::stopping::cast::pid;
use crate::stopping::rig::Rig;

/// What the group of the job gets: Ctrl+C, and a cancel by GitLab's shell executor.
const CANCELS: [Signal; 2] = [Signal::INT, Signal::TERM];

#[test]
fn a_job_that_is_cancelled_in_mid_apply_leaves_a_whole_state_and_no_lock() {
    for cancel in CANCELS {
        let rig = Rig::new(3.0);
        let inputs = [
            ("job-name", "build"),
            ("verb", "bootstrap"),
            ("instance", "shop"),
            ("kube-context", "bed"),
            ("bundle", &rig.bed().file("bundle").display().to_string()),
            ("state-dir", &rig.state_dir().display().to_string()),
            ("image", "none"),
        ];
        let Some(project) = Project::new(rig.bed(), &format!("stages: [deploy]\ninclude:\n{}", include(&inputs)))
        else {
            return;
        };
        let mut pipeline = project.pipeline();
        pipeline.command().process_group(0);
        let pipeline = pipeline.start();
        let journal = project.journal();
        rig.wait_until_slow(&journal);
        rustix::process::kill_process_group(pid(pipeline.pid()), cancel).expect("it runs");
        // Nobody waits for the run but the after_script.
        let said = project.after_script("canceled");
        let verdict = "exit code 10 (stopped.clean), the lock was released";
        assert!(said.contains(verdict), "{cancel:?}: {said}");
        let events = journal.events();
        rig.assert_clean_stop(&events);
        assert_eq!(events.last().expect("there are events")["data"]["exit_code"], 10, "{cancel:?}");
        drop(pipeline);
        Report::read(&project.folder.join("dcctl-report/junit.xml"));
        // The same job again makes what is missing, and nothing twice.
        project.pipeline().run().expect_code(0);
        for name in ["before", "slow", "after"] {
            assert_eq!((rig.living(name), rig.created(name)), (1, 1), "{cancel:?}: {name}");
        }
    }
}

#[test]
fn a_command_of_a_job_that_is_cancelled_gets_one_sigterm_and_the_lock_is_given_back() {
    for cancel in CANCELS {
        let bed = Bed::take();
        let script = "trap 'echo term >> signals' TERM\ntouch up\ni=0\nwhile [ $i -lt 20 ] || [ ! -s signals ]; do\n  \
                      sleep 0.1\n  i=$((i + 1))\ndone\n";
        let inputs = [("job-name", "slow"), ("verb", "exec"), ("args", "-- sh ./slow.sh"), ("image", "none")];
        bed.write("project/slow.sh", script);
        let Some(project) = Project::new(&bed, &format!("stages: [deploy]\ninclude:\n{}", include(&inputs))) else {
            return;
        };
        let mut pipeline = project.pipeline();
        pipeline.command().process_group(0);
        let pipeline = pipeline.start();
        wait::fact("the command to begin", || project.folder.join("up").exists().then_some(()));
        rustix::process::kill_process_group(pid(pipeline.pid()), cancel).expect("it runs");
        let said = project.after_script("canceled");
        assert!(said.contains("exit code 10") && said.contains("the lock was released"), "{cancel:?}: {said}");
        let signals = std::fs::read_to_string(project.folder.join("signals")).expect("it was told");
        assert_eq!(signals, "term\n", "{cancel:?}");
        let events = project.journal().events();
        let verdict: &Value = &events.last().expect("there are events")["data"];
        assert_eq!((&verdict["exit_code"], &verdict["lock"]), (&10.into(), &"released".into()), "{cancel:?}");
        assert!(bed.api().get(crate::bed::LEASE).expect("admin may read it").is_none(), "{cancel:?}");
    }
}

#[test]
fn a_runner_that_is_gone_takes_nothing_of_a_job_with_it() {
    let bed = Bed::take();
    let script = "touch up\nwhile [ ! -e go ]; do sleep 0.1; done\n";
    let inputs = [("job-name", "slow"), ("verb", "exec"), ("args", "-- sh ./slow.sh"), ("image", "none")];
    bed.write("project/slow.sh", script);
    let Some(project) = Project::new(&bed, &format!("stages: [deploy]\ninclude:\n{}", include(&inputs))) else {
        return;
    };
    let pipeline = project.pipeline().start();
    wait::fact("the command to begin", || project.folder.join("up").exists().then_some(()));
    pipeline.signal(Signal::INT);
    assert_eq!(pipeline.finish().code(), Some(2));
    bed.write("project/go", "");
    project.after_script("canceled");
    let events = project.journal().events();
    let verdict: &Value = &events.last().expect("there are events")["data"];
    assert_eq!((&verdict["exit_code"], &verdict["lock"]), (&0.into(), &"released".into()), "{verdict}");
}
