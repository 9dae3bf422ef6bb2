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
    pub(in crate::step) release: Named<'a>,
    /// What is done to it.
    pub(in crate::step) verb: Verb,
}

/// Where a release of the bundle has its record, and what it is called.
pub(in crate::step) fn release(instance: &config::Instance) -> Named<'_> {
    instance.chart.as_ref().map(|chart| (chart.namespace.as_str(), chart.release.as_str()))
}

/// Where a bundle has its Helm release: what it is called, and the namespace of its record.
type Named<'a> = Option<(&'a str, &'a str)>;

/// Whether the namespace is there that the bundle says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::step) enum Own {
    /// It is, and may be on its way out.
    There,
    /// It is not.
    Missing,
}

impl Own {
    /// What this one is.
    pub(in crate::step) fn of(namespace: &Namespace) -> Own {
        if *namespace == Namespace::Missing { Own::Missing } else { Own::There }
    }
}

/// What bears the name of an instance, as far as this account may look.
#[derive(Debug, Default)]
pub(in crate::step) struct Bearers {
    /// The namespaces that bear this instance's.
    pub(in crate::step) namespaces: Vec<OwnNamespace>,
    /// The Helm releases that bear any instance's stamp. They are the last trace of an instance whose declaration is gone, so
    /// whoever may see them all looks at them all.
    pub(in crate::step) releases: BTreeSet<StampedRelease>,
    /// Why the namespaces could not be looked for.
    pub(in crate::step) unseen_namespaces: Option<String>,
    /// Why releases could not be looked for, and which.
    pub(in crate::step) unseen_releases: Option<String>,
}

impl Bearers {
    /// Says what could not be looked at.
    pub(in crate::step) fn say_what_is_unseen(&self, kit: &Kit) {
        for note in self.unseen_namespaces.iter().chain(&self.unseen_releases) {
            kit.updates.send(Update::Note(note.clone()));
        }
    }
}

/// Looks for all that bears the name of this instance. What this account may not list is no failure, but said.
///
/// # Errors
/// When the cluster cannot be asked.
pub(in crate::step) async fn look(
    kit: &Kit,
    name: &str,
    instance: &config::Instance,
    own: Own,
) -> Result<Bearers, Failure> {
    let here = &instance.namespace;
    let (namespaces, unseen_namespaces) = match kit.cluster.namespaces_of(name).await {
        Ok(found) => (found, None),
        Err(failure) if failure.code == Code::Forbidden => (
            Vec::new(),
            Some(format!(
                "whether \"{name}\" lives in another namespace than {here} was not looked at: this account may not list namespaces"
            )),
        ),
        Err(failure) => return Err(failure),
    };
    let (releases, unseen_releases) = match (releases_anywhere(kit).await?, &instance.chart) {
        (Some(all), _) => (all, None),
        (None, None) => (
            BTreeSet::new(),
            Some(format!(
                "whether \"{name}\" has a Helm release was not looked at: this account may not list all secrets"
            )),
        ),
        (None, Some(chart)) => {
            let place = &chart.namespace;
            // In a namespace that is yet to be made there is none, and nobody may have a right there.
            let found = match own {
                Own::Missing if place == here => BTreeSet::new(),
                Own::Missing | Own::There => kit.cluster.stamped_releases(Some(place)).await?,
            };
            let unseen = format!(
                "the Helm releases of other namespaces than {place} were not looked at: this account may not list secrets there"
            );
            (found, Some(unseen))
        }
    };
    Ok(Bearers { namespaces, releases, unseen_namespaces, unseen_releases })
}

/// Every Helm release that bears a stamp; none when this account may not list the secrets of all namespaces. Where the API server
/// does not say whether it may, trying tells.
async fn releases_anywhere(kit: &Kit) -> Result<Option<BTreeSet<StampedRelease>>, Failure> {
    if kit.cluster.may_list_all_secrets().await == Ok(false) {
        return Ok(None);
    }
    match kit.cluster.stamped_releases(None).await {
        Err(failure) if failure.code == Code::Forbidden => Ok(None),
        found => found.map(Some),
    }
}

/// Refuses a destroy with a bundle that says something else than what bears the instance's name.
///
/// # Errors
/// [`Code::InstanceElsewhere`], or when the cluster cannot be asked.
pub(in crate::step) async fn refuse_another_home(kit: &Kit, own: Own) -> Result<(), Failure> {
    let (Some(name), Some(instance)) = (&kit.instance, &kit.bundle.instance) else { return Ok(()) };
    let bearers = look(kit, name, instance, own).await?;
    let home = Home { name, namespace: &instance.namespace, release: release(instance), verb: kit.verb };
    judge(&home, own, &bearers)?;
    bearers.say_what_is_unseen(kit);
    Ok(())
}

/// Refuses when something of the instance is where the bundle does not say. A namespace that somebody else made and gave the
/// instance's label counts only when the instance's own is not there: a chart may have made it.
///
/// # Errors
/// [`Code::InstanceElsewhere`].
pub(in crate::step) fn judge(home: &Home<'_>, own: Own, bearers: &Bearers) -> Result<(), Failure> {
    let is_gone = own == Own::Missing;
    let others = bearers.namespaces.iter().filter(|found| found.name != home.namespace);
    let others: Vec<&OwnNamespace> = others.filter(|found| is_gone || found.maker == Maker::Dcctl).collect();
    let strays: Vec<&StampedRelease> =
        bearers.releases.iter().filter(|found| found.is_another_of(home.name, home.release)).collect();
    let sentence = match (others.first(), strays.first()) {
        (Some(there), _) => in_another_namespace(home, there),
        (None, Some(stray)) => as_another_release(home, stray),
        (None, None) => return Ok(()),
    };
    let (name, failure) = (home.name, Failure::new(Code::InstanceElsewhere, sentence));
    let failure = others.iter().fold(failure, |failure, found| {
        let leaving = if found.is_deleted { ", and is being deleted" } else { "" };
        failure.cause(format!("namespace {} bears the label {INSTANCE_LABEL}={name}{leaving}", found.name))
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
    let there = others.iter().find(|found| !found.is_deleted);
    let failure = match built_from(there.copied(), strays.first().copied()) {
        Some(hint) => failure.hint(hint),
        None => failure,
    };
    Err(by_hand(failure, home.name, &others, &strays))
}

fn in_another_namespace(home: &Home<'_>, there: &OwnNamespace) -> String {
    let (Home { name, namespace: here, .. }, OwnNamespace { name: there, is_deleted, .. }) = (home, there);
    if *is_deleted {
        format!("namespace {there} of the instance \"{name}\" is still being deleted, and this bundle says {here}")
    } else {
        format!("the instance \"{name}\" lives in namespace {there}, and this bundle says {here}")
    }
}

fn as_another_release(home: &Home<'_>, stray: &StampedRelease) -> String {
    let (name, StampedRelease { name: release, namespace, .. }) = (home.name, stray);
    let says = match home.release {
        Some((place, named)) => format!("names {named} in {place}"),
        None => "has no chart".to_owned(),
    };
    format!("the instance \"{name}\" has the Helm release {release} in {namespace}, and this bundle {says}")
}

/// Which bundle is the right one, where something of the instance is to stay.
fn built_from(namespace: Option<&OwnNamespace>, release: Option<&StampedRelease>) -> Option<String> {
    let namespace = namespace.map(|found| format!("`instance.namespace` is {}", found.name));
    let release = release.map(|found| format!("`instance.chart.release` is {}", found.name));
    let fields: Vec<String> = namespace.into_iter().chain(release).collect();
    (!fields.is_empty()).then(|| format!("use the bundle that it was built from, in which {}", fields.join(" and ")))
}

/// What to type about what is not the instance's any more. What is on its way out already needs time only.
fn by_hand(failure: Failure, instance: &str, others: &[&OwnNamespace], strays: &[&StampedRelease]) -> Failure {
    let failure = strays.iter().fold(failure, |failure, found| {
        let StampedRelease { name, namespace, .. } = found;
        failure.hint(format!("if nobody needs that release any more: helm uninstall {name} -n {namespace}"))
    });
    others.iter().fold(failure, |failure, found| {
        let namespace = &found.name;
        failure.hint(if found.is_deleted {
            format!("wait until {namespace} is gone; what keeps it: kubectl get namespace {namespace} -o yaml")
        } else {
            format!(
                "if {namespace} is not of \"{instance}\" any more, take its label off: kubectl label namespace {namespace} {INSTANCE_LABEL}-"
            )
        })
    })
}

/// Refuses to let a declaration go while something that an instance lives in still bears its name: with the declaration goes
/// whatever tells others of it. Who may not look lets it go, and was told so when the destroy began.
///
/// # Errors
/// [`Code::InstanceElsewhere`], or when the cluster cannot be asked.
pub(in crate::step) async fn refuse_a_rest(kit: &Kit, name: &str) -> Result<(), Failure> {
    let Some(instance) = &kit.bundle.instance else { return Ok(()) };
    let Bearers { namespaces, releases, .. } = look(kit, name, instance, Own::Missing).await?;
    rest(name, &namespaces, &releases)
}

fn rest(name: &str, namespaces: &[OwnNamespace], releases: &BTreeSet<StampedRelease>) -> Result<(), Failure> {
    let strays: Vec<&StampedRelease> = releases.iter().filter(|found| found.is_another_of(name, None)).collect();
    let named = namespaces.iter().map(|found| format!("namespace {}", found.name));
    let named =
        named.chain(strays.iter().map(|found| format!("the Helm release {} in {}", found.name, found.namespace)));
    let named: Vec<String> = named.collect();
    let Some(first) = named.first() else { return Ok(()) };
    let sentence = format!("{first} still bears the name of \"{name}\", so its declaration stays");
    let failure = Failure::new(Code::InstanceElsewhere, sentence);
    let failure = named.iter().skip(1).fold(failure, |failure, found| failure.cause(format!("{found} does, too")));
    let others: Vec<&OwnNamespace> = namespaces.iter().collect();
    let staying = others.iter().filter(|found| !found.is_deleted);
    let failure = staying.fold(failure, |failure, found| {
        failure.hint(format!("if nobody needs {0} any more: kubectl delete namespace {0}", found.name))
    });
    let failure = by_hand(failure, name, &others, &strays);
    Err(failure.hint("then run the same command again: it goes on from there"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(name: &str, maker: Maker) -> OwnNamespace {
        OwnNamespace { name: name.to_owned(), maker, is_deleted: false }
    }

    fn live(namespace: &str, name: &str, instance: &str) -> StampedRelease {
        let [namespace, name, instance] = [namespace, name, instance].map(str::to_owned);
        StampedRelease { namespace, name, instance, is_live: true }
    }

    fn ask(verb: Verb, own: Own, namespaces: &[(&str, Maker)], releases: &[(&str, &str, &str)]) -> Option<Failure> {
        let home = Home { name: "a", namespace: "dci-a", release: Some(("dci-a", "dc-a")), verb };
        let namespaces = namespaces.iter().map(|(name, maker)| space(name, *maker)).collect();
        let releases = releases.iter().map(|(namespace, name, instance)| live(namespace, name, instance)).collect();
        judge(&home, own, &Bearers { namespaces, releases, ..Bearers::default() }).err()
    }

    #[test]
    fn an_instance_that_is_where_its_bundle_says_is_let_through() {
        let own = [("dci-a", Maker::Dcctl)];
        let releases = [("dci-a", "dc-a", "a"), ("dci-b", "dc-b", "b"), ("dci-c", "dc-c", "")];
        assert_eq!(ask(Verb::Destroy, Own::There, &own, &releases), None);
        assert_eq!(ask(Verb::Destroy, Own::Missing, &[], &[]), None);
        // A namespace of its chart's own.
        assert_eq!(ask(Verb::Upgrade, Own::There, &[("dci-a", Maker::Dcctl), ("jobs", Maker::Other)], &releases), None);
    }

    #[test]
    fn whatever_bears_its_name_elsewhere_is_named_with_both_places() {
        for (own, found) in [
            (Own::Missing, ("other", Maker::Other)),
            (Own::Missing, ("other", Maker::Dcctl)),
            (Own::There, ("other", Maker::Dcctl)),
        ] {
            let failure = ask(Verb::Destroy, own, &[found], &[("other", "dc-a", "a")]).expect("it is elsewhere");
            assert_eq!(failure.code, Code::InstanceElsewhere);
            assert_eq!(failure.message, "the instance \"a\" lives in namespace other, and this bundle says dci-a");
            assert!(failure.causes[0].contains("namespace other") && failure.causes[1].contains("dc-a in other"));
            assert!(failure.hints[0].contains("`instance.namespace` is other"), "{:?}", failure.hints);
        }
    }

    #[test]
    fn a_release_of_another_name_is_the_instance_s_own_elsewhere() {
        for (verb, cause) in
            [(Verb::Upgrade, "a second time"), (Verb::Bootstrap, "a second time"), (Verb::Destroy, "leave")]
        {
            let failure = ask(verb, Own::There, &[("dci-a", Maker::Dcctl)], &[("dci-a", "old", "a")])
                .expect("it has another name");
            assert_eq!(failure.code, Code::InstanceElsewhere);
            let says = "the instance \"a\" has the Helm release old in dci-a, and this bundle names dc-a in dci-a";
            assert_eq!(failure.message, says);
            assert!(failure.causes[1].contains(cause), "{:?}", failure.causes);
            assert!(failure.hints[0].contains("`instance.chart.release` is old"), "{:?}", failure.hints);
            assert!(failure.hints[1].ends_with("helm uninstall old -n dci-a"), "{:?}", failure.hints);
        }
        let home = Home { name: "a", namespace: "dci-a", release: None, verb: Verb::Upgrade };
        let releases = BTreeSet::from([live("dci-a", "old", "a")]);
        let left =
            judge(&home, Own::There, &Bearers { releases, ..Bearers::default() }).expect_err("the bundle has no chart");
        assert_eq!(left.message, "the instance \"a\" has the Helm release old in dci-a, and this bundle has no chart");
        assert!(left.hints[1].ends_with("helm uninstall old -n dci-a"), "{:?}", left.hints);
    }

    #[test]
    fn a_namespace_that_is_being_deleted_is_waited_for_and_not_lived_in() {
        let leaving = OwnNamespace { is_deleted: true, ..space("other", Maker::Dcctl) };
        let home = Home { name: "a", namespace: "dci-a", release: None, verb: Verb::Bootstrap };
        let bearers = Bearers { namespaces: vec![leaving.clone()], ..Bearers::default() };
        let failure = judge(&home, Own::Missing, &bearers).expect_err("something of it is there");
        let says = "namespace other of the instance \"a\" is still being deleted, and this bundle says dci-a";
        assert_eq!((failure.code, failure.message.as_str()), (Code::InstanceElsewhere, says));
        assert!(failure.causes[0].ends_with("and is being deleted"), "{:?}", failure.causes);
        assert!(failure.hints[0].starts_with("wait until other is gone"), "{:?}", failure.hints);

        let failure = rest("a", &[leaving], &BTreeSet::new()).expect_err("it is not gone");
        assert!(failure.hints[0].starts_with("wait until other is gone"), "{:?}", failure.hints);
        assert!(!format!("{:?}", failure.hints).contains("kubectl delete"), "{:?}", failure.hints);
    }
}
