//! Asks the tools and the cluster. Nothing is written, and no lock is taken: there is no permission to write at all.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::access::Identity;
use crate::cluster::instances::{Declared, SHARED_NAMESPACE};
use crate::cluster::namespace::Namespace;
use crate::cluster::{Cluster, Kubeconfig, MayWrite};
use crate::commands::apply::proxies;
use crate::commands::preflight::Looking;
use crate::commands::preflight::check::Check;
use crate::commands::preflight::gather::Gathered;
use crate::commands::preflight::judge::{self, Case, Known};
use crate::config::Bundle;
use crate::failure::{Code, Failure};
use crate::lock::{self, NAMESPACE, Place, status};
use crate::pipeline::{Action, Verb};
use crate::process::Limits;
use crate::run;
use crate::step::rights::{Need, needs};
use crate::step::{self, Kit, Means, Part, Update, UpdatesReceiver};

/// What is looked at only where the cluster answers.
const OF_THE_CLUSTER: [&str; 7] = ["account", "clock", "lock_namespace", "lock", judge::PERMISSION, "state", "guard"];

/// Asks everything, and says who this account is to the API server.
pub(crate) async fn ask(looking: &mut Looking<'_>, gathered: Gathered) -> Option<String> {
    let (means, mut heard) = means(looking, &gathered);
    tools(looking, &gathered, &means).await;
    let Some(kubeconfig) = &gathered.kubeconfig else {
        looking.skip(&["cluster"]);
        looking.skip(&OF_THE_CLUSTER);
        return None;
    };
    let cluster = match Cluster::connect(kubeconfig, &proxies(looking.desk), MayWrite::never()).await {
        Ok(cluster) => cluster,
        Err(failure) => {
            looking.add(Check::failure("cluster", &failure));
            looking.skip(&OF_THE_CLUSTER);
            return None;
        }
    };
    looking.add(judge::cluster(cluster.server(), cluster.version()));
    let who = account(looking, &cluster).await;
    lock_and_rights(looking, &cluster, kubeconfig, &gathered, who.as_ref()).await;
    match (gathered.bundle.clone(), looking.verb) {
        (Some(bundle), Some(verb)) => {
            let kit = kit(looking, &gathered, means, (cluster, kubeconfig, bundle, verb));
            guards(looking, &kit, &mut heard).await;
        }
        (None, Some(Verb::Exec) | None) => {}
        (None, Some(_)) | (Some(_), None) => looking.skip(&["state", "guard"]),
    }
    who.map(|who| who.user)
}

/// What tools are asked with.
fn means(looking: &Looking<'_>, gathered: &Gathered) -> (Means, UpdatesReceiver) {
    let folder = gathered.work.as_ref().map(|work| work.path().to_owned()).unwrap_or_default();
    let (updates, heard) = step::updates(Arc::default());
    let means = Means {
        mode: step::Mode::DryRun,
        run: crate::commands::attempt::new_run_id(),
        holder: String::new(),
        run_dir: folder,
        may_write: MayWrite::never(),
        leading: Vec::new(),
        keep_output: false,
        environment: looking.desk.environment.for_tools().kept,
        redactor: looking.redactor.clone(),
        limits: Limits::default(),
        stop: looking.stop.clone(),
        updates,
        clock: looking.desk.clock.clone(),
    };
    (means, heard)
}

/// OpenTofu and Helm. One that the verb does not use is looked for all the same, and no failure.
async fn tools(looking: &mut Looking<'_>, gathered: &Gathered, means: &Means) {
    let (args, verb) = (looking.args, looking.verb);
    let bundle = gathered.bundle.as_ref();
    // Without the bundle nobody knows; a verb mostly uses both.
    let (tofu, helm) = match (verb, bundle) {
        (Some(verb), Some(bundle)) => {
            (step::needs_tofu(verb, bundle, &gathered.choices), step::needs_helm(verb, bundle))
        }
        (Some(_) | None, _) => (false, false),
    };
    let found = step::find_tofu(means, args.tools.tofu.as_deref()).await;
    looking.add(judge::tool("tool.tofu", "OpenTofu", tofu, &found));
    let found = step::find_helm(means, args.tools.helm.as_deref()).await;
    looking.add(judge::tool("tool.helm", "Helm", helm, &found));
    if tofu && let Err(failure) = step::check_temporary_folder(means) {
        looking.add(Check::failure("tmpdir", &failure));
    }
}

/// Who this account is, and what time it is there.
async fn account(looking: &mut Looking<'_>, cluster: &Cluster) -> Option<Identity> {
    let (wall, began) = (looking.desk.clock.wall(), looking.desk.clock.now());
    let answer = cluster.who_am_i().await;
    let took = looking.desk.clock.now().since(began);
    looking.add(judge::account(&answer));
    let who = answer.ok()?;
    if let Some(theirs) = who.time {
        // They cut off what is less than a second, and did it at some time while the answer was on its way.
        let ahead = theirs.as_millisecond() - wall.as_millisecond();
        let within = took + Duration::from_secs(1);
        looking.add(judge::clock(ahead, within));
    }
    Some(who)
}

/// The lock with its namespace, and every right that the verb uses.
async fn lock_and_rights(
    looking: &mut Looking<'_>,
    cluster: &Cluster,
    kubeconfig: &Kubeconfig,
    gathered: &Gathered,
    who: Option<&Identity>,
) {
    let home = cluster.namespace(NAMESPACE).await;
    let case = complete(looking, cluster, gathered, &home).await;
    let mut may_make = Known::Unknown;
    let mut lines = Vec::new();
    // A run of no verb is that of a command: it has the lock.
    for need in needs(looking.verb.unwrap_or(Verb::Exec)) {
        let answer = cluster.may(&need.right).await;
        if is_make_namespace(&need) {
            may_make = Known::of(answer.as_ref().ok().map(|access| access.allowed));
        }
        lines.push(judge::permission(&need, case, who, &answer));
    }
    looking.add(judge::lock_namespace(NAMESPACE, &home, may_make));
    let place = Place::Cluster(kubeconfig.context().to_owned());
    let seen = lock::observe(&run::lease_store(cluster)).await;
    let wall = looking.desk.clock.wall();
    looking.add(judge::lock(&seen.map(|seen| status::status(seen.as_ref(), &place, wall))));
    for line in lines {
        looking.add(line);
    }
}

fn is_make_namespace(need: &Need) -> bool {
    need.right.resource == "namespaces" && need.right.verb == "create"
}

/// What of the case only the cluster knows.
async fn complete(
    looking: &Looking<'_>,
    cluster: &Cluster,
    gathered: &Gathered,
    home: &Result<Namespace, Failure>,
) -> Case {
    let is_there = |looked: &Result<Namespace, Failure>| match looked {
        Ok(Namespace::Missing) => Known::No,
        Ok(Namespace::There { .. } | Namespace::Terminating { .. }) => Known::Yes,
        Err(_) => Known::Unknown,
    };
    let mut case = gathered.case;
    let mut made = vec![is_there(home)];
    let instance = gathered.bundle.as_ref().and_then(|bundle| bundle.instance.as_ref());
    if let Some(instance) = instance {
        let own = is_there(&cluster.namespace(&instance.namespace).await);
        case.namespace_there = own;
        if looking.verb == Some(Verb::Bootstrap) {
            made.push(own);
        }
        if let (Some(declaration), Some(name)) = (&instance.declaration, &looking.args.instance) {
            case.declared = match cluster.declaration(&declaration.api_version, name).await {
                Ok(Declared::There(_)) => Known::Yes,
                Ok(Declared::Missing | Declared::NoDefinition) => Known::No,
                Err(_) => Known::Unknown,
            };
        }
    }
    if let (Some(Verb::Install), Some(bundle)) = (looking.verb, &gathered.bundle) {
        made.push(is_there(&cluster.namespace(SHARED_NAMESPACE).await));
        case.installed = installed(cluster, bundle).await;
    }
    case.namespace_missing = if made.contains(&Known::No) {
        Known::Yes
    } else if made.contains(&Known::Unknown) {
        Known::Unknown
    } else {
        Known::No
    };
    case
}

async fn installed(cluster: &Cluster, bundle: &Bundle) -> Known {
    let Ok(uid) = cluster.uid().await else { return Known::Unknown };
    match cluster.install_record(&uid, &bundle.name).await {
        Ok(record) => Known::of(Some(record.is_some())),
        // One that is not ours is there.
        Err(failure) if failure.code.exit() == Code::RecordForeign.exit() => Known::Yes,
        Err(_) => Known::Unknown,
    }
}

/// What the steps of the verb would use.
fn kit(
    looking: &Looking<'_>,
    gathered: &Gathered,
    means: Means,
    (cluster, kubeconfig, bundle, verb): (Cluster, &Kubeconfig, Bundle, Verb),
) -> Kit {
    Kit {
        means,
        cluster,
        kube_context: kubeconfig.context().to_owned(),
        bundle,
        instance: looking.args.instance.clone(),
        tofu: None,
        helm: None,
        state_dir: gathered.state_dir.clone(),
        values: Vec::new(),
        build: false,
        force_conflicts: true,
        verb,
        choices: gathered.choices.clone(),
        course: step::Course::default(),
        outputs: step::Outputs::default(),
    }
}

/// What the verb itself checks before it changes anything: the same functions, in a run that writes nothing.
async fn guards(looking: &mut Looking<'_>, kit: &Kit, heard: &mut UpdatesReceiver) {
    let (part, refused) = match kit.verb {
        Verb::Install => (Part::Prerequisites, step::refuse_foreign(kit).await),
        Verb::Bootstrap | Verb::Upgrade | Verb::Destroy | Verb::Exec => {
            (Part::Infrastructure, step::refuse_lost_state(kit).await)
        }
    };
    let refused = refused.err();
    let about_state = |failure: &&Failure| matches!(failure.code, Code::StateMissing | Code::StateErrored);
    let seen = step::look_at_state(&kit.bundle, part, &kit.state_dir);
    looking.add(judge::state(kit.verb, seen.as_ref(), refused.as_ref().filter(about_state)));
    if let Some(failure) = refused.as_ref().filter(|failure| !about_state(failure)) {
        looking.add(Check::failure("guard.install", failure));
    }
    let steps: &[(&'static str, Action)] = match kit.verb {
        Verb::Bootstrap => &[("guard.cluster", Action::CheckCluster)],
        Verb::Upgrade => &[("guard.operator", Action::CheckOperator), ("guard.cluster", Action::CheckCluster)],
        Verb::Destroy => &[("guard.destroy", Action::MarkDestroying)],
        Verb::Install | Verb::Exec => &[],
    };
    // What was said of the tools is in their lines.
    while heard.try_recv().is_some() {}
    for (id, action) in steps {
        let outcome = step::perform(kit, *action).await;
        looking.add(judge::guard(id, &outcome));
        // A run would say these, too: what could not be looked at is no part of what is well.
        while let Some(update) = heard.try_recv() {
            if let Update::Note(note) = update {
                looking.add(Check::warning(id, note, "know of it before the run: it goes on all the same"));
            }
        }
    }
}
