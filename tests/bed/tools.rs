//! Where the real programs are: etcd, the API server, OpenTofu, Helm and the others.
//!
//! `tests/bed/build` knows, and builds what is missing. It is asked once a process. What comes as a package, and is needed by
//! a few tests alone, `tests/bed/fetch` knows.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use crate::bed::child::command;

/// The tools by the names of their variables, `DCCTL_BED_TOFU` and so on.
#[derive(Debug, Clone)]
pub(crate) struct Tools(BTreeMap<String, PathBuf>);

/// What a control plane and the runs on it need.
const FOR_RUNS: &[&str] = &[
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "kubectl",
    "tofu",
    "helm",
    "provider-time",
    "provider-bed",
];

impl Tools {
    /// What a control plane and the runs on it need, built now if it has to be; progress goes to standard error. Asked once
    /// a process.
    pub(crate) fn get() -> &'static Tools {
        static TOOLS: OnceLock<Tools> = OnceLock::new();
        TOOLS.get_or_init(|| Tools::build(FOR_RUNS).unwrap_or_else(|error| panic!("{error}")))
    }

    /// What stands for GitHub: act and actionlint. The demo needs neither, so it does not wait for them.
    #[cfg(test)]
    pub(crate) fn of_github() -> &'static Tools {
        static TOOLS: OnceLock<Tools> = OnceLock::new();
        TOOLS.get_or_init(|| Tools::build(&["act", "actionlint"]).unwrap_or_else(|error| panic!("{error}")))
    }

    /// What a run needs that has a cluster already: the user's own programs, and only what they lack is built.
    pub(crate) fn for_a_cluster() -> io::Result<Tools> {
        let programs = ["tofu", "helm", "kubectl"];
        let found = programs.into_iter().filter_map(|name| Some((variable(name), on_path(name)?)));
        Tools::ask("build", &[&programs[..], &["provider-time"]].concat(), &found.collect())
    }

    /// Only these tools, built now if they have to be.
    pub(crate) fn build(names: &[&str]) -> io::Result<Tools> {
        Tools::ask("build", names, &BTreeMap::new())
    }

    /// These packages, fetched now if they have to be.
    pub(crate) fn fetch(names: &[&str]) -> io::Result<Tools> {
        Tools::ask("fetch", names, &BTreeMap::new())
    }

    fn ask(script: &str, names: &[&str], known: &BTreeMap<String, PathBuf>) -> io::Result<Tools> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bed").join(script);
        let output = command(&script).args(names).envs(known).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!("{} did not succeed; what it said is above", script.display())));
        }
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let pairs = lines.lines().filter_map(|line| line.split_once('='));
        Ok(Tools(pairs.map(|(name, path)| (name.to_owned(), PathBuf::from(path))).collect()))
    }

    /// Where a tool is: `etcd`, `kube-apiserver`, `tofu`, `helm`, `kubectl`, … and `tofurc`, OpenTofu's settings.
    pub(crate) fn path(&self, tool: &str) -> &Path {
        self.0.get(&variable(tool)).unwrap_or_else(|| panic!("tests/bed/build does not know the tool {tool}"))
    }

    /// The variables that spare another process the search.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &Path)> {
        let own = self.0.iter().filter(|(name, _)| name.as_str() != "DCCTL_BED_TOFURC");
        own.map(|(name, path)| (name.as_str(), path.as_path()))
    }

    /// Makes a folder with the programs that dcctl looks for on PATH, under the names it looks for.
    pub(crate) fn link_into(&self, folder: &Path) -> io::Result<()> {
        self.link(folder, |_| true)
    }

    /// The same with those alone that PATH does not have already, so that the others are shown where they are.
    pub(crate) fn link_what_path_lacks(&self, folder: &Path) -> io::Result<()> {
        self.link(folder, |tool| on_path(tool).is_none_or(|found| found != self.path(tool)))
    }

    fn link(&self, folder: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut tools = ["tofu", "helm", "kubectl"].into_iter().filter(|tool| wanted(tool));
        tools.try_for_each(|tool| symlink(self.path(tool), folder.join(tool)))
    }
}

/// `DCCTL_BED_KUBE_APISERVER` for `kube-apiserver`.
fn variable(tool: &str) -> String {
    format!("DCCTL_BED_{}", tool.to_uppercase().replace('-', "_"))
}

/// Finds a program on PATH.
#[expect(clippy::disallowed_methods, reason = "looking for a program is reading PATH")]
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// A program of this crate, `dcctl`, `bed` or `fake-tool`, as Cargo built it beside the tests.
pub(crate) fn own(program: &str) -> PathBuf {
    let named_by_cargo = match program {
        "dcctl" => option_env!("CARGO_BIN_EXE_dcctl"),
        "bed" => option_env!("CARGO_BIN_EXE_bed"),
        "fake-tool" => option_env!("CARGO_BIN_EXE_fake-tool"),
        _ => panic!("this crate has no program {program}"),
    };
    // Only tests are told by Cargo; the `bed` program finds the others beside itself.
    let beside = || std::env::current_exe().expect("a program knows where it is").with_file_name(program);
    named_by_cargo.map_or_else(beside, PathBuf::from)
}
