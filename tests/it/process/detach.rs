//! The supervisor's start.

use std::ffi::OsString;
use std::path::PathBuf;

use dcctl::failure::Code;
use dcctl::process::{Launch, spawn};

use crate::process::{Bench, PATIENCE, TOOL};

#[tokio::test]
async fn a_supervisor_has_nothing_by_which_the_front_could_be_ended_with_it() {
    let bench = Bench::new();
    // A descriptor that the front inherited without the mark that closes it.
    let inherited = std::fs::File::open("/dev/zero").expect("it is there");
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).expect("unmarked");
    let folder = bench.folder.path().display().to_string();
    let args = format!("inherit descriptors file={folder}/up until={folder}/go");
    let launch = Launch {
        program: PathBuf::from(TOOL),
        args: args.split(' ').map(OsString::from).collect(),
        env: dcctl::process::scrub([("RUNNER_TRACKING_ID".into(), "x".into()), ("KEPT".into(), "y".into())]),
        run_dir: bench.folder.path().to_owned(),
        log: bench.path("supervisor.log"),
        pipe: None,
    };
    let detached = spawn(launch).expect("started");
    let pid = bench.pid("up").await;
    assert_eq!(pid, detached.pid);
    let mut said = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(&detached.socket), &mut said).expect("a line");
    assert_eq!(said, format!("{pid}\n"));
    let (parent, session) = parent_and_session(pid);
    let (_, mine) = parent_and_session(std::process::id());
    assert_ne!(parent, std::process::id());
    assert_ne!(session, mine);
    assert_ne!(session, pid, "it cannot get a controlling terminal");
    let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("ours");
    assert_eq!(environment, b"KEPT=y\0");
    assert_eq!(
        std::fs::read_link(format!("/proc/{pid}/cwd")).expect("ours"),
        bench.folder.path().canonicalize().expect("a folder")
    );
    let descriptors: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("ours")
        .flatten()
        .map(|entry| std::fs::read_link(entry.path()).expect("open").display().to_string())
        .collect();
    let foreign = |to: &&String| !to.starts_with("socket:") && *to != "/dev/null" && !to.ends_with("/supervisor.log");
    assert_eq!(descriptors.iter().find(foreign), None, "{descriptors:?}");
    assert_eq!(descriptors.iter().filter(|to| to.starts_with("socket:")).count(), 1);
    std::fs::write(bench.path("go"), "").expect("written");
    tokio::time::timeout(PATIENCE, detached.ended()).await.expect("in time").expect("watched");
    assert!(detached.life.is_over());
}

/// Fields 4 and 6 of `/proc/PID/stat`. Both are 0 for what was put into a process namespace from outside.
fn parent_and_session(pid: u32) -> (u32, u32) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    let number = |at: usize| fields.split(' ').nth(at).expect("there").parse().expect("a number");
    (number(1), number(3))
}

#[test]
fn a_supervisor_that_is_not_there_is_said() {
    let bench = Bench::new();
    let launch = Launch {
        program: bench.path("nothing"),
        args: Vec::new(),
        env: Vec::new(),
        run_dir: bench.folder.path().to_owned(),
        log: bench.path("log"),
        pipe: None,
    };
    let failure = spawn(launch).expect_err("it is not there");
    assert_eq!(failure.code, Code::CommandFailed);
    assert!(failure.causes.iter().any(|cause| cause.contains("No such file")), "{failure:?}");
}
