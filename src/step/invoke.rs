//! Runs one program for a step: where its files lie, which environment it gets, who hears what it says.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::{Code, Failure};
use crate::process::{self, Ended, Manner, Room, Sign, Sink, Spec, Stdin};
use crate::redact::Redactor;
use crate::step::{Means, Mode, Update};

/// The folder of the run directory for what is removed at the run's end: variables, values, copies, saved plans.
pub const PRIVATE: &str = "private";

/// The folder of the run directory for the raw output of tools.
pub const OUTPUT: &str = "output";

/// The folder of the run directory for the records of tools: which process each was, and whether its end was seen.
pub const RECORDS: &str = "tools";

/// The ending of files that say what a program is about.
pub(crate) const ABOUT: &str = ".about.json";

/// The most of an answer that is read into memory, in bytes. A state with very many outputs has some megabytes.
const LONGEST_ANSWER: u64 = 64 << 20;

/// What becomes of a program's raw output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Raw {
    /// It is kept if the user asked for that.
    AsAsked,
    /// It may carry secrets, and is removed whatever the user asked for.
    Secret,
}

/// A program to run.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// What people call it: `tofu apply`.
    pub(crate) name: String,
    /// The program.
    pub(crate) program: PathBuf,
    /// Its arguments.
    pub(crate) args: Vec<OsString>,
    /// What it gets beside the environment of all tools.
    pub(crate) env: Vec<(&'static str, OsString)>,
    /// Its working folder.
    pub(crate) cwd: PathBuf,
    /// How it may be stopped.
    pub(crate) manner: Manner,
    /// What its lines tell.
    pub(crate) signs: fn(&str) -> Option<Sign>,
    /// How long it may take.
    pub(crate) timeout: Option<Duration>,
    /// What becomes of its output.
    pub(crate) raw: Raw,
    /// What it is about, as JSON: written beside its record, for a later run that finds its work half done.
    pub(crate) about: Option<Vec<u8>>,
}

impl Call {
    /// A program that only reads or prepares, in the run directory.
    pub(crate) fn query(means: &Means, name: &str, program: &Path, args: &[&str]) -> Call {
        Call {
            name: name.to_owned(),
            program: program.to_owned(),
            args: words(args),
            env: Vec::new(),
            cwd: means.run_dir.clone(),
            manner: Manner::Query,
            signs: |_| None,
            timeout: None,
            raw: Raw::AsAsked,
            about: None,
        }
    }

    /// Runs it. `hear` gets every update first, and returns what of it is for others to hear.
    ///
    /// # Errors
    /// When it could not be started, or its files could not be made. When it would change the cluster, and this run may not
    /// any more: then it is not started.
    pub(crate) async fn run(
        self,
        means: &Means,
        hear: impl FnMut(process::Update) -> Option<process::Update>,
    ) -> Result<Done, Failure> {
        let files = self.files(means)?;
        self.run_in(means, files, Stdin::Null, hear).await
    }

    /// The files of a program that may be started now.
    ///
    /// # Errors
    /// When they could not be made, and when the program would change the cluster and this run may not any more.
    pub(crate) fn files(&self, means: &Means) -> Result<Files, Failure> {
        match (means.mode, self.manner) {
            (Mode::Act, Manner::OpenTofu | Manner::Helm | Manner::Unsignalled) => means.may_write.now()?,
            // What the bundle's commands do is theirs, and images are built before there is a lock.
            (Mode::Act, Manner::Query | Manner::Group) | (Mode::DryRun, _) => {}
        }
        Files::make(means, &self.name, self.raw)
    }

    /// The same with these files, and something to read.
    ///
    /// # Errors
    /// When it could not be started.
    pub(crate) async fn run_in(
        self,
        means: &Means,
        files: Files,
        stdin: Stdin,
        hear: impl FnMut(process::Update) -> Option<process::Update>,
    ) -> Result<Done, Failure> {
        if let Some(about) = &self.about {
            write_private(&about_path(&files.record), about)?;
        }
        let name = self.name.clone();
        let spec = Spec { stdin, ..self.spec(means, &files) };
        let sink = Forward { means, name, hear };
        let ended = process::drive(spec, means.limits, means.stop.clone(), means.clock.as_ref(), sink).await?;
        Ok(Done { ended, files })
    }

    fn spec(self, means: &Means, files: &Files) -> Spec {
        let step = files.record.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let tracked = |(name, _): &(OsString, OsString)| !process::is_tracking(name);
        let mut env: Vec<(OsString, OsString)> = means
            .environment
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)))
            .filter(tracked)
            .collect();
        env.extend(means.leading.iter().cloned().chain(self.env).map(|(name, value)| (name.into(), value)));
        Spec {
            name: self.name,
            program: self.program,
            args: self.args,
            env,
            cwd: self.cwd,
            stdin: Stdin::Null,
            stdout: files.stdout.clone(),
            stderr: files.stderr.clone(),
            tag: format!("{}/{step}", means.run),
            manner: self.manner,
            signs: self.signs,
            record: files.record.clone(),
            timeout: self.timeout,
        }
    }
}

/// A program that has ended. Its raw output goes with this value, unless it is kept.
#[derive(Debug)]
pub(crate) struct Done {
    /// How it ended.
    pub(crate) ended: Ended,
    files: Files,
}

impl Done {
    /// All of its standard output, for answers that are read whole.
    ///
    /// # Errors
    /// When it cannot be read, or is longer than any answer.
    pub(crate) fn answer(&self) -> Result<Vec<u8>, Failure> {
        let path = &self.files.stdout;
        let unreadable = |why: String| {
            Failure::new(Code::CommandFailed, format!("the answer in `{}` cannot be read", path.display())).cause(why)
        };
        let file = fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
        let mut bytes = Vec::new();
        file.take(LONGEST_ANSWER + 1).read_to_end(&mut bytes).map_err(|error| unreadable(error.to_string()))?;
        if bytes.len() as u64 > LONGEST_ANSWER {
            return Err(unreadable(format!("it is longer than {} MiB", LONGEST_ANSWER >> 20)));
        }
        Ok(bytes)
    }

    /// Where it stands what it was about.
    pub(crate) fn about(&self) -> PathBuf {
        self.files.about()
    }

    /// Moves the raw standard output away, where it stays. A rename needs no room on the disk.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub(crate) fn keep_stdout(&self, to: &Path) -> std::io::Result<()> {
        fs::rename(&self.files.stdout, to)
    }
}

/// Arguments as programs get them.
pub(crate) fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// Where a program's files are.
#[derive(Debug)]
pub(crate) struct Files {
    stdout: PathBuf,
    stderr: PathBuf,
    record: PathBuf,
    keep: bool,
}

impl Files {
    /// Outputs that somebody else made, and follows; no other program of this run has them.
    ///
    /// # Errors
    /// When the folder of the records cannot be made.
    pub(crate) fn at(means: &Means, name: &str, stdout: &Path, stderr: &Path) -> Result<Files, Failure> {
        let records = means.run_dir.join(RECORDS);
        make_folder(&records)?;
        Ok(Files {
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            record: records.join(slug(name)),
            keep: means.keep_output,
        })
    }

    /// Where it stands what the program is about.
    pub(crate) fn about(&self) -> PathBuf {
        about_path(&self.record)
    }

    /// Finds names that no other program of this run has had.
    fn make(means: &Means, name: &str, raw: Raw) -> Result<Files, Failure> {
        let output = means.run_dir.join(if raw == Raw::Secret { PRIVATE } else { OUTPUT });
        let records = means.run_dir.join(RECORDS);
        for folder in [&output, &records] {
            make_folder(folder)?;
        }
        let slug = slug(name);
        let taken = |stem: &str| {
            process::Recorded::read(&records.join(stem)).is_ok_and(|record| record.is_some())
                || output.join(format!("{stem}.stdout")).exists()
        };
        let stem = (1..=u32::MAX)
            .map(|number| if number == 1 { slug.clone() } else { format!("{slug}-{number}") })
            .find(|stem| !taken(stem))
            .expect("the numbers do not end");
        Ok(Files {
            stdout: output.join(format!("{stem}.stdout")),
            stderr: output.join(format!("{stem}.stderr")),
            record: records.join(stem),
            keep: raw == Raw::AsAsked && means.keep_output,
        })
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        for path in [&self.stdout, &self.stderr] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "a tool's output could not be removed");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// Where it stands what a program is about, whose record is this.
pub(crate) fn about_path(record: &Path) -> PathBuf {
    let mut path = record.as_os_str().to_owned();
    path.push(ABOUT);
    PathBuf::from(path)
}

/// Makes a folder that only this user can look into.
///
/// # Errors
/// [`Code::RunDirUnusable`].
pub(crate) fn make_folder(path: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| {
        let code = Code::RunDirUnusable.unless_exhausted(&error);
        Failure::new(code, format!("the folder `{}` cannot be made", path.display())).because(&error)
    })
}

/// Writes a file that only this user can read, in place of one that may be there.
///
/// # Errors
/// [`Code::RunDirUnusable`].
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    use std::io::Write;
    let write = || {
        let mut file = process::own_file().write(true).create(true).truncate(true).open(path)?;
        file.write_all(bytes)
    };
    write().map_err(|error| {
        let code = Code::RunDirUnusable.unless_exhausted(&error);
        Failure::new(code, format!("`{}` cannot be written", path.display())).because(&error)
    })
}

/// A name for files: letters, digits and hyphens.
fn slug(name: &str) -> String {
    let mut slug = String::new();
    for character in name.chars().take(60) {
        match character {
            'a'..='z' | '0'..='9' | '.' => slug.push(character),
            'A'..='Z' => slug.push(character.to_ascii_lowercase()),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    let slug = slug.trim_matches(['-', '.']).to_owned();
    if slug.is_empty() { "tool".to_owned() } else { slug }
}

/// Hands a program's updates on, while there is room for them.
struct Forward<'a, H> {
    means: &'a Means,
    name: String,
    hear: H,
}

impl<H: FnMut(process::Update) -> Option<process::Update>> Sink for Forward<'_, H> {
    fn take(&mut self, update: process::Update) {
        if let Some(update) = (self.hear)(update) {
            self.means.updates.send(Update::Process { program: self.name.clone(), update });
        }
    }

    fn room(&self) -> Room {
        self.means.updates.room()
    }

    fn cut(&self, line: &[u8], at: usize) -> usize {
        self.means.redactor.safe_cut(line, at)
    }
}

/// Lines as they may be kept for a failure: without secrets. Of a line in several pieces only the first is kept, up to
/// where a secret may lie across the border to the next one.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    inside: [bool; 2],
}

impl Kept {
    /// Takes what a program said; the line to keep, if this piece begins one.
    pub(crate) fn take(&mut self, redactor: &Redactor, update: &process::Update) -> Option<String> {
        let process::Update::Line { stream, text, more, .. } = update else { return None };
        let inside = match stream {
            process::Stream::Stdout => &mut self.inside[0],
            process::Stream::Stderr => &mut self.inside[1],
        };
        let is_first = !std::mem::replace(inside, *more);
        let end = if *more { redactor.safe_cut(text.as_bytes(), text.len()) } else { text.len() };
        let whole = text.get(..end).unwrap_or_default();
        is_first.then(|| redactor.text(whole).into_owned())
    }
}

/// The last lines of a program, for the failure that they explain.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    lines: std::collections::VecDeque<String>,
}

impl Tail {
    /// Enough for an error that OpenTofu puts into a box.
    pub(crate) const MOST: usize = 40;

    /// Keeps a line, and forgets the oldest. It is not cut: half of a secret in it would not be known for one.
    pub(crate) fn push(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        if self.lines.len() == Tail::MOST {
            self.lines.pop_front();
        }
        self.lines.push_back(line.to_owned());
    }

    /// The last few lines, oldest first.
    pub(crate) fn last(&self, count: usize) -> impl Iterator<Item = &str> {
        self.lines.iter().skip(self.lines.len().saturating_sub(count)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_plain() {
        let names = ["tofu apply", "verify: API answers!", "../../etc/passwd", "…", ".hidden", "a//b"];
        let slugs = ["tofu-apply", "verify-api-answers", "etc-passwd", "tool", "hidden", "a-b"];
        assert_eq!(names.map(slug), slugs);
    }

    #[test]
    fn a_secret_across_the_border_of_two_pieces_is_not_kept_in_halves() {
        let redactor = Redactor::default();
        redactor.add("password", "zebra-crossing");
        let mut kept = Kept::default();
        let mut take = |stream, text: &str, more| {
            kept.take(&redactor, &process::Update::Line { stream, text: text.to_owned(), lossy: false, more })
        };
        let (out, err) = (process::Stream::Stdout, process::Stream::Stderr);
        assert_eq!(take(out, "it is zebra-crossing here", false).as_deref(), Some("it is [redacted] here"));
        assert_eq!(take(out, "it is zebra-cro", true).as_deref(), Some("it is "));
        assert_eq!(take(err, "meanwhile", false).as_deref(), Some("meanwhile"));
        assert_eq!(take(out, "ssing, and", true), None);
        assert_eq!(take(out, " on", false), None);
        assert_eq!(take(out, "next", false).as_deref(), Some("next"));
    }

    #[test]
    fn a_tail_keeps_the_last_lines_that_say_something() {
        let mut tail = Tail::default();
        for number in 0..50 {
            tail.push(&format!("line {number}"));
            tail.push("  ");
        }
        assert_eq!(tail.last(2).collect::<Vec<_>>(), ["line 48", "line 49"]);
        assert_eq!(tail.last(100).count(), Tail::MOST);
    }
}
