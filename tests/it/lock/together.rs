//! Two runs that ask for the lock at the same moment: the API server decides, and exactly one of them works.

use crate::bed::dcctl::Running;
use crate::bed::{Fault, Gate, Proxy, Rule};
use crate::lock::rig::{LEASES, Rig, is_live_message, soak, text};

/// How often two runs meet; `DCCTL_SOAK=1` makes it fifty times.
fn rounds() -> usize {
    if soak() { 50 } else { 10 }
}

#[test]
fn of_two_bootstraps_that_start_together_exactly_one_works_and_the_other_touches_nothing() {
    let rig = Rig::new().gated();
    let proxy = Proxy::start(&rig.bed);
    for round in 1..=rounds() {
        let names = [format!("a{round}"), format!("b{round}")];
        let gates = [rig.gate(&names[0]), rig.gate(&names[1])];
        let users = ["admin", "ops"];
        let before = users.map(|user| rig.writes_of(user));
        // Whoever is first waits at the proxy for the other one: both claims come to the API server together.
        let both = Gate::new();
        proxy.clear();
        proxy.add(Rule::on("POST", LEASES).request(Fault::Hold(both.clone())));
        let start = |at: usize| rig.bootstrap(&names[at]).with_kubeconfig(&proxy.kubeconfig(users[at])).start();
        let mut runs = [Some(start(0)), Some(start(1))];
        both.wait_for(2);
        both.open();
        let loser = first_to_be_blocked(&runs);
        let winner = 1 - loser;
        let lost = runs[loser].take().expect("it is there").finish().expect_code(20);
        let holder = rig.holder().expect("the other one holds it");
        let said = text(&lost.verdict()["data"]["failure"]["message"]);
        assert!(is_live_message(&said, &names[winner], &holder), "{said}");
        assert_eq!(lost.verdict()["data"]["lock"], "never_taken");
        let mut written = rig.writes_of(users[loser]);
        assert_eq!(written.split_off(before[loser].len()), ["create 409 leases"], "round {round}");
        gates[winner].open(0);
        runs[winner].take().expect("it is there").finish().expect_code(0);
        assert_eq!(rig.lease(), None);
    }
}

/// Waits until one of the two says that the other holds the lock; which.
fn first_to_be_blocked(runs: &[Option<Running>; 2]) -> usize {
    let journals = runs.each_ref().map(|run| run.as_ref().expect("it is there").journal());
    let blocked = |at: &usize| journals[*at].events().iter().any(|event| event["type"] == "lock.blocked");
    crate::bed::wait::fact("one of the two to be blocked", || [0, 1].into_iter().find(blocked))
}
