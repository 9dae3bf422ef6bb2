//! dcctl inside dcctl: said at once, where it would wait for itself.

use crate::bed::tools::own;
use crate::exec::{Rig, of_kind};

#[test]
fn dcctl_inside_dcctl_says_so_instead_of_waiting_for_itself() {
    let rig = Rig::new();
    let dcctl = own("dcctl").display().to_string();
    let bundle = rig.bed.write(
        "bundle/bundle.yaml",
        "apiVersion: dcctl.devicechain.io/v1\nkind: Bundle\nmetadata: { name: small, version: 1.0.0 }\n\
         instance: { namespace: \"dci-${instance}\" }\n",
    );
    let bundle = bundle.parent().expect("it is in a folder").display().to_string();
    let inner: [&[&str]; 2] = [
        &[&dcctl, "exec", "--output", "jsonl", "--", "touch", "started"],
        &[&dcctl, "bootstrap", "demo", "--bundle", &bundle, "--output", "jsonl"],
    ];
    for words in inner {
        // What the inner one prints comes out as it is, and so does its status.
        let finished = rig.exec(&["--propagate-exit-code"], words).run().expect_code(3);
        let events = finished.events();
        let verdict = &events.last().expect("there is a verdict")["data"];
        assert_eq!((&verdict["failure"]["code"], &verdict["lock"]), (&"config.nested".into(), &"never_taken".into()));
        let said = verdict["failure"]["message"].as_str().expect("a sentence");
        assert!(said.contains("the run that holds this cluster's lock") && said.contains("(`dcctl exec`)"), "{said}");
        assert!(verdict["next"][0].as_str().is_some_and(|next| next.contains("without `dcctl exec`")), "{verdict}");
        assert!(of_kind(&events, "lock.blocked").is_empty(), "it asked for the lock");
        assert!(finished.stderr.contains("exit code 3 (exec.failed), the lock was released"), "{}", finished.stderr);
        assert_eq!(rig.read("started"), None);
        assert_eq!(rig.lease(), None);
    }
}

/// Neither to wait nor to go on without the lock makes sense for a run that has it.
#[test]
fn a_run_inside_another_neither_waits_for_it_nor_goes_on_without_the_lock() {
    let rig = Rig::new();
    let dcctl = own("dcctl").display().to_string();
    for option in ["--wait", "--on-busy=warn"] {
        let words = [dcctl.as_str(), "exec", option, "--output", "jsonl", "--", "touch", "started"];
        let finished = rig.exec(&["--propagate-exit-code"], &words).run().expect_code(3);
        assert_eq!(finished.verdict()["data"]["failure"]["code"], "config.nested");
        assert!(of_kind(&finished.events(), "lock.blocked").is_empty());
        assert_eq!(rig.read("started"), None);
    }
}

#[test]
fn inside_dcctl_one_may_look_and_plan() {
    let rig = Rig::new();
    let dcctl = own("dcctl").display().to_string();
    let status = rig.exec(&[], &[&dcctl, "lock", "status"]).run().expect_code(0).stdout;
    assert!(status.contains("command:    exec"), "{status}");
    let finished =
        rig.exec(&[], &[&dcctl, "exec", "--dry-run", "--output", "jsonl", "--", "true"]).run().expect_code(0);
    assert_eq!(of_kind(&finished.events(), "lock.observed").len(), 1, "{}", finished.stdout);
}

#[test]
fn a_tag_of_a_run_that_does_not_hold_this_lock_changes_nothing() {
    let rig = Rig::new();
    // Inside a run on another cluster, or in what a run left behind.
    let run = rig.exec(&[], &["true"]).env("DCCTL_RUN", "0123456789abcdef/command");
    run.run().expect_code(0);
}
