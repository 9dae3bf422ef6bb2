//! Where the demo plays: a control plane of its own, or the cluster of a context.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::bed::child::{Mark, command};
use crate::bed::control_plane::{ControlPlane, Start};
use crate::bed::serve::End;
use crate::bed::{Tools, folder};

/// A cluster and the tools that act on it.
#[derive(Debug)]
pub(crate) struct Stage {
    context: String,
    /// A folder with what PATH lacks of `tofu`, `helm` and `kubectl`, put before it.
    programs: PathBuf,
    kubectl: PathBuf,
    tofurc: PathBuf,
    /// A home for what runs on a control plane of our own. On any cluster dcctl notes in it which runs there were.
    home: PathBuf,
    cluster: Cluster,
}

#[derive(Debug)]
enum Cluster {
    /// A control plane that ends with the demo.
    Own(Box<ControlPlane>),
    /// The user's cluster, with their kubeconfig and their home. What has to outlive this demo lies in the folder,
    /// which is of this cluster alone: one that was made anew under the same name has another.
    Theirs(PathBuf),
}

impl Stage {
    /// Starts a control plane. What is missing is built.
    pub(crate) fn own(results: &Path, end: &End, out: &mut dyn Write) -> io::Result<Stage> {
        folder::remove_abandoned();
        let tools = Tools::build(&[])?;
        writeln!(out, "Starting a Kubernetes control plane for this demo, on this machine's loopback …")?;
        out.flush()?;
        let plane = ControlPlane::start(&tools, Start::Pristine, end)?;
        let home = home(results)?;
        let described = plane.described();
        writeln!(out, "It listens on {} and took {} ms.", described.server, described.start_ms)?;
        let (programs, tofurc) = (described.programs.clone(), described.tofurc.clone());
        let kubectl = programs.join("kubectl");
        let cluster = Cluster::Own(Box::new(plane));
        Ok(Stage { context: "bed".into(), programs, kubectl, tofurc, home, cluster })
    }

    /// Uses the user's cluster and tools. What is missing of the tools is built.
    pub(crate) fn theirs(context: String, results: &Path, out: &mut dyn Write) -> io::Result<Stage> {
        let tools = Tools::for_a_cluster()?;
        let programs = results.join("bin");
        tools.link_what_path_lacks(&programs)?;
        let (kubectl, tofurc) = (tools.path("kubectl").to_owned(), tools.path("tofurc").to_owned());
        let cluster = Cluster::Theirs(PathBuf::new());
        let mut stage = Stage { context, programs, kubectl, tofurc, home: home(results)?, cluster };
        let uid = stage.ask(&["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"])?;
        let kept = results.join(super::KEPT).join(uid.trim());
        writeln!(out, "Using the cluster of the context {}. What the demo makes there stays there.", stage.context)?;
        writeln!(out, "The state of OpenTofu is kept in {}", kept.display())?;
        stage.cluster = Cluster::Theirs(kept);
        Ok(stage)
    }

    /// Whether the cluster outlives the demo.
    pub(crate) fn stays(&self) -> bool {
        matches!(self.cluster, Cluster::Theirs(_))
    }

    /// The context's name.
    pub(crate) fn context(&self) -> &str {
        &self.context
    }

    /// Gives a command the tools and the demo's own place for what dcctl notes about runs, and on a cluster of our own
    /// the credentials and a home for it.
    pub(crate) fn prepare(&self, command: &mut Command) {
        command.env("PATH", self.path()).env("TF_CLI_CONFIG_FILE", &self.tofurc);
        command.env("XDG_STATE_HOME", self.home.join(".local/state"));
        if let Cluster::Own(plane) = &self.cluster {
            let described = plane.described();
            command
                .env("KUBECONFIG", &described.user("admin").kubeconfig)
                .env("HOME", &self.home)
                .env(Mark::VARIABLE, Mark::of(&described.folder).value());
        }
    }

    /// Where the state of OpenTofu belongs: not with the state of real clusters. Each instance has a folder of its own.
    pub(crate) fn state(&self) -> PathBuf {
        match &self.cluster {
            Cluster::Own(_) => self.home.join("state"),
            Cluster::Theirs(kept) => kept.clone(),
        }
    }

    /// kubectl for this cluster.
    pub(crate) fn kubectl(&self) -> Command {
        let mut kubectl = command(&self.kubectl);
        self.prepare(&mut kubectl);
        kubectl.args(["--context", &self.context]);
        kubectl
    }

    /// What kubectl answers. An error has its own words.
    pub(crate) fn ask(&self, words: &[&str]) -> io::Result<String> {
        let output = self.kubectl().args(words).stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(io::Error::other(format!("kubectl {}: {said}", words.join(" "))))
    }

    #[expect(clippy::disallowed_methods, reason = "the user's PATH, put after the bed's own folder")]
    fn path(&self) -> std::ffi::OsString {
        let mut path = self.programs.clone().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        path
    }
}

/// The demo's home, which goes with its reports when there is another demo.
fn home(results: &Path) -> io::Result<PathBuf> {
    let home = results.join("home");
    fs::create_dir_all(&home)?;
    Ok(home)
}
