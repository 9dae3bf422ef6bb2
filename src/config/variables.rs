//! What is given from outside: `--var`, `--var-file`, and `DCCTL_VAR_…` of the environment.
//!
//! # Who wins
//! The command line, then files (the later one), then the environment, then the bundle's own `vars`.
//!
//! # Types
//! A file has types, and they have to be those of the bundle's own value. A command line and an environment have text
//! only: the bundle's own value says whether it is meant as a number, as true or false, or (in YAML) as a list or a
//! map. Where the bundle has no value of its own it stays text, which a field that needs a number reads as one. So
//! `--var version=1.10` never becomes 1.1.
//!
//! # Secrets
//! They come from a file or the environment. A command line is visible to everybody on the machine, so `--var` is
//! refused for one. Which names are secrets only the bundle knows; until then nothing here shows a value.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config::problem::{Mend, Place, Problem, Problems};
use crate::config::tree::{Kind, Malformed, Node, Position};
use crate::config::{Environment, name};
use crate::failure::{Code, Failure};
use crate::redact::Secret;

/// The variables and secrets given from outside, not yet matched with what a bundle asks for.
#[derive(Clone, Default)]
pub struct Given {
    line: Vec<(String, String)>,
    files: Vec<FromFile>,
    /// Of each name, the last place in `line` and in `files`: later ones win.
    last: HashMap<String, Last>,
    environment: Environment,
}

#[derive(Debug, Clone, Copy, Default)]
struct Last {
    line: Option<usize>,
    file: Option<usize>,
}

/// One entry of a `--var-file`.
#[derive(Clone)]
pub(crate) struct FromFile {
    pub(crate) name: String,
    pub(crate) place: Place,
    value: Value,
}

/// A variable with its value.
#[derive(Clone, PartialEq)]
pub(crate) enum Variable {
    /// Of the type that it is meant to have.
    Typed(Value),
    /// Text whose type nobody said.
    Untyped(String),
}

impl Given {
    /// Reads `--var NAME=VALUE` arguments and `--var-file FILE`s, each in the order given. A file is a map of names to
    /// values, in YAML or JSON.
    pub fn gather(vars: &[String], files: &[PathBuf], environment: &Environment) -> Result<Given, Failure> {
        let mut problems = Problems::default();
        let mut given = Given { environment: environment.clone(), ..Given::default() };
        for argument in vars {
            // What has no `=` may be a value on its own, so it is not repeated.
            let Some((name, value)) = argument.split_once('=') else {
                problems.add(Problem::elsewhere("--var", "write --var NAME=VALUE"));
                continue;
            };
            match name::variable(name) {
                Ok(()) => given.line.push((name.to_owned(), value.to_owned())),
                Err(wrong) => problems.add(Problem::elsewhere("--var", format!("`{}` {wrong}", name.escape_debug()))),
            }
        }
        for path in files {
            given.read_file(path, &mut problems);
        }
        for (index, (name, _)) in given.line.iter().enumerate() {
            given.last.entry(name.clone()).or_default().line = Some(index);
        }
        for (index, file) in given.files.iter().enumerate() {
            given.last.entry(file.name.clone()).or_default().file = Some(index);
        }
        problems.into_failure().map_or(Ok(given), Err)
    }

    /// The names on the command line.
    pub(crate) fn on_line(&self) -> impl Iterator<Item = &str> {
        self.line.iter().map(|(name, _)| name.as_str())
    }

    /// The entries of the files.
    pub(crate) fn in_files(&self) -> &[FromFile] {
        &self.files
    }

    /// The variable as given from outside, of the type of the bundle's own value.
    pub(crate) fn variable(&self, name: &str, own: Option<&Value>) -> Result<Option<Variable>, Problem> {
        let last = self.last.get(name).copied().unwrap_or_default();
        if let Some((_, text)) = last.line.map(|index| &self.line[index]) {
            return match spelled(text, own) {
                Ok(variable) => Ok(Some(variable)),
                Err(noun) => {
                    let what = format!("{noun} belongs here, as in the bundle");
                    Err(Problem::elsewhere(format!("--var {name}"), what).mended_by(Mend::Retype))
                }
            };
        }
        if let Some(file) = last.file.map(|index| &self.files[index]) {
            let wanted = own.filter(|own| !own.is_null()).map(noun);
            return match wanted {
                Some(wanted) if wanted != noun(&file.value) => {
                    let quotes = if wanted == TEXT { "; put it in quotes" } else { "" };
                    let what = format!("{wanted} belongs here, as in the bundle, not {}{quotes}", noun(&file.value));
                    Err(file.problem(what).mended_by(Mend::Retype))
                }
                Some(_) | None => Ok(Some(Variable::Typed(file.value.clone()))),
            };
        }
        let Some((full, text)) = self.in_environment(name)? else { return Ok(None) };
        match spelled(text, own) {
            Ok(variable) => Ok(Some(variable)),
            Err(noun) => {
                Err(Problem::elsewhere(full, format!("{noun} belongs here, as in the bundle")).mended_by(Mend::Retype))
            }
        }
    }

    /// A secret, if it was given where secrets may be given.
    pub(crate) fn secret(&self, name: &str) -> Result<Option<Secret>, Problem> {
        let last = self.last.get(name).copied().unwrap_or_default();
        if let Some(file) = last.file.map(|index| &self.files[index]) {
            return match &file.value {
                Value::String(text) if text.is_empty() => {
                    Err(file.problem("the secret is empty".to_owned()).mended_by(Mend::GiveSecret))
                }
                Value::String(text) => Ok(Some(Secret::from(text.clone()))),
                other => Err(file.problem(format!("a secret is text, not {}; put it in quotes", noun(other)))),
            };
        }
        Ok(self.in_environment(name)?.map(|(_, text)| Secret::from(text.to_owned())))
    }

    /// Whether the environment has this name with nothing in it, as CI systems do for a secret that does not exist.
    pub(crate) fn is_empty_in_environment(&self, name: &str) -> bool {
        [name.to_owned(), name.to_uppercase()]
            .iter()
            .any(|name| self.environment.raw(&environment_name(name)).is_some_and(std::ffi::OsStr::is_empty))
    }

    fn in_environment(&self, name: &str) -> Result<Option<(String, &str)>, Problem> {
        let Some((full, value)) = self.environment.bundle_variable(name) else { return Ok(None) };
        match value.to_str() {
            Some(text) => Ok(Some((full, text))),
            None => Err(Problem::elsewhere(full, "it is not UTF-8 text")),
        }
    }

    fn read_file(&mut self, path: &Path, problems: &mut Problems) {
        let file = path.display().to_string();
        let place = |at: Option<Position>, field: &str| Place::File { file: file.clone(), at, field: field.to_owned() };
        let mut wrong = |place: Place, what: String| {
            problems.add(Problem::new(Code::VariableInvalid, place, what));
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => return wrong(place(None, ""), format!("the file of --var-file cannot be read: {error}")),
        };
        let tree = match Node::parse(&text) {
            Ok(tree) => tree,
            Err(Malformed { at, why }) => return wrong(place(at, ""), why),
        };
        let entries = match (&tree.kind, tree.map()) {
            (_, Some(entries)) => entries,
            (Kind::Null, None) => &[],
            (_, None) => {
                return wrong(
                    place(Some(tree.at), ""),
                    format!("a map of names to values belongs here, not {}", tree.noun()),
                );
            }
        };
        for (key, node) in entries {
            let place = place(Some(key.at), &key.name);
            match name::variable(&key.name) {
                Ok(()) => self.files.push(FromFile { name: key.name.clone(), place, value: node.value() }),
                Err(error) => wrong(place, error),
            }
        }
    }
}

impl FromFile {
    fn problem(&self, what: String) -> Problem {
        Problem::new(Code::VariableInvalid, self.place.clone(), what)
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line: Vec<_> = self.on_line().collect();
        let files: Vec<_> = self.files.iter().map(|file| &file.name).collect();
        f.debug_struct("Given")
            .field("line", &line)
            .field("files", &files)
            .field("environment", &self.environment)
            .finish_non_exhaustive()
    }
}

/// `DCCTL_VAR_db_password` is what people write as `DCCTL_VAR_DB_PASSWORD`; both are read.
pub(crate) fn environment_name(name: &str) -> String {
    format!("{}{name}", crate::config::env::VARIABLE_PREFIX)
}

const TEXT: &str = "text";

fn noun(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => TEXT,
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// Reads a text as a value of the type of the bundle's own. The error is what should have been there.
fn spelled(text: &str, own: Option<&Value>) -> Result<Variable, &'static str> {
    let Some(own) = own else { return Ok(Variable::Untyped(text.to_owned())) };
    let wanted = noun(own);
    match own {
        Value::Null => Ok(Variable::Untyped(text.to_owned())),
        Value::String(_) => Ok(Variable::Typed(Value::String(text.to_owned()))),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            let read = Node::parse(text).map_err(|_| wanted)?.value();
            if noun(&read) == wanted { Ok(Variable::Typed(read)) } else { Err(wanted) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("vars.yaml");
        std::fs::write(&path, text).expect("a file");
        (folder, path)
    }

    fn given(line: &[&str], text: &str, environment: &[(&str, &str)]) -> Given {
        let (_folder, path) = file(text);
        let line: Vec<_> = line.iter().map(|argument| (*argument).to_owned()).collect();
        Given::gather(&line, &[path], &Environment::of(environment.iter().copied())).expect("good variables")
    }

    fn ask(given: &Given, name: &str, own: Option<&Value>) -> Result<Option<Variable>, String> {
        given.variable(name, own).map_err(|problem| {
            let mut problems = Problems::default();
            problems.add(problem);
            problems.into_failure().expect("one problem").message
        })
    }

    #[test]
    fn the_command_line_wins_over_files_and_files_over_the_environment() {
        let all = given(
            &["a=1", "a=2"],
            "a: file\nb: file\n",
            &[("DCCTL_VAR_A", "env"), ("DCCTL_VAR_B", "env"), ("DCCTL_VAR_c", "env")],
        );
        assert_eq!(ask(&all, "a", Some(&json!(""))), Ok(Some(Variable::Typed(json!("2")))));
        assert_eq!(ask(&all, "b", Some(&json!(""))), Ok(Some(Variable::Typed(json!("file")))));
        assert_eq!(ask(&all, "c", Some(&json!(""))), Ok(Some(Variable::Typed(json!("env")))));
        assert_eq!(ask(&all, "d", Some(&json!(""))), Ok(None));
    }

    #[test]
    fn the_bundles_own_value_says_the_type() {
        let all =
            given(&["n=3", "b=true", "t=1.10", "l=[1, x]", "m={a: 1}", "u=7", "eq=a=b"], "", &[("DCCTL_VAR_E", "4")]);
        assert_eq!(ask(&all, "n", Some(&json!(1))), Ok(Some(Variable::Typed(json!(3)))));
        assert_eq!(ask(&all, "b", Some(&json!(false))), Ok(Some(Variable::Typed(json!(true)))));
        assert_eq!(ask(&all, "t", Some(&json!("1.9"))), Ok(Some(Variable::Typed(json!("1.10")))));
        assert_eq!(ask(&all, "l", Some(&json!([]))), Ok(Some(Variable::Typed(json!([1, "x"])))));
        assert_eq!(ask(&all, "m", Some(&json!({}))), Ok(Some(Variable::Typed(json!({"a": 1})))));
        assert_eq!(ask(&all, "e", Some(&json!(1))), Ok(Some(Variable::Typed(json!(4)))));
        assert_eq!(ask(&all, "eq", Some(&json!(""))), Ok(Some(Variable::Typed(json!("a=b")))));
        let untyped = Ok(Some(Variable::Untyped("7".to_owned())));
        assert_eq!((ask(&all, "u", None), ask(&all, "u", Some(&Value::Null))), (untyped.clone(), untyped));
    }

    #[test]
    fn a_value_of_another_type_is_refused_and_not_shown_when_it_may_be_secret() {
        let all = given(&["n=many"], "f: 1.10\ng: text\n", &[("DCCTL_VAR_E", "hunter2")]);
        let message = |name, own: &Value| ask(&all, name, Some(own)).expect_err("a wrong type");
        assert_eq!(message("n", &json!(1)), "--var n: a number belongs here, as in the bundle");
        assert_eq!(message("e", &json!(true)), "DCCTL_VAR_E: true or false belongs here, as in the bundle");
        let text = message("f", &json!("1.9"));
        assert!(
            text.ends_with("vars.yaml:1:1: f: text belongs here, as in the bundle, not a number; put it in quotes"),
            "{text}"
        );
        let number = message("g", &json!(1));
        assert!(number.ends_with("vars.yaml:2:1: g: a number belongs here, as in the bundle, not text"), "{number}");
    }

    #[test]
    fn secrets_come_from_files_and_the_environment_only() {
        let all = given(
            &["s=line"],
            "t: file\nn: 1234\n",
            &[("DCCTL_VAR_T", "env"), ("DCCTL_VAR_S", "env"), ("DCCTL_VAR_E", "")],
        );
        let secret = |name| all.secret(name).map(|secret| secret.map(|secret| secret.expose().to_owned()));
        assert_eq!(secret("t"), Ok(Some("file".to_owned())));
        assert_eq!(secret("s"), Ok(Some("env".to_owned())));
        assert_eq!(secret("e"), Ok(None));
        assert!(all.is_empty_in_environment("e") && !all.is_empty_in_environment("t"));
        let problem = secret("n").expect_err("a number");
        assert_eq!(problem.what, "a secret is text, not a number; put it in quotes");
    }

    #[test]
    fn bad_arguments_and_files_are_said_together_and_without_values() {
        let (folder, path) = file("a: hunter2\na: hunter3\n");
        let list = folder.path().join("list.yaml");
        std::fs::write(&list, "- hunter4\n").expect("a file");
        let names = folder.path().join("names.json");
        std::fs::write(&names, "{\n\t\"a-b\": \"hunter5\"\n}\n").expect("a file");
        let missing = folder.path().join("missing.yaml");
        let line = ["hunter6".to_owned(), "1x=hunter7".to_owned()];
        let files = [path, list, names, missing];
        let failure = Given::gather(&line, &files, &Environment::default()).expect_err("bad");
        assert_eq!(failure.code, Code::VariableInvalid);
        let at = |file: &str| folder.path().join(file).display().to_string();
        let mut all = vec![failure.message.clone()];
        all.extend(failure.causes.clone());
        assert_eq!(
            all,
            [
                format!(
                    "{}:1:1: a map of names to values belongs here, not a list (the first of 6 mistakes)",
                    at("list.yaml")
                ),
                format!(
                    "{}: the file of --var-file cannot be read: No such file or directory (os error 2)",
                    at("missing.yaml")
                ),
                format!(
                    "{}:2:2: a-b: is not a variable's name: letters, digits and underscores, not a digit first",
                    at("names.json")
                ),
                format!("{}:2:1: the key `a` is there twice", at("vars.yaml")),
                "--var: `1x` is not a variable's name: letters, digits and underscores, not a digit first".to_owned(),
                "--var: write --var NAME=VALUE".to_owned(),
            ]
        );
        assert!(!format!("{failure:?}").contains("hunter"));
    }

    #[test]
    fn debug_shows_no_value() {
        let all = given(&["a=hunter2"], "b: hunter3\n", &[("DCCTL_VAR_C", "hunter4")]);
        let shown = format!("{all:?}");
        assert!(shown.contains("DCCTL_VAR_C") && !shown.contains("hunter"), "{shown}");
    }

    impl fmt::Debug for Variable {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Variable::Typed(value) => write!(f, "Typed({value})"),
                Variable::Untyped(text) => write!(f, "Untyped({text})"),
            }
        }
    }
}
