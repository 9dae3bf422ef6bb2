//! Reports and the standard streams: no report takes the place of a file that is one.

use std::fs::{self, File};

use crate::direct::{Rig, text};

#[test]
fn no_report_overwrites_what_is_read_or_what_others_write() {
    let rig = Rig::new();
    // Elsewhere: what lies in the test's own folder is held against what a report has to be.
    let elsewhere = tempfile::tempdir().expect("the temporary folder can be written");
    let file = |name: &str| elsewhere.path().join(name);
    fs::write(file("in"), "the only copy\n").expect("the test's folder can be written");
    fs::hard_link(file("in"), file("same")).expect("the test's folder can be written");
    for option in ["--events-file", "--junit"] {
        for name in ["in", "same"] {
            for words in [&["--stdin"][..], &[]] {
                let mut run = rig.dcctl(&["exec", "--output", "jsonl"]).args(words).arg(option).arg(file(name));
                run.command().stdin(File::open(file("in")).expect("it is there"));
                let verdict = run.args(["--", "cat"]).run().expect_code(3).verdict();
                let said = text(&verdict["data"]["failure"]["message"]);
                assert!(said.contains(option) && said.contains("this command's standard input"), "{said}");
            }
        }
        let mut run = rig.sh(&[option, &file("out").display().to_string()], "true");
        run.command().stderr(File::create(file("out")).expect("the test's folder can be written"));
        let said = run.run().expect_code(3).verdict()["data"]["failure"]["message"].to_string();
        assert!(said.contains("this command's standard error"), "{said}");
    }
    assert_eq!(fs::read_to_string(file("in")).expect("it is there"), "the only copy\n");
}
