//! The process environment, read once.
//!
//! [`Environment::read`] is the only place of the program that looks at environment variables. Everybody else is
//! handed the snapshot, so a test gives its own and no test depends on the machine it runs on. Its `Debug` form has
//! names only: values may be secrets.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

/// The prefix of a variable given by the environment: `DCCTL_VAR_mqtt_port` or `DCCTL_VAR_MQTT_PORT`.
pub const VARIABLE_PREFIX: &str = "DCCTL_VAR_";

/// The variable that marks everything a run starts: `<run>/<step>`.
const RUN_TAG: &str = "DCCTL_RUN";

/// The variable that says which of its own diagnostics the program writes: `debug`, or `warn,dcctl::lock=trace`.
pub const LOG: &str = "DCCTL_LOG";

/// A snapshot of the process environment, and of the account that the process runs as.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
    account: Account,
}

/// The account that the process runs as.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// The effective user id.
    pub uid: u32,
    /// Its name and home in `/etc/passwd`, if it has an entry there.
    pub entry: Option<(String, PathBuf)>,
}

/// Whether to colour what people read, before anything is known about where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// `NO_COLOR` is set, or `TERM` is `dumb`.
    Never,
    /// `CLICOLOR_FORCE` or `FORCE_COLOR` is set.
    Always,
    /// Only on a terminal.
    OnTerminal,
}

/// The environment that tools start from.
#[derive(Clone, PartialEq, Eq)]
pub struct ToolEnvironment {
    /// What they get, sorted by name.
    pub kept: Vec<(String, String)>,
    /// The names of what they do not get and a person should know of, sorted.
    pub dropped: Vec<String>,
}

impl Environment {
    /// Reads the environment of this process and its account.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
    pub fn read() -> Environment {
        let uid = rustix::process::geteuid().as_raw();
        let entry = std::fs::read_to_string("/etc/passwd").ok().and_then(|text| passwd_entry(&text, uid));
        Environment { variables: std::env::vars_os().collect(), account: Account { uid, entry } }
    }

    /// An environment of just these variables, for tests and for a process that starts from a known one.
    pub fn of<N: Into<OsString>, V: Into<OsString>>(variables: impl IntoIterator<Item = (N, V)>) -> Environment {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Environment { variables, account: Account::default() }
    }

    /// The same with another account.
    #[cfg(test)]
    #[must_use]
    pub fn with_account(mut self, account: Account) -> Environment {
        self.account = account;
        self
    }

    /// The value of a variable as it is, empty ones included.
    pub fn raw(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Whether a variable is set to nothing: what CI systems make of an input that nobody gave.
    pub fn is_empty(&self, name: &OsStr) -> bool {
        self.variables.get(name).is_some_and(|value| value.is_empty())
    }

    /// The value of a variable that is set, not empty, and text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.raw(name)?.to_str().filter(|value| !value.is_empty())
    }

    /// The value of a variable that is set and not empty, as a path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.raw(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// Whether a variable is set to anything but nothing, `0`, `false`, `no` or `off`.
    pub fn says_yes(&self, name: &str) -> bool {
        let no = ["", "0", "false", "no", "off"];
        self.raw(name).is_some_and(|value| !no.iter().any(|word| value.eq_ignore_ascii_case(word)))
    }

    /// A variable of the bundle given by the environment: `DCCTL_VAR_` and its name, as written or in capitals.
    ///
    /// The answer is the environment variable's own name and its value. An empty value counts as not given: that is
    /// what CI systems pass on for a secret that does not exist.
    pub fn bundle_variable(&self, name: &str) -> Option<(String, &OsStr)> {
        [name.to_owned(), name.to_uppercase()].into_iter().find_map(|name| {
            let full = format!("{VARIABLE_PREFIX}{name}");
            let value = self.raw(&full).filter(|value| !value.is_empty())?;
            Some((full, value))
        })
    }

    /// The home folder: `HOME` if it is an absolute path, else that of the account.
    pub fn home(&self) -> Option<PathBuf> {
        let of_account = || self.account.entry.as_ref().map(|(_, home)| home.clone());
        self.absolute("HOME").or_else(of_account)
    }

    /// Where dcctl keeps what must outlive a job: `dcctl` in `XDG_STATE_HOME`, else in `~/.local/state`.
    ///
    /// Without any home it is `/var/tmp/dcctl-UID`, which others may have made first: whoever makes it checks that
    /// it belongs to this account.
    pub fn state_folder(&self) -> PathBuf {
        let of_user = || self.home().map(|home| home.join(".local/state"));
        match self.absolute("XDG_STATE_HOME").or_else(of_user) {
            Some(folder) => folder.join("dcctl"),
            None => PathBuf::from(format!("/var/tmp/dcctl-{}", self.account.uid)),
        }
    }

    /// The name of the account, as other people know it: from `/etc/passwd`, else `USER`, else `LOGNAME`, else
    /// `uid1000`. The account comes first because `ps` shows it, and because `sudo` and CI systems leave `USER` wrong.
    pub fn user_name(&self) -> String {
        let of_account = self.account.entry.as_ref().map(|(name, _)| name.as_str());
        of_account
            .or_else(|| self.text("USER"))
            .or_else(|| self.text("LOGNAME"))
            .map_or_else(|| format!("uid{}", self.account.uid), str::to_owned)
    }

    /// Whether to colour what people read. `NO_COLOR` wins over everything.
    pub fn color(&self) -> Color {
        if self.text("NO_COLOR").is_some() {
            Color::Never
        } else if self.says_yes("CLICOLOR_FORCE") || self.says_yes("FORCE_COLOR") {
            Color::Always
        } else if self.text("TERM") == Some("dumb") {
            Color::Never
        } else {
            Color::OnTerminal
        }
    }

    /// What tools start from: everything but what would change their meaning behind the bundle's back, or send them
    /// to another cluster than the one that is locked.
    pub fn for_tools(&self) -> ToolEnvironment {
        self.without(changes_tools)
    }

    /// What a command starts from that is nobody's but the caller's: everything but our own options, what would send a
    /// tool to another cluster than the one that is locked, and `TF_CLI_ARGS`.
    pub fn for_command(&self) -> ToolEnvironment {
        self.without(changes_clusters)
    }

    /// The same where the lock is of no cluster: everything but our own options. There is no cluster to be kept to, so where
    /// the command's tools go is the caller's business.
    pub fn for_command_without_cluster(&self) -> ToolEnvironment {
        self.without(is_our_option)
    }

    /// The id of the run that started this process, if one did.
    pub fn outer_run(&self) -> Option<String> {
        let (run, _) = self.text(RUN_TAG)?.split_once('/')?;
        let is_id = run.len() == 16 && run.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| run.to_owned())
    }

    fn without(&self, drops: fn(&str) -> bool) -> ToolEnvironment {
        let mut kept = Vec::new();
        let mut dropped = Vec::new();
        for (name, value) in &self.variables {
            match (name.to_str(), value.to_str()) {
                (Some(name), Some(value)) if !drops(name) => kept.push((name.to_owned(), value.to_owned())),
                _ => dropped.push(name.to_string_lossy().into_owned()),
            }
        }
        dropped.retain(|name| is_worth_saying(name));
        ToolEnvironment { kept, dropped }
    }

    /// What the supervisor starts from: what tools do, and what says which of its own diagnostics it writes. Tools are
    /// started from a list of their own and get none of it.
    pub fn for_supervisor(&self) -> Vec<(OsString, OsString)> {
        let kept = self.for_tools().kept.into_iter().map(|(name, value)| (name.into(), value.into()));
        let log = self.raw(LOG).map(|value| (OsString::from(LOG), value.to_owned()));
        kept.chain(log).collect()
    }

    fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.path(name).filter(|path| path.is_absolute())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.variables.keys().collect();
        f.debug_struct("Environment").field("variables", &names).field("account", &self.account).finish()
    }
}

impl fmt::Debug for ToolEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.kept.iter().map(|(name, _)| name).collect();
        f.debug_struct("ToolEnvironment").field("kept", &names).field("dropped", &self.dropped).finish()
    }
}

/// Whether a person should hear that tools do not get a variable. Our own options are no tool's business, and tools
/// get the run's own kubeconfig in place of the caller's.
fn is_worth_saying(name: &str) -> bool {
    let own_option = name.starts_with("DCCTL_") && !name.starts_with(VARIABLE_PREFIX);
    !own_option && name != "KUBECONFIG"
}

/// Whether a variable would make a tool do something else than the bundle says.
fn changes_tools(name: &str) -> bool {
    const PREFIXES: [&str; 2] = ["TF_LOG", "TF_VAR_"];
    const NAMES: [&str; 11] = [
        "TF_WORKSPACE",
        "TF_DATA_DIR",
        "TF_REATTACH_PROVIDERS",
        "TF_INPUT",
        "TF_STATE_PERSIST_INTERVAL",
        "HELM_DEBUG",
        "HELM_DRIVER",
        "HELM_DRIVER_SQL_CONNECTION_STRING",
        "HELM_NAMESPACE",
        "HELM_MAX_HISTORY",
        "KUBE_NAMESPACE",
    ];
    changes_clusters(name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

/// Whether a variable would send a tool to another cluster than the one that is locked, or change what its command line
/// says. Helm and the providers for Kubernetes take a cluster, a context and credentials from theirs; OpenTofu inserts
/// `TF_CLI_ARGS` right behind its subcommand (`-destroy` there destroys everything).
fn changes_clusters(name: &str) -> bool {
    const PREFIXES: [&str; 7] =
        ["DCCTL_", "TF_CLI_ARGS", "HELM_KUBE", "KUBE_CONFIG", "KUBE_CTX", "KUBE_CLIENT_", "KUBE_CLUSTER_"];
    const NAMES: [&str; 8] = [
        "KUBECONFIG",
        "KUBERNETES_MASTER",
        "KUBE_HOST",
        "KUBE_TOKEN",
        "KUBE_USER",
        "KUBE_PASSWORD",
        "KUBE_INSECURE",
        "KUBE_TLS_SERVER_NAME",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

/// Whether a variable is one of our own options.
fn is_our_option(name: &str) -> bool {
    name.starts_with("DCCTL_")
}

/// The name and home of a user id in the text of `/etc/passwd`.
fn passwd_entry(text: &str, uid: u32) -> Option<(String, PathBuf)> {
    text.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let (name, id, home) = (fields.first()?, fields.get(2)?, fields.get(5)?);
        let ours = id.parse() == Ok(uid) && !name.is_empty() && home.starts_with('/');
        ours.then(|| ((*name).to_owned(), PathBuf::from(home)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody_special() -> Account {
        Account { uid: 1000, entry: Some(("alice".to_owned(), PathBuf::from("/home/alice"))) }
    }

    #[test]
    fn the_state_folder_is_defined_without_home() {
        let alice = || Environment::default().with_account(nobody_special());
        assert_eq!(Environment::default().state_folder(), PathBuf::from("/var/tmp/dcctl-0"));
        assert_eq!(alice().state_folder(), PathBuf::from("/home/alice/.local/state/dcctl"));
        let cases = [
            (vec![("HOME", "/h")], "/h/.local/state/dcctl"),
            (vec![("HOME", "relative")], "/home/alice/.local/state/dcctl"),
            (vec![("HOME", "")], "/home/alice/.local/state/dcctl"),
            (vec![("HOME", "/h"), ("XDG_STATE_HOME", "/state")], "/state/dcctl"),
            (vec![("HOME", "/h"), ("XDG_STATE_HOME", "state")], "/h/.local/state/dcctl"),
        ];
        for (variables, expected) in cases {
            let environment = Environment::of(variables).with_account(nobody_special());
            assert_eq!(environment.state_folder(), PathBuf::from(expected));
        }
    }

    #[test]
    fn the_user_is_the_account_and_not_what_a_variable_says() {
        let with_user = Environment::of([("USER", "root"), ("LOGNAME", "daemon")]);
        assert_eq!(with_user.clone().with_account(nobody_special()).user_name(), "alice");
        assert_eq!(with_user.user_name(), "root");
        assert_eq!(Environment::of([("LOGNAME", "daemon")]).user_name(), "daemon");
        let unknown = Account { uid: 65532, entry: None };
        assert_eq!(Environment::default().with_account(unknown).user_name(), "uid65532");
    }

    #[test]
    fn an_entry_of_passwd_is_found_by_its_id() {
        let text = "root:x:0:0:root:/root:/bin/sh\nbroken\n:x:7:7::/:/\nci:x:1001:1001:,,,:/home/alice:/bin/bash\n";
        assert_eq!(passwd_entry(text, 1001), Some(("ci".to_owned(), PathBuf::from("/home/alice"))));
        assert_eq!(passwd_entry(text, 7), None);
        assert_eq!(passwd_entry(text, 42), None);
    }

    #[test]
    fn no_color_wins_over_everything() {
        let color = |variables: &[(&str, &str)]| Environment::of(variables.iter().copied()).color();
        assert_eq!(color(&[]), Color::OnTerminal);
        assert_eq!(color(&[("NO_COLOR", "")]), Color::OnTerminal);
        assert_eq!(color(&[("NO_COLOR", "1"), ("FORCE_COLOR", "1")]), Color::Never);
        assert_eq!(color(&[("CLICOLOR_FORCE", "1"), ("TERM", "dumb")]), Color::Always);
        assert_eq!(color(&[("FORCE_COLOR", "0")]), Color::OnTerminal);
        assert_eq!(color(&[("TERM", "dumb")]), Color::Never);
    }

    #[test]
    fn a_variable_of_the_bundle_is_found_as_written_or_in_capitals() {
        let environment = Environment::of([
            ("DCCTL_VAR_DB_PASSWORD", "capital"),
            ("DCCTL_VAR_port", "1883"),
            ("DCCTL_VAR_PORT", "1"),
            ("DCCTL_VAR_EMPTY", ""),
        ]);
        let found = |name| environment.bundle_variable(name).map(|(full, value)| (full, value.to_os_string()));
        assert_eq!(found("db_password"), Some(("DCCTL_VAR_DB_PASSWORD".to_owned(), "capital".into())));
        assert_eq!(found("port"), Some(("DCCTL_VAR_port".to_owned(), "1883".into())));
        assert_eq!(found("empty"), None);
    }

    #[test]
    fn tools_do_not_get_what_changes_their_meaning() {
        let environment = Environment::of([
            ("PATH", "/bin"),
            ("TF_CLI_ARGS_apply", "-destroy"),
            ("TF_CLI_CONFIG_FILE", "/rc"),
            ("TF_PLUGIN_CACHE_DIR", "/cache"),
            ("TF_VAR_name", "x"),
            ("HELM_KUBECONTEXT", "other"),
            ("HELM_CACHE_HOME", "/helm"),
            ("KUBE_HOST", "other"),
            ("KUBERNETES_SERVICE_HOST", "here"),
            ("DCCTL_VAR_PASSWORD", "hush"),
            ("https_proxy", "proxy"),
        ]);
        let tools = environment.for_tools();
        let kept: Vec<_> = tools.kept.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            kept,
            [
                "HELM_CACHE_HOME",
                "KUBERNETES_SERVICE_HOST",
                "PATH",
                "TF_CLI_CONFIG_FILE",
                "TF_PLUGIN_CACHE_DIR",
                "https_proxy"
            ]
        );
        assert_eq!(
            tools.dropped,
            ["DCCTL_VAR_PASSWORD", "HELM_KUBECONTEXT", "KUBE_HOST", "TF_CLI_ARGS_apply", "TF_VAR_name"]
        );
        // A command is the caller's own: it keeps what says nothing about the cluster.
        let command = environment.for_command();
        assert!(command.kept.iter().any(|(name, _)| name == "TF_VAR_name"), "{command:?}");
        assert_eq!(command.dropped, ["DCCTL_VAR_PASSWORD", "HELM_KUBECONTEXT", "KUBE_HOST", "TF_CLI_ARGS_apply"]);
        let without = environment.for_command_without_cluster();
        assert!(without.kept.iter().any(|(name, _)| name == "KUBE_HOST"), "{without:?}");
        assert_eq!(without.dropped, ["DCCTL_VAR_PASSWORD"]);
    }

    #[test]
    fn the_run_around_this_one_is_known_by_its_tag() {
        let outer = |tag: &str| Environment::of([("DCCTL_RUN", tag)]).outer_run();
        assert_eq!(outer("9f3c1a20b7e4d5c6/command"), Some("9f3c1a20b7e4d5c6".to_owned()));
        for tag in ["", "9f3c1a20b7e4d5c6", "9f3c/command", "/tmp/runs/command", "9f3c1a20b7e4d5cx/command"] {
            assert_eq!(outer(tag), None, "{tag}");
        }
    }

    #[test]
    fn the_supervisor_gets_what_tools_get_and_what_its_log_is_to_say() {
        let environment =
            Environment::of([("PATH", "/bin"), ("DCCTL_LOG", "debug"), ("DCCTL_JUNIT", "x"), ("KUBE_HOST", "y")]);
        let pair = |(name, value): (&str, &str)| (OsString::from(name), OsString::from(value));
        assert_eq!(environment.for_supervisor(), [("PATH", "/bin"), ("DCCTL_LOG", "debug")].map(pair));
        assert_eq!(environment.for_tools().kept, [("PATH".to_owned(), "/bin".to_owned())]);
    }

    #[test]
    fn debug_shows_no_value() {
        let environment = Environment::of([("DCCTL_VAR_PASSWORD", "hunter2")]);
        let shown = format!("{environment:?} {:?}", environment.for_tools());
        assert!(shown.contains("DCCTL_VAR_PASSWORD") && !shown.contains("hunter2"), "{shown}");
    }
}
