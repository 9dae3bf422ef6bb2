//! A machine that has no more to give: told as that, and never as a program or a cluster that is not there.

use crate::bed::pretend;
use crate::lock::rig::Rig;

/// With so few open files not even the loader of the system can start a program.
const FEWEST: u32 = 5;

/// More than a run needs that starts no real tool.
const ENOUGH: u32 = 128;

#[test]
fn too_few_open_files_are_told_as_what_they_are_wherever_they_run_out() {
    let rig = Rig::new().slow_thing(0.0);
    let acts = ["when=version", "{", "print=OpenTofu v1.12.6", "exit=0", "}", "complain=no clay left", "exit=3"];
    let tofu = pretend::tool(&rig.bed.file("pretend"), "tofu", &acts);
    let mut places = Vec::new();
    for files in FEWEST..ENOUGH {
        let run = rig.bootstrap("one").arg("--tofu").arg(&tofu).with_open_files(files);
        let finished = run.run();
        let verdict = finished.verdict()["data"].clone();
        let (code, message) = (&verdict["failure"]["code"], verdict["failure"]["message"].to_string());
        assert_eq!(rig.holder(), None, "with {files} files a lock was left: {verdict}");
        if code == "infrastructure.failed" {
            assert!(places.len() > 3, "it never ran out of files: {places:?}");
            return;
        }
        let context = format!("with {files} files: {verdict}\n{}", finished.stderr);
        assert_eq!((code, finished.code()), (&"surroundings.exhausted".into(), Some(4)), "{context}");
        assert!(verdict["failure"]["causes"].to_string().contains("Too many open files"), "{context}");
        assert!(verdict["next"].to_string().contains("ulimit -n"), "{context}");
        if places.last() != Some(&message) {
            places.push(message);
        }
    }
    panic!("{ENOUGH} files are not enough: {places:?}");
}
