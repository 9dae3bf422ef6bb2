//! What a run writes down about itself on the cluster: the install record, and the phase of an instance.
//!
//! Both are written before the act they name and after it succeeded, never in between: a run that died reads as one
//! that was at work. A run that lost its lock does not come here.

use serde_json::{Map, Value, json};

use crate::clock::rfc3339;
use crate::cluster::instances::{Declared, LINEAGE, PHASE, Phase, RELEASE, SERIAL};
use crate::cluster::record::{BUNDLE, Progress, Record, SCHEMA, StateVersion};
use crate::failure::{Code, Failure};
use crate::step::halt::drive;
use crate::step::tools::Version;
use crate::step::{Backwards, Kit, Lineage, Mode, ObjectChange, ObjectName, Outcome, Part, Update, origin, tofu_state};

/// Refuses, before an install asks for the lock, what speaks against it: an install record that is not this bundle's to
/// rewrite, and OpenTofu state of another cluster. It only reads, and is asked again right before each write.
///
/// # Errors
/// With the guard's code, or when the cluster cannot be asked.
pub async fn refuse_foreign(kit: &Kit) -> Result<(), Failure> {
    let looked = async {
        let uid = kit.cluster.uid().await?;
        let before = kit.cluster.install_record(&uid, &kit.bundle.name).await?;
        refuse_backwards(kit, before.as_ref())?;
        if kit.bundle.prerequisites.is_some() {
            tofu_state::refuse_errored(Part::Prerequisites, &kit.state_dir)?;
        }
        origin::own_state(kit, Part::Prerequisites).await
    };
    match looked.await {
        // What an account may not do it is told by the step that has to do it, after the lock, which it may lack, too.
        Err(failure) if failure.code == Code::Forbidden => Ok(()),
        looked => looked.map(drop),
    }
}

/// Refuses to put an older release in the place of a newer one, be that complete or half applied. What cannot be compared
/// is let through.
fn refuse_backwards(kit: &Kit, before: Option<&Record>) -> Result<(), Failure> {
    let Some(theirs) = before.and_then(|before| before.settings.get("version")).and_then(Value::as_str) else {
        return Ok(());
    };
    let ours = kit.bundle.version.as_str();
    let number = |version: &str| Version::parse(version.strip_prefix('v').unwrap_or(version));
    let is_older = number(ours).zip(number(theirs)).is_some_and(|(ours, theirs)| ours < theirs);
    if !is_older || kit.choices.backwards == Backwards::Allowed {
        return Ok(());
    }
    let sentence =
        format!("this cluster has release {theirs} of {}, and this bundle is the older {ours}", kit.bundle.name);
    Err(Failure::new(Code::Downgrade, sentence)
        .cause("definitions and objects of the newer release may not fit the older operator")
        .hint("install that release or a newer one; if the older one is what you want: --allow-downgrade"))
}

/// Checks that the install record is ours to write and writes that an install began. In a dry run only checks.
pub(in crate::step) async fn begin_install(kit: &Kit) -> Result<(), Failure> {
    let uid = kit.cluster.uid().await?;
    let before = kit.cluster.install_record(&uid, &kit.bundle.name).await?;
    refuse_backwards(kit, before.as_ref())?;
    // Which state it is stays written down, whatever becomes of this run.
    let state = before.and_then(|before| before.state);
    match kit.mode {
        Mode::Act => kit.cluster.write_install_record(&record(kit, uid, Progress::Applying, state)).await,
        Mode::DryRun => Ok(()),
    }
}

/// What the install record says of the state of what all instances share.
///
/// # Errors
/// When the cluster cannot be asked, or the record is not this bundle's.
pub(in crate::step) async fn shared_state(kit: &Kit) -> Result<Option<StateVersion>, Failure> {
    let uid = kit.cluster.uid().await?;
    let before = kit.cluster.install_record(&uid, &kit.bundle.name).await?;
    Ok(before.and_then(|before| before.state))
}

/// Writes down in the install record, if there is one, which state that is and how old.
///
/// # Errors
/// What the API server says.
pub(in crate::step) async fn record_shared_state(kit: &Kit, state: &Lineage) -> Result<(), Failure> {
    let uid = kit.cluster.uid().await?;
    let Some(before) = kit.cluster.install_record(&uid, &kit.bundle.name).await? else { return Ok(()) };
    let is_recorded = |seen: &StateVersion| seen.lineage == state.lineage && seen.serial >= state.serial;
    if kit.mode == Mode::DryRun || before.state.as_ref().is_some_and(is_recorded) {
        return Ok(());
    }
    let state = Some(StateVersion { lineage: state.lineage.clone(), serial: state.serial });
    kit.cluster.write_install_record(&Record { state, ..before }).await
}

/// The step *Record the install*.
pub async fn record_install(kit: &Kit) -> Outcome {
    drive(kit, async {
        let uid = kit.cluster.uid().await?;
        let before = kit.cluster.install_record(&uid, &kit.bundle.name).await?;
        let note = format!("{} {}", kit.bundle.name, kit.bundle.version);
        if kit.mode == Mode::Act {
            let state = before.as_ref().and_then(|before| before.state.clone());
            kit.cluster.write_install_record(&record(kit, uid, Progress::Installed, state)).await?;
        }
        // Beginning the install wrote it already, so in a real run it is never new here.
        let change = match (kit.mode, before) {
            (Mode::DryRun, None) => ObjectChange::Created,
            (Mode::DryRun, Some(_)) | (Mode::Act, _) => ObjectChange::Configured,
        };
        let object = ObjectName {
            kind: "ConfigMap".to_owned(),
            namespace: Some(crate::cluster::instances::SHARED_NAMESPACE.to_owned()),
            name: crate::cluster::record::NAME.to_owned(),
        };
        kit.updates.send(Update::Object { object, change, taken_over: Vec::new() });
        Ok(Outcome::Done(match kit.mode {
            Mode::Act => format!("{note} is installed"),
            Mode::DryRun => format!("{note} would be installed"),
        }))
    })
    .await
}

fn record(kit: &Kit, cluster_uid: String, phase: Progress, state: Option<StateVersion>) -> Record {
    let operator = kit.bundle.operator.as_ref().and_then(|operator| operator.deployment.as_ref());
    let settings = json!({
        (BUNDLE): kit.bundle.name,
        "version": kit.bundle.version,
        "operator": operator.map(|deployment| format!("{}/{}", deployment.namespace, deployment.name)),
        "maxConnections": kit.bundle.max_connections,
    });
    let Value::Object(settings) = settings else { unreachable!("it is written as a map above") };
    Record {
        schema: SCHEMA,
        phase,
        cluster_uid,
        dcctl_version: env!("CARGO_PKG_VERSION").to_owned(),
        time: rfc3339(kit.clock.wall()),
        settings,
        outputs: Map::new(),
        state,
    }
}

/// The step *Record the phase*: everything is done, so the instance is `Ready`.
pub async fn record_phase(kit: &Kit) -> Outcome {
    drive(kit, async {
        let Some(declared) = find(kit).await? else {
            return Ok(Outcome::Nothing("the bundle declares nothing".to_owned()));
        };
        if kit.mode == Mode::DryRun {
            return Ok(Outcome::Nothing("a dry run records nothing".to_owned()));
        }
        let declared = declared.ok_or_else(|| gone(kit))?;
        write_phase(kit, &declared, Phase::Ready).await?;
        Ok(Outcome::Done(format!("the instance is {}", Phase::Ready.word())))
    })
    .await
}

/// Writes `Failed` on the declaration, if it says that a run is at work. What the engine does when a step failed;
/// never for a run that lost its lock.
///
/// A run that wrote no phase itself leaves that of another alone: it may have gone on without the lock, and the one that is
/// written may be that of a run at work.
pub async fn record_failure(kit: &Kit) -> Result<(), Failure> {
    if kit.mode == Mode::DryRun || !kit.course.has_changed() {
        return Ok(());
    }
    let Some(Some(declared)) = find(kit).await? else { return Ok(()) };
    match declared.phase.as_deref().and_then(Phase::parse) {
        Some(Phase::Bootstrapping | Phase::Upgrading) => write_phase(kit, &declared, Phase::Failed).await,
        Some(Phase::Ready | Phase::Failed | Phase::Destroying) | None => Ok(()),
    }
}

/// The lineage of the instance's OpenTofu state, as recorded on its declaration.
pub async fn recorded_lineage(kit: &Kit) -> Result<Option<String>, Failure> {
    let declared = find(kit).await?.flatten();
    Ok(declared.and_then(|declared| declared.lineage))
}

/// Records on the declaration which OpenTofu state the instance has and how old that is, so that an apply from another, an
/// older or an empty one can be refused. Nothing happens without a declaration, in a dry run, and when it is recorded already.
pub async fn record_state(kit: &Kit, state: &Lineage) -> Result<(), Failure> {
    let Some(Some(declared)) = find(kit).await? else { return Ok(()) };
    // What another run wrote meanwhile, of a newer version of the same state, stays: this one may have no lock.
    let is_recorded = declared.lineage.as_ref() == Some(&state.lineage)
        && declared.serial.is_some_and(|serial| serial >= state.serial);
    if kit.mode == Mode::DryRun || is_recorded {
        return Ok(());
    }
    let (api_version, name) = identity(kit).expect("a declaration was found by it");
    let serial = state.serial.to_string();
    let annotations = [(LINEAGE, Some(state.lineage.as_str())), (SERIAL, Some(serial.as_str()))];
    kit.cluster.annotate_declaration(api_version, (name, &declared.uid), &annotations).await
}

/// Records on the declaration which state in a backend an apply is about to work on in which there is nothing yet. How old it
/// is comes there when an end of that is witnessed, and until then nobody knows what there is.
pub(in crate::step) async fn record_begun(kit: &Kit, lineage: &str) -> Result<(), Failure> {
    let Some(Some(declared)) = find(kit).await? else { return Ok(()) };
    let (api_version, name) = identity(kit).expect("a declaration was found by it");
    let annotations = [(LINEAGE, Some(lineage)), (SERIAL, None)];
    kit.cluster.annotate_declaration(api_version, (name, &declared.uid), &annotations).await
}

/// Takes the state's name off the declaration: nothing is left that the state knew. Nothing happens without a declaration.
pub(in crate::step) async fn forget_lineage(kit: &Kit) -> Result<(), Failure> {
    let Some(Some(declared)) = find(kit).await? else { return Ok(()) };
    if kit.mode == Mode::DryRun || declared.lineage.is_none() {
        return Ok(());
    }
    let (api_version, name) = identity(kit).expect("a declaration was found by it");
    kit.cluster.annotate_declaration(api_version, (name, &declared.uid), &[(LINEAGE, None), (SERIAL, None)]).await
}

/// Writes the phase `Upgrading`, before the first act of an upgrade that it names.
pub(in crate::step) async fn begin_upgrade(kit: &Kit) -> Result<(), Failure> {
    kit.course.change();
    let Some(Some(declared)) = find(kit).await? else { return Ok(()) };
    if declared.phase.as_deref() == Some(Phase::Upgrading.word()) {
        return Ok(());
    }
    write_phase(kit, &declared, Phase::Upgrading).await
}

/// What these steps need of a declaration.
pub(in crate::step) struct Found {
    pub(in crate::step) uid: String,
    pub(in crate::step) phase: Option<String>,
    pub(in crate::step) lineage: Option<String>,
    /// How old the state was when a run on it ended last; none where that was not written down.
    pub(in crate::step) serial: Option<u64>,
}

/// The API version and the name of the declaration, when the bundle has one.
pub(in crate::step) fn identity(kit: &Kit) -> Option<(&str, &str)> {
    let declaration = kit.bundle.instance.as_ref()?.declaration.as_ref()?;
    Some((&declaration.api_version, kit.instance.as_deref()?))
}

/// None when the bundle declares nothing; `Some(None)` when the declaration is not on the cluster.
pub(in crate::step) async fn find(kit: &Kit) -> Result<Option<Option<Found>>, Failure> {
    let Some((api_version, name)) = identity(kit) else { return Ok(None) };
    match kit.cluster.declaration(api_version, name).await? {
        Declared::Missing | Declared::NoDefinition => Ok(Some(None)),
        Declared::There(object) => {
            let metadata = &object["metadata"];
            let annotation = |name: &str| metadata["annotations"][name].as_str().map(str::to_owned);
            let uid = metadata["uid"].as_str().unwrap_or_default().to_owned();
            let serial = annotation(SERIAL).and_then(|serial| serial.parse().ok());
            Ok(Some(Some(Found { uid, phase: annotation(PHASE), lineage: annotation(LINEAGE), serial })))
        }
    }
}

fn gone(kit: &Kit) -> Failure {
    let name = kit.instance.as_deref().unwrap_or_default();
    Failure::new(
        Code::CannotTell,
        format!("the declaration of \"{name}\" is gone, so it cannot be said that it is ready"),
    )
}

/// A destroy may go on without the lock, so what another run wrote meanwhile stays.
async fn write_phase(kit: &Kit, declared: &Found, phase: Phase) -> Result<(), Failure> {
    let Some((api_version, name)) = identity(kit) else { return Ok(()) };
    if declared.phase.as_deref() == Some(Phase::Destroying.word()) {
        let message = format!("the instance \"{name}\" is not {} any more", phase.word());
        return Err(Failure::new(Code::CannotTell, message).cause("another run has marked it Destroying meanwhile"));
    }
    // One that is recorded already stays. Who was refused because of its state comes here with `Failed`: which state the
    // instance has is not learned from that.
    let is_news = declared.lineage.is_none() && phase != Phase::Failed;
    let state = origin::of_instance(kit).filter(|_| is_news);
    let serial = state.as_ref().map(|state| state.serial.to_string());
    let lineage = state.as_ref().map(|state| (LINEAGE, Some(state.lineage.as_str())));
    let lineage = lineage.into_iter().chain(serial.as_deref().map(|serial| (SERIAL, Some(serial))));
    let release = (phase == Phase::Ready).then_some((RELEASE, Some(kit.bundle.version.as_str())));
    let phase = std::iter::once((PHASE, Some(phase.word())));
    let annotations: Vec<(&str, Option<&str>)> = phase.chain(lineage).chain(release).collect();
    kit.cluster.annotate_declaration(api_version, (name, &declared.uid), &annotations).await?;
    let object = ObjectName { kind: "Instance".to_owned(), namespace: None, name: name.to_owned() };
    kit.updates.send(Update::Object { object, change: ObjectChange::Configured, taken_over: Vec::new() });
    Ok(())
}
