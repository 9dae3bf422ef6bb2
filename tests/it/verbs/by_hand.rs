//! What a page tells people to do by hand, where `dcctl` has no command yet.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::bed::Bed;
use crate::verbs::rig::PASSWORD;

#[test]
fn the_script_of_the_page_removes_an_instance_and_it_can_be_built_anew() {
    let (bed, root) = (Bed::take(), Path::new(env!("CARGO_MANIFEST_DIR")));
    let page = fs::read_to_string(root.join("docs/concepts/pipelines.md")).expect("it is part of the tree");
    let script = page.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the page has one");
    bed.write("remove.sh", script);
    // It names the bundle as somebody in the checkout does.
    symlink(root.join("fixtures"), bed.file("fixtures")).expect("the test's folder can be written");
    let verb = |words: &[&str]| {
        let run = bed.dcctl(words).args(["--kube-context", "bed", "--var", "pause=1ms", "--bundle"]);
        run.arg(root.join("fixtures/demo")).env("DCCTL_VAR_DB_PASSWORD", PASSWORD).run().expect_code(0)
    };
    verb(&["install"]);
    verb(&["bootstrap", "demo"]);

    let remove = bed.dcctl(["exec", "--kube-context", "bed", "--", "sh", "remove.sh"]);
    let removed = remove.env("TF_VAR_db_password", PASSWORD).run().expect_code(0);
    for said in [&removed.stdout, &removed.stderr] {
        assert!(!said.contains(PASSWORD), "{said}");
    }
    for gone in ["/apis/core.devicechain.io/v1beta1/instances/demo", "/api/v1/namespaces/dci-demo"] {
        assert_eq!(bed.api().get(gone).expect("the bed may do everything"), None);
    }
    assert!(!bed.file("home/.devicechain/instances/demo").exists());
    verb(&["bootstrap", "demo"]);
}
