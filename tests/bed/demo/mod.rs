//! `bed demo`: shows dcctl at work on a real cluster, and proves afterwards what it claimed.
//!
//! It installs and bootstraps the bundle of `fixtures/demo` with the human log on screen, and watches the Lease from
//! outside meanwhile. [`stage`] is the cluster: a control plane that ends with the demo, or the one of a context that
//! the user names. [`lease`] is the watcher, [`place`] finds what is free on a cluster where earlier demos are.

mod lease;
mod place;
mod stage;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::bed::child::command;
use crate::bed::serve::End;
use crate::bed::tools::own;

use lease::Watcher;
use place::Place;
use stage::Stage;

/// The secret of the demo's bundle. It has to appear nowhere.
const PASSWORD: &str = "correct-horse-battery-staple";

/// In the folder of the results, what outlives a demo: the state of what it made on clusters that stay.
const KEPT: &str = "clusters";

/// Shows it. An error says what was not as it should be.
pub(crate) fn demo(arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> io::Result<()> {
    let (context, results) = read(arguments)?;
    // Ctrl+C is for dcctl: the cluster under it stays until dcctl has given back the lock.
    let end = End::of_signals()?;
    let results = results_folder(results)?;
    let stage = match context {
        None => Stage::own(&results, &end, out)?,
        Some(context) => Stage::theirs(context, &results, out)?,
    };
    let mut show = Show { stage: &stage, results: &results, out };
    show.act("install", "shared", &["install"])?;
    let place = Place::find(&stage)?;
    let mut words = vec!["bootstrap".to_owned(), place.name.clone()];
    if place.port != Place::FIRST_PORT {
        words.extend(["--var".to_owned(), format!("mqtt_port={}", place.port)]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    show.act("bootstrap", &place.name, &words)?;
    show.close(&place)
}

/// The context, and where the results go.
fn read(mut arguments: impl Iterator<Item = OsString>) -> io::Result<(Option<String>, Option<PathBuf>)> {
    let (mut context, mut results) = (None, None);
    while let Some(option) = arguments.next() {
        match (option.to_str(), arguments.next()) {
            (Some("--context"), Some(given)) => context = Some(given.to_string_lossy().into_owned()),
            (Some("--results"), Some(given)) => results = Some(PathBuf::from(given)),
            _ => {
                return Err(io::Error::other(
                    "bed demo takes --context CONTEXT and --results FOLDER, and nothing else",
                ));
            }
        }
    }
    Ok((context, results))
}

/// Where the demo's reports stay: in Cargo's own folder, so that `cargo clean` removes them. Those of an earlier demo
/// go, except for what belongs to clusters that are still there.
fn results_folder(given: Option<PathBuf>) -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2).unwrap_or(Path::new("."));
    let folder = given.unwrap_or_else(|| target.join("demo"));
    fs::create_dir_all(&folder)?;
    for name in ["bin", "home", "install.run", "bootstrap.run"].map(|name| folder.join(name)) {
        if name.exists() {
            fs::remove_dir_all(name)?;
        }
    }
    for name in ["install.jsonl", "install.xml", "bootstrap.jsonl", "bootstrap.xml"].map(|name| folder.join(name)) {
        if name.exists() {
            fs::remove_file(name)?;
        }
    }
    folder.canonicalize()
}

struct Show<'a> {
    stage: &'a Stage,
    results: &'a Path,
    out: &'a mut dyn Write,
}

impl Show<'_> {
    /// One command of dcctl with its log on screen, then what the Lease looked like meanwhile.
    fn act(&mut self, name: &str, state: &str, words: &[&str]) -> io::Result<()> {
        let (events, junit) = (self.file(name, "jsonl"), self.file(name, "xml"));
        let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/demo");
        writeln!(
            self.out,
            "\n$ dcctl {} --bundle fixtures/demo --kube-context {}\n",
            words.join(" "),
            self.stage.context()
        )?;
        self.out.flush()?;
        let watcher = Watcher::start(self.stage)?;
        let mut dcctl = command(&own("dcctl"));
        dcctl.args(words).arg("--bundle").arg(bundle).args(["--kube-context", self.stage.context()]);
        dcctl.args(["--output", "human"]).arg("--events-file").arg(&events).arg("--junit").arg(&junit);
        dcctl.arg("--state-dir").arg(self.stage.state().join(state)).arg("--run-dir").arg(self.file(name, "run"));
        self.stage.prepare(&mut dcctl);
        let status = dcctl.env("DCCTL_VAR_DB_PASSWORD", PASSWORD).status()?;
        let story = watcher.stop()?;
        prove(&events, &junit)?;
        if !status.success() {
            let code = status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}"));
            return Err(io::Error::other(format!("dcctl {name} ended with {code}")));
        }
        story.tell(self.out)
    }

    /// The Lease is gone; what is on the cluster now; where to look.
    fn close(&mut self, place: &Place) -> io::Result<()> {
        writeln!(self.out, "\nThe lock now:\n")?;
        let gone = self.kubectl(&["get", "lease", "dcctl", "-n", "dc-k8s-system"])?;
        writeln!(self.out, "\nThe cluster now:\n")?;
        self.kubectl(&["get", "instances.core.devicechain.io"])?;
        self.kubectl(&["get", "deployments,pods", "-n", &format!("dci-{}", place.name)])?;
        writeln!(self.out, "\nLook at:\n")?;
        for (name, kind) in [("install", "jsonl"), ("install", "xml"), ("bootstrap", "jsonl"), ("bootstrap", "xml")] {
            let path = self.file(name, kind);
            let lines = fs::read_to_string(&path)?.lines().count();
            let what = if kind == "xml" { "the JUnit report".to_owned() } else { format!("{lines} events") };
            writeln!(self.out, "  {what:<18}{}", path.display())?;
        }
        if self.stage.stays() {
            let name = &place.name;
            writeln!(
                self.out,
                "\nThe instance {name} stays on the cluster. `dcctl destroy {name}` with the same bundle and"
            )?;
            writeln!(self.out, "--state-dir {} removes it.", self.stage.state().join(name).display())?;
        }
        if gone.contains("NotFound") { Ok(()) } else { Err(io::Error::other("the Lease is still there")) }
    }

    /// Runs kubectl, shows the command and what it says, and returns that.
    fn kubectl(&mut self, words: &[&str]) -> io::Result<String> {
        let mut kubectl = self.stage.kubectl();
        let output = kubectl.args(words).stdin(Stdio::null()).output()?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        writeln!(self.out, "  $ kubectl {}", words.join(" "))?;
        said.lines().try_for_each(|line| writeln!(self.out, "  {line}"))?;
        Ok(said)
    }

    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.results.join(format!("{name}.{kind}"))
    }
}

/// What has to be true of every run's files.
fn prove(events: &Path, junit: &Path) -> io::Result<()> {
    for path in [events, junit] {
        let text = fs::read_to_string(path).unwrap_or_default();
        if text.contains(PASSWORD) {
            return Err(io::Error::other(format!("the secret is in {}", path.display())));
        }
    }
    let last = fs::read_to_string(events)?.lines().last().map(serde_json::from_str::<Value>);
    match last {
        Some(Ok(event)) if event["type"] == "run.finished" => Ok(()),
        _ => Err(io::Error::other(format!("{} does not end with a verdict", events.display()))),
    }
}
