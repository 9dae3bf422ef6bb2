//! Two instances side by side through their whole lives.

use serde_json::json;

use crate::bed::{Bed, Dcctl};
use crate::verbs::rig::{Demo, quiet};

/// Leaves a run with `--detach`, as every verb can be, and waits for its end. What the command had shown until then is no
/// whole stream of events, so a file takes it.
fn leave(demo: &Demo, run: Dcctl) {
    let left = run.arg("--detach").by_shell("exec \"$@\" > shown").with_pipes().run().expect_code(0);
    assert!(left.stderr.contains(" goes on without this command, in "), "{}", left.stderr);
    let shown = std::fs::read_to_string(demo.bed.file("shown")).expect("the shell made it");
    assert!(!shown.contains("\"run.finished\""), "it was not left: {shown}");
    demo.bed.dcctl(["runs", "wait", "latest"]).run().expect_code(0);
}

#[test]
fn two_instances_live_beside_each_other_from_install_to_the_last_destroy() {
    let demo = Demo::copied(Bed::take());
    demo.install().run().expect_code(0);
    demo.bootstrap("a", 1883).run().expect_code(0);
    leave(&demo, demo.bootstrap("b", 1884));
    let of = |name: &str| {
        let mark = [format!("dci-{name}/"), format!(" /dci-{name}"), format!("/instances /{name}")];
        let mut all = quiet(&demo.bed.api());
        all.retain(|place, _| mark.iter().any(|mark| place.contains(mark.as_str())));
        all
    };
    for file in ["bundle.yaml", "operator/a-controller.yaml"] {
        demo.edit(file, "version: 0.9.2", "version: 0.9.3");
    }
    leave(&demo, demo.install());

    let b = of("b");
    leave(&demo, demo.upgrade("a", 1883, 2));
    assert_eq!(of("b"), b);
    leave(&demo, demo.destroy("a"));
    assert_eq!((of("b"), of("a").len()), (b, 0));
    demo.upgrade("b", 1883, 1).run().expect_code(0);
    let declared = demo.get("/apis/core.devicechain.io/v1beta1/instances/b").expect("it is declared");
    let annotations = &declared["metadata"]["annotations"];
    assert_eq!(annotations["dcctl.devicechain.io/release"], json!("0.9.3"));
    let claims = annotations["dcctl.devicechain.io/claims"].as_str().unwrap_or_default();
    assert!(claims.contains("1883"), "the port of the one that is gone is free: {claims}");
    demo.destroy("b").run().expect_code(0);
    assert_eq!((of("a").len(), of("b").len()), (0, 0));
    assert_eq!(demo.record().expect("the cluster stays installed")["phase"], "installed");
}
