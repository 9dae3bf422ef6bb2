//! Whoever is named gets the rights, and keeps them when somebody else gets them, too.

use serde_json::Value;

use crate::bed::{Bed, users};
use crate::rbac::{Account, kubectl_apply, printed};

#[test]
fn a_user_a_group_and_a_service_account_are_bound_beside_each_other() {
    let bed = Bed::fresh();
    let user = Account::nobody(&bed);
    let account = Account::service(&bed, "runners", "deployer");
    let member = Account::service(&bed, "team", "member");
    for (account, options) in [
        (&user, ["--user", "nobody"]),
        (&account, ["--serviceaccount", "runners:deployer"]),
        (&member, ["--group", "system:serviceaccounts:team"]),
    ] {
        let run = || account.runs(bed.dcctl(["exec", "--", "true"])).run();
        run().expect_code(5);
        kubectl_apply(&bed, &printed(&bed, &options));
        account.wait_until_it_may_claim();
    }
    for account in [&user, &account, &member] {
        account.runs(bed.dcctl(["exec", "--", "true"])).run().expect_code(0);
    }
}

#[test]
fn without_a_subject_it_is_roles_alone_and_those_that_the_bed_gives_to_ops() {
    let bed = Bed::take();
    let printed = printed(&bed, &["--install"]);
    let documents = |text: &str| -> Vec<Value> { serde_saphyr::from_multiple(text).expect("it is YAML") };
    let (printed, ops) = (documents(&printed), documents(users::RBAC_OPS));
    let is_binding = |document: &Value| document["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding"));
    assert!(!printed.iter().any(is_binding));
    let (bindings, roles): (Vec<_>, Vec<_>) = ops.into_iter().partition(is_binding);
    assert_eq!(printed, roles, "ops has something else than what is printed");
    let named = |kind: &str, name: &Value| (kind.replace("Binding", ""), name.clone());
    let bound: Vec<_> =
        bindings.iter().map(|it| named(it["kind"].as_str().expect("a kind"), &it["roleRef"]["name"])).collect();
    let roles: Vec<_> = roles
        .iter()
        .filter(|it| it["kind"] != "Namespace")
        .map(|it| named(it["kind"].as_str().expect("a kind"), &it["metadata"]["name"]))
        .collect();
    assert_eq!(bound, roles);
}
