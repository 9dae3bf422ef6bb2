//! The report of whole journals, read back by another reader than the writer's.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt as _;

use crate::event::{LockClaimed, ResourceCompleted, Seen, StepOutcome};
use crate::failure::Code;
use crate::report::file::READABLE_BY_ALL;
use crate::report::junit::Junit;
use crate::report::stories::{self, HOLDER, Holder, Story};

/// The report after these events, through the file.
fn report(journal: &[Seen]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("reports/dcctl.xml");
    let mut junit = Junit::new(&path);
    for seen in journal {
        junit.take(seen).expect("written");
    }
    std::fs::read_to_string(path).expect("a report")
}

/// Every suite with its cases in order, each with how it went: `passed`, or the element, its type and its message.
fn told(journal: &[Seen]) -> String {
    tell_from(&report(journal), Some("build-01"))
}

/// `host` is the holder's, when there is one.
fn tell_from(xml: &str, host: Option<&str>) -> String {
    let document = roxmltree::Document::parse(xml).expect("well formed");
    let mut identities = HashSet::new();
    let mut lines = Vec::new();
    for suite in document.root_element().children().filter(roxmltree::Node::is_element) {
        lines.push(suite.attribute("name").expect("a name").to_owned());
        let hostname = suite.attribute("hostname").expect("a host");
        assert_eq!((suite.attribute("package"), hostname), (Some(""), host.unwrap_or(hostname)));
        for case in suite.children().filter(|node| node.has_tag_name("testcase")) {
            let class = case.attribute("classname").expect("a class");
            let name = case.attribute("name").expect("a name");
            assert!(identities.insert((class, name)), "{class} {name} twice");
            let result =
                case.children().filter(roxmltree::Node::is_element).find(|child| !child.has_tag_name("system-out"));
            let said = result.map_or("passed".to_owned(), |result| {
                let kind = result.attribute("type").expect("a type");
                format!("{} {kind}: {}", result.tag_name().name(), result.attribute("message").expect("a message"))
            });
            lines.push(format!("  {} {name}: {said}", class.strip_prefix("dcctl.bootstrap.").expect("our class")));
        }
    }
    lines.join("\n")
}

#[test]
fn a_run_that_succeeds_passes_everything() {
    insta::assert_snapshot!(told(&stories::success()), @r#"
    dcctl.lock
      claim-the-cluster acquire: passed
      claim-the-cluster release: passed
    dcctl.steps
      build-images step: passed
      check-the-cluster step: passed
      install-chart step: passed
      verify step: passed
      record-the-phase step: passed
    dcctl.declare-the-instance
      declare-the-instance step: passed
      declare-the-instance Namespace/dci-demo: passed
      declare-the-instance Instance/demo: passed
    dcctl.apply-infrastructure
      apply-infrastructure step: passed
      apply-infrastructure module.broker.demo_object.primary: passed
      apply-infrastructure module.broker.demo_object.replica["eu-west"]: passed
      apply-infrastructure demo_object.database: passed
      apply-infrastructure time_sleep.settle: passed
    dcctl.wait-for-readiness
      wait-for-readiness step: passed
      wait-for-readiness Deployment/dci-demo/api: passed
    "#);
}

#[test]
fn a_failing_resource_is_a_failure_with_its_diagnostic() {
    insta::assert_snapshot!(told(&stories::failing_apply()), @r#"
    dcctl.lock
      claim-the-cluster acquire: passed
      claim-the-cluster release: passed
    dcctl.steps
      build-images step: passed
      check-the-cluster step: passed
      install-chart step: skipped dcctl.NotRun: not run: OpenTofu could not apply infra/instance
      wait-for-readiness step: skipped dcctl.NotRun: not run: OpenTofu could not apply infra/instance
      verify step: skipped dcctl.NotRun: not run: OpenTofu could not apply infra/instance
      record-the-phase step: skipped dcctl.NotRun: not run: OpenTofu could not apply infra/instance
    dcctl.declare-the-instance
      declare-the-instance step: passed
      declare-the-instance Namespace/dci-demo: passed
      declare-the-instance Instance/demo: passed
    dcctl.apply-infrastructure
      apply-infrastructure step: failure dcctl.InfrastructureFailed: OpenTofu could not apply infra/instance
      apply-infrastructure module.broker.demo_object.primary: passed
      apply-infrastructure module.broker.demo_object.replica["eu-west"]: passed
      apply-infrastructure demo_object.database: failure dcctl.ResourceFailed: The quota of this project is exceeded
      apply-infrastructure time_sleep.settle: skipped dcctl.NotRun: planned to create; it was not begun
    "#);
    let xml = report(&stories::failing_apply());
    assert!(xml.contains("<![CDATA[The quota of this project is exceeded\n\n\nOpenTofu error: The quota"), "{xml}");
}

#[test]
fn a_held_lock_is_one_error_and_the_rest_is_skipped() {
    insta::assert_snapshot!(told(&stories::blocked(Holder::Renews)), @r#"
    dcctl.lock
      claim-the-cluster acquire: error dcctl.LockBlocked: this cluster (working on instance "prod") is being worked on by bob@laptop/9912/3a7f00c1d2e4b596, which renewed 4s ago; wait for it to finish rather than running a second apply against the same cluster
      claim-the-cluster release: skipped dcctl.NotRun: this run never held the lock
    dcctl.steps
      build-images step: passed
      check-the-cluster step: skipped dcctl.NotRun: not run: lock held by bob@laptop/9912/3a7f00c1d2e4b596
      declare-the-instance step: skipped dcctl.NotRun: not run: lock held by bob@laptop/9912/3a7f00c1d2e4b596
      apply-infrastructure step: skipped dcctl.NotRun: not run: lock held by bob@laptop/9912/3a7f00c1d2e4b596
      install-chart step: skipped dcctl.NotRun: not run: lock held by bob@laptop/9912/3a7f00c1d2e4b596
      wait-for-readiness step: skipped dcctl.NotRun: not run: lock held by bob@laptop/9912/3a7f00c1d2e4b596
      verify step: skipped dcctl.NotRun: not run: lock held by bob@laptop/9912/3a7f00c1d2e4b596
      record-the-phase step: skipped dcctl.NotRun: not run: lock held by bob@laptop/9912/3a7f00c1d2e4b596
    "#);
    assert!(
        told(&stories::blocked(Holder::LooksStale))
            .contains("error dcctl.LockBlocked: this cluster (working on instance")
    );
}

#[test]
fn a_stop_is_an_error_of_the_step_at_work() {
    insta::assert_snapshot!(told(&stories::stopped()), @r#"
    dcctl.lock
      claim-the-cluster acquire: passed
      claim-the-cluster release: passed
    dcctl.steps
      build-images step: passed
      check-the-cluster step: passed
      install-chart step: skipped dcctl.NotRun: not run: asked to stop by SIGTERM during "Apply infrastructure"
      wait-for-readiness step: skipped dcctl.NotRun: not run: asked to stop by SIGTERM during "Apply infrastructure"
      verify step: skipped dcctl.NotRun: not run: asked to stop by SIGTERM during "Apply infrastructure"
      record-the-phase step: skipped dcctl.NotRun: not run: asked to stop by SIGTERM during "Apply infrastructure"
    dcctl.declare-the-instance
      declare-the-instance step: passed
      declare-the-instance Namespace/dci-demo: passed
      declare-the-instance Instance/demo: passed
    dcctl.apply-infrastructure
      apply-infrastructure step: error dcctl.Interrupted: Apply infrastructure was stopped: asked to stop by SIGTERM from process 812 of user 1000
      apply-infrastructure module.broker.demo_object.primary: passed
      apply-infrastructure module.broker.demo_object.replica["eu-west"]: passed
      apply-infrastructure demo_object.database: skipped dcctl.NotRun: planned to create; it was not begun
      apply-infrastructure time_sleep.settle: skipped dcctl.NotRun: planned to create; it was not begun
    "#);
}

#[test]
fn a_dry_run_skips_what_it_would_do() {
    insta::assert_snapshot!(told(&stories::dry_run()), @r#"
    dcctl.lock
      claim-the-cluster acquire: skipped dcctl.DryRun: a dry run takes no lock; nobody holds it
      claim-the-cluster release: skipped dcctl.NotRun: this run never held the lock
    dcctl.steps
      build-images step: passed
      check-the-cluster step: skipped dcctl.NotRun: not run: the run ended before it
      install-chart step: skipped dcctl.NotRun: not run: the run ended before it
      wait-for-readiness step: skipped dcctl.NotRun: not run: the run ended before it
      verify step: skipped dcctl.NotRun: not run: the run ended before it
      record-the-phase step: skipped dcctl.NotRun: not run: the run ended before it
    dcctl.declare-the-instance
      declare-the-instance step: passed
      declare-the-instance Namespace/dci-demo: skipped dcctl.DryRun: would be created
      declare-the-instance Instance/demo: skipped dcctl.DryRun: would be created
      declare-the-instance Deployment/dc-k8s-system/manager: skipped dcctl.DryRun: would be configured
    dcctl.apply-infrastructure
      apply-infrastructure step: passed
      apply-infrastructure module.broker.demo_object.primary: skipped dcctl.DryRun: would create
      apply-infrastructure module.broker.demo_object.replica["eu-west"]: skipped dcctl.DryRun: would create
      apply-infrastructure demo_object.database: skipped dcctl.DryRun: would create
      apply-infrastructure time_sleep.settle: skipped dcctl.DryRun: would create
    "#);
}

#[test]
fn a_run_that_is_cut_off_anywhere_leaves_a_report_that_claims_nothing() {
    let journal = stories::success();
    for end in 1..journal.len() {
        let told = told(&journal[..end]);
        assert!(told.contains("error dcctl.Interrupted: interrupted"), "{}: {told}", journal[end - 1].type_name);
    }
}

#[test]
fn a_refusal_before_anything_was_planned_is_one_error() {
    let said = "instance.chart has no field \"relase\"";
    let told = tell_from(&report(&stories::refused()), None);
    assert_eq!(told, format!("dcctl.steps\n  run run: error dcctl.ConfigBundle: demo/bundle.yaml line 12: {said}"));
}

#[test]
fn a_run_without_another_bad_case_has_one_for_itself() {
    let mut story = Story::bootstrap();
    story.say(LockClaimed { holder: HOLDER.into(), lease: "a/b".into(), uid: "7d9e6c0a".into(), waited_ms: 1 });
    for index in 0..9 {
        story.pass(index, 10, "");
    }
    let failure = stories::failed(Code::ReportUnwritten, "could not write the summary");
    let journal = story.finish(|finished| {
        finished.exit_code = 40;
        finished.failure = Some(failure);
    });
    let told = told(&journal);
    assert!(told.contains("run run: error dcctl.ReportUnwritten: could not write the summary"), "{told}");
}

#[test]
fn many_resources_still_make_a_file_of_less_than_a_mebibyte() {
    let mut story = Story::bootstrap();
    story.start(4);
    for index in 0..9_000 {
        let address = format!("module.fleet.demo_object.member[\"{index}\"]");
        story.say(ResourceCompleted { address, action: "create".into(), elapsed_ms: 1_000 });
    }
    story.end(StepOutcome::Done, "", None);
    let xml = report(&story.cut_off());
    assert!(xml.len() < 1024 * 1024, "{}", xml.len());
    assert!(xml.contains("9000 cases are left out"), "{}", &xml[..2000]);
}

#[test]
fn the_file_can_be_read_by_all_and_nothing_is_left_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dcctl.xml");
    let mut junit = Junit::new(&path);
    for seen in &stories::success() {
        junit.take(seen).expect("written");
    }
    let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, READABLE_BY_ALL);
    let names: Vec<_> =
        folder.path().read_dir().expect("a folder").map(|entry| entry.expect("a file").file_name()).collect();
    assert_eq!(names, ["dcctl.xml"]);
}

#[test]
fn a_report_that_cannot_be_written_names_its_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file/dcctl.xml");
    std::fs::write(folder.path().join("file"), "not a folder").expect("a file");
    let failure = Junit::new(&path).take(&stories::success()[0]).expect_err("not a folder");
    assert_eq!(failure.code, Code::ReportUnwritten);
    assert!(failure.message.contains("file/dcctl.xml"), "{failure}");
}
