//! `dcctl instances release`: lets a declaration go and destroys nothing.
//!
//! It is for an instance whose rest is gone, or is to live on without dcctl. What stays is said first, and the instance's name
//! is typed for it, or `--yes` says that this was read. A run that works on the instance has written the declaration and
//! will write it again, so while the lock names the instance nothing is let go.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::cli::{ReleaseArgs, Substrate, SubstrateOptions, TargetOptions};
use crate::cluster::instances::{INSTANCE_LABEL, LINEAGE, PHASE};
use crate::cluster::namespace::OwnNamespace;
use crate::cluster::removal::LetGo;
use crate::cluster::{Cluster, MayWrite, Permission};
use crate::commands::apply::{find_kubeconfig, proxies};
use crate::commands::console::{Console, Opened};
use crate::commands::substrate::{self, Reached};
use crate::commands::{Desk, runtime, say, terminal, told};
use crate::config::check_instance;
use crate::failure::{Code, Failure, shell_word};
use crate::lock::direct::Intent;
use crate::lock::{self, message};
use crate::signal;

/// What a person is asked.
const QUESTION: &str = "Type the instance's name to let it go, or anything else to abort:\n> ";

/// Whether the name was typed, or need not be: nothing is written before.
#[derive(Debug, Clone, Default)]
struct Agreed(Arc<AtomicBool>);

impl Permission for Agreed {
    fn now(&self) -> Result<(), Failure> {
        let unasked = || Failure::new(Code::Internal, "nobody has agreed to this yet");
        self.0.load(Ordering::Relaxed).then_some(()).ok_or_else(unasked)
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

/// Lets it go, and says what came of that.
pub(crate) fn release(desk: &Desk, args: &ReleaseArgs) -> u8 {
    let released = runtime().and_then(|runtime| {
        let released = runtime.block_on(let_go(desk, args));
        runtime.shutdown_background();
        released
    });
    released.and_then(|text| say(&text)).map_or_else(|failure| told(&failure), |_| 0)
}

async fn let_go(desk: &Desk, args: &ReleaseArgs) -> Result<String, Failure> {
    let name = &args.instance;
    // It becomes part of addresses: another name than an instance can have would lead elsewhere.
    check_instance(name)?;
    let console = if args.yes { None } else { Some(person(desk)?) };
    let target = TargetOptions { kubeconfig: args.kubeconfig.clone(), kube_context: args.kube_context.clone() };
    let options = SubstrateOptions { substrate: Substrate::Kubernetes, lock_dir: None };
    let meant = substrate::meant(&options, &target)?;
    let Reached { store, place, .. } = substrate::reach(desk, meant, &target, Intent::Look).await?;
    let agreed = Agreed::default();
    let may_write = MayWrite::as_says(agreed.clone());
    let kubeconfig = find_kubeconfig(desk, &target)?;
    let cluster = Cluster::connect(&kubeconfig, &proxies(desk), may_write).await?;
    let refuse_at_work = async || match lock::observe(&store).await? {
        Some(seen) if seen.holder().is_some() && seen.record().instance() == Some(name.as_str()) => {
            let busy = message::busy(&seen, &place, desk.clock.wall());
            Err(Failure::new(busy.code(), busy.text))
        }
        Some(_) | None => Ok(()),
    };
    refuse_at_work().await?;
    let Some((api_version, found)) = cluster.any_declaration(name).await? else {
        return Ok(format!("\"{name}\" is not declared on this cluster; there is nothing to release\n"));
    };
    let told = what_stays(&cluster, kubeconfig.context(), name, &found).await?;
    match console {
        Some(console) => {
            asked(console, name, &told).await?;
            // A person takes the time that a person takes.
            refuse_at_work().await?;
            refuse_changed(&cluster, name, &found).await?;
        }
        None => say(&told).map(drop)?,
    }
    agreed.0.store(true, Ordering::Relaxed);
    let uid = found["metadata"]["uid"].as_str().unwrap_or_default();
    Ok(match cluster.let_go(&api_version, name, uid).await? {
        LetGo::Gone => format!("\"{name}\" is released: its name and what it claimed are free\n"),
        LetGo::KeptBy(finalizers) => {
            let finalizers = finalizers.join(", ");
            format!(
                "dcctl has released \"{name}\"; its declaration stays until whoever wrote {finalizers} lets go, too\n"
            )
        }
    })
}

/// Refuses to let go of another declaration than the one that was spoken of.
async fn refuse_changed(cluster: &Cluster, name: &str, told: &Value) -> Result<(), Failure> {
    let now = cluster.any_declaration(name).await?;
    let same = |pointer: &str| now.as_ref().is_none_or(|(_, found)| found.pointer(pointer) == told.pointer(pointer));
    if ["/metadata/uid", "/metadata/annotations"].into_iter().all(same) {
        return Ok(());
    }
    let sentence = format!("the declaration of \"{name}\" was changed while its name was typed; nothing was released");
    Err(Failure::new(Code::CannotTell, sentence).hint("run the same command again: it says what stays by now"))
}

/// A person's terminal.
fn person(desk: &Desk) -> Result<Opened, Failure> {
    let yes = "with --yes the name need not be typed";
    if desk.environment.says_yes("CI") {
        let said = "the instance's name is to be typed at a terminal, and `CI` is set: this is a job";
        return Err(Failure::new(Code::PersonMissing, said).hint(yes));
    }
    Opened::open().map_err(|failure| failure.hint(yes))
}

/// Says what goes and what does not.
async fn what_stays(cluster: &Cluster, context: &str, name: &str, found: &Value) -> Result<String, Failure> {
    let annotation = |key: &str| found["metadata"]["annotations"][key].as_str();
    let phase = annotation(PHASE).map_or_else(|| "none".to_owned(), terminal::plain);
    let mut text = format!(
        "This deletes the declaration of \"{name}\" (phase {phase}) with dcctl's finalizer, and destroys nothing. What it \
         claimed is then free for others, and dcctl knows nothing of it any more. What stays:\n"
    );
    for line in namespaces(cluster, name).await?.into_iter().chain(releases(cluster, name).await?) {
        text.push_str(&format!("  {line}\n"));
    }
    text.push_str(&match annotation(LINEAGE) {
        Some(lineage) => {
            format!("  infrastructure: everything in the OpenTofu state {}\n", terminal::plain(lineage))
        }
        None => "  infrastructure: none that the declaration names\n".to_owned(),
    });
    text.push_str(&format!(
        "To remove these, too, do not release it, but destroy it with the bundle that it was built from:\n  \
         dcctl destroy {name} --kube-context {} --bundle BUNDLE\n",
        shell_word(context)
    ));
    Ok(text)
}

/// The namespaces that bear the instance's label, whatever a bundle calls them.
async fn namespaces(cluster: &Cluster, name: &str) -> Result<Vec<String>, Failure> {
    let found = match cluster.namespaces_of(name).await {
        Err(failure) if failure.code == Code::Forbidden => {
            return Ok(vec![format!(
                "namespaces: this account may not list them; whoever may: kubectl get namespaces -l {INSTANCE_LABEL}={name}"
            )]);
        }
        found => found?,
    };
    if found.is_empty() {
        return Ok(vec![format!("namespaces: none has the label {INSTANCE_LABEL}={name}")]);
    }
    let line = |found: OwnNamespace| {
        let leaving = if found.is_deleted { "is being deleted, " } else { "" };
        format!("namespace {}: {leaving}with everything in it", found.name)
    };
    Ok(found.into_iter().map(line).collect())
}

/// The Helm releases that bear its stamp.
async fn releases(cluster: &Cluster, name: &str) -> Result<Vec<String>, Failure> {
    if !cluster.may_list_all_secrets().await? {
        return Ok(vec!["Helm releases: this account may not list the secrets of all namespaces".to_owned()]);
    }
    let found = cluster.stamped_releases(None).await?;
    let own = found.into_iter().filter(|found| found.is_another_of(name, None));
    let own: Vec<String> = own.map(|found| format!("Helm release {} in {}", found.name, found.namespace)).collect();
    Ok(if own.is_empty() { vec!["Helm releases: none that dcctl made for it".to_owned()] } else { own })
}

/// Asks the person.
async fn asked(opened: Opened, name: &str, told: &str) -> Result<(), Failure> {
    let mut signals = signal::install()
        .map_err(|error| Failure::new(Code::Internal, "the signal handlers could not be installed").because(&error))?;
    let mut console = Console::new(opened)?;
    console.say(told);
    console.ask(QUESTION);
    let typed = tokio::select! {
        biased;
        _ = signals.next() => None,
        line = console.line() => Some(line),
    };
    if typed.as_deref().map(str::trim) == Some(name) {
        return Ok(());
    }
    let said = if typed.is_none() {
        "interrupted; nothing was released"
    } else {
        "that is not its name; nothing was released"
    };
    Err(Failure::new(Code::StoppedClean, said))
}
