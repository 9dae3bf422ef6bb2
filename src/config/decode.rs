//! From fields to the sections of a [`crate::config::Bundle`]: one function a section.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::config::paths::{self, Want};
use crate::config::reader::{Field, Reader, Section};
use crate::config::resolved::{Chart, Claims, Command, Declaration, Deployment, Instance, Operator, Root};
use crate::config::scope::Need;
use crate::config::tree::{Kind, Node};
use crate::config::variables::{Given, Variable, environment_name};
use crate::config::{dotted, name, written};
use crate::failure::Code;
use crate::redact::Secret;

/// How long things may take when the bundle does not say.
const CHART_TIMEOUT: Duration = Duration::from_secs(600);
const READINESS_TIMEOUT: Duration = Duration::from_secs(300);
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Reads the sections of one bundle.
pub(crate) struct Decoder<'d, 'p> {
    pub(crate) reader: Reader<'p>,
    /// The bundle's folder.
    pub(crate) root: &'d Path,
    /// The bundle as written, before expansion.
    pub(crate) tree: &'d Node,
    pub(crate) given: &'d Given,
    /// Whether this run uses what is being read.
    pub(crate) need: Need,
}

impl Decoder<'_, '_> {
    /// `images`.
    pub(crate) fn build(&mut self, field: &Field<'_>) -> Option<Vec<String>> {
        let section = self.reader.section(field, &["build"])?;
        let build = section.required(&mut self.reader, "build")?;
        self.run(&build)
    }

    /// `operator`.
    pub(crate) fn operator(&mut self, field: &Field<'_>) -> Option<Operator> {
        let section = self.reader.section(field, &["manifests", "deployment"])?;
        let manifests = section.required(&mut self.reader, "manifests").and_then(|field| self.manifests(&field));
        let deployment = section.optional("deployment").and_then(|field| self.deployment(&field));
        Some(Operator { manifests: manifests?, deployment })
    }

    /// `cluster`.
    pub(crate) fn max_connections(&mut self, field: &Field<'_>) -> Option<u32> {
        let section = self.reader.section(field, &["maxConnections"])?;
        section.optional("maxConnections").and_then(|field| self.reader.number(&field, u32::MAX))
    }

    /// `prerequisites` and `instance.infrastructure`.
    pub(crate) fn root(&mut self, field: &Field<'_>) -> Option<Root> {
        let section = self.reader.section(field, &["root", "vars", "secrets"])?;
        let dir = section.required(&mut self.reader, "root").and_then(|field| self.root_folder(&field));
        let vars = section.optional("vars").map_or_else(|| Some(Map::new()), |field| self.root_variables(&field));
        let secrets = section
            .optional("secrets")
            .map_or_else(|| Some(BTreeMap::new()), |field| self.secrets(&field, name::identifier));
        let (vars, secrets) = (vars?, secrets?);
        if let Some(name) = secrets.keys().find(|name| vars.contains_key(*name)) {
            self.reader.mistake(field, format!("`{name}` is under `vars` and under `secrets`"));
        }
        Some(Root { dir: dir?, vars, secrets })
    }

    /// `instance`, whose namespace is known already.
    pub(crate) fn instance(&mut self, field: &Field<'_>, namespace: Option<&str>) -> Option<Instance> {
        let known = ["namespace", "infrastructure", "chart", "readiness", "declaration", "claims"];
        let section = self.reader.section(field, &known)?;
        let infrastructure = section.optional("infrastructure").map(|field| self.root(&field));
        let chart = section.optional("chart").map(|field| self.chart(&field, namespace));
        if let (None, Some(outputs)) = (&infrastructure, chart_outputs(&section, &mut self.reader)) {
            self.reader.mistake(&outputs, "there is no `instance.infrastructure` to have outputs");
        }
        let readiness_timeout =
            section.optional("readiness").map_or(Some(READINESS_TIMEOUT), |field| self.readiness(&field));
        let declaration = section.optional("declaration").map(|field| self.declaration(&field));
        let claims = section.optional("claims").map_or_else(|| Some(Claims::default()), |field| self.claims(&field));
        Some(Instance {
            namespace: namespace?.to_owned(),
            infrastructure: whole(infrastructure)?,
            chart: whole(chart)?,
            readiness_timeout: readiness_timeout?,
            declaration: whole(declaration)?,
            claims: claims?,
        })
    }

    /// `verify`.
    pub(crate) fn verify(&mut self, field: &Field<'_>) -> Option<Vec<Command>> {
        let items = self.reader.items(field)?;
        let mut commands: Vec<Command> = Vec::new();
        let mut names = HashSet::new();
        for item in &items {
            let Some(command) = self.command(item) else { continue };
            if !names.insert(command.name.clone()) {
                self.reader.mistake(item, format!("a second command is called `{}`", command.name.escape_debug()));
            }
            commands.push(command);
        }
        Some(commands)
    }

    fn manifests(&mut self, field: &Field<'_>) -> Option<Vec<PathBuf>> {
        let path = self.path(field, Want::Either)?;
        if path.is_file() {
            return Some(vec![path]);
        }
        let files = self.files(field, &path)?;
        let is_manifest = |path: &PathBuf| has_extension(path, &["yaml", "yml", "json"]);
        if let Some(file) = files.iter().find(|path| path.file_stem().is_some_and(|stem| stem == "kustomization")) {
            let shown = paths::shown(self.root, file);
            self.reader.mistake(
                field,
                format!("`{shown}` is for kustomize, and manifests are applied as they are: build them first"),
            );
            return None;
        }
        let manifests: Vec<_> = files.into_iter().filter(is_manifest).collect();
        if manifests.is_empty() {
            self.reader.mistake(field, "there is no .yaml, .yml or .json file in it");
            return None;
        }
        Some(manifests)
    }

    fn deployment(&mut self, field: &Field<'_>) -> Option<Deployment> {
        let section = self.reader.section(field, &["namespace", "name"])?;
        let namespace =
            section.required(&mut self.reader, "namespace").and_then(|field| self.reader.checked(&field, name::label));
        let name =
            section.required(&mut self.reader, "name").and_then(|field| self.reader.checked(&field, name::subdomain));
        Some(Deployment { namespace: namespace?, name: name? })
    }

    fn root_folder(&mut self, field: &Field<'_>) -> Option<PathBuf> {
        let path = self.path(field, Want::Folder)?;
        let files = self.files(field, &path)?;
        let is_code = |file: &PathBuf| {
            let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            file.parent() == Some(&path)
                && [".tf", ".tofu", ".tf.json", ".tofu.json"].iter().any(|end| name.ends_with(end))
        };
        if !files.iter().any(is_code) {
            self.reader.mistake(field, "there is no .tf or .tofu file in it, so it is not an OpenTofu root");
            return None;
        }
        Some(path)
    }

    fn root_variables(&mut self, field: &Field<'_>) -> Option<Map<String, Value>> {
        let pinned = written::root_variables(self.tree)
            .find(|map| map.at == field.node.at)
            .map(written::pinned)
            .unwrap_or_default();
        let mut vars = Map::new();
        for (key, value) in self.reader.entries(field)? {
            if let Err(wrong) = name::identifier(&key.name) {
                self.reader.wrong(
                    Code::BundleInvalid,
                    key.at,
                    &value.path,
                    format!("`{}` {wrong}", key.name.escape_debug()),
                );
                continue;
            }
            let own = match value.node.kind {
                Kind::Untyped(_) | Kind::Open => None,
                Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Text(_) | Kind::List(_) | Kind::Map(_) => {
                    Some(value.node.value())
                }
            };
            let given = self.given.variable(&key.name, own.as_ref()).unwrap_or_else(|problem| {
                self.reader.problems.add(problem);
                None
            });
            let chosen = match given {
                Some(_) if pinned.contains(&key.name) => {
                    self.reader.problems.add(written::pinned_problem(&key.name));
                    continue;
                }
                Some(Variable::Typed(value)) => value,
                Some(Variable::Untyped(text)) => Value::String(text),
                None => value.node.value(),
            };
            vars.insert(key.name.clone(), chosen);
        }
        Some(vars)
    }

    /// A map of names, whatever they name, to names of secrets. In a run that does not need them they are not asked
    /// for, and the map is empty.
    fn secrets(
        &mut self,
        field: &Field<'_>,
        check: fn(&str) -> Result<(), String>,
    ) -> Option<BTreeMap<String, Secret>> {
        let mut secrets = BTreeMap::new();
        for (key, value) in self.reader.entries(field)? {
            if let Err(wrong) = check(&key.name) {
                self.reader.wrong(
                    Code::BundleInvalid,
                    key.at,
                    &value.path,
                    format!("`{}` {wrong}", key.name.escape_debug()),
                );
            }
            let Some(name) = self.reader.checked(&value, name::variable) else { continue };
            if self.need == Need::Later {
                continue;
            }
            match self.given.secret(&name) {
                Ok(Some(secret)) => {
                    secrets.insert(key.name.clone(), secret);
                }
                Ok(None) => {
                    let environment = environment_name(&name.to_uppercase());
                    let empty = self.given.is_empty_in_environment(&name);
                    let found = if empty { format!(" ({environment} is set but empty)") } else { String::new() };
                    let what = format!(
                        "the secret `{name}` is not given{found}: set {environment}, or give it in a --var-file"
                    );
                    self.reader.lacks_secret(value.node.at, &value.path, what);
                }
                Err(problem) => self.reader.problems.add(problem),
            }
        }
        Some(secrets)
    }

    fn chart(&mut self, field: &Field<'_>, namespace: Option<&str>) -> Option<Chart> {
        let known = ["path", "release", "namespace", "values", "set", "outputs", "secrets", "timeout"];
        let section = self.reader.section(field, &known)?;
        let path = section.required(&mut self.reader, "path").and_then(|field| self.chart_path(&field));
        let release =
            section.required(&mut self.reader, "release").and_then(|field| self.reader.checked(&field, name::release));
        let of_instance = namespace.map(str::to_owned);
        let namespace =
            section.optional("namespace").map_or(of_instance, |field| self.reader.checked(&field, name::label));
        let values = section.optional("values").map_or_else(|| Some(Vec::new()), |field| self.values(&field));
        let set = section.optional("set").map_or_else(|| Some(Map::new()), |field| self.set(&field));
        let outputs = section.optional("outputs").map_or_else(|| Some(BTreeMap::new()), |field| self.outputs(&field));
        let secrets =
            section.optional("secrets").map_or_else(|| Some(BTreeMap::new()), |field| self.secrets(&field, dotted_key));
        let timeout = section.optional("timeout").map_or(Some(CHART_TIMEOUT), |field| self.reader.duration(&field));
        self.distinct_keys(&section);
        Some(Chart {
            path: path?,
            release: release?,
            namespace: namespace?,
            values: values?,
            set: set?,
            outputs: outputs?,
            secrets: secrets?,
            timeout: timeout?,
        })
    }

    fn chart_path(&mut self, field: &Field<'_>) -> Option<PathBuf> {
        let path = self.path(field, Want::Either)?;
        if path.is_file() {
            if has_extension(&path, &["tgz"]) {
                return Some(path);
            }
            self.reader.mistake(field, "is neither a chart's folder nor a chart's .tgz");
            return None;
        }
        self.files(field, &path)?;
        if !path.join("Chart.yaml").is_file() {
            self.reader.mistake(field, "there is no Chart.yaml in it, so it is not a Helm chart");
            return None;
        }
        Some(path)
    }

    fn values(&mut self, field: &Field<'_>) -> Option<Vec<PathBuf>> {
        let items = self.reader.items(field)?;
        let files: Vec<_> = items.iter().map(|item| self.path(item, Want::File)).collect();
        files.into_iter().collect()
    }

    fn set(&mut self, field: &Field<'_>) -> Option<Map<String, Value>> {
        let entries = self.reader.entries(field)?;
        Some(entries.into_iter().map(|(key, value)| (key.name.clone(), value.node.value())).collect())
    }

    fn outputs(&mut self, field: &Field<'_>) -> Option<BTreeMap<String, String>> {
        let mut outputs = BTreeMap::new();
        for (key, value) in self.reader.entries(field)? {
            if let Some(output) = self.reader.checked(&value, name::identifier) {
                outputs.insert(key.name.clone(), output);
            }
        }
        Some(outputs)
    }

    /// Every chart value comes from one place only.
    fn distinct_keys(&mut self, section: &Section<'_>) {
        let mut seen = dotted::Distinct::default();
        for name in ["set", "outputs", "secrets"] {
            let Some(field) = section.optional(name) else { continue };
            let Kind::Map(entries) = &field.node.kind else { continue };
            for (key, _) in entries {
                let path = crate::config::placeholder::entry(&field.path, &key.name);
                match dotted::segments(&key.name) {
                    Err(wrong) if name != "secrets" => {
                        self.reader.wrong(
                            Code::BundleInvalid,
                            key.at,
                            &path,
                            format!("`{}` {wrong}", key.name.escape_debug()),
                        );
                    }
                    // Said already, where the secrets were read.
                    Err(_) => {}
                    Ok(names) => {
                        if let Some(other) = seen.collides(&names) {
                            let other: &String = other;
                            self.reader.wrong(
                                Code::BundleInvalid,
                                key.at,
                                &path,
                                format!("sets what `{other}` sets too"),
                            );
                        }
                        seen.insert(names, path);
                    }
                }
            }
        }
    }

    fn readiness(&mut self, field: &Field<'_>) -> Option<Duration> {
        let section = self.reader.section(field, &["timeout"])?;
        section.optional("timeout").map_or(Some(READINESS_TIMEOUT), |field| self.reader.duration(&field))
    }

    fn declaration(&mut self, field: &Field<'_>) -> Option<Declaration> {
        let section = self.reader.section(field, &["apiVersion", "spec"])?;
        let api_version = section
            .required(&mut self.reader, "apiVersion")
            .and_then(|field| self.reader.checked(&field, instance_api));
        let spec = section.required(&mut self.reader, "spec")?;
        self.reader.entries(&spec)?;
        Some(Declaration { api_version: api_version?, spec: spec.node.value() })
    }

    fn claims(&mut self, field: &Field<'_>) -> Option<Claims> {
        let section = self.reader.section(field, &["ingressHost", "localMqttPort", "connections"])?;
        let host = section.optional("ingressHost").map(|field| self.reader.checked(&field, name::subdomain));
        let port = section.optional("localMqttPort").map(|field| self.reader.number(&field, u32::from(u16::MAX)));
        let connections = section.optional("connections").map(|field| self.reader.number(&field, u32::MAX));
        let port =
            whole(port)?.map(|port| u16::try_from(port).expect("the number was checked against the largest port"));
        Some(Claims { ingress_host: whole(host)?, local_mqtt_port: port, connections: whole(connections)? })
    }

    fn command(&mut self, field: &Field<'_>) -> Option<Command> {
        let section = self.reader.section(field, &["name", "run", "timeout"])?;
        let name = section.required(&mut self.reader, "name").and_then(|field| self.reader.text(&field));
        let run = section.required(&mut self.reader, "run").and_then(|field| self.run(&field));
        let timeout = section.optional("timeout").map_or(Some(COMMAND_TIMEOUT), |field| self.reader.duration(&field));
        Some(Command { name: name?, run: run?, timeout: timeout? })
    }

    /// A program and its arguments.
    fn run(&mut self, field: &Field<'_>) -> Option<Vec<String>> {
        let items = self.reader.items(field)?;
        let Some((program, arguments)) = items.split_first() else {
            self.reader.mistake(field, "is empty; a program belongs here, and its arguments");
            return None;
        };
        let program = self.program(program);
        let arguments: Vec<_> = arguments.iter().map(|argument| self.argument(argument)).collect();
        let mut run = vec![program?];
        for argument in arguments {
            run.push(argument?);
        }
        Some(run)
    }

    /// A name without a slash is looked up on `PATH` when the time comes; everything else is a file of the bundle.
    fn program(&mut self, field: &Field<'_>) -> Option<String> {
        use std::os::unix::fs::PermissionsExt;
        let written = self.reader.text(field)?;
        if !written.contains('/') {
            return Some(written);
        }
        let path = self.path(field, Want::File)?;
        if !path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0) {
            self.reader.mistake(field, format!("`{written}` may not be run: chmod +x"));
            return None;
        }
        path.to_str().map(str::to_owned)
    }

    /// An argument may be empty, and a number or a truth value that came from a variable is as good as its text.
    fn argument(&mut self, field: &Field<'_>) -> Option<String> {
        match &field.node.kind {
            Kind::Text(text) | Kind::Untyped(text) => Some(text.clone()),
            Kind::Number(number) => Some(number.to_string()),
            Kind::Bool(value) => Some(value.to_string()),
            Kind::Null | Kind::List(_) | Kind::Map(_) | Kind::Open => self.reader.text(field),
        }
    }

    fn path(&mut self, field: &Field<'_>, want: Want) -> Option<PathBuf> {
        let written = self.reader.text(field)?;
        match paths::inside(self.root, &written, want) {
            Ok(path) => Some(path),
            Err(wrong) => {
                self.reader.mistake(field, wrong);
                None
            }
        }
    }

    fn files(&mut self, field: &Field<'_>, folder: &Path) -> Option<Vec<PathBuf>> {
        paths::files(self.root, folder).map_err(|wrong| self.reader.mistake(field, wrong)).ok()
    }
}

/// A section that is not there is whole; one that is there has to have been read.
#[expect(
    clippy::option_option,
    reason = "the outer one says whether the section is there, the inner whether it could be read"
)]
fn whole<T>(section: Option<Option<T>>) -> Option<Option<T>> {
    match section {
        None => Some(None),
        Some(None) => None,
        Some(Some(section)) => Some(Some(section)),
    }
}

fn chart_outputs<'a>(instance: &Section<'a>, reader: &mut Reader<'_>) -> Option<Field<'a>> {
    let chart = instance.optional("chart")?;
    let Kind::Map(_) = chart.node.kind else { return None };
    let outputs = chart.node.get("outputs")?;
    let field = Field { node: outputs, path: crate::config::placeholder::entry(&chart.path, "outputs") };
    reader.entries(&field).filter(|entries| !entries.is_empty()).map(|_| field)
}

fn dotted_key(key: &str) -> Result<(), String> {
    dotted::segments(key).map(|_| ()).map_err(str::to_owned)
}

fn instance_api(api_version: &str) -> Result<(), String> {
    match api_version.split_once('/') {
        Some(("core.devicechain.io", version)) if name::label(version).is_ok() => Ok(()),
        _ => Err("is not a version of `core.devicechain.io`, like `core.devicechain.io/v1beta1`".to_owned()),
    }
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|extension| extensions.iter().any(|known| extension.eq_ignore_ascii_case(known)))
}
