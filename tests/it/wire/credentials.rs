//! Credentials that end while a run holds the lock, and are renewed where the kubeconfig says how.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::json;

use crate::bed::{Api, Bed, wait};
use crate::lock::rig::{of_kind, text};
use crate::wire::lane::{ALICE, AT_WORK, Lane, Namespace, all_at_once};

const CORE: &str = "/api/v1/namespaces/default";

/// How a kubeconfig says where the token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A plugin prints it, without saying when it ends.
    Plugin,
    /// A plugin prints it, and says that it ends soon.
    PluginThatSays,
    /// A file, as a pod has it.
    File,
}

/// An account that may do everything, for tokens that can be made and unmade.
fn account(bed: &Bed) {
    let account = json!({ "metadata": { "name": "runner" } });
    bed.api().create(&format!("{CORE}/serviceaccounts"), &account).expect("the bed may do everything");
    let binding = json!({ "metadata": { "name": "runner" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "runner", "namespace": "default" }] });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    bed.api().create(bindings, &binding).expect("the bed may do everything");
}

#[test]
fn a_token_that_ends_in_mid_run_is_had_anew_from_where_it_came() {
    let bed = Bed::take();
    account(&bed);
    let sources = [Source::Plugin, Source::PluginThatSays, Source::File];
    all_at_once(&sources, 3, |row| format!("{row:?}"), |source| ends_and_is_renewed(&bed, *source));
}

fn ends_and_is_renewed(bed: &Bed, source: Source) {
    let lane = Lane::new(bed, Namespace::There);
    let first = format!("{source:?}-first").to_lowercase();
    lane.put("token", &token(bed, &first));
    let run = lane.started(lane.exec(AT_WORK).with_kubeconfig(&with_user(&lane, source)));
    end(&lane, &first, &format!("{source:?}-second").to_lowercase());
    if source == Source::PluginThatSays {
        // It is asked before its token ends, and says when the next one does.
        lane.renewed();
        lane.renewed();
        lane.renewed();
    } else {
        let refused = |seen: &crate::bed::proxy::Seen| seen.status == Some(401);
        wait::fact("the first token to be refused", || lane.proxy.seen().iter().any(refused).then_some(()));
        let again = run.journal().wait_for("lock.renewed", |event| event["data"].get("gap_ms").is_some());
        assert!(again["data"]["gap_ms"].as_u64() < Some(30_000), "it was had anew too late: {again}");
    }
    lane.let_go();
    let done = run.finish().expect_code(0);
    let failed = of_kind(&done.events(), "lock.renewal_failed").len();
    assert!(failed <= 3, "{failed} tries failed: {}", done.stdout);
    assert_eq!((&done.verdict()["data"]["lock"], lane.lease()), (&json!("released"), None));
}

#[test]
fn a_plugin_that_hangs_in_mid_run_costs_the_lock_and_nothing_else() {
    let bed = Bed::take();
    account(&bed);
    let lane = Lane::new(&bed, Namespace::There);
    lane.put("token", &token(&bed, "first"));
    let run = lane.started(lane.exec(AT_WORK).with_kubeconfig(&with_user(&lane, Source::PluginThatSays)));
    lane.put("hang", "");
    let journal = run.journal();
    let lost = || journal.events().into_iter().find(|event| event["type"] == "lock.lost");
    let lost = wait::until(wait::GENEROUS * 2, "the lock to be lost", lost).expect("a minute passes");
    assert!(text(&lost["data"]["text"]).contains("could not be renewed for 1m0s"), "{lost}");
    let ended = run.finish().expect_code(22);
    assert_eq!((&ended.verdict()["data"]["lock"], lane.signals().as_str()), (&json!("lost"), "TERM\n"));
}

#[test]
fn a_run_that_waits_has_its_token_anew_and_claims_when_the_lock_is_free() {
    let bed = Bed::take();
    account(&bed);
    let lane = Lane::itself(&bed);
    bed.api().create("/api/v1/namespaces", &json!({ "metadata": { "name": "dc-k8s-system" } })).ok();
    lane.write(ALICE);
    let first = token(&bed, "first");
    lane.put("token", &first);
    let run = lane.wait("true").with_kubeconfig(&with_user(&lane, Source::Plugin)).start();
    run.journal().wait_for("lock.blocked", |_| true);
    end(&lane, "first", "second");
    wait_until_unknown(&bed, &first);
    lane.proxy.cut();
    let refused = |seen: &crate::bed::proxy::Seen| seen.status == Some(401);
    wait::fact("the first token to be refused", || lane.proxy.seen().iter().any(refused).then_some(()));
    bed.api().delete(&lane.lock()).expect("the bed may do everything");
    run.finish().expect_code(0);
    assert_eq!(lane.lease(), None);
}

#[test]
fn a_person_who_reclaims_has_the_token_anew_when_it_ends_in_the_window() {
    let bed = Bed::take();
    account(&bed);
    let lane = Lane::new(&bed, Namespace::There);
    lane.write(ALICE);
    let first = token(&bed, "first");
    lane.put("token", &first);
    let seat = lane.reclaim_with(&with_user(&lane, Source::Plugin));
    seat.wait_for("Type the holder identity above");
    seat.type_line(ALICE);
    seat.wait_for("no renewal so far; ");
    end(&lane, "first", "second");
    wait_until_unknown(&bed, &first);
    lane.suspend(66);
    let screen = seat.expect_code(0);
    assert!(lane.proxy.seen().iter().any(|seen| seen.status == Some(401)), "{screen}");
    assert!(screen.ends_with("the cluster lock is now free\n"), "{screen}");
    assert_eq!(lane.lease(), None);
}

/// The API server may remember for some seconds that a token was good.
fn wait_until_unknown(bed: &Bed, token: &str) {
    let api = Api::new(bed.described().port, &bed.described().certificates, token).expect("good files");
    let unknown = || api.send("GET", "/api", None).ok().filter(|answer| answer.status == 401).map(drop);
    wait::fact("the API server to forget that a token was good", unknown);
}

/// The token is another one now, and the API server does not know the first any more. It may remember it for some seconds.
fn end(lane: &Lane<'_>, first: &str, second: &str) {
    lane.put("token", &token(lane.bed, second));
    lane.bed.api().delete(&format!("{CORE}/secrets/{first}")).expect("the bed may do everything");
}

/// A token that is good as long as this secret is there.
fn token(bed: &Bed, secret: &str) -> String {
    let made = bed.api().create(&format!("{CORE}/secrets"), &json!({ "metadata": { "name": secret } }));
    let uid = made.expect("the bed may do everything")["metadata"]["uid"].clone();
    let bound = json!({ "apiVersion": "v1", "kind": "Secret", "name": secret, "uid": uid });
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "expirationSeconds": 3600, "boundObjectRef": bound } });
    let answer = bed.api().create(&format!("{CORE}/serviceaccounts/runner/token"), &request);
    text(&answer.expect("the bed may do everything")["status"]["token"])
}

/// The kubeconfig of the account.
fn with_user(lane: &Lane<'_>, source: Source) -> PathBuf {
    let file = lane.file("token").display().to_string();
    let user = match source {
        Source::File => json!({ "tokenFile": file }),
        Source::Plugin | Source::PluginThatSays => json!({ "exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": plugin(lane, source).display().to_string() } }),
    };
    lane.kubeconfig(|value| value["users"][0]["user"] = user)
}

/// A plugin that prints the token, unless it was told to hang.
fn plugin(lane: &Lane<'_>, source: Source) -> PathBuf {
    let until = match source {
        // The client asks again a minute before.
        Source::PluginThatSays => r#","expirationTimestamp":"'$(date -u -d '+65 seconds' +%FT%TZ)'""#,
        Source::Plugin | Source::File => "",
    };
    let script = format!(
        "#!/bin/sh\nwhile [ -e {folder}/hang ]; do sleep 0.2; done\n\
         echo '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
         \"status\":{{\"token\":\"'$(cat {folder}/token)'\"{until}}}}}'\n",
        folder = lane.file("").display()
    );
    let (draft, plugin) = (lane.file("plugin.draft"), lane.file("plugin"));
    // Written under another name first: a file that is open for writing cannot be run.
    fs::write(&draft, script).expect("the test's folder can be written");
    fs::set_permissions(&draft, PermissionsExt::from_mode(0o700)).expect("it is ours");
    fs::rename(draft, &plugin).expect("it is there");
    plugin
}
