//! Opens a bundle and resolves it for one run.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::config::decode::Decoder;
use crate::config::digest::Digest;
use crate::config::paths::{self, Want};
use crate::config::placeholder::entry;
use crate::config::problem::{MOST, Mend, Problem, Problems};
use crate::config::reader::{Field, Reader};
use crate::config::resolved::Bundle;
use crate::config::scope::{Area, Need, Scope};
use crate::config::tree::{Key, Kind, Malformed, Node, Position};
use crate::config::variables::{FromFile, Given, environment_name};
use crate::config::{archive, name, written};
use crate::failure::{Code, Failure};

/// The file that makes a folder a bundle.
pub const FILE: &str = "bundle.yaml";

/// A `bundle.yaml` is a page of text; more is something else.
const MOST_BYTES: u64 = 1 << 20;

/// A bundle as written: opened and read, for no particular run yet.
#[derive(Debug, Clone)]
pub struct Written {
    root: PathBuf,
    /// `bundle.yaml` as people will find it.
    file: String,
    tree: Node,
    name: String,
    version: String,
    digest: Option<Digest>,
}

/// What a bundle is resolved with.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// The instance worked on; none for `install`.
    pub instance: Option<String>,
    /// The name of the kubeconfig's context.
    pub kube_context: String,
    /// The run's own kubeconfig, with that context alone.
    pub kubeconfig: PathBuf,
    /// The run's id.
    pub run_id: String,
    /// Variables and secrets from outside.
    pub given: Given,
}

impl Bundle {
    /// Opens a bundle: a folder, or a `.tar.gz` that is unpacked into `scratch`, a folder that is empty or not there. With
    /// an expected digest it has to be the archive that has it.
    ///
    /// Says whether it is a bundle at all; the rest is said by [`Written::resolve`]. A bundle that cannot be read is
    /// `config.bundle`, a `scratch` that cannot be written `surroundings.run_dir`.
    pub fn open(path: &Path, scratch: &Path, expected: Option<&Digest>) -> Result<Written, Failure> {
        let (folder, digest) = folder_of(path, scratch, expected)?;
        let file = path.join(FILE).display().to_string();
        let root = fs::canonicalize(&folder).map_err(|error| unreadable(&folder, &error))?;
        if root.to_str().is_none() {
            // The supervisor is told of the bundle in JSON, and tools are told in arguments and variables.
            let message = format!("the path of the bundle {} is not UTF-8 text", root.display());
            return Err(Failure::new(Code::BundleInvalid, message));
        }
        let text = read(path, &root)?;
        let mut problems = Problems::default();
        let mut reader = Reader { file: file.clone(), problems: &mut problems };
        let identity = match Node::parse(&text) {
            Ok(tree) => written::identity(&tree, &mut reader).map(|identity| (tree, identity)),
            Err(Malformed { at, why }) => {
                let at = at.unwrap_or(Position { line: 1, column: 1 });
                reader.wrong(Code::BundleInvalid, at, "", why);
                None
            }
        };
        match (identity, problems.into_failure()) {
            (Some((tree, (name, version))), None) => Ok(Written { root, file, tree, name, version, digest }),
            (_, Some(failure)) => Err(failure),
            (None, None) => unreachable!("what could not be read was said"),
        }
    }
}

impl Written {
    /// The bundle's folder: absolute, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `metadata.version`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The digest of the archive that it came in; none for a folder.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Expands placeholders, checks every value and path, and finds the secrets.
    ///
    /// Everything wrong is said in one failure, each mistake with file, line, column and field: `config.bundle` for the
    /// bundle's own, else `config.variable`. A wrong instance name is `usage.invalid`.
    pub fn resolve(&self, inputs: &Inputs) -> Result<Bundle, Failure> {
        if let Some(instance) = &inputs.instance {
            name::check_instance(instance)?;
        }
        let mut problems = Problems::default();
        let mut scope = Scope::new(&self.tree, &self.version, inputs, &mut problems, &self.file);
        let bundle = self.sections(&mut scope, inputs, &mut problems);
        let (notes, asked) = self.check_given(&inputs.given, scope.secrets(), &mut problems);
        match problems.into_failure() {
            None => Ok(Bundle { notes, asked, ..bundle }),
            Some(failure) => Err(failure),
        }
    }

    /// Reads every section. One that is wrong was said, and is absent.
    fn sections(&self, scope: &mut Scope, inputs: &Inputs, problems: &mut Problems) -> Bundle {
        let (cluster, instance) = match inputs.instance {
            Some(_) => (Need::Later, Need::Now),
            None => (Need::Now, Need::Later),
        };
        let mut reader = Reader { file: self.file.clone(), problems };
        reader.section(&Field::top(&self.tree), &written::KEYS);
        let namespace = self.namespace(scope, instance, &mut reader);
        scope.set_namespace(namespace.as_deref());
        let scope = &*scope;
        let mut decoder = Decoder { reader, root: &self.root, tree: &self.tree, given: &inputs.given, need: Need::Now };
        // The release of the operator is looked at by runs on an instance too, so its section is always needed.
        let operator = self.section(&mut decoder, scope, ("operator", Area::Cluster, Need::Now), Decoder::operator);
        let budget = self.section(&mut decoder, scope, ("cluster", Area::Cluster, Need::Now), Decoder::max_connections);
        let prerequisites = self.section(&mut decoder, scope, ("prerequisites", Area::Cluster, cluster), Decoder::root);
        let build = self.section(&mut decoder, scope, ("images", Area::Instance, instance), Decoder::build);
        let body = self.section(&mut decoder, scope, ("instance", Area::Instance, instance), |decoder, field| {
            decoder.instance(field, namespace.as_deref())
        });
        let verify = self.section(&mut decoder, scope, ("verify", Area::Instance, instance), Decoder::verify);
        let on_cluster = cluster == Need::Now;
        Bundle {
            root: self.root.clone(),
            name: self.name.clone(),
            version: self.version.clone(),
            build: build.filter(|_| !on_cluster),
            operator,
            prerequisites: prerequisites.filter(|_| on_cluster),
            instance: body.filter(|_| !on_cluster),
            verify: verify.filter(|_| !on_cluster).unwrap_or_default(),
            max_connections: budget,
            notes: Vec::new(),
            asked: BTreeSet::new(),
        }
    }

    /// Expands and reads one section of the file.
    fn section<'d, 'p, T>(
        &self,
        decoder: &mut Decoder<'d, 'p>,
        scope: &Scope,
        (name, area, need): (&str, Area, Need),
        read: impl FnOnce(&mut Decoder<'d, 'p>, &Field<'_>) -> Option<T>,
    ) -> Option<T> {
        let node = self.tree.get(name).filter(|node| node.kind != Kind::Null)?;
        decoder.need = need;
        let field = Field { node, path: name.to_owned() };
        let expanded = expand(scope, &field, area, need, &mut decoder.reader);
        read(decoder, &Field { node: &expanded, path: field.path })
    }

    /// The instance's namespace: the bundle's, else `dci-` and its name.
    fn namespace(&self, scope: &Scope, need: Need, reader: &mut Reader<'_>) -> Option<String> {
        let written = self.tree.get("instance").and_then(|instance| instance.get("namespace"));
        let default = Node { at: Position { line: 1, column: 1 }, kind: Kind::Text("dci-${instance}".to_owned()) };
        let node = written.filter(|node| node.kind != Kind::Null).unwrap_or(&default);
        let field = Field { node, path: "instance.namespace".to_owned() };
        let expanded = scope.expand(&field, Area::Namespace, need, reader);
        reader.checked(&Field { node: &expanded, path: field.path }, name::instance_namespace)
    }

    /// What was given and cannot be used. Names in a file that the bundle does not know are only worth a note: one
    /// file may serve several bundles. On a command line they are a slip.
    /// With the notes comes all that the bundle asks for.
    fn check_given(
        &self,
        given: &Given,
        secrets: &BTreeSet<String>,
        problems: &mut Problems,
    ) -> (Vec<String>, BTreeSet<String>) {
        let keys =
            |map: &Node| -> Vec<String> { map.map().into_iter().flatten().map(|(key, _)| key.name.clone()).collect() };
        let mut asked: BTreeSet<String> =
            written::root_variables(&self.tree).chain(self.tree.get("vars")).flat_map(keys).collect();
        let placeholders = written::placeholders(&self.tree);
        asked.extend(placeholders.iter().filter_map(|name| name.strip_prefix("var.")).map(str::to_owned));
        let mut unasked = 0;
        for name in given.on_line() {
            if secrets.contains(name) {
                let environment = environment_name(&name.to_uppercase());
                let what = format!(
                    "a secret may not be on a command line, which everybody on the machine can see: set {environment}, or give it in a --var-file"
                );
                problems.add(Problem::elsewhere(format!("--var {name}"), what).mended_by(Mend::GiveSecret));
            } else if !asked.contains(name) {
                let what = written::unasked(name, &asked, unasked);
                problems.add(Problem::elsewhere(format!("--var {name}"), what).mended_by(Mend::Rename));
                unasked += 1;
            }
        }
        let unknown =
            given.in_files().iter().filter(|entry| !asked.contains(&entry.name) && !secrets.contains(&entry.name));
        let more = unknown.clone().count().saturating_sub(MOST);
        let note = |entry: &FromFile| entry.place.sentence(&written::unasked(&entry.name, &asked, 0));
        let more = (more > 0).then(|| format!("the files of --var-file have {more} more such variables"));
        let notes = unknown.take(MOST).map(note).chain(more).collect();
        asked.extend(secrets.iter().cloned());
        (notes, asked)
    }
}

/// Expands one section. The namespace has been expanded on its own, with rules of its own.
fn expand(scope: &Scope, field: &Field<'_>, area: Area, need: Need, reader: &mut Reader<'_>) -> Node {
    let Kind::Map(entries) = &field.node.kind else { return scope.expand(field, area, need, reader) };
    let one = |(key, node): &(Key, Node)| {
        let path = entry(&field.path, &key.name);
        let node = if path == "instance.namespace" {
            node.clone()
        } else {
            scope.expand(&Field { node, path }, area, need, reader)
        };
        (key.clone(), node)
    };
    let entries: Vec<_> = entries.iter().map(one).collect();
    Node { at: field.node.at, kind: Kind::Map(entries) }
}

/// The folder of a bundle, unpacked if need be, and the digest of what was unpacked.
fn folder_of(path: &Path, scratch: &Path, expected: Option<&Digest>) -> Result<(PathBuf, Option<Digest>), Failure> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Failure::new(Code::BundleInvalid, format!("there is no bundle at {}", path.display()))
                .hint("Give the folder that holds bundle.yaml, or its .tar.gz, with --bundle."));
        }
        Err(error) => return Err(unreadable(path, &error)),
    };
    if metadata.is_dir() && expected.is_some() {
        let sentence = format!("--bundle-digest is of an archive, and {} is a folder", path.display());
        return Err(Failure::new(Code::OptionInvalid, sentence).hint("Give the .tar.gz with --bundle, or no digest."));
    }
    if metadata.is_dir() {
        return Ok((path.to_owned(), None));
    }
    if metadata.is_file() && archive::is_gzip(path).map_err(|error| unreadable(path, &error))? {
        return archive::unpack(path, scratch, expected).map(|(folder, digest)| (folder, Some(digest)));
    }
    let failure = Failure::new(
        Code::BundleInvalid,
        format!("{} is not a bundle: it is neither a folder nor a .tar.gz", path.display()),
    );
    let is_file = path.file_name().is_some_and(|name| name == FILE);
    Err(if is_file { failure.hint("Give the folder that bundle.yaml is in.") } else { failure })
}

/// The text of `bundle.yaml`.
fn read(path: &Path, root: &Path) -> Result<String, Failure> {
    let file = paths::inside(root, FILE, Want::File).map_err(|wrong| {
        let failure = Failure::new(Code::BundleInvalid, format!("{} is not a bundle: {wrong}", path.display()));
        let similar = ["bundle.yml", "Bundle.yaml", "bundle.json"].into_iter().find(|name| root.join(name).is_file());
        match similar {
            Some(name) => failure.hint(format!("Rename {name} to {FILE}.")),
            None => failure,
        }
    })?;
    let shown = path.join(FILE);
    let mut bytes = Vec::new();
    fs::File::open(&file)
        .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| unreadable(&shown, &error))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Failure::new(
            Code::BundleInvalid,
            format!("{} is larger than {MOST_BYTES} bytes", shown.display()),
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.split(|byte| *byte == b'\n').count();
        Failure::new(Code::BundleInvalid, format!("{}:{line}: this is not UTF-8 text", shown.display()))
    })
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::BundleInvalid, format!("{} cannot be read", path.display())).because(error)
}
