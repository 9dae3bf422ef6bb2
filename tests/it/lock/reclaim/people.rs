//! Who may reclaim, and what they have to type: a person at a terminal, and the holder exactly.

use rustix::process::Signal;
use serde_json::json;

use crate::bed::terminal::{CTRL_C, CTRL_D, Seat};
use crate::bed::{Fault, Gate, Proxy, Rule};
use crate::lock::reclaim::{
    ALICE, CHECKING, QUESTION, asked, asked_by, assert_untouched, checking, checking_by, command, left_by_alice,
};
use crate::lock::rig::{LEASE, Rig};

#[test]
fn a_cluster_that_is_not_claimed_has_nothing_to_reclaim() {
    let rig = Rig::new();
    let said = "this cluster is not claimed; there is nothing to reclaim\n";
    assert_eq!(Seat::take(command(&rig)).expect_code(0), said);
    // A release by an account that may not delete leaves the Lease without a holder.
    rig.other_holds("", "2020-01-01T00:00:00.000000Z");
    assert_eq!(Seat::take(command(&rig)).expect_code(0), said);
    assert_eq!(rig.writes_of("admin"), Vec::<String>::new());
}

#[test]
fn anything_but_the_holder_exactly_as_shown_aborts_and_changes_nothing() {
    let (rig, before) = left_by_alice();
    let almost = [
        "y".to_owned(),
        "yes".to_owned(),
        String::new(),
        format!("{ALICE} "),
        format!(" {ALICE}"),
        ALICE.to_uppercase(),
        ALICE[..ALICE.len() - 1].to_owned(),
        format!("{ALICE}0"),
        "prod".to_owned(),
    ];
    for typed in almost {
        let seat = asked(&rig);
        seat.type_line(&typed);
        let screen = seat.expect_code(10);
        assert!(screen.contains("that is not the holder identity; nothing was changed"), "{typed:?}: {screen}");
    }
    let seat = asked(&rig);
    seat.press(CTRL_D);
    seat.expect_code(10);
    assert_untouched(&rig, &before);
}

/// What was typed before the question was there is no answer to it.
#[test]
fn an_answer_given_in_advance_is_no_answer() {
    let (rig, before) = left_by_alice();
    let proxy = Proxy::start(&rig.bed);
    let gate = Gate::new();
    proxy.add(Rule::on("GET", LEASE).nth(1).request(Fault::Hold(gate.clone())));
    let seat = Seat::take(command(&rig).with_kubeconfig(&proxy.kubeconfig("admin")));
    gate.wait_for(1);
    seat.type_line(ALICE);
    seat.wait_for(ALICE);
    gate.open();
    seat.wait_for(QUESTION);
    seat.type_line("no");
    seat.expect_code(10);
    assert_untouched(&rig, &before);
}

#[test]
fn before_the_take_every_way_to_stop_changes_nothing() {
    let (rig, before) = left_by_alice();
    let stopped = |seat: Seat| {
        let screen = seat.expect_code(10);
        assert!(screen.contains("stopped; nothing was changed"), "{screen}");
        screen
    };
    // While it asks.
    let seat = asked(&rig);
    seat.press(CTRL_C);
    stopped(seat);
    // While it checks.
    let seat = checking(&rig);
    seat.press(CTRL_C);
    stopped(seat);
    for signal in [Signal::TERM, Signal::HUP, Signal::QUIT] {
        let seat = checking(&rig);
        seat.signal(signal);
        stopped(seat);
    }
    // While it waits for the API server: for any answer at all, and for the first about the lock.
    for path in ["/version", LEASE] {
        let proxy = Proxy::start(&rig.bed);
        let gate = Gate::new();
        proxy.add(Rule::on("GET", path).request(Fault::Hold(gate.clone())));
        let seat = Seat::take(command(&rig).with_kubeconfig(&proxy.kubeconfig("admin")));
        gate.wait_for(1);
        seat.press(CTRL_C);
        stopped(seat);
    }
    // While it reads, after the holder was typed, whether that is still so.
    let proxy = Proxy::start(&rig.bed);
    let gate = Gate::new();
    let seat = asked_by(command(&rig).with_kubeconfig(&proxy.kubeconfig("admin")));
    proxy.add(Rule::on("GET", LEASE).request(Fault::Hold(gate.clone())));
    seat.type_line(ALICE);
    gate.wait_for(1);
    seat.press(CTRL_C);
    assert!(!stopped(seat).contains(CHECKING), "the check had not begun");
    assert_untouched(&rig, &before);
}

#[test]
fn while_the_holder_s_pod_is_looked_for_ctrl_c_changes_nothing() {
    let (rig, _) = left_by_alice();
    let pod = json!({ "metadata": { "annotations": {
        "dcctl.devicechain.io/pod-name": "job-7", "dcctl.devicechain.io/pod-namespace": "ci" } } });
    let before = rig.bed.api().merge(LEASE, &pod).expect("the bed may do everything");
    let proxy = Proxy::start(&rig.bed);
    let gate = Gate::new();
    proxy.add(Rule::on("GET", "/namespaces/ci/pods/job-7").request(Fault::Hold(gate.clone())));
    let seat = Seat::take(command(&rig).with_kubeconfig(&proxy.kubeconfig("admin")));
    gate.wait_for(1);
    seat.press(CTRL_C);
    let screen = seat.expect_code(10);
    assert!(screen.contains("stopped; nothing was changed") && !screen.contains(QUESTION), "{screen}");
    assert_untouched(&rig, &before);
}

#[test]
fn without_a_terminal_and_in_a_job_it_refuses_and_asks_nobody() {
    let (rig, before) = left_by_alice();
    let needs = "this takes a person at a terminal";
    // No terminal at all.
    let said = command(&rig).run().expect_code(23);
    assert!(said.stderr.contains(&format!("{needs}: standard input is no terminal")), "{}", said.stderr);
    assert!(said.stdout.is_empty() && said.stderr.contains("exit code 23"), "{}", said.stderr);
    // A terminal, but not as standard input: an answer could come from anywhere.
    let piped = command(&rig).by_shell(&format!("echo {ALICE} | \"$@\""));
    assert!(Seat::take(piped).expect_code(23).contains("standard input is no terminal"));
    // Standard input is a terminal, but it is not this process's own.
    let other_session = command(&rig).by_shell("exec setsid --wait \"$@\"");
    assert!(Seat::take(other_session).expect_code(23).contains("no controlling terminal"));
    // A job, even where it has a terminal.
    for set in ["true", "1", "false"] {
        let screen = Seat::take(command(&rig).env("CI", set)).expect_code(23);
        assert!(screen.contains(needs) && screen.contains("`CI` is set"), "{screen}");
        assert!(screen.contains("from a terminal of your own"), "{screen}");
    }
    assert_eq!(rig.bed.requests_of("admin"), Vec::<String>::new());
    assert_untouched(&rig, &before);
}

#[test]
fn there_is_no_flag_that_agrees_in_advance_and_the_cluster_has_to_be_named() {
    let rig = Rig::new();
    let screen = Seat::take(command(&rig).arg("--yes")).expect_code(2);
    assert!(screen.contains("--yes"), "{screen}");
    let unnamed = Seat::take(rig.bed.dcctl(["instances", "reclaim"])).expect_code(2);
    assert!(unnamed.contains("--kube-context"), "{unnamed}");
    let elsewhere = rig.bed.dcctl(["instances", "reclaim", "--kube-context", "no-such"]);
    let screen = Seat::take(elsewhere).expect_code(4);
    assert!(screen.contains("no-such"), "{screen}");
}

#[test]
fn who_may_not_read_or_take_the_lock_is_told_so_in_the_api_server_s_own_words() {
    let (rig, before) = left_by_alice();
    let nobody = || command(&rig).with_kubeconfig(rig.bed.kubeconfig("nobody"));
    let screen = Seat::take(nobody()).expect_code(5);
    let sentence = |verb: &str| format!(r#"User "nobody" cannot {verb} resource "leases""#);
    assert!(screen.contains(&sentence("get")), "{screen}");

    let role = json!({ "metadata": { "name": "reader" }, "rules": [
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"] }] });
    let binding = json!({ "metadata": { "name": "reader" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody" }] });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    rig.bed.api().create(&format!("{rbac}/clusterroles"), &role).expect("the bed may do everything");
    rig.bed.api().create(&format!("{rbac}/clusterrolebindings"), &binding).expect("the bed may do everything");
    let seat = checking_by(nobody());
    rig.suspend(66);
    let screen = seat.expect_code(5);
    assert!(screen.contains(&sentence("update")), "{screen}");
    assert!(screen.contains("the lock was not taken, and nothing was changed"), "{screen}");
    assert_untouched(&rig, &before);
}
