//! A scheduled upgrade, night after night, when there is nothing new.

use crate::bed::Bed;
use crate::verbs::rig::{Demo, quiet};

#[test]
fn a_scheduled_upgrade_with_nothing_to_do_says_so_and_leaves_the_declaration_as_it_is() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    let scheduled = || demo.upgrade("one", 1883, 1).args(["--wait=30m", "--on-busy=refuse"]);
    let declared = || {
        let declared = demo.get("/apis/core.devicechain.io/v1beta1/instances/one").expect("it is declared");
        let of = |name: &str| declared["metadata"][name].clone();
        (of("resourceVersion"), of("managedFields"), of("annotations"), of("generation"), declared["spec"].clone())
    };
    let _ = quiet(&demo.bed.api());
    let before = declared();
    assert!(before.0.is_string() && before.1.is_array(), "{before:?}");
    let night = scheduled().run().expect_code(0);
    assert_eq!(declared(), before);
    assert!(night.stdout.contains("is of release 0.9.2 already; nothing was changed"), "{}", night.stdout);
    let verdict = night.verdict();
    assert_eq!((&verdict["data"]["outcome"], &verdict["data"]["lock"]), (&"succeeded".into(), &"released".into()));
}
