//! Which cluster is meant: finds the kubeconfig, chooses the context, and narrows it to that one.
//!
//! A run works with **one kubeconfig of its own**, which holds the chosen context and nothing else, so that no tool
//! can act on another cluster than the one that is locked. Every relative path in it is made absolute, because the
//! file moves to the run directory.
//!
//! Sources, the first that is there wins: the file given by `--kubeconfig`; the files of `KUBECONFIG`, merged as
//! kubectl merges them; `~/.kube/config`; the service account of the pod that dcctl runs in. Nothing here reads the
//! environment: its values are arguments.

use std::ffi::OsString;
use std::fmt;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use kube::config::{
    AuthInfo, Cluster, Context, ExecInteractiveMode, Kubeconfig as Raw, NamedAuthInfo, NamedCluster, NamedContext,
};

use crate::cluster::credentials;
use crate::cluster::raw_kubeconfig::{self as raw, Unreadable};
use crate::failure::{Code, Failure};

/// The name of the context that stands for the service account of a pod.
pub const IN_CLUSTER: &str = "in-cluster";

/// Where Kubernetes puts a pod's service account.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Where a kubeconfig may come from: what the command line and the environment say.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file that `--kubeconfig` names.
    pub explicit: Option<PathBuf>,
    /// The value of `KUBECONFIG`: files in the syntax of `PATH`.
    pub list: Option<OsString>,
    /// The user's home folder.
    pub home: Option<PathBuf>,
    /// The value of `KUBERNETES_SERVICE_HOST`.
    pub service_host: Option<String>,
    /// The value of `KUBERNETES_SERVICE_PORT`.
    pub service_port: Option<String>,
    /// The folder with the service account's `token` and `ca.crt`; [`SERVICE_ACCOUNT`] when none is given.
    pub service_account: Option<PathBuf>,
}

impl Sources {
    /// One file, and nothing else.
    pub fn file(path: impl Into<PathBuf>) -> Sources {
        Sources { explicit: Some(path.into()), ..Sources::default() }
    }

    /// The file of a user who names none.
    fn preset(&self) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(".kube/config"))
    }

    /// Every file that may be read, whichever of them wins.
    pub fn files(&self) -> Vec<PathBuf> {
        let listed = self.list.iter().flat_map(std::env::split_paths);
        let files = self.explicit.iter().cloned().chain(listed).chain(self.preset());
        files.filter(|path| !path.as_os_str().is_empty()).collect()
    }
}

/// The configuration of one context, with nothing else in it.
///
/// `Debug` shows no credential.
#[derive(Clone)]
pub struct Kubeconfig {
    pub(in crate::cluster) context: String,
    pub(in crate::cluster) namespace: Option<String>,
    pub(in crate::cluster) server: String,
    pub(in crate::cluster) cluster: Cluster,
    pub(in crate::cluster) user: AuthInfo,
    origin: String,
    cluster_name: String,
    user_name: Option<String>,
}

/// Finds the kubeconfig and narrows it to one context: the one given, else the current one.
///
/// Fails with `surroundings.kubeconfig` when there is no kubeconfig, it cannot be read, it has no such context (the
/// message names the file and the contexts that it has), or its credentials need a terminal.
pub fn load(sources: &Sources, context: Option<&str>) -> Result<Kubeconfig, Failure> {
    let found = find(sources)?;
    let has = |name: &str| found.raw.contexts.iter().any(|named| named.name == name);
    if let Some(pod) = in_cluster(sources)
        && (found.is_empty() || context == Some(IN_CLUSTER) && !has(IN_CLUSTER))
    {
        let pod = Found { raw: pod, origin: "the service account of this pod".to_owned() };
        return narrow(pod, context);
    }
    if found.origin.is_empty() {
        return Err(Failure::new(Code::KubeconfigInvalid, "there is no kubeconfig")
            .cause("neither --kubeconfig, nor KUBECONFIG, nor ~/.kube/config names one, and this is not a pod")
            .hint("name one with --kubeconfig FILE"));
    }
    narrow(found, context)
}

struct Found {
    raw: Raw,
    origin: String,
}

impl Found {
    fn is_empty(&self) -> bool {
        self.raw.contexts.is_empty()
    }
}

fn find(sources: &Sources) -> Result<Found, Failure> {
    if let Some(path) = &sources.explicit {
        return Ok(Found { raw: read(path)?, origin: path.display().to_string() });
    }
    let listed: Vec<PathBuf> = match &sources.list {
        Some(list) => std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => Vec::new(),
    };
    if !listed.is_empty() {
        return merge(&listed);
    }
    match sources.preset().filter(|path| path.exists()) {
        Some(path) => Ok(Found { raw: read(&path)?, origin: path.display().to_string() }),
        None => Ok(Found { raw: Raw::default(), origin: String::new() }),
    }
}

/// Merges files as kubectl does: the first to name something wins, and a file that is not there is passed over.
fn merge(paths: &[PathBuf]) -> Result<Found, Failure> {
    let mut merged = Raw::default();
    let mut read_from = Vec::new();
    for path in paths {
        if !path.exists() && paths.len() > 1 {
            continue;
        }
        merged = merged.merge(read(path)?).map_err(|error| unreadable(path, &Unreadable::NotTogether(error)))?;
        read_from.push(path.display().to_string());
    }
    if read_from.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::new(
            Code::KubeconfigInvalid,
            format!("none of the files in KUBECONFIG is there: {}", names.join(", ")),
        ));
    }
    Ok(Found { raw: merged, origin: read_from.join(", ") })
}

fn read(path: &Path) -> Result<Raw, Failure> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    raw::read(&absolute).map_err(|error| unreadable(path, &error))
}

/// A file that cannot be read. What an error quotes from the file may be a credential, so only its place is said.
fn unreadable(path: &Path, error: &Unreadable) -> Failure {
    let path = path.display();
    let invalid = |sentence: String| Failure::new(Code::KubeconfigInvalid, sentence);
    match error {
        Unreadable::File(error) if error.kind() == ErrorKind::NotFound => {
            invalid(format!("there is no kubeconfig at {path}"))
        }
        Unreadable::File(error) => invalid(format!("the kubeconfig {path} cannot be read")).because(error),
        Unreadable::NotYaml(place) => invalid(format!("{path} is not a kubeconfig{place}")).cause("it is not YAML"),
        Unreadable::NotOne(place) => {
            invalid(format!("{path} is not a kubeconfig{place}")).cause("a field has the wrong type or is missing")
        }
        Unreadable::NotTogether(error) => invalid(format!("the kubeconfig {path} cannot be used")).because(error),
    }
}

fn narrow(found: Found, context: Option<&str>) -> Result<Kubeconfig, Failure> {
    let Found { raw, origin } = found;
    let contexts: Vec<&str> = raw.contexts.iter().map(|named| named.name.as_str()).collect();
    let choice =
        if contexts.is_empty() { "it has none".to_owned() } else { format!("it has: {}", contexts.join(", ")) };
    let what_to_do = if contexts.is_empty() {
        "give a kubeconfig that has a context, with --kubeconfig or KUBECONFIG"
    } else {
        "name one of them with --kube-context"
    };
    let invalid = |message: String| Failure::new(Code::KubeconfigInvalid, message);
    let name = match (context, raw.current_context.as_deref()) {
        (Some(name), _) => name.to_owned(),
        (None, Some(name)) if !name.is_empty() => name.to_owned(),
        (None, _) => {
            return Err(invalid(format!("{origin} has no current context, and --kube-context names none; {choice}"))
                .hint(what_to_do));
        }
    };
    let Some(Context { cluster: cluster_name, user: user_name, namespace, .. }) =
        raw.contexts.iter().find(|named| named.name == name).and_then(|named| named.context.clone())
    else {
        return Err(invalid(format!("there is no context \"{name}\" in {origin}; {choice}")).hint(what_to_do));
    };
    let Some(cluster) =
        raw.clusters.iter().find(|named| named.name == cluster_name).and_then(|named| named.cluster.clone())
    else {
        return Err(invalid(format!(
            "context \"{name}\" in {origin} names a cluster \"{cluster_name}\", which it has not"
        )));
    };
    let Some(server) = cluster.server.clone().filter(|server| !server.is_empty()) else {
        return Err(invalid(format!("cluster \"{cluster_name}\" in {origin} has no server")));
    };
    if server.split('/').nth(2).is_some_and(|authority| authority.contains('@')) {
        // The address is said in many places, and nothing would send what is in it.
        let sentence = format!("the address of cluster \"{cluster_name}\" in {origin} has a user or a password in it");
        return Err(invalid(sentence).hint("put the credentials under `users`, where they are kept secret"));
    }
    // As kubectl does, a context whose user is missing goes on without credentials; the API server then says 401 or 403.
    let mut user = raw
        .auth_infos
        .iter()
        .find(|named| Some(&named.name) == user_name.as_ref())
        .and_then(|named| named.auth_info.clone())
        .unwrap_or_default();
    never_ask(&mut user, &name, &origin)?;
    credentials::trim_token(&mut user)
        .map_err(|why| Failure::new(Code::CredentialsRefused, format!("context \"{name}\" in {origin}: {why}")))?;
    Ok(Kubeconfig { context: name, namespace, server, cluster, user, origin, cluster_name, user_name })
}

/// Refuses credentials that need a terminal, and keeps those that merely could use one from asking: a run has none,
/// and the client would otherwise hand its own standard input to the plugin.
fn never_ask(user: &mut AuthInfo, context: &str, origin: &str) -> Result<(), Failure> {
    let Some(exec) = &mut user.exec else { return Ok(()) };
    if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
        let command = exec.command.clone().unwrap_or_default();
        return Err(Failure::new(
            Code::KubeconfigInvalid,
            format!("the credentials of context \"{context}\" in {origin} need a terminal, and a run has none"),
        )
        .cause(format!("its exec plugin `{command}` has interactiveMode: Always"))
        .hint("use credentials that need no person: a service account, a certificate, or a plugin with interactiveMode: Never"));
    }
    exec.interactive_mode = Some(ExecInteractiveMode::Never);
    Ok(())
}

/// The configuration of a pod's service account: both service variables, and its token on disk.
fn in_cluster(sources: &Sources) -> Option<Raw> {
    let (host, port) = (sources.service_host.as_deref()?, sources.service_port.as_deref()?);
    let folder = sources.service_account.clone().unwrap_or_else(|| PathBuf::from(SERVICE_ACCOUNT));
    if host.is_empty() || port.is_empty() || !folder.join("token").exists() {
        return None;
    }
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let cluster = Cluster {
        server: Some(format!("https://{host}:{port}")),
        certificate_authority: folder.join("ca.crt").exists().then(|| path("ca.crt")),
        ..Cluster::default()
    };
    let user = AuthInfo { token_file: Some(path("token")), ..AuthInfo::default() };
    let namespace = std::fs::read_to_string(folder.join("namespace")).ok().map(|name| name.trim().to_owned());
    Some(one_context(IN_CLUSTER, namespace, (IN_CLUSTER, cluster), Some((IN_CLUSTER, user))))
}

fn one_context(
    context: &str,
    namespace: Option<String>,
    (cluster_name, cluster): (&str, Cluster),
    user: Option<(&str, AuthInfo)>,
) -> Raw {
    Raw {
        api_version: Some("v1".to_owned()),
        kind: Some("Config".to_owned()),
        current_context: Some(context.to_owned()),
        contexts: vec![NamedContext {
            name: context.to_owned(),
            context: Some(Context {
                cluster: cluster_name.to_owned(),
                user: user.as_ref().map(|(name, _)| (*name).to_owned()),
                namespace,
                ..Context::default()
            }),
            ..NamedContext::default()
        }],
        clusters: vec![NamedCluster {
            name: cluster_name.to_owned(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: user
            .map(|(name, user)| NamedAuthInfo {
                name: name.to_owned(),
                auth_info: Some(user),
                ..NamedAuthInfo::default()
            })
            .into_iter()
            .collect(),
        ..Raw::default()
    }
}

impl Kubeconfig {
    /// The name of the context.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// The address of the API server, as the kubeconfig writes it.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The file or files that it came from, for messages.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Writes it as a kubeconfig with this one context, readable by its owner only (0600), replacing what is there
    /// in one step.
    ///
    /// Fails with `surroundings.run_dir`.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        let user = self.user_name.as_deref().map(|name| (name, self.user.clone()));
        let raw = one_context(&self.context, self.namespace.clone(), (&self.cluster_name, self.cluster.clone()), user);
        // JSON is YAML that every reader reads alike.
        let text = serde_json::to_string_pretty(&raw).expect("a kubeconfig has string keys only");
        let unwritable = |error: std::io::Error| {
            Failure::new(Code::RunDirUnusable, format!("could not write the run's kubeconfig {}", path.display()))
                .because(&error)
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(unwritable)?;
        file.write_all(text.as_bytes()).map_err(unwritable)?;
        file.persist(path).map_err(|error| unwritable(error.error))?;
        Ok(())
    }
}

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig")
            .field("context", &self.context)
            .field("server", &self.server)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, user: &str) -> String {
        format!(
            "clusters: [{{name: {name}, cluster: {{server: 'https://127.0.0.1:1', certificate-authority: ca.crt}}}}]\n\
             contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}, namespace: ns}}}}]\n\
             users: [{{name: {name}, user: {user}}}]\ncurrent-context: {name}\n"
        )
    }

    fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("the folder can be made");
        std::fs::write(&path, text).expect("it can be written");
        path
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("the temporary folder can be written")
    }

    #[test]
    fn the_explicit_file_wins_and_then_the_list_and_then_the_home() {
        let folder = folder();
        let home = folder.path().join("home");
        written(&home, ".kube/config", &text("at-home", "{}"));
        let one = written(folder.path(), "one", &text("one", "{}"));
        let two = written(folder.path(), "two", &text("two", "{}"));
        let list = std::env::join_paths([Path::new(""), &one, &folder.path().join("none"), &two]).expect("plain paths");
        let mut sources = Sources { explicit: Some(two), list: Some(list), home: Some(home), ..Sources::default() };
        let context = |sources: &Sources, name| load(sources, name).map(|found| found.context().to_owned());
        assert_eq!(context(&sources, None).as_deref(), Ok("two"));
        sources.explicit = None;
        assert_eq!(context(&sources, None).as_deref(), Ok("one"), "the first file sets the current context");
        assert_eq!(context(&sources, Some("two")).as_deref(), Ok("two"));
        sources.list = Some(OsString::from(":"));
        assert_eq!(context(&sources, None).as_deref(), Ok("at-home"));
        sources.list = Some(folder.path().join("none").into_os_string());
        let failure = context(&sources, None).expect_err("its only file is not there");
        assert!(failure.message.starts_with("there is no kubeconfig at "), "{}", failure.message);
    }

    #[test]
    fn an_unknown_context_names_the_file_and_what_it_has() {
        let folder = folder();
        let path = written(folder.path(), "config", &text("prod", "{}"));
        let failure = load(&Sources::file(&path), Some("prd")).expect_err("a slip of the finger");
        assert_eq!(failure.code, Code::KubeconfigInvalid);
        assert_eq!(failure.message, format!("there is no context \"prd\" in {}; it has: prod", path.display()));
    }

    #[test]
    fn what_cannot_be_read_is_named_without_quoting_it() {
        let folder = folder();
        let broken = written(folder.path(), "config", "users:\n- name: u\n  user: { token: [s3cret }\n");
        let failure = load(&Sources::file(&broken), None).expect_err("it is not YAML");
        assert!(failure.message.contains("is not a kubeconfig (line 3, column"), "{}", failure.message);
        assert!(!format!("{failure:?}").contains("s3cret"), "{failure:?}");
        let none = load(&Sources::default(), None).expect_err("there is none");
        assert_eq!((none.code, none.message.as_str()), (Code::KubeconfigInvalid, "there is no kubeconfig"));
    }

    #[test]
    fn relative_paths_become_absolute() {
        let folder = folder();
        let user = "{tokenFile: t, client-certificate: c, client-key: /k, exec: {apiVersion: v1, command: bin/plugin}}";
        let path = written(folder.path(), "sub/config", &text("a", user));
        let found = load(&Sources::file(&path), None).expect("a kubeconfig");
        let at = |name: &str| Some(folder.path().join("sub").join(name).display().to_string());
        assert_eq!(found.cluster.certificate_authority, at("ca.crt"));
        assert_eq!((found.user.token_file, found.user.client_certificate), (at("t"), at("c")));
        assert_eq!(found.user.client_key.as_deref(), Some("/k"));
        assert_eq!(found.user.exec.and_then(|exec| exec.command), at("bin/plugin"));
    }

    #[test]
    fn a_plugin_on_the_path_stays_as_it_is_and_one_that_needs_a_person_is_refused() {
        let folder = folder();
        let with = |mode: &str| {
            let user = format!("{{exec: {{apiVersion: v1, command: aws, interactiveMode: {mode}}}}}");
            load(&Sources::file(written(folder.path(), "config", &text("a", &user))), None)
        };
        let exec = with("IfAvailable").expect("it can do without").user.exec.expect("a plugin");
        assert_eq!((exec.command.as_deref(), exec.interactive_mode), (Some("aws"), Some(ExecInteractiveMode::Never)));
        let failure = with("Always").expect_err("it needs a terminal");
        assert_eq!(failure.code, Code::KubeconfigInvalid);
        assert!(failure.message.contains("need a terminal"), "{}", failure.message);
    }

    #[test]
    fn a_pod_s_service_account_is_the_last_resort() {
        let folder = folder();
        let account = folder.path().join("account");
        written(&account, "token", "t");
        written(&account, "ca.crt", "c");
        written(&account, "namespace", "jobs\n");
        let mut sources = Sources {
            service_host: Some("192.0.2.1".to_owned()),
            service_port: Some("443".to_owned()),
            service_account: Some(account.clone()),
            ..Sources::default()
        };
        let found = load(&sources, None).expect("both variables and the token");
        assert_eq!((found.context(), found.server()), (IN_CLUSTER, "https://192.0.2.1:443"));
        assert_eq!(found.namespace.as_deref(), Some("jobs"));
        assert_eq!(found.user.token_file, Some(account.join("token").display().to_string()));
        assert_eq!(load(&sources, Some(IN_CLUSTER)).map(|found| found.context).as_deref(), Ok(IN_CLUSTER));

        sources.service_host = Some("2001:db8::1".to_owned());
        assert_eq!(load(&sources, None).expect("an IPv6 address").server(), "https://[2001:db8::1]:443");
        let failure = load(&sources, Some("prod")).expect_err("a pod has one context");
        assert!(failure.message.ends_with("it has: in-cluster"), "{}", failure.message);

        sources.list = Some(written(folder.path(), "config", &text("prod", "{}")).into_os_string());
        assert_eq!(load(&sources, None).map(|found| found.context).as_deref(), Ok("prod"));
        assert_eq!(load(&sources, Some(IN_CLUSTER)).map(|found| found.context).as_deref(), Ok(IN_CLUSTER));
        sources.list = None;
        sources.service_port = None;
        load(&sources, None).expect_err("one variable is not enough");
    }
}
