//! The copy of the bundle that an OpenTofu root runs in. The bundle itself is never written to.
//!
//! All of the bundle is copied, not the root alone: a root may use modules, templates and scripts elsewhere in it. What
//! another run of OpenTofu or a version control system left there stays behind.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::{Code, Failure};
use crate::step::invoke::make_folder;

/// Copies the bundle and returns where the root is in the copy.
///
/// # Errors
/// [`Code::RunDirUnusable`] when the copy cannot be made.
pub(crate) fn copy(bundle: &Path, root: &Path, to: &Path) -> Result<PathBuf, Failure> {
    let within = root.strip_prefix(bundle).map_err(|_| {
        Failure::new(Code::BundleInvalid, format!("the root `{}` is not in the bundle", root.display()))
    })?;
    make_folder(to)?;
    let inside = fs::canonicalize(to).unwrap_or_else(|_| to.to_owned());
    copy_folder(bundle, to, &inside).map_err(|(path, error)| {
        let code = Code::RunDirUnusable.unless_exhausted(&error);
        Failure::new(code, format!("`{}` could not be copied into the run directory", path.display())).because(&error)
    })?;
    Ok(to.join(within))
}

/// Copies what is in one folder. The error names what could not be copied.
fn copy_folder(from: &Path, to: &Path, inside: &Path) -> Result<(), (PathBuf, io::Error)> {
    let failed = |error| (from.to_owned(), error);
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let failed = |error| (source.clone(), error);
        // A run directory in the bundle would be copied into itself without end.
        if is_left_behind(&entry.file_name().to_string_lossy()) || inside.starts_with(&source) {
            continue;
        }
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            make_folder(&target).map_err(|failure| failed(io::Error::other(failure)))?;
            copy_folder(&source, &target, inside)?;
        } else if kind.is_symlink() {
            fs::read_link(&source).and_then(|link| std::os::unix::fs::symlink(link, &target)).map_err(failed)?;
        } else if kind.is_file() {
            fs::copy(&source, &target).map_err(failed)?;
        }
    }
    Ok(())
}

fn is_left_behind(name: &str) -> bool {
    matches!(name, ".git" | ".terraform" | "errored.tfstate" | "terraform.tfstate" | "terraform.tfstate.backup")
}

/// Where a root keeps its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Backend {
    /// `local`, `s3`, `kubernetes`, `cloud`…
    pub(crate) kind: String,
    /// Its settings, as far as they are written out; none stands for one that has to be worked out.
    pub(crate) settings: BTreeMap<String, Option<String>>,
}

impl Backend {
    fn of(kind: &str) -> Backend {
        Backend { kind: kind.to_owned(), settings: BTreeMap::new() }
    }

    /// Namespace and name of the secret that carries the state of a `kubernetes` backend in the run's own cluster;
    /// none when that cannot be told.
    pub(crate) fn secret(&self) -> Option<(String, String)> {
        let known = ["secret_suffix", "namespace", "labels"];
        if self.kind != "kubernetes" || self.settings.keys().any(|name| !known.contains(&name.as_str())) {
            return None;
        }
        let suffix = self.settings.get("secret_suffix")?.as_ref()?;
        let namespace = match self.settings.get("namespace") {
            Some(namespace) => namespace.clone()?,
            None => "default".to_owned(),
        };
        Some((namespace, format!("tfstate-default-{suffix}")))
    }
}

/// The backend that a root declares; none when it declares none.
///
/// The files are read as text, before OpenTofu looks at them: whether state is local has to be known before the lock.
pub(crate) fn declared_backend(root: &Path) -> Option<Backend> {
    let entries = fs::read_dir(root).ok()?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().find_map(|path| {
        let name = path.file_name()?.to_str()?;
        let (name, read): (&str, fn(&str) -> Option<Backend>) = match name.strip_suffix(".json") {
            Some(name) => (name, in_json),
            None => (name, in_hcl),
        };
        let (_, language) = name.rsplit_once('.')?;
        matches!(language, "tf" | "tofu").then(|| read(&fs::read_to_string(path).ok()?)).flatten()
    })
}

fn in_json(text: &str) -> Option<Backend> {
    let file: serde_json::Value = serde_json::from_str(text).ok()?;
    let settings = file.get("terraform")?;
    // A block may be written as one object or as a list of them.
    let blocks = settings.as_array().map_or_else(|| std::slice::from_ref(settings), Vec::as_slice);
    blocks.iter().find_map(|block| {
        if block.get("cloud").is_some() {
            return Some(Backend::of("cloud"));
        }
        let backend = block.get("backend")?;
        let backend = backend.as_array().and_then(|list| list.first()).unwrap_or(backend);
        let (kind, settings) = backend.as_object()?.iter().next()?;
        let settings = settings.as_array().and_then(|list| list.first()).unwrap_or(settings);
        let literal = |value: &serde_json::Value| value.as_str().and_then(literal);
        let settings = settings.as_object().into_iter().flatten();
        Some(Backend {
            kind: kind.clone(),
            settings: settings.map(|(name, value)| (name.clone(), literal(value))).collect(),
        })
    })
}

/// A text that stands for itself.
fn literal(text: &str) -> Option<String> {
    (!text.contains("${") && !text.contains("%{")).then(|| text.to_owned())
}

/// Looks for `backend "TYPE" {` or `cloud {` directly in a `terraform {`.
fn in_hcl(text: &str) -> Option<Backend> {
    let mut depth = 0_usize;
    let mut within = false;
    let mut last: Vec<Token> = Vec::new();
    let mut tokens = Tokens { rest: text };
    while let Some(token) = tokens.next() {
        match &token {
            Token::Open => {
                match last.as_slice() {
                    [.., Token::Word(word)] if depth == 0 && word == "terraform" => within = true,
                    [.., Token::Word(word), Token::Text(label)] if within && depth == 1 && word == "backend" => {
                        return Some(Backend { kind: label.clone(), settings: settings(&mut tokens) });
                    }
                    [.., Token::Word(word)] if within && depth == 1 && word == "cloud" => {
                        return Some(Backend::of("cloud"));
                    }
                    _ => {}
                }
                depth += 1;
            }
            Token::Close => {
                depth = depth.saturating_sub(1);
                within &= depth > 0;
            }
            Token::Word(_) | Token::Text(_) | Token::Equals | Token::Other => {}
        }
        last.push(token);
        if last.len() > 2 {
            last.remove(0);
        }
    }
    None
}

/// The settings of a block whose opening brace was passed.
fn settings(tokens: &mut Tokens<'_>) -> BTreeMap<String, Option<String>> {
    let mut found = BTreeMap::new();
    let mut depth = 0_usize;
    let mut before: Option<Token> = None;
    while let Some(token) = tokens.next() {
        match (&before, &token) {
            (_, Token::Close) if depth == 0 => break,
            (_, Token::Close) => depth -= 1,
            (Some(Token::Word(name)), Token::Open) if depth == 0 => {
                found.insert(name.clone(), None);
                depth += 1;
            }
            (_, Token::Open) => depth += 1,
            (Some(Token::Word(name)), Token::Equals) if depth == 0 => {
                let name = name.clone();
                let value = match tokens.next() {
                    Some(Token::Text(text)) => literal(&text),
                    Some(Token::Open) => {
                        depth += 1;
                        None
                    }
                    Some(_) | None => None,
                };
                found.insert(name, value);
            }
            (_, _) => {}
        }
        before = Some(token);
    }
    found
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Open,
    Close,
    Equals,
    Other,
}

/// The tokens of HCL, as far as blocks need them: comments, strings and heredocs are not mistaken for anything else.
struct Tokens<'a> {
    rest: &'a str,
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        loop {
            self.rest = self.rest.trim_start();
            let first = self.rest.chars().next()?;
            if first == '#' || self.rest.starts_with("//") {
                self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else if self.rest.starts_with("/*") {
                self.skip(self.rest.find("*/").map_or(self.rest.len(), |end| end + 2));
            } else if self.rest.starts_with("<<") {
                self.skip_heredoc();
            } else {
                return Some(self.token(first));
            }
        }
    }
}

impl Tokens<'_> {
    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    fn token(&mut self, first: char) -> Token {
        let word = |character: char| character.is_alphanumeric() || character == '_' || character == '-';
        if first == '"' {
            let inner = &self.rest[1..];
            let end = string_end(inner);
            let text = inner[..end].to_owned();
            self.skip((end + 2).min(self.rest.len()));
            return Token::Text(text);
        }
        if word(first) {
            let end = self.rest.find(|character| !word(character)).unwrap_or(self.rest.len());
            let text = self.rest[..end].to_owned();
            self.skip(end);
            return Token::Word(text);
        }
        self.skip(first.len_utf8());
        match first {
            '{' => Token::Open,
            '}' => Token::Close,
            '=' => Token::Equals,
            _ => Token::Other,
        }
    }

    fn skip_heredoc(&mut self) {
        let line_end = self.rest.find('\n').unwrap_or(self.rest.len());
        let marker = self.rest[2..line_end].trim_start_matches('-').trim().to_owned();
        self.skip(line_end);
        while !self.rest.is_empty() {
            self.rest = self.rest.strip_prefix('\n').unwrap_or(self.rest);
            let line_end = self.rest.find('\n').unwrap_or(self.rest.len());
            let ends = self.rest[..line_end].trim() == marker;
            self.skip(line_end);
            if ends {
                return;
            }
        }
    }
}

/// Where a string ends whose opening quote was passed: the offset of its closing quote, or of the end of the text. A
/// `${…}` in it may have strings of its own.
fn string_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'{' if depth > 0 || (at > 0 && matches!(bytes[at - 1], b'$' | b'%')) => depth += 1,
            b'}' if depth > 0 => depth -= 1,
            b'"' if depth == 0 => return at,
            b'"' => at += 1 + string_end(&text[at + 1..]),
            _ => {}
        }
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declared_backend_is_found_and_nothing_else_is_taken_for_it() {
        let found = [
            ("terraform {\n  backend \"s3\" {\n    bucket = \"x\"\n  }\n}\n", Some("s3")),
            ("terraform { required_version = \">= 1.8\"\n backend \"local\" {} }", Some("local")),
            ("terraform {\n  cloud {\n  }\n}", Some("cloud")),
            ("# terraform { backend \"s3\" {} }\n// backend \"gcs\" {\n/* terraform { backend \"http\" {} } */", None),
            ("resource \"x\" \"backend\" { terraform { backend \"s3\" {} } }", None),
            ("locals { a = \"terraform { backend \\\"s3\\\" {\" }", None),
            (
                "locals { a = <<-EOT\n  terraform {\n    backend \"s3\" {\n  EOT\n}\nterraform {\n backend \"pg\" {}\n}",
                Some("pg"),
            ),
            ("locals { a = \"${var.b[\"}\"]} {\" }\nterraform {\n  backend \"http\" {}\n}", Some("http")),
            ("terraform {\n  required_providers {\n    cloud = { source = \"a/b\" }\n  }\n}\nbackend \"s3\" {}", None),
            ("", None),
        ];
        for (text, expected) in found {
            assert_eq!(in_hcl(text).map(|backend| backend.kind).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_declared_backend_is_found_in_json() {
        let found = [
            (r#"{"terraform":{"backend":{"s3":{"bucket":"x"}}}}"#, Some("s3")),
            (r#"{"terraform":[{"required_version":">=1.8"},{"backend":[{"http":{}}]}]}"#, Some("http")),
            (r#"{"terraform":{"cloud":{}}}"#, Some("cloud")),
            (r#"{"resource":{}}"#, None),
            ("not json", None),
        ];
        for (text, expected) in found {
            assert_eq!(in_json(text).map(|backend| backend.kind).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_secret_of_a_kubernetes_backend_is_known_only_when_it_is_written_out() {
        let block = |settings: &str| format!("terraform {{\n  backend \"kubernetes\" {{\n{settings}\n  }}\n}}\n");
        let found = [
            ("secret_suffix = \"a\"", Some(("default", "tfstate-default-a"))),
            ("namespace = \"n\"\n labels = { x = \"y\" }\n secret_suffix = \"a\"", Some(("n", "tfstate-default-a"))),
            ("secret_suffix = var.suffix", None),
            ("secret_suffix = \"${var.a}-b\"", None),
            ("secret_suffix = \"a\"\n namespace = local.n", None),
            ("secret_suffix = \"a\"\n config_path = \"elsewhere\"", None),
            ("secret_suffix = \"a\"\n in_cluster_config = true", None),
            ("secret_suffix = \"a\"\n exec {\n command = \"x\"\n }", None),
            ("", None),
        ];
        for (settings, expected) in found {
            let secret = in_hcl(&block(settings)).and_then(|backend| backend.secret());
            let secret = secret.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
            assert_eq!(secret, expected, "{settings}");
        }
        let json = r#"{"terraform":{"backend":{"kubernetes":{"secret_suffix":"a","namespace":"n"}}}}"#;
        let secret = in_json(json).and_then(|backend| backend.secret());
        assert_eq!(secret, Some(("n".to_owned(), "tfstate-default-a".to_owned())));
    }

    #[test]
    fn text_without_sense_is_read_to_its_end() {
        for text in ["\"", "\"${", "<<", "<<EOT", "/*", "{{{", "}}}", "terraform", "\"é", "<<-\n", "\\"] {
            assert_eq!(in_hcl(text), None, "{text}");
        }
    }

    #[test]
    fn the_whole_bundle_is_copied_but_for_what_others_left_there() {
        let bundle = tempfile::tempdir().expect("a folder");
        let path = |name: &str| bundle.path().join(name);
        for folder in ["infra/instance/.terraform", "infra/modules/a", ".git", "run"] {
            fs::create_dir_all(path(folder)).expect("a folder");
        }
        let files = [
            "infra/instance/main.tf",
            "infra/instance/.terraform/x",
            "infra/instance/terraform.tfstate",
            "infra/instance/.terraform.lock.hcl",
            "infra/modules/a/a.tf",
            ".git/config",
        ];
        for file in files {
            fs::write(path(file), file).expect("written");
        }
        std::os::unix::fs::symlink("../modules/a/a.tf", path("infra/instance/link.tf")).expect("linked");
        let root = copy(bundle.path(), &path("infra/instance"), &path("run/copy")).expect("copied");
        assert_eq!(root, path("run/copy/infra/instance"));
        let copied = |name: &str| path("run/copy").join(name);
        assert_eq!(fs::read_to_string(copied("infra/instance/link.tf")).expect("there"), "infra/modules/a/a.tf");
        assert!(copied("infra/instance/.terraform.lock.hcl").exists());
        let absent = [".git", "infra/instance/.terraform", "infra/instance/terraform.tfstate", "run/copy"];
        for name in absent {
            assert!(!copied(name).exists(), "{name}");
        }
    }
}
