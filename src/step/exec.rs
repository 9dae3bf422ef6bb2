//! Runs the command of `dcctl exec`: anything at all, under the cluster's lock.
//!
//! Nothing is known about it but its process. So nothing is claimed about what it did: how it ended is said, and that
//! nothing which it had started is left.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::failure::{Code, Failure, shell_word};
use crate::process::{Ended, Exit, Fate, Manner, Stdin, Why};
use crate::step::halt::Asked;
use crate::step::invoke::{Call, Files, Raw, make_folder};
use crate::step::tools::is_program;
use crate::step::{CommandKit, Mode, Outcome, Stopped};

/// Where the command's files lie in the folder of records, whatever its name.
const RECORD: &str = "command";

/// Runs the command to its end. A dry run says what would be run.
pub async fn run_command(kit: &CommandKit, stdin: Stdin) -> Outcome {
    if kit.means.mode == Mode::DryRun {
        return Outcome::Nothing(would_run(kit));
    }
    let input = match stdin {
        Stdin::Null => Input::Nothing,
        Stdin::Pipe(_) => Input::OfTheFront,
    };
    match run(kit, stdin).await {
        Ok(ended) => judge(&kit.name, &ended, input, Asked::of(&kit.means)),
        Err(failure) => Outcome::Failed(failure),
    }
}

async fn run(kit: &CommandKit, stdin: Stdin) -> Result<Ended, Failure> {
    let call = Call {
        name: kit.name.clone(),
        program: kit.program.clone(),
        args: kit.args.clone(),
        env: Vec::new(),
        cwd: kit.folder.clone(),
        manner: Manner::Group,
        signs: |_| None,
        timeout: None,
        raw: Raw::AsAsked,
        about: None,
    };
    // Whatever it does, it does not do it without the lock.
    kit.means.may_write.now()?;
    let output = kit.stdout.parent().expect("an output is a file in the run directory");
    make_folder(output)?;
    let files = Files::at(&kit.means, RECORD, &kit.stdout, &kit.stderr)?;
    let done = call.run_in(&kit.means, files, stdin, Some).await.map_err(|failure| match failure.code {
        // It is there, and the system cannot run it.
        Code::CommandFailed => not_runnable(Failure { code: Code::ToolUnsuitable, ..failure }),
        Code::ToolMissing => not_started(failure, &kit.program),
        _ => failure,
    })?;
    Ok(done.ended)
}

fn not_runnable(failure: Failure) -> Failure {
    failure.hint("name a program that this machine can run; a script begins with `#!` and its interpreter")
}

/// The program was found. So it is something else that the system did not find: what is to run it.
fn not_started(failure: Failure, program: &Path) -> Failure {
    match interpreter(program) {
        Some(interpreter) => failure
            .cause(format!("its first line names the interpreter `{interpreter}`, which is not there"))
            .hint(format!("install `{interpreter}`, or name another one in the first line of `{}`", program.display())),
        None => failure.hint(format!(
            "`{}` is there, and something that it needs to start is not: `ldd` names the libraries of a program",
            program.display()
        )),
    }
}

/// What the first line of a script names after `#!`. A carriage return, which an editor may have left, is shown.
fn interpreter(program: &Path) -> Option<String> {
    const LONGEST: u64 = 256;
    let mut head = Vec::new();
    File::open(program).ok()?.take(LONGEST).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let name = line.trim_matches([' ', '\t']).split([' ', '\t']).next().filter(|name| !name.is_empty())?;
    Some(name.escape_debug().to_string())
}

fn would_run(kit: &CommandKit) -> String {
    let with = match kit.args.len() {
        0 => String::new(),
        1 => " with 1 argument".to_owned(),
        several => format!(" with {several} arguments"),
    };
    format!("would run `{}`{with} in `{}`", kit.program.display(), kit.folder.display())
}

/// What the command reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    /// Nothing.
    Nothing,
    /// What the front reads. It ends with the front, which is a request to stop as well.
    OfTheFront,
}

/// What the command's end means. One that was asked to stop and ended in any way of its own was stopped, also with
/// status 0: whether it had finished its work only it knows. So was one whose input may have been cut off.
fn judge(name: &str, ended: &Ended, input: Input, asked: Asked) -> Outcome {
    let signalled = ended.why.is_some();
    // A system that signals every process may have reached it before we did.
    let ended_so = matches!(ended.exit, Exit::Signal(_) | Exit::Unseen);
    if asked == Asked::Yes && (signalled || ended_so || input == Input::OfTheFront) {
        return Outcome::Stopped(stopped(name, ended));
    }
    match ended.exit {
        Exit::Code(0) => Outcome::Done(format!("`{name}` ended with exit status 0")),
        Exit::Code(_) => Outcome::Failed(failed(format!("`{name}` ended with {}", ended.exit))),
        Exit::Signal(_) => Outcome::Failed(failed(format!("`{name}` was ended by {}", ended.exit))),
        Exit::Unknown => Outcome::Failed(failed(format!("`{name}` has ended, and nobody knows how"))),
        Exit::Unseen => Outcome::Failed(failed(format!("nobody saw the end of `{name}`"))),
    }
}

fn failed(sentence: String) -> Failure {
    Failure::new(Code::ExecFailed, sentence)
}

fn stopped(name: &str, ended: &Ended) -> Stopped {
    let left = ended.left_behind.iter().filter(|left| left.fate == Fate::Alive).count();
    let forced = ended.why >= Some(Why::TimedOut);
    let clean = !ended.killed && !forced && ended.exit != Exit::Unseen && left == 0;
    let note = match ended.exit {
        Exit::Unseen => format!("nobody saw the end of `{name}`"),
        Exit::Code(_) | Exit::Signal(_) | Exit::Unknown if ended.killed => format!("`{name}` had to be killed"),
        Exit::Code(_) if ended.why.is_none() => {
            format!("`{name}` ended with {}; its input may have been cut off", ended.exit)
        }
        Exit::Unknown => format!("`{name}` ended when it was asked to stop; nobody knows with which exit status"),
        Exit::Code(_) => format!("`{name}` ended with {} when it was asked to stop", ended.exit),
        Exit::Signal(_) => format!("`{name}` was ended by {} when it was asked to stop", ended.exit),
    };
    Stopped { clean, unfinished: Vec::new(), note }
}

/// Finds the program that a shell in `folder` would run for this word: a path, or a name on the `PATH` that it will get.
///
/// # Errors
/// [`Code::ToolMissing`], which says what was looked for and what to write instead.
pub fn find_command(environment: &[(String, String)], word: &OsStr, folder: &Path) -> Result<PathBuf, Failure> {
    let shown = Path::new(word).display();
    if word.as_encoded_bytes().contains(&b'/') {
        // As people write it: without the `./` of the command line.
        let path: PathBuf = folder.join(word).components().collect();
        return if is_program(&path) { Ok(path) } else { Err(no_program(&path)) };
    }
    let path = environment.iter().find(|(name, _)| name == "PATH").map_or("", |(_, path)| path.as_str());
    let found = std::env::split_paths(path).map(|place| folder.join(place).join(word)).find(|place| is_program(place));
    found.ok_or_else(|| {
        let failure = Failure::new(Code::ToolMissing, format!("there is no program `{shown}` on PATH"));
        let failure = if path.is_empty() { failure.cause("PATH is not set") } else { failure };
        let here = folder.join(word);
        if is_program(&here) {
            failure
                .hint(format!("one of that name is in this folder: write `./{}`", shell_word(&word.to_string_lossy())))
        } else if is_for_a_shell(word) {
            failure.hint("what only a shell understands needs one: `dcctl exec … -- sh -c '…'`")
        } else {
            failure
                .hint(format!("install `{shown}`, or write its path"))
                .hint("a word of the shell's own needs a shell: `dcctl exec … -- sh -c '…'`")
        }
    })
}

fn no_program(path: &Path) -> Failure {
    let shown = path.display();
    let missing = |sentence: String| Failure::new(Code::ToolMissing, sentence);
    if path.is_dir() {
        missing(format!("`{shown}` is a folder")).hint("name a program in it")
    } else if path.is_file() {
        let typed = shell_word(&path.to_string_lossy());
        missing(format!("`{shown}` is no program: it may not be executed")).hint(format!("`chmod +x {typed}`"))
    } else if path.exists() {
        missing(format!("`{shown}` is no program: it is no file")).hint("name a file that can be run")
    } else {
        missing(format!("there is no file `{shown}`")).hint("write the path of a program, or its name on PATH")
    }
}

/// Whether a word is more than one to a shell: `a && b`, `$HOME`, `a | b`.
fn is_for_a_shell(word: &OsStr) -> bool {
    word.as_encoded_bytes().iter().any(|byte| b" \t\n;&|<>()$`*?=".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    fn ended(exit: Exit, why: Option<Why>) -> Ended {
        Ended {
            pid: 7,
            exit,
            interrupts_sent: u32::from(why.is_some()),
            interrupts_reported: 0,
            why,
            killed: why > Some(Why::TimedOut),
            left_behind: Vec::new(),
            took: Duration::from_secs(1),
        }
    }

    /// `done`, `failed`, `clean` or `partial`, and what is said.
    fn judged(exit: Exit, why: Option<Why>, input: Input, asked: Asked) -> (&'static str, String) {
        match judge("sh", &ended(exit, why), input, asked) {
            Outcome::Done(note) => ("done", note),
            Outcome::Failed(failure) if failure.code == Code::ExecFailed => ("failed", failure.message),
            Outcome::Stopped(stopped) if stopped.clean => ("clean", stopped.note),
            Outcome::Stopped(stopped) => ("partial", stopped.note),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_end_of_a_command_means_something() {
        let requested = Some(Why::StopRequested);
        let rows = [
            (Exit::Code(0), None, Asked::No, "done", "`sh` ended with exit status 0"),
            (Exit::Code(7), None, Asked::No, "failed", "`sh` ended with exit status 7"),
            (Exit::Signal(9), None, Asked::No, "failed", "`sh` was ended by signal 9"),
            (Exit::Code(0), None, Asked::Yes, "done", "`sh` ended with exit status 0"),
            // It came to its own end in the moment before our signal.
            (Exit::Code(7), None, Asked::Yes, "failed", "`sh` ended with exit status 7"),
            (Exit::Code(0), requested, Asked::Yes, "clean", "`sh` ended with exit status 0 when it was asked to stop"),
            (
                Exit::Code(143),
                requested,
                Asked::Yes,
                "clean",
                "`sh` ended with exit status 143 when it was asked to stop",
            ),
            (Exit::Signal(15), requested, Asked::Yes, "clean", "`sh` was ended by signal 15 when it was asked to stop"),
            (Exit::Signal(15), None, Asked::Yes, "clean", "`sh` was ended by signal 15 when it was asked to stop"),
            (Exit::Signal(9), Some(Why::BudgetEnded), Asked::Yes, "partial", "`sh` had to be killed"),
            (Exit::Signal(9), Some(Why::Forced), Asked::Yes, "partial", "`sh` had to be killed"),
            (Exit::Unseen, Some(Why::BudgetEnded), Asked::Yes, "partial", "nobody saw the end of `sh`"),
        ];
        for (exit, why, asked, word, said) in rows {
            let expected = (word, said.to_owned());
            assert_eq!(judged(exit, why, Input::Nothing, asked), expected, "{exit:?} {why:?} {asked:?}");
        }
        let of_the_front = |asked| judged(Exit::Code(0), None, Input::OfTheFront, asked).0;
        assert_eq!((of_the_front(Asked::No), of_the_front(Asked::Yes)), ("done", "clean"));
    }

    #[test]
    fn a_program_is_found_as_a_shell_would_find_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["bin/tool", "here", "bin/plain"] {
            std::fs::create_dir_all(at("bin")).and_then(|()| std::fs::write(at(name), "")).expect("written");
        }
        for name in ["bin/tool", "here"] {
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o755)).expect("ours");
        }
        let find = |path: &str, word: &str| {
            let environment = [("PATH".to_owned(), path.to_owned())];
            find_command(&environment, OsStr::new(word), folder.path())
                .map_err(|failure| (failure.code, failure.message, failure.hints))
        };
        assert_eq!(find("/nowhere:bin", "tool"), Ok(at("bin/tool")));
        assert_eq!(find("", "./here"), Ok(at("./here")));
        assert_eq!(find("/nowhere", at("here").to_str().expect("text")), Ok(at("here")));
        for (path, word, said, hint) in [
            ("/nowhere", "tool", "there is no program `tool` on PATH", "install `tool`"),
            ("/nowhere", "here", "there is no program `here` on PATH", "write `./here`"),
            ("/nowhere", "a && b", "there is no program `a && b` on PATH", "sh -c"),
            ("bin", "plain", "there is no program `plain` on PATH", "install `plain`"),
            ("bin", "./bin", "is a folder", "name a program in it"),
            ("bin", "bin/plain", "may not be executed", "chmod +x"),
            ("bin", "./none", "there is no file", "path of a program"),
        ] {
            let (code, message, hints) = find(path, word).expect_err("there is none");
            assert_eq!(code, Code::ToolMissing);
            assert!(message.contains(said) && hints[0].contains(hint), "{word}: {message} {hints:?}");
        }
    }
}
