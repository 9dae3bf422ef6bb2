//! Which release is repaired how, and when not.

use super::*;
use crate::clock::{Clock, System};
use crate::step::invoke::make_folder;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_796_000_000 + seconds).expect("a time")
}

fn revision(number: u64, status: &str) -> Revision {
    Revision {
        revision: number,
        updated: Some(at(0)),
        status: status.to_owned(),
        description: String::new(),
        mark: None,
    }
}

fn repair(statuses: &[&str], proof: &Proof, now: i64) -> Repair {
    let history: Vec<_> = statuses.iter().zip(1..).map(|(status, number)| revision(number, status)).collect();
    decide(&history, proof, at(now), Duration::from_secs(600))
}

#[test]
fn each_state_has_its_repair_once_the_helm_that_left_it_has_ended() {
    let cases: [(&[&str], Repair); 12] = [
        (&[], Repair::None),
        (&["deployed"], Repair::None),
        (&["superseded", "failed"], Repair::None),
        (&["uninstalled"], Repair::None),
        (&["unknown"], Repair::None),
        (&["pending-install"], Repair::Forget(1)),
        (&["failed", "pending-install"], Repair::Forget(2)),
        (&["superseded", "deployed", "pending-upgrade"], Repair::RollBack(2)),
        (&["deployed", "failed", "pending-rollback"], Repair::RollBack(1)),
        (&["failed", "pending-upgrade"], Repair::Forget(2)),
        (&["failed", "pending-rollback"], Repair::Forget(2)),
        (&["deployed", "uninstalling"], Repair::Uninstall),
    ];
    for (statuses, expected) in cases {
        assert_eq!(repair(statuses, &Proof::Ended, 1), expected, "{statuses:?}");
    }
}

#[test]
fn without_proof_time_decides() {
    let half_done: &[&str] = &["deployed", "pending-upgrade"];
    let wait = repair(half_done, &Proof::None, 599);
    assert!(matches!(wait, Repair::Wait { until: Some(until), .. } if until == at(600)), "{wait:?}");
    assert_eq!(repair(half_done, &Proof::None, 600), Repair::RollBack(1));
    let undated = [Revision { updated: None, ..revision(1, "pending-install") }];
    let wait = decide(&undated, &Proof::None, at(9999), Duration::from_secs(1));
    assert!(matches!(wait, Repair::Wait { until: None, .. }), "{wait:?}");
}

#[test]
fn a_helm_that_lives_is_waited_for_however_old_its_record() {
    let lives = Proof::Lives { name: "helm upgrade".to_owned(), pid: 42 };
    let wait = repair(&["pending-install"], &lives, 99_999);
    let Repair::Wait { why, until: None } = wait else { panic!("{wait:?}") };
    assert!(why.contains("process 42"), "{why}");
}

#[test]
fn the_history_of_both_helms_is_read() {
    let text = r#"[{"revision":2,"updated":"2026-11-30T04:29:30.511898847Z","status":"pending-upgrade",
        "chart":"demo-0.1.0","app_version":"","description":"Preparing upgrade"}]"#;
    let history: Vec<Revision> = serde_json::from_str(text).expect("readable");
    assert!(history[0].is_half_done() && history[0].updated.is_some());
}

/// A record, and the ending that its file was renamed to; none when it was never written.
type Written<'a> = Option<(&'a Recorded, &'a str)>;

/// A run directory beside ours, with one Helm in it.
fn run(folder: &Path, name: &str, about: &About, record: Written<'_>) {
    let tools = folder.join(name).join(RECORDS);
    make_folder(&tools).expect("made");
    let base = tools.join("helm-upgrade");
    fs::write(about_path(&base), serde_json::to_vec(about).expect("JSON")).expect("written");
    if let Some((recorded, suffix)) = record {
        let text = serde_json::to_vec(recorded).expect("JSON");
        fs::write(tools.join(format!("helm-upgrade{suffix}")), text).expect("written");
    }
}

fn about(release: &str, before: u64, act: Act) -> About {
    About {
        server: "https://127.0.0.1:1".to_owned(),
        namespace: "dci-demo".to_owned(),
        release: release.to_owned(),
        before,
        act,
        mark: None,
    }
}

/// An upgrade that marks what it makes.
fn marked(release: &str, before: u64) -> About {
    About { mark: Some("a-run.2".to_owned()), ..about(release, before, Act::Advance) }
}

fn proof(about: &About, record: Written<'_>, left: &Revision) -> Proof {
    let folder = tempfile::tempdir().expect("a folder");
    run(folder.path(), "before", about, record);
    let wanted = self::about("dc-demo", 0, Act::Advance);
    let undated = Revision { updated: None, ..left.clone() };
    look_for_proof(&folder.path().join("ours"), &wanted, &undated, SignedDuration::ZERO)
}

#[test]
fn only_the_run_that_made_the_revision_proves_anything() {
    let mine = Recorded::of(std::process::id(), "helm upgrade", "run/step");
    let over = Recorded { started: mine.started + 1, ..mine.clone() };
    let elsewhere = Recorded { place: "another machine".to_owned(), ..over.clone() };
    let lives = Proof::Lives { name: "helm upgrade".to_owned(), pid: mine.pid };
    let cases: [(About, Written<'_>, Proof); 9] = [
        (marked("dc-demo", 1), Some((&over, "")), Proof::Ended),
        (marked("dc-demo", 1), Some((&mine, ".ended")), Proof::Ended),
        (marked("dc-demo", 1), Some((&mine, ".interrupted")), lives),
        (marked("dc-demo", 1), Some((&elsewhere, "")), Proof::None),
        (marked("dc-demo", 1), None, Proof::None),
        (marked("dc-demo", 2), Some((&over, "")), Proof::None),
        (marked("dc-other", 1), Some((&over, "")), Proof::None),
        (about("dc-demo", 2, Act::Uninstall), Some((&over, "")), Proof::None),
        (about("dc-demo", 1, Act::Advance), Some((&over, "")), Proof::None),
    ];
    let left = Revision { mark: Some("a-run.2".to_owned()), ..revision(2, "pending-upgrade") };
    for (about, record, expected) in cases {
        assert_eq!(proof(&about, record, &left), expected, "{about:?} {record:?}");
    }
    // A release that is being uninstalled was left so by an uninstall, not by the upgrade that made its revision.
    let left = Revision { status: "uninstalling".to_owned(), ..left };
    assert_eq!(proof(&about("dc-demo", 2, Act::Uninstall), Some((&over, "")), &left), Proof::Ended);
    assert_eq!(proof(&marked("dc-demo", 1), Some((&over, "")), &left), Proof::None);
    // A rollback can mark nothing.
    let left = Revision { status: "pending-rollback".to_owned(), ..left };
    assert_eq!(proof(&about("dc-demo", 1, Act::Advance), Some((&over, "")), &left), Proof::Ended);
}

#[test]
fn a_revision_that_bears_no_mark_or_the_one_of_the_revision_before_is_somebody_else_s() {
    let mine = Recorded::of(std::process::id(), "helm upgrade", "run/step");
    for mark in [None, Some("a-run.1".to_owned()), Some("another.2".to_owned())] {
        let left = Revision { mark, ..revision(2, "pending-upgrade") };
        assert_eq!(proof(&marked("dc-demo", 1), Some((&mine, ".ended")), &left), Proof::None, "{left:?}");
    }
}

#[test]
fn a_record_that_is_younger_than_the_end_of_its_helm_is_somebody_else_s_by_the_api_server_s_clock() {
    let over = Recorded::of(std::process::id(), "helm upgrade", "run/step");
    let folder = tempfile::tempdir().expect("a folder");
    run(folder.path(), "before", &marked("dc-demo", 1), Some((&over, ".ended")));
    let wanted = about("dc-demo", 0, Act::Advance);
    let look = |after_its_end: i64, ahead: i64| {
        let updated = System.wall().checked_add(SignedDuration::from_secs(after_its_end)).expect("a time");
        let mark = Some("a-run.2".to_owned());
        let left = Revision { mark, updated: Some(updated), ..revision(2, "pending-upgrade") };
        look_for_proof(&folder.path().join("ours"), &wanted, &left, SignedDuration::from_secs(ahead))
    };
    assert_eq!((look(-60, 0), look(60, 0)), (Proof::Ended, Proof::None));
    assert_eq!((look(60, 60), look(-60, -120)), (Proof::Ended, Proof::None));
}

#[test]
fn one_helm_that_cannot_be_seen_outweighs_one_that_has_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let about = about("r", 0, Act::Advance);
    let mine = Recorded::of(std::process::id(), "helm upgrade", "run/step");
    run(folder.path(), "first", &about, Some((&mine, ".ended")));
    run(folder.path(), "second", &about, None);
    let left = Revision { updated: None, ..revision(1, "pending-rollback") };
    assert_eq!(look_for_proof(&folder.path().join("ours"), &about, &left, SignedDuration::ZERO), Proof::None);
}
