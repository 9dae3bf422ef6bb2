//! Reads what a verb would read before it begins: options, bundle, variables, kubeconfig; and looks at this machine.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::cluster::{Kubeconfig, document};
use crate::commands::apply::{files, find_kubeconfig, notes, reports};
use crate::commands::attempt;
use crate::commands::preflight::check::Check;
use crate::commands::preflight::judge::{self, Case, Known, Room};
use crate::commands::preflight::{Looking, machine};
use crate::config::{Bundle, Digest, Given, Inputs, Job};
use crate::failure::{Code, Failure};
use crate::pipeline::Verb;
use crate::run;
use crate::step::{self, Choices, Fate};

/// What was read.
pub(crate) struct Gathered {
    /// The bundle, resolved; none where the verb has none, or it cannot be.
    pub(crate) bundle: Option<Bundle>,
    /// The one context that is meant.
    pub(crate) kubeconfig: Option<Kubeconfig>,
    /// Where local state lives.
    pub(crate) state_dir: PathBuf,
    /// A folder for what is asked of tools; it goes at the end.
    pub(crate) work: Option<TempDir>,
    /// What the caller chose.
    pub(crate) choices: Choices,
    /// What is known so far of the case.
    pub(crate) case: Case,
}

/// Reads it all.
pub(crate) fn gather(looking: &mut Looking<'_>) -> Gathered {
    let (desk, args) = (looking.desk, looking.args);
    let job = Job::detect(&desk.environment, std::process::id());
    looking.add(judge::ci(&job));
    let grant = attempt::grant(&args.stop, desk, &job);
    looking.add(judge::stop_budget(&run::budget(grant, args.stop.stop_after), grant.by.advice()));
    let work = run_dir(looking);
    let kubeconfig = kubeconfig(looking);
    let scratch = work.as_ref().map(|work| work.path().to_owned());
    let bundle = bundle(looking, kubeconfig.as_ref(), scratch.as_deref());
    for (name, secret) in bundle.iter().flat_map(Bundle::secrets) {
        looking.redactor.add(name, secret.expose());
    }
    for (name, secret) in kubeconfig.iter().flat_map(Kubeconfig::secrets) {
        looking.redactor.add(&name, secret.expose());
    }
    let state_dir = state_dir(looking, bundle.as_ref(), kubeconfig.as_ref(), &job);
    temporary(looking);
    let case = case(looking, bundle.as_ref());
    let choices = Choices {
        infrastructure: if args.abandon_infrastructure { Fate::Abandoned } else { Fate::Destroyed },
        backwards: if args.allow_downgrade { step::Backwards::Allowed } else { step::Backwards::Refused },
        ..Choices::default()
    };
    Gathered { bundle, kubeconfig, state_dir, work, choices, case }
}

/// The run's own directory, as a run would make it.
fn run_dir(looking: &mut Looking<'_>) -> Option<TempDir> {
    const ID: &str = "run_dir";
    let code = Code::RunDirUnusable;
    let given = looking.args.run_dir.as_deref();
    let looked = machine::run_dir(looking.desk, given).and_then(|folder| machine::room(&folder, code));
    let made = looked.as_ref().ok().map(machine::work_folder);
    looking.add(match &made {
        Some(Err(failure)) => Check::failure(ID, failure),
        Some(Ok(_)) | None => judge::room(ID, code, &looked),
    });
    match made {
        Some(Ok(folder)) => Some(folder),
        // What tools are asked needs some folder.
        Some(Err(_)) | None => tempfile::tempdir_in(machine::temporary(looking.desk)).ok(),
    }
}

fn kubeconfig(looking: &mut Looking<'_>) -> Option<Kubeconfig> {
    const ID: &str = "kubeconfig";
    let (desk, args) = (looking.desk, looking.args);
    match find_kubeconfig(desk, &args.target) {
        Ok(kubeconfig) => {
            let warnings = notes(desk, Some(&kubeconfig), &Job::default(), args.stop.stop_after);
            let context = kubeconfig.context();
            let said = format!("context \"{context}\" leads to {}", kubeconfig.server());
            let check = Check::ok(ID, said).with("context", context).with("server", kubeconfig.server());
            looking.add(check);
            for warning in warnings {
                let fix = "give this account credentials that outlive the job";
                looking.add(Check::warning("credentials", warning, fix));
            }
            Some(kubeconfig)
        }
        Err(failure) => {
            looking.add(Check::failure(ID, &failure));
            None
        }
    }
}

/// The bundle as the verb would read it.
fn bundle(looking: &mut Looking<'_>, kubeconfig: Option<&Kubeconfig>, scratch: Option<&Path>) -> Option<Bundle> {
    const ID: &str = "bundle";
    let verb = looking.verb.filter(|verb| *verb != Verb::Exec)?;
    match read_bundle(looking, verb, kubeconfig, scratch) {
        Ok(bundle) => {
            let said = format!("{} {}", bundle.name, bundle.version);
            let check = Check::ok(ID, said).with("name", bundle.name.as_str()).with("release", bundle.version.as_str());
            looking.add(check);
            for note in &bundle.notes {
                looking.add(Check::warning(ID, note.clone(), "see whether that is meant").about("note"));
            }
            Some(bundle)
        }
        Err(failure) => {
            looking.add(Check::failure(ID, &failure));
            None
        }
    }
}

fn read_bundle(
    looking: &Looking<'_>,
    verb: Verb,
    kubeconfig: Option<&Kubeconfig>,
    scratch: Option<&Path>,
) -> Result<Bundle, Failure> {
    let (desk, args) = (looking.desk, looking.args);
    let instance = args.instance.clone().filter(|_| verb != Verb::Install);
    if instance != args.instance {
        let sentence = "an install is for the whole cluster, and takes no instance";
        return Err(Failure::new(Code::OptionInvalid, sentence).hint("leave the instance out"));
    }
    files::values(&args.given.values)?;
    let scratch = scratch.unwrap_or(Path::new("/nonexistent"));
    let path = args.bundle.as_deref().expect("the command line asks for it");
    let expected = args.bundle_digest.as_deref().map(Digest::parse).transpose()?;
    let written = Bundle::open(path, &files::unpacked(scratch), expected.as_ref())?;
    let given = Given::gather(&args.given.vars, &args.given.var_files, &desk.environment)?;
    let bundle = written.resolve(&Inputs {
        instance,
        kube_context: kubeconfig.map_or("unknown", Kubeconfig::context).to_owned(),
        kubeconfig: scratch.join(files::KUBECONFIG),
        run_id: attempt::new_run_id(),
        given,
    })?;
    if verb == Verb::Install {
        step::check_manifests(&bundle)?;
    }
    Ok(bundle)
}

/// The folder of local state, where there is any.
fn state_dir(
    looking: &mut Looking<'_>,
    bundle: Option<&Bundle>,
    kubeconfig: Option<&Kubeconfig>,
    job: &Job,
) -> PathBuf {
    const ID: &str = "state_dir";
    let (desk, args) = (looking.desk, looking.args);
    let (instance, context) = (args.instance.as_deref(), kubeconfig.map_or("", Kubeconfig::context));
    let Some(bundle) = bundle else {
        if looking.verb.is_some_and(|verb| verb != Verb::Exec) {
            looking.skip(&[ID]);
        }
        return PathBuf::new();
    };
    let part = if looking.verb == Some(Verb::Install) { step::Part::Prerequisites } else { step::Part::Infrastructure };
    let stays = reports::state_stays(args.state_dir.as_deref(), args.run_dir.as_deref(), args.bundle.as_deref());
    let found = files::state_dir(args.state_dir.as_deref(), instance, context, &desk.environment);
    let found = stays.and(found);
    let folder = match found {
        Ok(folder) => folder,
        Err(failure) => {
            looking.add(Check::failure(ID, &failure));
            return PathBuf::new();
        }
    };
    if let Err(failure) = step::refuse_local_state_in_ci(bundle, job.ci, args.state_dir.is_some()) {
        looking.add(Check::failure(ID, &failure));
    } else if let Some(step::StateSeen::Local { .. }) = step::look_at_state(bundle, part, &folder) {
        let code = Code::RunDirUnusable;
        looking.add(judge::room(ID, code, &machine::room(&folder, code)));
    }
    folder
}

fn temporary(looking: &mut Looking<'_>) {
    let code = Code::TemporaryFolderUnusable;
    let looked: Result<Room, Failure> = machine::room(&machine::temporary(looking.desk), code).and_then(|room| {
        // A tool makes no folder for it.
        if room.there == room.folder {
            return Ok(room);
        }
        Err(Failure::new(code, format!("{} is not there", room.folder.display())))
    });
    let check = judge::room("tmpdir", code, &looked);
    let uses_tofu = looking.verb.is_some_and(|verb| verb != Verb::Exec);
    looking.add(if uses_tofu { check } else { check.only_warned() });
}

/// What decides which rights are used, as far as the bundle and the options say.
fn case(looking: &Looking<'_>, bundle: Option<&Bundle>) -> Case {
    let waits = if looking.args.busy.wait.is_some() { Known::Yes } else { Known::No };
    let Some(bundle) = bundle else { return Case { waits, ..Case::UNKNOWN } };
    let operator = bundle.operator.as_ref();
    let declares = bundle.instance.as_ref().map(|instance| instance.declaration.is_some());
    let definitions = operator.map_or(Ok(false), |operator| {
        let documents = document::read(&bundle.root, &operator.manifests)?;
        Ok::<_, Failure>(documents.iter().any(document::Document::is_definition))
    });
    Case {
        waits,
        declares: Known::of(Some(declares.unwrap_or(false))),
        operator_named: Known::of(Some(operator.is_some_and(|operator| operator.deployment.is_some()))),
        definitions: Known::of(definitions.ok()),
        ..Case::UNKNOWN
    }
}
