//! Finds the programs that steps need, and checks that they are what their names say and new enough.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::Bundle;
use crate::failure::{Code, Failure};
use crate::pipeline::Verb;
use crate::process::{Stream, Update};
use crate::step::invoke::{Call, Tail};
use crate::step::{Choices, Fate, Means, Tool};

/// How long a program may take to say its version.
const LIMIT: Duration = Duration::from_secs(60);

/// The oldest OpenTofu that says what it does on `init` in its machine-readable form.
const OLDEST_TOFU: Version = Version(1, 8, 0);

/// The oldest Helm whose behaviour under signals and after dead runs was measured.
const OLDEST_HELM: Version = Version(3, 17, 0);

/// The newest major version of Helm whose options are known.
const NEWEST_HELM: u64 = 4;

/// Whether a verb uses OpenTofu with this bundle.
pub fn needs_tofu(verb: Verb, bundle: &Bundle, choices: &Choices) -> bool {
    match verb {
        Verb::Install => bundle.prerequisites.is_some(),
        Verb::Destroy if choices.infrastructure == Fate::Abandoned => false,
        Verb::Bootstrap | Verb::Upgrade | Verb::Destroy => {
            bundle.instance.as_ref().is_some_and(|instance| instance.infrastructure.is_some())
        }
        Verb::Exec => false,
    }
}

/// Whether a verb uses Helm with this bundle.
pub fn needs_helm(verb: Verb, bundle: &Bundle) -> bool {
    match verb {
        Verb::Install | Verb::Exec => false,
        Verb::Bootstrap | Verb::Upgrade | Verb::Destroy => {
            bundle.instance.as_ref().is_some_and(|instance| instance.chart.is_some())
        }
    }
}

/// Finds OpenTofu: the one given, else `tofu` on `PATH`. Terraform is refused, under whatever name: its state, its
/// locks and its output differ from what this program reads.
///
/// # Errors
/// [`Code::ToolMissing`], [`Code::ToolUnsuitable`], or what kept it from being asked.
pub async fn find_tofu(means: &Means, given: Option<&Path>) -> Result<Tool, Failure> {
    let path = locate(means, "tofu", "--tofu", given).map_err(|failure| match on_path(means, "terraform") {
        Some(terraform) => {
            failure.hint(format!("{} is Terraform, which dcctl does not use in its place", terraform.display()))
        }
        None => failure,
    })?;
    let said = ask(means, &path, &["version"]).await?;
    check_tofu(&path, &said)
}

/// Finds Helm: the one given, else `helm` on `PATH`.
///
/// # Errors
/// [`Code::ToolMissing`], [`Code::ToolUnsuitable`], or what kept it from being asked.
pub async fn find_helm(means: &Means, given: Option<&Path>) -> Result<Tool, Failure> {
    let path = locate(means, "helm", "--helm", given)?;
    let said = ask(means, &path, &["version", "--template", "{{.Version}}"]).await?;
    check_helm(&path, &said)
}

fn check_tofu(path: &Path, said: &[String]) -> Result<Tool, Failure> {
    // Version managers and wrappers may say something of their own first.
    if let Some((said, version)) = said.iter().find_map(|line| after(line, "OpenTofu v")) {
        if version < OLDEST_TOFU {
            return Err(too_old("OpenTofu", path, &said, OLDEST_TOFU));
        }
        return Ok(Tool { path: path.to_owned(), version: said });
    }
    let sentence = if said.iter().any(|line| line.starts_with("Terraform v")) {
        format!("`{}` is Terraform, and dcctl works with OpenTofu {OLDEST_TOFU} or later", path.display())
    } else {
        format!("`{}` does not say that it is OpenTofu", path.display())
    };
    Err(unsuitable(sentence, said).hint("install OpenTofu, or name it with --tofu"))
}

fn check_helm(path: &Path, said: &[String]) -> Result<Tool, Failure> {
    let Some((said, version)) = said.iter().find_map(|line| after(line, "v")) else {
        let sentence = format!("`{}` does not say that it is Helm", path.display());
        return Err(unsuitable(sentence, said).hint("install Helm, or name it with --helm"));
    };
    if version < OLDEST_HELM {
        return Err(too_old("Helm", path, &said, OLDEST_HELM));
    }
    if version.0 > NEWEST_HELM {
        let sentence = format!(
            "`{}` is Helm {said}, and dcctl knows how to use Helm {OLDEST_HELM} up to any {NEWEST_HELM}.x",
            path.display()
        );
        return Err(Failure::new(Code::ToolUnsuitable, sentence).hint("install Helm 4, or name it with --helm"));
    }
    Ok(Tool { path: path.to_owned(), version: said })
}

fn too_old(name: &str, path: &Path, found: &str, oldest: Version) -> Failure {
    let sentence = format!("`{}` is {name} {found}, and dcctl needs {oldest} or later", path.display());
    Failure::new(Code::ToolUnsuitable, sentence)
}

fn unsuitable(sentence: String, said: &[String]) -> Failure {
    let failure = Failure::new(Code::ToolUnsuitable, sentence);
    match said.first() {
        Some(line) => failure.cause(format!("asked for its version, it said: {line}")),
        None => failure.cause("asked for its version, it said nothing"),
    }
}

/// Runs a program that only says its version. Nobody else hears it.
async fn ask(means: &Means, path: &Path, args: &[&str]) -> Result<Vec<String>, Failure> {
    let name = format!("{} version", path.file_name().unwrap_or_default().display());
    let mut call = Call::query(means, &name, path, args);
    call.timeout = Some(LIMIT);
    call.env = vec![("CHECKPOINT_DISABLE", "1".into())];
    let (mut said, mut complained) = (Vec::new(), Tail::default());
    let done = call
        .run(means, |update| {
            if let Update::Line { stream, text, .. } = update {
                match stream {
                    Stream::Stdout if said.len() < 100 => said.push(text),
                    Stream::Stdout => {}
                    Stream::Stderr => complained.push(&text),
                }
            }
            None
        })
        .await
        .map_err(|failure| match failure.code {
            // It is there, and the system cannot run it.
            Code::CommandFailed => Failure { code: Code::ToolUnsuitable, ..failure },
            _ => failure,
        })?;
    if done.ended.exit.is_success() {
        return Ok(said);
    }
    let sentence = format!("`{}` does not say its version: it ended with {}", path.display(), done.ended.exit);
    let failure = Failure::new(Code::ToolUnsuitable, sentence);
    Err(complained.last(3).fold(failure, Failure::cause))
}

fn locate(means: &Means, name: &str, option: &str, given: Option<&Path>) -> Result<PathBuf, Failure> {
    let Some(given) = given else {
        return on_path(means, name).ok_or_else(|| {
            Failure::new(Code::ToolMissing, format!("`{name}` is not on PATH"))
                .hint(format!("install it, or name it with {option}"))
        });
    };
    // A name without a folder is looked up, as a shell would.
    if given.components().count() == 1 && !given.is_absolute() {
        let found = given.to_str().and_then(|given| on_path(means, given));
        return found.ok_or_else(|| {
            Failure::new(Code::ToolMissing, format!("`{}`, given with {option}, is not on PATH", given.display()))
        });
    }
    let path = std::path::absolute(given).unwrap_or_else(|_| given.to_owned());
    if is_program(&path) {
        return Ok(path);
    }
    let why = if path.exists() { "is not a program" } else { "is not there" };
    Err(Failure::new(Code::ToolMissing, format!("`{}`, given with {option}, {why}", path.display())))
}

fn on_path(means: &Means, name: &str) -> Option<PathBuf> {
    let (_, path) = means.environment.iter().find(|(variable, _)| variable == "PATH")?;
    std::env::split_paths(path)
        // An empty entry means the current folder, where nothing of ours is to be picked up by chance.
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|candidate| is_program(candidate))
}

/// Whether a file can be run.
pub(in crate::step) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// A version, as far as it is compared. What follows the third number is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u64, pub(crate) u64, pub(crate) u64);

impl Version {
    /// Reads `1.12.6`, `3.17.2+g123`, `1.8.0-rc1`.
    pub(crate) fn parse(text: &str) -> Option<Version> {
        let end = text.find(['-', '+', ' ']).unwrap_or(text.len());
        let mut numbers = text[..end].split('.').map(str::parse);
        let mut next = || numbers.next()?.ok();
        let (major, minor) = (next()?, next()?);
        Some(Version(major, minor, next().unwrap_or(0)))
    }
}

/// The version that follows a word, as it stands there and as it is compared.
fn after(line: &str, prefix: &str) -> Option<(String, Version)> {
    let said = line.trim().strip_prefix(prefix)?.split_whitespace().next()?;
    Some((said.to_owned(), Version::parse(said)?))
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tofu(said: &str) -> Result<String, (Code, String)> {
        let said: Vec<String> = said.lines().map(str::to_owned).collect();
        let checked = check_tofu(Path::new("/bin/tofu"), &said);
        checked.map(|tool| tool.version).map_err(|failure| (failure.code, failure.message))
    }

    fn helm(said: &str) -> Result<String, (Code, String)> {
        let checked = check_helm(Path::new("/bin/helm"), &[said.to_owned()]);
        checked.map(|tool| tool.version).map_err(|failure| (failure.code, failure.message))
    }

    #[test]
    fn opentofu_is_told_from_terraform_and_from_anything_else() {
        assert_eq!(tofu("OpenTofu v1.12.6\non linux_amd64"), Ok("1.12.6".to_owned()));
        assert_eq!(tofu("using 1.8.0\nOpenTofu v1.8.0-rc1"), Ok("1.8.0-rc1".to_owned()));
        let refused = [
            ("OpenTofu v1.7.9", "is OpenTofu 1.7.9, and dcctl needs 1.8.0 or later"),
            ("Terraform v1.11.4\non linux_amd64", "is Terraform, and dcctl works with OpenTofu 1.8.0 or later"),
            ("hello", "does not say that it is OpenTofu"),
            ("", "does not say that it is OpenTofu"),
        ];
        for (said, expected) in refused {
            let (code, message) = tofu(said).expect_err("it is refused");
            assert_eq!(code, Code::ToolUnsuitable);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn helm_is_taken_from_3_17_up_to_4() {
        assert_eq!(helm("v3.17.0"), Ok("3.17.0".to_owned()));
        assert_eq!(helm("v4.3.2+g1234567"), Ok("4.3.2+g1234567".to_owned()));
        assert_eq!(helm("v4.3"), Ok("4.3".to_owned()));
        for said in ["v3.16.4", "v2.17.0", "v5.0.0", "4.3.2", "no idea"] {
            assert_eq!(helm(said).expect_err("it is refused").0, Code::ToolUnsuitable, "{said}");
        }
    }
}
