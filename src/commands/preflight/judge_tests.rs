//! What is made of everything that can be found, as tables.

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::cluster::access::Right;
use crate::cluster::namespace::Maker;
use crate::config::grant::{Ends, Grant, Grantor, Hits};
use crate::lock::Place;
use crate::lock::status::status;
use crate::step::{Lineage, Stopped};

const RIGHT: Right = Right { verb: "list", group: "", resource: "secrets", namespace: Some("dc-system") };

fn everything(known: Known) -> Case {
    Case {
        waits: known,
        declares: known,
        declared: known,
        namespace_missing: known,
        namespace_there: known,
        operator_named: known,
        definitions: known,
        installed: known,
    }
}

fn whens() -> Vec<When> {
    let verbs = [Verb::Install, Verb::Bootstrap, Verb::Upgrade, Verb::Destroy, Verb::Exec];
    verbs.into_iter().flat_map(crate::step::rights::needs).map(|need| need.when).collect()
}

fn failed(code: Code) -> Failure {
    Failure::new(code, "it went wrong").hint("mend it")
}

#[test]
fn a_right_that_is_there_is_well_whatever_the_case() {
    for when in whens() {
        for known in [Known::Yes, Known::No, Known::Unknown] {
            for without in [None, Some("it goes on")] {
                let access = Ok(Access { allowed: true, reason: "RBAC".to_owned(), is_sure: true });
                let said = permission(&Need { right: RIGHT, when, without }, everything(known), None, &access);
                assert_eq!((said.level, &said.fix), (Level::Ok, &None));
                assert_eq!(said.about.as_deref(), Some("list secrets in dc-system"));
            }
        }
    }
}

#[test]
fn a_right_that_is_missing_is_as_grave_as_what_happens_without_it() {
    let turned = |when: When| matches!(when, When::Undeclared | When::NotInstalled);
    for when in whens() {
        for known in [Known::Yes, Known::No, Known::Unknown] {
            for without in [None, Some("it goes on")] {
                let access = Ok(Access { allowed: false, reason: String::new(), is_sure: true });
                let case = everything(known);
                let said = permission(&Need { right: RIGHT, when, without }, case, None, &access);
                let uses = match (when, known) {
                    (When::Always, _) => Known::Yes,
                    // What nothing declares is not declared.
                    (When::Undeclared, Known::No) => Known::No,
                    (_, known) if turned(when) => known.not(),
                    (_, known) => known,
                };
                let expected = match (uses, without) {
                    (Known::No, _) => Level::Ok,
                    (Known::Yes, None) => Level::Failure,
                    (Known::Yes, Some(_)) | (Known::Unknown, _) => Level::Warning,
                };
                assert_eq!(said.level, expected, "{when:?} {known:?} {without:?}");
                assert_eq!(said.code, (expected == Level::Failure).then_some(Code::Forbidden));
                assert_eq!(said.fix.is_some(), expected != Level::Ok);
            }
        }
    }
}

#[test]
fn the_command_that_grants_a_right_names_the_account() {
    let fix = |user: &str| {
        let who = Identity { user: user.to_owned(), groups: Vec::new(), time: None };
        let access = Ok(Access { allowed: false, reason: String::new(), is_sure: true });
        let need = Need { right: RIGHT, when: When::Always, without: None };
        permission(&need, Case::UNKNOWN, Some(&who), &access).fix.unwrap_or_default()
    };
    assert!(fix("alice").contains("`dcctl rbac --user alice | kubectl apply -f -`"), "{}", fix("alice"));
    assert!(fix("a b").contains("--user 'a b'"), "{}", fix("a b"));
    let account = fix("system:serviceaccount:ci:runner");
    assert!(account.contains("--serviceaccount ci:runner"), "{account}");
    let who_knows = permission(
        &Need { right: RIGHT, when: When::Always, without: None },
        Case::UNKNOWN,
        None,
        &Err(failed(Code::ClusterRequestFailed)),
    );
    assert_eq!((who_knows.level, &who_knows.facts["allowed"]), (Level::Failure, &Value::Null));
}

#[test]
fn a_tool_is_a_failure_only_where_it_is_used() {
    let found = || Ok(Tool { path: PathBuf::from("/bin/tofu"), version: "1.12.6".to_owned() });
    let missing = || Err(failed(Code::ToolMissing));
    for (found, is_needed, level) in [
        (found(), true, Level::Ok),
        (found(), false, Level::Ok),
        (missing(), true, Level::Failure),
        (missing(), false, Level::Warning),
    ] {
        let said = tool("tool.tofu", "OpenTofu", is_needed, &found);
        assert_eq!((said.level, &said.facts["needed"]), (level, &json!(is_needed)));
    }
}

#[test]
fn a_folder_has_room_little_or_none() {
    let at = |bytes: u64, files: Option<u64>| {
        let folder = PathBuf::from("/state/one");
        Ok(Room { there: folder.clone(), folder, bytes, files })
    };
    for (looked, level, says) in [
        (at(1 << 40, None), Level::Ok, "1024 GiB free"),
        (at(1 << 40, Some(1)), Level::Ok, "can be written to"),
        (at(LITTLE_ROOM, None), Level::Ok, "64 MiB free"),
        (at(LITTLE_ROOM - 1, None), Level::Warning, "63 MiB is free"),
        (at(NO_ROOM, None), Level::Warning, "1 MiB is free"),
        (at(NO_ROOM - 1, None), Level::Failure, "1023 KiB is free"),
        (at(1 << 40, Some(0)), Level::Failure, "no more files can be made"),
        (Err(failed(Code::RunDirUnusable)), Level::Failure, "it went wrong"),
    ] {
        let said = room("run_dir", Code::RunDirUnusable, &looked);
        assert_eq!(said.level, level, "{said:?}");
        assert!(said.message.contains(says), "{said:?}");
        assert_eq!(said.code, (level == Level::Failure).then_some(Code::RunDirUnusable));
    }
    let above = Room { folder: PathBuf::from("/a/b"), there: PathBuf::from("/a"), bytes: 1 << 40, files: None };
    assert_eq!(room("run_dir", Code::RunDirUnusable, &Ok(above)).message, "/a/b can be made in /a, 1024 GiB free");
}

#[test]
fn where_a_cancel_leaves_a_tool_too_little_time_it_is_a_warning_with_the_advice() {
    let said = |by: Grantor, ends: Ends, seconds: Option<u64>, hits: Hits| {
        let grant = Grant { by, ends, after: seconds.map(Duration::from_secs), hits };
        let budget = crate::run::budget(grant, Duration::from_secs(1200));
        stop_budget(&budget, by.advice())
    };
    for (by, ends, seconds, hits, level) in [
        (Grantor::Person, Ends::Nothing, None, Hits::Front, Level::Ok),
        (Grantor::Option, Ends::Everything, Some(1320), Hits::Front, Level::Ok),
        (Grantor::Jenkins, Ends::Front, Some(5), Hits::Front, Level::Ok),
        (Grantor::Kubernetes, Ends::Everything, Some(30), Hits::Front, Level::Warning),
        (Grantor::GitlabDocker, Ends::Everything, Some(15), Hits::Everything, Level::Warning),
        (Grantor::OtherCi, Ends::Unknown, None, Hits::Front, Level::Warning),
    ] {
        let said = said(by, ends, seconds, hits);
        assert_eq!((said.level, said.fix.is_some()), (level, level == Level::Warning), "{said:?}");
    }
}

#[test]
fn clocks_disagree_from_five_seconds_on_that_the_answer_did_not_take() {
    let second = Duration::from_secs(1);
    for (ahead_ms, level) in
        [(0, Level::Ok), (6000, Level::Ok), (-6000, Level::Ok), (6001, Level::Warning), (-6001, Level::Warning)]
    {
        let said = clock(ahead_ms, second);
        assert_eq!((said.level, &said.facts["ahead_ms"]), (level, &json!(ahead_ms)));
    }
    assert!(clock(7_200_000, second).message.contains("is 2h0m behind"));
    assert!(clock(i64::MIN, second).message.contains("ahead of"));
}

#[test]
fn the_namespace_of_the_lock_is_a_failure_where_no_run_could_have_it() {
    let missing = || Ok(Namespace::Missing);
    let there = || Ok(Namespace::There { instance: None, maker: Maker::Other });
    let leaving = || Ok(Namespace::Terminating { why: "a finalizer".to_owned() });
    let unseen = || Err(failed(Code::Forbidden));
    let silent = || Err(failed(Code::ClusterRequestFailed));
    for (looked, may_make, level, code) in [
        (there(), Known::No, Level::Ok, None),
        (missing(), Known::Yes, Level::Ok, None),
        (missing(), Known::Unknown, Level::Ok, None),
        (missing(), Known::No, Level::Failure, Some(Code::Forbidden)),
        (leaving(), Known::Yes, Level::Failure, Some(Code::ClusterRequestFailed)),
        (unseen(), Known::Yes, Level::Ok, None),
        (unseen(), Known::No, Level::Warning, None),
        (unseen(), Known::Unknown, Level::Warning, None),
        (silent(), Known::Yes, Level::Warning, None),
    ] {
        let said = lock_namespace("dc-k8s-system", &looked, may_make);
        assert_eq!((said.level, said.code), (level, code), "{said:?}");
    }
}

#[test]
fn a_lock_is_free_or_a_warning_unless_it_may_not_be_seen() {
    let place = Place::Cluster("prod".to_owned());
    let wall: Timestamp = "2026-11-30T10:00:00Z".parse().expect("a time");
    let free = status(None, &place, wall);
    let held =
        |looks: Looks| Status { state: State::Held, looks: Some(looks), next: "wait".to_owned(), ..free.clone() };
    let leaving = Status { state: State::BeingDeleted, ..free.clone() };
    for (looked, level) in [
        (Ok(held(Looks::Live)), Level::Warning),
        (Ok(held(Looks::Stale)), Level::Warning),
        (Ok(leaving), Level::Warning),
        (Ok(free.clone()), Level::Ok),
        (Err(failed(Code::Forbidden)), Level::Failure),
    ] {
        let said = lock(&looked);
        assert_eq!((said.level, said.fix.is_some()), (level, level != Level::Ok), "{said:?}");
    }
}

#[test]
fn a_state_is_what_the_verb_makes_of_it() {
    let path = PathBuf::from("/state/infrastructure.tfstate");
    let local = |file: StateFile| Some(StateSeen::Local { path: path.clone(), file });
    let known = || StateFile::State(Lineage { lineage: "abc".to_owned(), serial: 7 });
    let remote = || Some(StateSeen::Remote { backend: "s3".to_owned() });
    let refused = failed(Code::StateMissing);
    for verb in [Verb::Install, Verb::Bootstrap, Verb::Upgrade, Verb::Destroy] {
        let of_missing = match verb {
            Verb::Install | Verb::Bootstrap | Verb::Exec => Level::Ok,
            Verb::Upgrade | Verb::Destroy => Level::Warning,
        };
        for (seen, level) in [
            (None, Level::Ok),
            (remote(), Level::Ok),
            (local(known()), Level::Ok),
            (local(StateFile::Missing), of_missing),
            (local(StateFile::Empty), Level::Warning),
            (local(StateFile::Unreadable), Level::Warning),
        ] {
            assert_eq!(state(verb, seen.as_ref(), None).level, level, "{verb:?} {seen:?}");
            let said = state(verb, seen.as_ref(), Some(&refused));
            assert_eq!((said.level, said.code), (Level::Failure, Some(Code::StateMissing)));
        }
    }
    let said = state(Verb::Upgrade, local(known()).as_ref(), None);
    assert_eq!(
        (&said.facts["kind"], &said.facts["lineage"], &said.facts["serial"]),
        (&json!("local"), &json!("abc"), &json!(7))
    );
}

#[test]
fn what_a_guard_may_not_see_the_line_about_the_right_says() {
    for (outcome, level) in [
        (Outcome::Done("fine".to_owned()), Level::Ok),
        (Outcome::Nothing("nothing".to_owned()), Level::Ok),
        (Outcome::Stopped(Stopped::default()), Level::Warning),
        (Outcome::Failed(failed(Code::Forbidden)), Level::Warning),
        (Outcome::Failed(failed(Code::ClaimConflict)), Level::Failure),
    ] {
        assert_eq!(guard("guard.cluster", &outcome).level, level, "{outcome:?}");
    }
    let account = account(&Err(failed(Code::ClusterRequestFailed)));
    assert_eq!(account.level, Level::Warning);
}
