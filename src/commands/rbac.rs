//! `dcctl rbac`: the rights that dcctl needs on a cluster, ready for `kubectl apply`.
//!
//! The roles stand in files, one for each part, with what whoever grants them wants to know beside each rule. Only who
//! gets them is put together here.

use std::fmt::Write as _;

use crate::cli::{RbacArgs, ServiceAccount};
use crate::commands::print;
use crate::step::rights::{BESIDES, INSTALL, LOCK};

/// What only the bundle's author knows.
const BUNDLE: &str = include_str!("rbac/bundle.yaml");

/// A role of these files.
struct Role {
    name: &'static str,
    /// None for a role of the whole cluster.
    namespace: Option<&'static str>,
}

const ROLES: [Role; 4] = [
    Role { name: "dcctl-lock", namespace: Some("dc-k8s-system") },
    Role { name: "dcctl-instances", namespace: None },
    Role { name: "dcctl-shared", namespace: Some("dc-system") },
    Role { name: "dcctl", namespace: None },
];

/// Those that an install needs on top.
const ROLES_OF_AN_INSTALL: [Role; 2] =
    [Role { name: "dcctl-install", namespace: None }, Role { name: "dcctl-install", namespace: Some("dc-system") }];

/// Who gets the rights.
#[derive(Debug)]
enum Subject<'a> {
    User(&'a str),
    Group(&'a str),
    ServiceAccount(&'a ServiceAccount),
}

/// Prints them.
pub(crate) fn print_rights(args: &RbacArgs) -> u8 {
    print(&rights(args))
}

fn rights(args: &RbacArgs) -> String {
    let mut text = format!(
        "# The rights that dcctl {} asks for on a cluster, for `kubectl apply -f -`.\n\n",
        env!("CARGO_PKG_VERSION")
    );
    let install =
        if args.install { INSTALL } else { "\n# An install needs more: `dcctl rbac --install` prints that, too.\n" };
    for part in [LOCK, BESIDES, install, BUNDLE] {
        text.push_str(part);
    }
    let Some(subject) = subject(args) else {
        text.push_str(
            "\n# Nobody has these rights yet. With `--user NAME`, `--group NAME` or `--serviceaccount NAMESPACE:NAME` the bindings\n\
             # are printed, too.\n",
        );
        return text;
    };
    text.push_str("\n# Who gets the rights.\n");
    let on_top = args.install.then_some(&ROLES_OF_AN_INSTALL).into_iter().flatten();
    for role in ROLES.iter().chain(on_top) {
        bind(role, &subject, &mut text);
    }
    text
}

/// The command line allows one at most.
fn subject(args: &RbacArgs) -> Option<Subject<'_>> {
    let user = args.user.as_deref().map(Subject::User);
    let group = || args.group.as_deref().map(Subject::Group);
    let account = || args.serviceaccount.as_ref().map(Subject::ServiceAccount);
    user.or_else(group).or_else(account)
}

fn bind(role: &Role, subject: &Subject<'_>, text: &mut String) {
    let scope = if role.namespace.is_some() { "" } else { "Cluster" };
    let name = quoted(&binding_name(role, subject));
    let within = role.namespace.map(|namespace| format!("  namespace: {namespace}\n")).unwrap_or_default();
    let who = match subject {
        Subject::User(name) => {
            format!("apiGroup: rbac.authorization.k8s.io\n    kind: User\n    name: {}", quoted(name))
        }
        Subject::Group(name) => {
            format!("apiGroup: rbac.authorization.k8s.io\n    kind: Group\n    name: {}", quoted(name))
        }
        Subject::ServiceAccount(ServiceAccount { namespace, name }) => {
            format!("kind: ServiceAccount\n    name: {}\n    namespace: {}", quoted(name), quoted(namespace))
        }
    };
    write!(
        text,
        "---\n\
         apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: {scope}RoleBinding\n\
         metadata:\n  name: {name}\n{within}\
         roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {scope}Role\n  name: {}\n\
         subjects:\n  - {who}\n",
        role.name
    )
    .expect("a String takes everything");
}

/// A name of its own for each subject, so that whoever is bound next does not take the rights of whoever was before.
fn binding_name(role: &Role, subject: &Subject<'_>) -> String {
    let (kind, name) = match subject {
        Subject::User(name) => ("user", plain(name)),
        Subject::Group(name) => ("group", plain(name)),
        Subject::ServiceAccount(ServiceAccount { namespace, name }) => {
            ("serviceaccount", format!("{namespace}:{name}"))
        }
    };
    format!("{}:{kind}:{name}", role.name)
}

/// A name as a part of an object's name: a slash or a percent sign may not be in one. What is unusual is spelt by its
/// bytes, so that two names stay two.
fn plain(name: &str) -> String {
    let mut plain = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b':' | b'@' | b'-') {
            plain.push(char::from(byte));
        } else {
            write!(plain, "_{byte:02x}").expect("a String takes everything");
        }
    }
    plain
}

/// Text as YAML takes it, whatever is in it.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text can be written as JSON")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn args() -> RbacArgs {
        RbacArgs { install: true, user: None, group: None, serviceaccount: None }
    }

    fn documents(args: &RbacArgs) -> Vec<Value> {
        serde_saphyr::from_multiple(&rights(args)).expect("it is YAML")
    }

    fn of_kind<'a>(documents: &'a [Value], end: &str) -> Vec<&'a Value> {
        documents.iter().filter(|document| document["kind"].as_str().is_some_and(|kind| kind.ends_with(end))).collect()
    }

    #[test]
    fn each_role_that_is_printed_is_bound_once() {
        for install in [false, true] {
            let printed = documents(&RbacArgs { install, user: Some("alice".to_owned()), ..args() });
            let place = |role: &Value| (role["kind"].clone(), role["metadata"]["namespace"].clone());
            let roles: Vec<_> = of_kind(&printed, "Role")
                .into_iter()
                .map(|role| (role["metadata"]["name"].clone(), place(role).0, place(role).1))
                .collect();
            let bound: Vec<_> = of_kind(&printed, "RoleBinding")
                .into_iter()
                .map(|binding| {
                    let role = &binding["roleRef"];
                    (role["name"].clone(), role["kind"].clone(), binding["metadata"]["namespace"].clone())
                })
                .collect();
            assert_eq!(roles, bound);
            assert_eq!(roles.len(), if install { 6 } else { 4 });
        }
    }

    #[test]
    fn without_a_subject_nobody_is_bound_and_it_says_how_to() {
        assert!(of_kind(&documents(&args()), "RoleBinding").is_empty());
        let text = rights(&args());
        assert!(text.contains("`--user NAME`, `--group NAME` or `--serviceaccount NAMESPACE:NAME`"), "{text}");
    }

    #[test]
    fn whoever_is_bound_has_the_name_that_was_given_whatever_is_in_it() {
        let account = ServiceAccount { namespace: "ci".to_owned(), name: "runner".to_owned() };
        for name in ["alice", "https://issuer.example/#a b", "\"x\": {", "50%", "系统", "yes"] {
            let cases = [
                (RbacArgs { user: Some(name.to_owned()), ..args() }, "User"),
                (RbacArgs { group: Some(name.to_owned()), ..args() }, "Group"),
            ];
            for (args, kind) in cases {
                for binding in of_kind(&documents(&args), "RoleBinding") {
                    let subject = &binding["subjects"][0];
                    assert_eq!((subject["kind"].as_str(), subject["name"].as_str()), (Some(kind), Some(name)));
                    let own = binding["metadata"]["name"].as_str().expect("it has a name");
                    assert!(!own.contains(['/', '%', ' ']), "{own}");
                }
            }
        }
        for binding in of_kind(&documents(&RbacArgs { serviceaccount: Some(account), ..args() }), "RoleBinding") {
            let subject = &binding["subjects"][0];
            let told = ["kind", "namespace", "name"].map(|field| subject[field].as_str().unwrap_or_default());
            assert_eq!(told, ["ServiceAccount", "ci", "runner"]);
        }
    }

    #[test]
    fn two_subjects_never_share_a_binding() {
        let name = |subject: Subject<'_>| binding_name(&ROLES[0], &subject);
        assert_eq!(name(Subject::User("alice@example.com")), "dcctl-lock:user:alice@example.com");
        assert_ne!(name(Subject::User("a/b")), name(Subject::User("a_2fb")));
        assert_ne!(name(Subject::User("a")), name(Subject::Group("a")));
    }
}
