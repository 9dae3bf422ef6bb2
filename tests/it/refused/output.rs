//! Standard output that is closed, or that nobody reads: the run goes on, and so does everything that it was to do.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read};
use std::time::Duration;

use dcctl::clock::{Clock, System};

use crate::bed::LEASE;
use crate::bed::dcctl::Running;
use crate::bed::{Bed, Dcctl, Fault, Gate, Proxy, Rule};
use crate::refused::{install, small_bundle};

/// The front waits this long for a reader that stands still; a loaded machine needs some more.
const STALLED: Duration = Duration::from_secs(10);
const SOME_MORE: Duration = Duration::from_secs(10);

fn pipe() -> (PipeReader, PipeWriter) {
    std::io::pipe().expect("there are descriptors left")
}

fn start_into(mut run: Dcctl, pipe: PipeWriter) -> Running {
    run.command().stdout(pipe);
    run.start()
}

#[test]
fn a_reader_that_leaves_after_the_first_line_ends_nothing() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    // Who may not claim is told so by the questions before it.
    let claim = "/leases";
    let question = "/selfsubjectaccessreviews";
    for (user, form, asks, code) in
        [("admin", "jsonl", claim, 0), ("admin", "human", claim, 0), ("nobody", "jsonl", question, 5)]
    {
        let (proxy, gate, (reader, writer)) = (Proxy::start(&bed), Gate::new(), pipe());
        proxy.add(Rule::on("POST", asks).nth(1).request(Fault::Hold(gate.clone())));
        let run = install(&bed, &bundle).args(["--output", form]).with_junit().with_kubeconfig(&proxy.kubeconfig(user));
        let run = start_into(run, writer);
        let mut first = String::new();
        BufReader::new(reader).read_line(&mut first).expect("the run says something");
        assert!(first.contains("dcctl"), "{first}");
        // The reader is gone, and the run is in the middle of what it asks.
        gate.wait_for(1);
        gate.open();
        let finished = run.finish().expect_code(code);
        assert!(finished.stderr.contains("standard output is gone"), "{}", finished.stderr);
        assert!(finished.stderr.contains("the run goes on"), "{}", finished.stderr);
        let events = finished.journal().expect("it was a run").events();
        let verdict = &events.last().expect("there are events")["data"];
        assert_eq!(verdict["exit_code"], code, "{verdict}");
        assert_eq!(verdict["lock"], if code == 0 { "released" } else { "never_taken" }, "{verdict}");
        assert_eq!(finished.junit().with("error").len(), usize::from(code != 0));
        assert_eq!(bed.api().get(LEASE).expect("the API server answers"), None);
    }
}

#[test]
fn a_closed_standard_output_is_no_failure() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    for (run, code) in [(install(&bed, &bundle), 0), (install(&bed, &bed.file("missing")), 3)] {
        let (reader, writer) = pipe();
        drop(reader);
        let finished = start_into(run.with_junit(), writer).finish().expect_code(code);
        assert!(finished.stderr.contains("standard output is gone"), "{}", finished.stderr);
        assert_eq!(finished.junit().with("error").len(), usize::from(code != 0));
    }
    assert_eq!(bed.api().get(LEASE).expect("the API server answers"), None);
}

#[test]
fn a_reader_that_stands_still_holds_up_nothing_but_the_end_of_the_front() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let run_dir = bed.file("run");
    let full = |run: Dcctl| {
        let (reader, writer) = pipe();
        // One page: less than any run says.
        rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("a pipe may be small");
        (start_into(run.args(["--output", "jsonl"]).with_junit(), writer), reader)
    };
    let (run, reader) = full(install(&bed, &bundle).arg("--run-dir").arg(&run_dir));
    let journal = crate::bed::dcctl::Journal::at(run_dir.join("events.jsonl"));
    let verdict = journal.wait_for("run.finished", |_| true);
    let ended = System.now();
    assert_eq!((&verdict["data"]["exit_code"], &verdict["data"]["lock"]), (&0.into(), &"released".into()));
    assert_eq!(bed.api().get(LEASE).expect("the API server answers"), None);

    // What never became a run, meanwhile: a long line fills the pipe.
    let long = "x".repeat(5000);
    let (refused, other) = full(install(&bed, &bed.file("missing")).args(["--kube-context", &long]));
    run.finish().expect_code(0);
    let waited = System.now().since(ended);
    assert!(waited < STALLED + SOME_MORE, "the front ended {waited:?} after the run");
    assert!(refused.finish().expect_code(3).junit().only_bad().body.contains("there is no bundle at"));
    // What fitted is whole lines and perhaps one that is cut: the pipe's end is nobody's fault.
    for mut reader in [reader, other] {
        let mut shown = Vec::new();
        reader.read_to_end(&mut shown).expect("the writer is gone");
        assert!(shown.starts_with(b"{\"v\":1,\"seq\":0,"));
    }
}

#[test]
fn what_is_printed_and_cannot_be_written_is_a_failure_of_a_command_that_is_for_printing() {
    let bed = Bed::take();
    let commands: [&[&str]; 8] = [
        &["schema"],
        &["rbac"],
        &["explain", "20"],
        &["--help"],
        &["install", "--help"],
        &["--version"],
        &["lock", "status"],
        &["lock", "status", "--watch", "--output", "json"],
    ];
    for words in commands {
        let mut run = bed.dcctl(words);
        run.command().stdout(File::options().write(true).open("/dev/full").expect("Linux has it"));
        let finished = run.run().expect_code(40);
        let said = &finished.stderr;
        assert!(said.starts_with("dcctl: standard output could not be written\n  because: No space left"), "{said}");
        assert!(said.ends_with("(report.unwritten, exit code 40)\n"), "{said}");
        // That nobody reads it is no failure.
        let (reader, writer) = pipe();
        drop(reader);
        assert_eq!(start_into(bed.dcctl(words), writer).finish().expect_code(0).stderr, "", "{words:?}");
    }
}
