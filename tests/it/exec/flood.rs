//! Outputs that are too much for somebody who keeps them in memory or waits for their end.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use rustix::process::{Pid, Signal};

use crate::bed::wait;
use crate::exec::Rig;

/// `DCCTL_SOAK=1` makes it a million lines and a line of 200 MB; else it is a fiftieth, in a build that is not optimised.
#[expect(clippy::disallowed_methods, reason = "the tests' own setting")]
fn fiftieths() -> usize {
    if std::env::var_os("DCCTL_SOAK").is_some() { 50 } else { 1 }
}

/// The most memory that a process had resident, in kB.
fn peak(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel says it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// The supervisor does not grow while so much comes, neither by lines nor by one line without an end.
#[test]
fn neither_very_many_lines_nor_a_very_long_one_grow_the_supervisor() {
    let rig = Rig::new();
    let lines = fiftieths() * 20_000;
    let bytes = fiftieths() * 4_000_000;
    let script = format!(
        "echo first; until [ -e @/go ]; do sleep 0.05; done; seq {lines}; head -c {bytes} /dev/zero | tr '\\0' x; \
         printf '\\nlast\\n'; until [ -e @/end ]; do sleep 0.05; done"
    );
    let (folder, journal) = rig.run_dir("run");
    let at = folder.display().to_string();
    let mut run = rig.sh(&["--output", "jsonl", "--run-dir", &at], &script);
    run.command().stdout(rig.output("out"));
    let run = run.start();
    let started = journal.wait_for("run.started", |_| true);
    let holder = started["data"]["holder"].as_str().expect("a holder").to_owned();
    let pid = holder.split('/').nth(1).and_then(|pid| Pid::from_raw(pid.parse().ok()?)).expect("a process id");
    journal.wait_for("process.output", |event| event["data"]["text"] == "first");
    let before = peak(pid);
    rig.mark("go");
    let last = "\"text\":\"last\"";
    let said = || contains(&tail(&rig.bed.file("out")), last.as_bytes()).then_some(());
    wait::until(wait::GENEROUS * 30, "the last line to be shown", said).expect("it comes");
    let after = peak(pid);
    rig.mark("end");
    run.finish().expect_code(0);

    assert!(after < before + 16_384, "{before} kB before, {after} kB after");
    // What was not taken in time has waited in the command's own file.
    let kept = fs::read(journal.path()).expect("it is there");
    let of_kind = |kind: &'static [u8]| kept.split(|byte| *byte == b'\n').filter(|line| contains(line, kind)).count();
    let counts = (of_kind(b"\"process.output\""), of_kind(b"\"output.dropped\""));
    assert_eq!(counts, (2 + lines + bytes.div_ceil(8 * 1024), 0), "something was lost");
    assert_eq!(rig.lease(), None);
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    line.windows(part.len()).any(|window| window == part)
}

/// The last bytes of a file.
fn tail(path: &Path) -> Vec<u8> {
    let mut file = fs::File::open(path).expect("the test made it");
    let length = file.metadata().expect("it is there").len();
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(2_000)))
        .and_then(|_| file.read_to_end(&mut bytes))
        .expect("readable");
    bytes
}

/// Nothing waits for the end of its output, and nothing is lost by it.
#[test]
fn a_command_that_closes_its_outputs_and_lives_on_is_waited_for_and_can_be_stopped() {
    let rig = Rig::new();
    for (stop, code) in [(false, 0), (true, 10)] {
        let _ = fs::remove_file(rig.bed.file("closed"));
        let _ = fs::remove_file(rig.bed.file("go"));
        let script = "printf 'no end of line'; exec >&- 2>&-; : > @/closed; until [ -e @/go ]; do sleep 0.05; done";
        let run = rig.sh(&["--output", "jsonl"], script).start();
        rig.wait_for("closed");
        run.wait_for("process.started", |_| true);
        assert!(rig.lease().is_some());
        if stop {
            run.signal(Signal::TERM);
        } else {
            rig.mark("go");
        }
        let finished = run.finish().expect_code(code);
        let events = finished.events();
        let said = crate::exec::of_kind(&events, "process.output");
        let texts: Vec<&str> = said.iter().filter_map(|event| event["data"]["text"].as_str()).collect();
        assert_eq!(texts, ["no end of line"]);
        assert_eq!(rig.lease(), None);
    }
}

/// A pipe of one page is full before the run has said anything of use, and the request to stop passes all the same.
#[test]
fn a_stop_passes_while_the_reader_of_standard_output_stands_still() {
    let rig = Rig::new();
    let (reader, writer) = std::io::pipe().expect("there are descriptors left");
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("a pipe may be small");
    let (folder, journal) = rig.run_dir("run");
    let at = folder.display().to_string();
    let mut run = rig.sh(&["--output", "jsonl", "--run-dir", &at], "while :; do seq 1000; : > @/up; sleep 0.1; done");
    run.command().stdout(writer);
    let run = run.start();
    rig.wait_for("up");
    run.signal(Signal::TERM);
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!(
        (&verdict["data"]["exit_code"], &verdict["data"]["lock"]),
        (&10.into(), &"released".into()),
        "{verdict}"
    );
    assert_eq!(rig.lease(), None);
    run.finish().expect_code(10);
    drop(reader);
}
