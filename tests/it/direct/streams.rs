//! Reports and the standard streams: no report takes the place of a file that is one.

use std::fs::{self, File};

use crate::direct::{Rig, text};

#[test]
fn no_report_overwrites_what_is_read_or_what_others_write() {
    let rig = Rig::new();
    fs::write(rig.file("in"), "the only copy\n").expect("the test's folder can be written");
    fs::hard_link(rig.file("in"), rig.file("same")).expect("the test's folder can be written");
    // By their variables: what an option names is held against what a report has to be.
    for (option, variable) in [("--events-file", "DCCTL_EVENTS_FILE"), ("--junit", "DCCTL_JUNIT")] {
        for name in ["in", "./in", "same"] {
            for words in [&["--stdin"][..], &[]] {
                let mut run = rig.sh(words, "cat > @/out").env(variable, name);
                run.command().stdin(File::open(rig.file("in")).expect("it is there"));
                let verdict = run.run().expect_code(3).verdict();
                let said = text(&verdict["data"]["failure"]["message"]);
                assert!(said.contains(option) && said.contains("this command's standard input"), "{said}");
            }
        }
        let mut run = rig.sh(&[], "true").env(variable, "out");
        run.command().stderr(File::create(rig.file("out")).expect("the test's folder can be written"));
        let said = run.run().expect_code(3).verdict()["data"]["failure"]["message"].to_string();
        assert!(said.contains("this command's standard error"), "{said}");
    }
    assert_eq!(rig.read("in").as_deref(), Some("the only copy\n"));
}
