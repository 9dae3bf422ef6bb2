//! Whether an instance lives elsewhere than where the bundle says.
//!
//! A bundle says where an instance is, and another bundle, an older or a newer one, may say something else. Worked on with
//! that one, the instance would be built a second time beside itself; destroyed with it, all of it would go on running
//! while nothing on the cluster tells of it any more. What dcctl makes bears the instance's name as a label: its
//! namespace and the record of its Helm release. So they are looked for by that label, whatever they are called.

use std::collections::BTreeSet;

use crate::cluster::instances::INSTANCE_LABEL;
use crate::cluster::namespace::{Maker, Namespace, OwnNamespace};
use crate::cluster::release::StampedRelease;
use crate::config;
use crate::failure::{Code, Failure};
use crate::pipeline::Verb;
use crate::step::{Kit, Update};

/// Where the bundle says that an instance is.
#[derive(Debug, Clone, Copy)]
pub(in crate::step) struct Home<'a> {
    /// The instance.
    pub(in crate::step) name: &'a str,
    /// Its namespace.
    pub(in crate::step) namespace: &'a str,
    /// Where its Helm release has its record, and what that release is called.
    pub(in crate::step) release: Option<(&'a str, &'a str)>,
    /// What is done to it.
    pub(in crate::step) verb: Verb,
}

/// Where a release of the bundle has its record, and what it is called.
pub(in crate::step) fn release(instance: &config::Instance) -> Option<(&str, &str)> {
    instance.chart.as_ref().map(|chart| (chart.namespace.as_str(), chart.release.as_str()))
}

/// The namespaces that bear the instance's name; and what has to be said where this account may not look.
pub(in crate::step) async fn namespaces(
    kit: &Kit,
    name: &str,
    namespace: &str,
) -> Result<(Vec<OwnNamespace>, Option<String>), Failure> {
    match kit.cluster.namespaces_of(name).await {
        Ok(found) => Ok((found, None)),
        Err(failure) if failure.code == Code::Forbidden => Ok((
            Vec::new(),
            Some(format!(
                "whether \"{name}\" lives in another namespace than {namespace} was not looked at: this account may not list namespaces"
            )),
        )),
        Err(failure) => Err(failure),
    }
}

/// Refuses a destroy with a bundle that says something else than what bears the instance's name.
///
/// # Errors
/// [`Code::InstanceElsewhere`], or when the cluster cannot be asked.
pub(in crate::step) async fn refuse_another_home(kit: &Kit, own: &Namespace) -> Result<(), Failure> {
    let (Some(name), Some(instance)) = (&kit.instance, &kit.bundle.instance) else { return Ok(()) };
    let (namespaces, unseen) = namespaces(kit, name, &instance.namespace).await?;
    let releases = releases_anywhere(kit).await?;
    let home = Home { name, namespace: &instance.namespace, release: release(instance), verb: kit.verb };
    judge(&home, own, &namespaces, releases.as_ref().unwrap_or(&BTreeSet::new()))?;
    // Of a bundle with a chart this is said by the guard that looks for releases under another name.
    let unlisted = (releases.is_none() && instance.chart.is_none()).then(|| {
        format!("whether \"{name}\" has a Helm release was not looked at: this account may not list all secrets")
    });
    for note in unseen.into_iter().chain(unlisted) {
        kit.updates.send(Update::Note(note));
    }
    Ok(())
}

/// Every Helm release that bears a stamp; none when this account may not list the secrets of all namespaces, or the API
/// server does not say whether it may.
async fn releases_anywhere(kit: &Kit) -> Result<Option<BTreeSet<StampedRelease>>, Failure> {
    match kit.cluster.may_list_all_secrets().await {
        Ok(true) => kit.cluster.stamped_releases(None).await.map(Some),
        Ok(false) | Err(_) => Ok(None),
    }
}

/// Refuses when something of the instance is where the bundle does not say. A namespace that somebody else made and gave the
/// instance's label counts only when the instance's own is not there: a chart may have made it.
///
/// # Errors
/// [`Code::InstanceElsewhere`].
pub(in crate::step) fn judge(
    home: &Home<'_>,
    own: &Namespace,
    namespaces: &[OwnNamespace],
    releases: &BTreeSet<StampedRelease>,
) -> Result<(), Failure> {
    let is_gone = *own == Namespace::Missing;
    let others = namespaces.iter().filter(|found| found.name != home.namespace);
    let others: Vec<&OwnNamespace> = others.filter(|found| is_gone || found.maker == Maker::Dcctl).collect();
    let strays: Vec<&StampedRelease> =
        releases.iter().filter(|found| found.is_another_of(home.name, home.release)).collect();
    // A release under another name, where the bundle has one at all, is told by its own guard.
    if others.is_empty() && (strays.is_empty() || home.release.is_some()) {
        return Ok(());
    }
    let (name, here) = (home.name, home.namespace);
    let sentence = match (others.first(), strays.first()) {
        (Some(OwnNamespace { name: there, .. }), _) => {
            format!("the instance \"{name}\" lives in namespace {there}, and this bundle says {here}")
        }
        (None, Some(StampedRelease { name: release, namespace, .. })) => {
            format!(
                "the instance \"{name}\" has the Helm release {release} in {namespace}, and this bundle has no chart"
            )
        }
        (None, None) => unreachable!("one of them was found"),
    };
    let failure = Failure::new(Code::InstanceElsewhere, sentence);
    let failure = others.iter().fold(failure, |failure, found| {
        failure.cause(format!("namespace {} bears the label {INSTANCE_LABEL}={name}", found.name))
    });
    let failure = strays.iter().fold(failure, |failure, found| {
        failure.cause(format!("the Helm release {} in {} bears it", found.name, found.namespace))
    });
    let failure = failure.cause(match home.verb {
        Verb::Destroy => "a destroy with this bundle would leave that, and nothing would tell of it any more",
        Verb::Install | Verb::Bootstrap | Verb::Upgrade | Verb::Exec => {
            "with this bundle it would be built a second time beside that"
        }
    });
    let failure = failure.hint(built_from(others.first().copied(), strays.first().copied()));
    Err(by_hand(failure, home, &others, &strays))
}

/// Which bundle is the right one.
fn built_from(namespace: Option<&OwnNamespace>, release: Option<&StampedRelease>) -> String {
    let namespace = namespace.map(|found| format!("`instance.namespace` is {}", found.name));
    let release = release.map(|found| format!("`instance.chart.release` is {}", found.name));
    let fields: Vec<String> = namespace.into_iter().chain(release).collect();
    format!("use the bundle that it was built from, in which {}", fields.join(" and "))
}

/// What to type about what is not the instance's any more.
fn by_hand(failure: Failure, home: &Home<'_>, others: &[&OwnNamespace], strays: &[&StampedRelease]) -> Failure {
    let failure = strays.iter().fold(failure, |failure, found| {
        let StampedRelease { name, namespace, .. } = found;
        failure.hint(format!("if nobody needs that release any more: helm uninstall {name} -n {namespace}"))
    });
    others.iter().fold(failure, |failure, found| {
        let (instance, namespace) = (home.name, &found.name);
        failure.hint(format!(
            "if {namespace} is not of \"{instance}\" any more, take its label off: kubectl label namespace {namespace} {INSTANCE_LABEL}-"
        ))
    })
}

/// Refuses to let a declaration go while something that an instance lives in still bears its name: with the declaration goes
/// whatever tells others of it. Who may not look lets it go.
///
/// # Errors
/// [`Code::InstanceElsewhere`], or when the cluster cannot be asked.
pub(in crate::step) async fn refuse_a_rest(kit: &Kit, name: &str) -> Result<(), Failure> {
    let namespaces = match kit.cluster.namespaces_of(name).await {
        Err(failure) if failure.code == Code::Forbidden => Vec::new(),
        found => found?,
    };
    let releases = releases_anywhere(kit).await?.unwrap_or_default();
    let strays: Vec<&StampedRelease> = releases.iter().filter(|found| found.is_another_of(name, None)).collect();
    let named = namespaces.iter().map(|found| format!("namespace {}", found.name));
    let named =
        named.chain(strays.iter().map(|found| format!("the Helm release {} in {}", found.name, found.namespace)));
    let named: Vec<String> = named.collect();
    let Some(first) = named.first() else { return Ok(()) };
    let sentence = format!("{first} still bears the name of \"{name}\", so its declaration stays");
    let failure = Failure::new(Code::InstanceElsewhere, sentence);
    let failure = named.iter().skip(1).fold(failure, |failure, found| failure.cause(format!("{found} does, too")));
    let home = Home { name, namespace: "", release: None, verb: Verb::Destroy };
    let others: Vec<&OwnNamespace> = namespaces.iter().collect();
    let failure = others.iter().fold(failure, |failure, found| {
        failure.hint(format!("if nobody needs {0} any more: kubectl delete namespace {0}", found.name))
    });
    let failure = by_hand(failure, &home, &others, &strays);
    Err(failure.hint("then run the same command again: it goes on from there"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const THERE: Namespace = Namespace::There { instance: None };

    fn ask(
        verb: Verb,
        own: &Namespace,
        namespaces: &[(&str, Maker)],
        releases: &[(&str, &str, &str)],
    ) -> Option<Failure> {
        let home = Home { name: "a", namespace: "dci-a", release: Some(("dci-a", "dc-a")), verb };
        let namespaces: Vec<OwnNamespace> =
            namespaces.iter().map(|(name, maker)| OwnNamespace { name: (*name).to_owned(), maker: *maker }).collect();
        let releases = releases.iter().map(|(namespace, name, instance)| {
            let [namespace, name, instance] = [namespace, name, instance].map(|text| (*text).to_owned());
            StampedRelease { namespace, name, instance, is_live: true }
        });
        judge(&home, own, &namespaces, &releases.collect()).err()
    }

    #[test]
    fn an_instance_that_is_where_its_bundle_says_is_let_through() {
        let own = [("dci-a", Maker::Dcctl)];
        let releases = [("dci-a", "dc-a", "a"), ("dci-b", "dc-b", "b"), ("dci-c", "dc-c", "")];
        assert_eq!(ask(Verb::Destroy, &THERE, &own, &releases), None);
        assert_eq!(ask(Verb::Destroy, &Namespace::Missing, &[], &[]), None);
        // A namespace of its chart's own.
        assert_eq!(ask(Verb::Upgrade, &THERE, &[("dci-a", Maker::Dcctl), ("jobs", Maker::Other)], &releases), None);
    }

    #[test]
    fn whatever_bears_its_name_elsewhere_is_named_with_both_places() {
        for (own, found) in [
            (Namespace::Missing, ("other", Maker::Other)),
            (Namespace::Missing, ("other", Maker::Dcctl)),
            (THERE, ("other", Maker::Dcctl)),
        ] {
            let failure = ask(Verb::Destroy, &own, &[found], &[("other", "dc-a", "a")]).expect("it is elsewhere");
            assert_eq!(failure.code, Code::InstanceElsewhere);
            assert_eq!(failure.message, "the instance \"a\" lives in namespace other, and this bundle says dci-a");
            assert!(failure.causes[0].contains("namespace other") && failure.causes[1].contains("dc-a in other"));
            assert!(failure.hints[0].contains("`instance.namespace` is other"), "{:?}", failure.hints);
        }
        let renamed = ask(Verb::Upgrade, &THERE, &[("dci-a", Maker::Dcctl)], &[("dci-a", "old", "a")]);
        assert_eq!(renamed, None, "that is another guard's");
        let home = Home { name: "a", namespace: "dci-a", release: None, verb: Verb::Upgrade };
        let [namespace, name, instance] = ["dci-a", "old", "a"].map(str::to_owned);
        let releases = BTreeSet::from([StampedRelease { namespace, name, instance, is_live: true }]);
        let left = judge(&home, &THERE, &[], &releases).expect_err("the bundle has no chart");
        assert_eq!(left.message, "the instance \"a\" has the Helm release old in dci-a, and this bundle has no chart");
        assert!(left.hints[1].ends_with("helm uninstall old -n dci-a"), "{:?}", left.hints);
    }
}
