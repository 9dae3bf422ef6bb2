//! States that a CI job would lose, and states that could not be saved, for every verb.

use std::fs;

use crate::bed::{Bed, Dcctl};
use crate::verbs::rig::Demo;

/// Each verb of this demo, on an instance that is built where the verb needs one.
fn verbs(demo: &Demo) -> [(&'static str, Dcctl, &'static str); 4] {
    [
        ("install", demo.install(), "prerequisites"),
        ("bootstrap", demo.bootstrap("two", 1884), "infrastructure"),
        ("upgrade", demo.upgrade("one", 1883, 1), "infrastructure"),
        ("destroy", demo.destroy("one"), "infrastructure"),
    ]
}

#[test]
fn in_ci_every_verb_refuses_a_local_state_that_the_job_would_lose_before_the_lock_and_names_three_ways_out() {
    let demo = Demo::on(Bed::take());
    let bundle = demo.bundle().to_owned();
    for words in [&["install"][..], &["bootstrap", "one"], &["upgrade", "one"], &["destroy", "one"]] {
        for more in [&[][..], &["--dry-run"]] {
            let run = demo.bed.dcctl(words.iter().chain(more)).args(["--output", "jsonl", "--bundle"]).arg(&bundle);
            let run = run.env("DCCTL_VAR_DB_PASSWORD", crate::verbs::rig::PASSWORD).env("CI", "true");
            let verdict = run.run().expect_code(3).verdict();
            let failure = &verdict["data"]["failure"];
            assert_eq!(failure["code"], "config.option", "{verdict}");
            assert_eq!(verdict["data"]["lock"], "never_taken", "{verdict}");
            let hints = failure["hints"].as_array().cloned().unwrap_or_default();
            assert_eq!(hints.len(), 3, "{failure}");
            for (hint, way) in hints.iter().zip(["a remote backend", "kept between the jobs", "outlives its jobs"]) {
                assert!(hint.as_str().is_some_and(|hint| hint.contains(way)), "{failure}");
            }
        }
    }
    assert_eq!(demo.get(crate::bed::LEASE), None);
    assert!(!demo.bed.file("home/.devicechain").exists(), "nothing was made");
}

#[test]
fn a_state_that_could_not_be_saved_is_named_first_by_every_verb_until_it_is_dealt_with() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    let folders = [("install", "cluster"), ("bootstrap", "two"), ("upgrade", "one"), ("destroy", "one")];
    for ((verb, run, part), (_, folder)) in verbs(&demo).into_iter().zip(folders) {
        let unsaved = demo.state_dir(folder).join(format!("{part}.errored.tfstate"));
        fs::create_dir_all(demo.state_dir(folder)).expect("the test's folder can be written");
        fs::write(&unsaved, "{}").expect("it can be written");
        let verdict = run.run().expect_code(6).verdict();
        assert_eq!(verdict["data"]["failure"]["code"], "guard.state_errored", "{verb}: {verdict}");
        assert_eq!(verdict["data"]["kept"][0]["path"].as_str(), unsaved.to_str(), "{verb}: {verdict}");
        assert_eq!(verdict["data"]["lock"], "never_taken", "{verb}: {verdict}");
        // Dropped on purpose.
        fs::remove_file(&unsaved).expect("it is there");
    }
    for (_, run, _) in verbs(&demo) {
        run.run().expect_code(0);
    }
}

#[test]
fn a_state_folder_that_goes_with_the_run_or_lies_in_the_bundle_is_refused() {
    let demo = Demo::copied(Bed::take());
    let (bundle, run_dir) = (demo.bundle().to_owned(), demo.bed.file("run"));
    let link = demo.bed.file("link");
    std::os::unix::fs::symlink(&bundle, &link).expect("a link can be made");
    for (state, says) in [
        (run_dir.join("private/state"), "lies in the directory of the run"),
        (run_dir.clone(), "lies in the directory of the run"),
        (bundle.join("infra/instance"), "lies in the bundle"),
        (link.join("state"), "lies in the bundle"),
    ] {
        for verb in [&["install"][..], &["bootstrap", "one"], &["destroy", "one"], &["preflight", "bootstrap", "one"]] {
            let form = if verb[0] == "preflight" { "json" } else { "jsonl" };
            let run =
                demo.bed.dcctl(verb).args(["--output", form, "--run-dir"]).arg(&run_dir).arg("--bundle").arg(&bundle);
            let run =
                run.env("DCCTL_VAR_DB_PASSWORD", crate::verbs::rig::PASSWORD).arg("--state-dir").arg(&state).run();
            assert!(run.stdout.contains(says), "{verb:?} {}: {}", state.display(), run.stdout);
            if form == "jsonl" {
                let verdict = run.expect_code(3).verdict()["data"].clone();
                assert_eq!(verdict["failure"]["code"], "config.option", "{verdict}");
            }
        }
        assert!(!state.join("infrastructure.owner.json").exists() && !state.join("prerequisites.owner.json").exists());
    }
}
