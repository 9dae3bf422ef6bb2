//! Reports that cannot be written: exit code 40 when nothing else went wrong, and the run does all the same.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use serde_json::Value;

use crate::bed::LEASE;
use crate::bed::{Bed, Fault, Gate, Proxy, Rule, wait};
use crate::refused::{install, small_bundle};

fn fifo(bed: &Bed, name: &str) -> PathBuf {
    let path = bed.file(name);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("the test's folder can be written");
    path
}

/// The one `report.failed` among these events.
#[track_caller]
fn failed(events: &[Value]) -> &Value {
    let failed: Vec<&Value> = events.iter().filter(|event| event["type"] == "report.failed").collect();
    assert_eq!(failed.len(), 1, "{events:?}");
    &failed[0]["data"]
}

#[test]
fn an_events_file_that_cannot_be_written_is_40_and_the_junit_report_is_whole() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    for path in ["small/bundle.yaml/events.jsonl", "small/bundle.yaml/made/events.jsonl"] {
        let run = || install(&bed, &bundle).args(["--events-file", path]);
        let finished = run().args(["--output", "jsonl"]).with_junit().run().expect_code(40);
        let verdict = &finished.verdict()["data"];
        assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"succeeded".into(), &"released".into()), "{verdict}");
        let events = finished.events();
        assert_eq!(failed(&events)["report"], "events-file");
        assert_eq!(failed(&events)["path"].as_str(), bed.file(path).to_str());
        assert_eq!(finished.junit().only_bad().kind, "dcctl.ReportUnwritten");
        let human = run().args(["--output", "human"]).run().expect_code(40).stdout;
        assert!(human.contains("the events file ") && human.contains(path), "{human}");
        assert!(human.contains("Make the path that the message names writable"), "{human}");
        assert!(human.ends_with("exit code 40 (report.unwritten), the lock was released"), "{human}");
    }
    assert_eq!(bed.api().get(LEASE).expect("the API server answers"), None);
}

#[test]
fn a_folder_that_is_missing_is_made_for_either_report() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    for (bundle, code) in [(&bundle, 0), (&bed.file("missing"), 3)] {
        let (events, junit) = (format!("made/{code}/e/events.jsonl"), format!("made/{code}/j/junit.xml"));
        let options = ["--output", "jsonl", "--events-file", &events, "--junit", &junit];
        let finished = install(&bed, bundle).args(options).run().expect_code(code);
        assert_eq!(fs::read_to_string(bed.file(&events)).expect("it was made"), finished.stdout.clone() + "\n");
        assert_eq!(finished.junit().with("error").len(), usize::from(code != 0));
    }
}

#[test]
fn a_junit_report_in_a_folder_that_cannot_be_is_40() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let finished = install(&bed, &bundle).args(["--output", "jsonl", "--junit", "small/bundle.yaml/junit.xml"]).run();
    let finished = finished.expect_code(40);
    assert_eq!(failed(&finished.events())["report"], "junit");
}

#[test]
fn a_run_that_fails_keeps_its_own_code_and_says_that_a_report_is_missing() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let missing = ["--output", "jsonl", "--events-file", "small/bundle.yaml/e", "--junit", "small/bundle.yaml/j"];
    let unreachable = install(&bed, &bundle).args(missing).args(["--kube-context", "nowhere"]).run().expect_code(4);
    let refused = install(&bed, &bed.file("missing")).args(missing).run().expect_code(3);
    for finished in [unreachable, refused] {
        let reports: Vec<Value> =
            finished.events().into_iter().filter(|event| event["type"] == "report.failed").collect();
        let mut named: Vec<&str> = reports.iter().filter_map(|event| event["data"]["report"].as_str()).collect();
        named.sort_unstable();
        assert_eq!(named, ["events-file", "junit"]);
    }
}

#[test]
fn a_pipe_that_nobody_reads_is_40_within_seconds_of_the_end_and_the_junit_report_is_whole() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let pipe = fifo(&bed, "events.pipe");
    let finished = install(&bed, &bundle).args(["--output", "jsonl", "--events-file"]).arg(&pipe).with_junit().run();
    let finished = finished.expect_code(40);
    let events = finished.events();
    assert_eq!(failed(&events)["report"], "events-file");
    assert!(failed(&events)["why"].as_str().is_some_and(|why| why.contains("nobody reads the pipe")), "{events:?}");
    let at =
        |kind: &str| events.iter().find(|event| event["type"] == kind).and_then(|event| event["elapsed_ms"].as_u64());
    let waited = at("run.finished").expect("it ended") - at("lock.released").expect("the lock was given back");
    assert!((5_000..8_000).contains(&waited), "the end took {waited} ms");
    assert_eq!(finished.junit().with("passed").len(), finished.junit().cases.len() - 1);
}

#[test]
fn a_pipe_that_is_read_gets_every_event() {
    let bed = Bed::take();
    let pipe = fifo(&bed, "events.pipe");
    let reading = pipe.clone();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        File::open(&reading).and_then(|mut pipe| pipe.read_to_string(&mut text)).map(|_| text)
    });
    let bundle = small_bundle(&bed);
    let finished = install(&bed, &bundle).args(["--output", "jsonl", "--events-file"]).arg(&pipe).run().expect_code(0);
    let text = reader.join().expect("reading never panics").expect("a pipe can be read");
    assert_eq!(text, finished.stdout + "\n");
}

#[test]
fn an_old_report_is_replaced_and_nothing_else_is_left_beside_it() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    for name in ["junit.xml", "events.jsonl"] {
        bed.write(&format!("reports/{name}"), &"old and longer than what comes\n".repeat(10_000));
    }
    let options = ["--output", "jsonl", "--junit", "reports/junit.xml", "--events-file", "reports/events.jsonl"];
    let finished = install(&bed, &bundle).args(options).run().expect_code(0);
    assert_eq!(finished.junit().with("passed").len(), finished.junit().cases.len());
    assert_eq!(fs::read_to_string(bed.file("reports/events.jsonl")).expect("it is there"), finished.stdout + "\n");
    assert_eq!(names(&bed.file("reports")), ["events.jsonl", "junit.xml"]);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("it is a folder").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn when_the_supervisor_is_killed_the_junit_report_still_tells_the_whole_run() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let (proxy, gate) = (Proxy::start(&bed), Gate::new());
    // The first is the look before the lock is asked for.
    proxy.add(Rule::on("*", "/configmaps").nth(2).request(Fault::Hold(gate.clone())));
    let run =
        install(&bed, &bundle).args(["--output", "jsonl"]).with_junit().with_kubeconfig(&proxy.kubeconfig("admin"));
    let run = run.start();
    let pid = run.supervisor();
    gate.wait_for(1);
    rustix::process::kill_process(pid, Signal::KILL).expect("it is the supervisor that this test started");
    let finished = run.finish().expect_code(1);
    assert_eq!(finished.verdict()["data"]["failure"]["code"], "supervisor.killed");
    let report = finished.junit();
    assert_eq!(report.case("claim-the-cluster", "acquire").result, "passed", "{}", report.text);
    assert_eq!(report.case("claim-the-cluster", "release").result, "passed", "{}", report.text);
    assert_eq!(report.case("check-the-surroundings", "step").result, "passed", "{}", report.text);
    assert_eq!(report.case("record-the-install", "step").class, "dcctl.install.record-the-install");
}

/// The bytes of each line of events, its line feed included.
fn lengths(stdout: &str) -> Vec<usize> {
    stdout.lines().map(|line| line.len() + 1).collect()
}

#[test]
fn an_events_file_that_takes_all_but_the_verdict_is_40_in_the_verdict_too() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let held = |line: &str| line.contains("\"type\":\"step.started\"") && line.contains("record-the-install");
    // What comes after the step that is held below, and how long the verdict is, as a second run of the same has it.
    let again = || install(&bed, &bundle).args(["--output", "jsonl"]).run().expect_code(0).stdout;
    let (_, before) = (again(), again());
    let last = before.lines().position(held).expect("it has that step");
    let after = lengths(&before).split_off(last + 1);
    let (verdict, rest) = after.split_last().expect("there is a verdict");

    let pipe = fifo(&bed, "events.pipe");
    let mut reader = BufReader::new(File::options().read(true).write(true).open(&pipe).expect("it is a pipe"));
    // One page, of which the events file gets what all but the verdict needs.
    let page = rustix::pipe::fcntl_setpipe_size(reader.get_ref(), 4096).expect("a pipe may be small");
    let room = rest.iter().sum::<usize>() + verdict / 2;
    let (proxy, gate) = (Proxy::start(&bed), Gate::new());
    proxy.add(Rule::on("PUT", "/configmaps").nth(1).request(Fault::Hold(gate.clone())));
    let run = install(&bed, &bundle).args(["--output", "jsonl", "--events-file"]).arg(&pipe).with_junit();
    let run = run.with_kubeconfig(&proxy.kubeconfig("admin")).start();
    let mut line = String::new();
    while !held(&line) {
        line.clear();
        if reader.buffer().is_empty() {
            let mut watched = [PollFd::new(reader.get_ref(), PollFlags::IN)];
            let limit = Timespec::try_from(wait::GENEROUS).expect("it is not that long");
            assert_eq!(rustix::event::poll(&mut watched, Some(&limit)), Ok(1), "no event came");
        }
        reader.read_line(&mut line).expect("a pipe can be read");
    }
    gate.wait_for(1);
    assert_eq!(reader.buffer(), b"", "nothing was told while the step is held");
    reader.get_mut().write_all(&vec![b'.'; page - room]).expect("there is room");
    gate.open();
    let finished = run.finish().expect_code(40);
    let events = finished.events();
    assert_eq!(failed(&events)["report"], "events-file");
    let verdict = &finished.verdict()["data"];
    assert_eq!((&verdict["outcome"], &verdict["exit_code"]), (&"succeeded".into(), &40.into()), "{verdict}");
    assert_eq!(verdict["failure"]["code"], "report.unwritten", "{verdict}");
    assert_eq!(finished.junit().only_bad().kind, "dcctl.ReportUnwritten");
    // The pipe has every event but those of the very end: it took all that it could.
    let mut taken = vec![0; page];
    let length = reader.get_mut().read(&mut taken).expect("a pipe can be read");
    let taken = String::from_utf8_lossy(&taken[..length]).into_owned();
    assert!(taken.contains("lock.released") && !taken.contains("run.finished"), "{taken}");
}
