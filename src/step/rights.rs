//! What each verb needs on a cluster: read from the very roles that `dcctl rbac` prints, so that there is one list.
//!
//! The roles are YAML for `kubectl apply`. Above each rule stand sentences for whoever grants it, and three of them are
//! read here, too: `For:` names the verbs, `When:` the case in which they use it, and `Without it:` what happens to those
//! who can do without. A test holds this reading against a real reader of YAML.
//!
//! Before a verb asks for the lock, it asks whether it may do what it is sure to do ([`refuse_without_rights`]): then all that
//! is missing is said at once, and nothing is half done. Whatever cannot be told so is told by the call itself, later.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::cluster::access::{Right, Spot};
use crate::cluster::{Cluster, record};
use crate::config::Bundle;
use crate::failure::{Code, Failure, shell_word};
use crate::pipeline::Verb;

/// The lock and the declarations.
pub const LOCK: &str = include_str!("../commands/rbac/lock.yaml");

/// What dcctl asks for besides.
pub const BESIDES: &str = include_str!("../commands/rbac/besides.yaml");

/// What an install asks for on top.
pub const INSTALL: &str = include_str!("../commands/rbac/install.yaml");

/// The case in which a right is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// The run waits for a lock that is held.
    Waiting,
    /// The bundle has a declaration of its instances.
    Declares,
    /// The instance has a declaration on the cluster.
    Declared,
    /// It has none yet.
    Undeclared,
    /// A namespace that dcctl makes is not there.
    NamespaceMissing,
    /// The namespace of the instance is there.
    NamespaceThere,
    /// The bundle says which deployment the operator is.
    OperatorNamed,
    /// The operator's manifests have definitions.
    Definitions,
    /// The cluster has no install record.
    NotInstalled,
}

impl When {
    const ALL: [(When, &'static str); 9] = [
        (When::Waiting, "it waits for the lock (--wait)"),
        (When::Declares, "the bundle declares its instances"),
        (When::Declared, "the instance is declared"),
        (When::Undeclared, "the instance is not declared yet"),
        (When::NamespaceMissing, "a namespace is missing"),
        (When::NamespaceThere, "the namespace of the instance is there"),
        (When::OperatorNamed, "the bundle names the operator's deployment"),
        (When::Definitions, "the operator's manifests have definitions"),
        (When::NotInstalled, "nothing was installed yet"),
    ];

    /// The words in the roles; none for [`When::Always`].
    pub fn words(self) -> Option<&'static str> {
        When::ALL.iter().find(|(when, _)| *when == self).map(|(_, words)| *words)
    }

    fn parse(words: &str) -> Option<When> {
        When::ALL.iter().find(|(_, known)| *known == words).map(|(when, _)| *when)
    }
}

/// A right that a verb uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Which.
    pub right: Right,
    /// In which case.
    pub when: When,
    /// What happens without it, where the verb goes on all the same.
    pub without: Option<&'static str>,
}

/// Everything that a verb uses, in the order of the roles.
pub fn needs(verb: Verb) -> Vec<Need> {
    let mut needs = Vec::new();
    for role in [LOCK, BESIDES, INSTALL] {
        read(role, &mut |rule| {
            if rule.is_for.split(", ").any(|word| word == verb.word()) {
                needs.extend(rule.rights().map(|right| Need { right, when: rule.when, without: rule.without }));
            }
        });
    }
    needs
}

/// Whether a right is one that `dcctl rbac` prints with `--install` only.
fn is_for_an_install(right: Right) -> bool {
    let mut found = false;
    read(INSTALL, &mut |rule| found |= rule.rights().any(|known| known == right));
    found
}

/// Who grants these rights does it with this command; the user is filled in where it is known.
pub fn how_to_grant(user: Option<&str>, rights: impl IntoIterator<Item = Right>) -> String {
    let install = if rights.into_iter().any(is_for_an_install) { " --install" } else { "" };
    let subject = match user.map(|user| (user, user.strip_prefix("system:serviceaccount:"))) {
        Some((_, Some(account))) => format!("--serviceaccount {}", shell_word(account)),
        Some((user, None)) => format!("--user {}", shell_word(user)),
        None => "--user USER".to_owned(),
    };
    format!("have it granted by an admin of the cluster: `dcctl rbac{install} {subject} | kubectl apply -f -`")
}

/// How long a run waits to be told what it may do. It works without knowing.
const PATIENCE: Duration = Duration::from_secs(5);

/// Refuses a verb to an account that lacks a right which the verb is sure to use, and names all of them. Where nobody can
/// tell what the account may do, the verb goes on. `lease` is the name of the lock's object.
///
/// # Errors
/// [`Code::Forbidden`].
pub async fn refuse_without_rights(
    cluster: &Cluster,
    bundle: &Bundle,
    (verb, instance): (Verb, Option<&str>),
    lease: &str,
) -> Result<(), Failure> {
    let sure: Vec<_> = needs(verb)
        .into_iter()
        .filter_map(|need| Some((need.right, spot(need, bundle, (verb, instance), lease)?)))
        .collect();
    let questions = sure.iter().map(|(right, spot)| cluster.may_at(right, *spot));
    let Ok(answers) = timeout(PATIENCE, join_all(questions)).await else { return Ok(()) };
    let mut missing = Vec::new();
    for ((right, spot), answer) in sure.into_iter().zip(answers) {
        match answer {
            Ok(access) if access.is_sure && !access.allowed => missing.push((right, spot, access.reason)),
            Ok(_) => {}
            Err(failure) => tracing::debug!(%failure, "what this account may do is not known"),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let who = timeout(PATIENCE, cluster.who_am_i()).await.ok().and_then(Result::ok).map(|who| who.user);
    let user = who.as_deref().unwrap_or("this account");
    let what = if missing.len() == 1 { "a right" } else { "rights" };
    let sentence = format!("{user} lacks {what} without which {} cannot come to its end", verb.word());
    let failure = missing.iter().fold(Failure::new(Code::Forbidden, sentence), |failure, (right, spot, reason)| {
        let because = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        failure.cause(format!("it may not {}{because}", at(right, *spot)))
    });
    Err(failure.hint(how_to_grant(who.as_deref(), missing.iter().map(|(right, ..)| *right))))
}

/// A right in words, with the namespace in which it is used.
fn at(right: &Right, spot: Spot<'_>) -> String {
    match spot.namespace.filter(|_| right.namespace.is_none() && right.resource != "namespaces") {
        Some(namespace) => format!("{right} in {namespace}"),
        None => right.to_string(),
    }
}

/// Where a verb uses a right; none where it is not sure to, or can do without.
fn spot<'a>(
    need: Need,
    bundle: &'a Bundle,
    (verb, instance): (Verb, Option<&'a str>),
    lease: &'a str,
) -> Option<Spot<'a>> {
    let own = bundle.instance.as_ref();
    let sure = match need.when {
        When::Always | When::OperatorNamed => true,
        // A destroy does not need it where nothing is declared.
        When::Declares => own.is_some_and(|own| own.declaration.is_some()) && verb != Verb::Destroy,
        When::Waiting
        | When::Declared
        | When::Undeclared
        | When::NamespaceMissing
        | When::NamespaceThere
        | When::Definitions
        | When::NotInstalled => false,
    };
    if !sure || need.without.is_some() {
        return None;
    }
    let Right { verb: deed, resource, namespace, .. } = need.right;
    let named = |name| Spot { namespace, name: Some(name).filter(|_| deed != "create") };
    Some(match resource {
        "leases" => named(lease),
        "configmaps" => named(record::NAME),
        "instances" if deed == "list" => Spot::default(),
        "instances" => named(instance?),
        "secrets" => Spot { namespace, name: None },
        // What is asked for in a namespace may be granted there alone.
        "namespaces" => {
            let name = own.filter(|_| verb != Verb::Install).map_or("kube-system", |own| &own.namespace);
            Spot { namespace: Some(name), name: Some(name) }
        }
        "deployments" if deed == "get" => {
            let operator = bundle.operator.as_ref()?.deployment.as_ref()?;
            Spot { namespace: Some(&operator.namespace), name: Some(&operator.name) }
        }
        "deployments" | "pods" => Spot { namespace: Some(&own?.namespace), name: None },
        _ => return None,
    })
}

/// One rule of a role, with the sentences above it.
#[derive(Clone, Copy)]
struct Rule {
    namespace: Option<&'static str>,
    is_for: &'static str,
    when: When,
    without: Option<&'static str>,
    groups: &'static str,
    resources: &'static str,
    verbs: &'static str,
}

const NONE: Rule =
    Rule { namespace: None, is_for: "", when: When::Always, without: None, groups: "", resources: "", verbs: "" };

impl Rule {
    fn rights(self) -> impl Iterator<Item = Right> {
        let items = |list: &'static str| list.split(", ").map(|item| item.trim_matches('"'));
        items(self.groups).flat_map(move |group| {
            items(self.resources).flat_map(move |resource| {
                items(self.verbs).map(move |verb| Right { verb, group, resource, namespace: self.namespace })
            })
        })
    }
}

/// Goes through the rules of a file.
fn read(text: &'static str, take: &mut impl FnMut(Rule)) {
    let (mut next, mut within) = (NONE, None);
    for line in text.lines() {
        let list = |name: &str| {
            let line = line.trim_start().trim_start_matches("- ");
            line.strip_prefix(name)?.strip_prefix(": [")?.strip_suffix(']')
        };
        if line == "---" {
            (next, within) = (NONE, None);
        } else if let Some(namespace) = line.strip_prefix("  namespace: ") {
            within = Some(namespace);
        } else if let Some(words) = line.strip_prefix("  # For: ") {
            next.is_for = words.split([';', '.']).next().unwrap_or(words);
        } else if let Some(words) = line.strip_prefix("  # When: ") {
            next.when = When::parse(words.trim_end_matches('.')).unwrap_or(When::Always);
        } else if let Some(words) = line.strip_prefix("  # Without it: ") {
            next.without = Some(words.trim_end_matches('.'));
        } else if let Some(groups) = list("apiGroups") {
            next.groups = groups;
        } else if let Some(resources) = list("resources") {
            next.resources = resources;
        } else if let Some(verbs) = list("verbs") {
            take(Rule { namespace: within, verbs, ..next });
            next = NONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn rules() -> Vec<Rule> {
        let mut rules = Vec::new();
        for role in [LOCK, BESIDES, INSTALL] {
            read(role, &mut |rule| rules.push(rule));
        }
        rules
    }

    #[test]
    fn the_rights_that_are_read_are_those_that_kubectl_reads() {
        let mut granted = Vec::new();
        for role in [LOCK, BESIDES, INSTALL] {
            let documents: Vec<Value> = serde_saphyr::from_multiple(role).expect("it is YAML");
            for document in &documents {
                let text = |value: &Value| value.as_str().expect("text").to_owned();
                let list = |value: &Value| value.as_array().expect("a list").iter().map(text).collect::<Vec<_>>();
                let within = document["metadata"]["namespace"].as_str().map(str::to_owned);
                for rule in document["rules"].as_array().into_iter().flatten() {
                    for group in list(&rule["apiGroups"]) {
                        for resource in list(&rule["resources"]) {
                            let verbs = list(&rule["verbs"]).into_iter();
                            granted.extend(verbs.map(|verb| (verb, group.clone(), resource.clone(), within.clone())));
                        }
                    }
                }
            }
        }
        let owned = |right: Right| {
            let Right { verb, group, resource, namespace } = right;
            (verb.to_owned(), group.to_owned(), resource.to_owned(), namespace.map(str::to_owned))
        };
        let read: Vec<_> = rules().into_iter().flat_map(Rule::rights).map(owned).collect();
        assert_eq!(read, granted);
    }

    #[test]
    fn each_rule_says_whom_it_is_for_and_every_sentence_is_understood() {
        let known = ["install", "bootstrap", "upgrade", "destroy", "exec", "no verb"];
        for rule in rules() {
            assert!(!rule.is_for.is_empty(), "{} {}", rule.verbs, rule.resources);
            for word in rule.is_for.split(", ") {
                assert!(known.contains(&word), "{word}");
            }
        }
        let lines = [LOCK, BESIDES, INSTALL].into_iter().flat_map(str::lines);
        for words in lines.filter_map(|line| line.trim_start().strip_prefix("# When: ")) {
            assert!(When::parse(words.trim_end_matches('.')).is_some(), "{words}");
        }
    }

    #[test]
    fn a_verb_needs_what_is_for_it_and_nothing_else() {
        let said = |verb: Verb| {
            let needs = needs(verb).into_iter();
            needs.map(|need| need.right.to_string()).collect::<Vec<_>>()
        };
        let lock = ["get", "create", "update", "delete", "watch"]
            .map(|verb| format!("{verb} leases.coordination.k8s.io in dc-k8s-system"));
        let exec = said(Verb::Exec);
        assert_eq!(exec[..5], lock);
        assert_eq!(exec[5..], ["create namespaces"]);
        let destroy = said(Verb::Destroy);
        assert!(destroy.contains(&"delete instances.core.devicechain.io".to_owned()), "{destroy:?}");
        assert!(!destroy.contains(&"list secrets in dc-system".to_owned()), "{destroy:?}");
        let delete = needs(Verb::Exec).into_iter().find(|need| need.right.verb == "delete").expect("it is there");
        assert_eq!(delete.without, Some("the holder is emptied instead, which is free too"));
        assert_eq!(delete.when, When::Always);
        let on_top = needs(Verb::Install).into_iter().filter(|need| is_for_an_install(need.right)).count();
        assert_eq!((on_top, needs(Verb::Upgrade).iter().any(|need| is_for_an_install(need.right))), (4, false));
    }
}
