//! `fake-tool`: does what a real tool cannot be asked to do. Its arguments are its behaviour, carried out in order:
//!
//! | argument | what it does |
//! |---|---|
//! | `print=TEXT` | a line on standard output |
//! | `part=TEXT` | the same without a line end |
//! | `complain=TEXT` | a line on standard error |
//! | `lines=N` | N numbered lines on standard output, as fast as it can |
//! | `bytes=N` | one line of N bytes without an end |
//! | `raw=HEX` | these bytes on standard output, whatever they are |
//! | `variable=NAME` | prints `NAME=VALUE`, or `NAME is not set` |
//! | `variables` | prints the names of all its variables |
//! | `descriptors` | prints each of its open descriptors and what it refers to |
//! | `folder` | prints its working folder |
//! | `file=PATH` | writes its process number to a file, which is there complete or not at all |
//! | `witness=PATH` | is alone with this file from now to its end and says so in it, or says that somebody else was there and ends with status 97 |
//! | `wait=MILLISECONDS` | waits |
//! | `until=PATH` | waits until a file is there |
//! | `on=SIGNAL { … }` | from now on does this when SIGINT, SIGTERM or SIGHUP comes (`on=INT { }` ignores it) |
//! | `spawn { … }` | starts itself with these arguments, and goes on; the child has the same outputs |
//! | `spawn-clean { … }` | the same with an empty environment |
//! | `plugin { … }` | the same, but reads the child's outputs through pipes and goes on when both are at their end, as OpenTofu does with its plugins |
//! | `setsid` | leaves session and process group (in a child only) |
//! | `quiet` | points its outputs at `/dev/null` |
//! | `inherit` | takes the socket that a front gave it, and sends one line with its process number |
//! | `listen` | prints every signal that reaches it as the program sees it, and ends at SIGQUIT |
//! | `adopt` | becomes the parent of orphans among its descendants |
//! | `drive=FOLDER { … }` | drives itself with these arguments as the supervisor drives a tool, and prints every update |
//! | `peak` | prints the most memory that it ever had resident, in kB |
//! | `exit=N` | ends with this status |
//!
//! Under another name (a link `tofu` to it, say) its own arguments are those of the tool that it pretends to be, and its
//! behaviour is in a file beside the link, `tofu.acts`, one argument a line. There `when=WORDS { … }` does something
//! only when its own arguments begin with these words: `when=version -json { print=… exit=0 }`.
//!
//! At the end of its arguments it ends with status 0. An argument that it does not know ends it with status 99.
#![expect(clippy::disallowed_methods, clippy::exit, reason = "a stand-in for a real tool does what tools do")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, exit};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What to do when a signal comes.
type Handlers = Arc<Mutex<BTreeMap<i32, Vec<String>>>>;

fn main() {
    act(&behaviour(), &Handlers::default());
}

/// Its own arguments; under another name what the file beside the link says.
fn behaviour() -> Vec<String> {
    let mut words = std::env::args();
    let name = words.next().unwrap_or_default();
    if Path::new(&name).file_name().is_none_or(|name| name == "fake-tool") {
        return words.collect();
    }
    let acts = std::fs::read_to_string(format!("{name}.acts")).expect("its acts are beside it");
    acts.lines().map(str::to_owned).collect()
}

fn act(arguments: &[String], handlers: &Handlers) {
    let mut at = 0;
    while let Some(argument) = arguments.get(at) {
        at += 1;
        let block = if arguments.get(at).is_some_and(|next| next == "{") {
            let end = closing(arguments, at);
            let block = arguments[at + 1..end].to_vec();
            at = end + 1;
            block
        } else {
            Vec::new()
        };
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        match name {
            "on" => listen(value, block, handlers),
            "plugin" => plugin(&block),
            "drive" => drive(Path::new(value), &block),
            "when" => {
                let own: Vec<_> = std::env::args().skip(1).collect();
                if own.join(" ").starts_with(value) {
                    act(&block, handlers);
                }
            }
            "spawn" => drop(itself(&block).spawn().expect("a child")),
            "spawn-clean" => drop(itself(&block).env_clear().spawn().expect("a child")),
            _ => one(name, value),
        }
    }
}

/// Where the block that begins at `open` ends.
fn closing(arguments: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (at, argument) in arguments.iter().enumerate().skip(open) {
        match argument.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    exit(99)
}

fn one(name: &str, value: &str) {
    match name {
        "print" => say(&format!("{value}\n")),
        "part" => say(value),
        "complain" => std::io::stderr().write_all(format!("{value}\n").as_bytes()).expect("written"),
        "lines" => lines(number(value)),
        "raw" => {
            let digits: Vec<_> = value.chars().collect();
            let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hexadecimal");
            let bytes: Vec<_> = digits.chunks(2).map(byte).collect();
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(&bytes).and_then(|()| stdout.flush()).expect("written");
        }
        "bytes" => say(&"x".repeat(usize::try_from(number(value)).expect("a size"))),
        "variable" => match std::env::var(value) {
            Ok(set) => say(&format!("{value}={set}\n")),
            Err(_) => say(&format!("{value} is not set\n")),
        },
        "variables" => std::env::vars().for_each(|(name, _)| say(&format!("{name}\n"))),
        "descriptors" => descriptors(),
        "folder" => say(&format!("{}\n", std::env::current_dir().expect("a folder").display())),
        "file" => mark(Path::new(value)),
        "witness" => witness(Path::new(value)),
        "wait" => std::thread::sleep(Duration::from_millis(number(value))),
        "until" => {
            while !Path::new(value).exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        "listen" => listen_to_all(),
        "adopt" => dcctl::process::adopt().expect("the kernel allows it"),
        "peak" => {
            let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a number");
            say(&format!("peak {}\n", peak.trim().trim_end_matches(" kB")));
        }
        "setsid" => drop(rustix::process::setsid().expect("a session")),
        "quiet" => {
            let null = std::fs::OpenOptions::new().write(true).open("/dev/null").expect("it is there");
            rustix::stdio::dup2_stdout(&null).expect("replaced");
            rustix::stdio::dup2_stderr(&null).expect("replaced");
        }
        "inherit" => {
            let mut socket = dcctl::process::inherit().expect("a front's socket");
            writeln!(socket, "{}", std::process::id()).expect("written");
            // It stays open to the end, as a supervisor's does.
            std::mem::forget(socket);
        }
        "exit" => exit(i32::try_from(number(value)).expect("a status")),
        _ => exit(99),
    }
}

fn itself(arguments: &[String]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(arguments);
    command
}

/// Waits for the end of the outputs before it waits for the process: what makes OpenTofu hang on a holder of them.
fn plugin(arguments: &[String]) {
    let pipe = std::process::Stdio::piped;
    let child = itself(arguments).stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().expect("a child");
    child.wait_with_output().expect("its outputs came to their end");
}

fn drive(folder: &Path, arguments: &[String]) {
    let spec = dcctl::process::Spec {
        name: "fake-tool".to_owned(),
        program: std::env::current_exe().expect("this program"),
        args: arguments.iter().map(Into::into).collect(),
        env: Vec::new(),
        cwd: folder.to_owned(),
        stdin: dcctl::process::Stdin::Null,
        stdout: folder.join("stdout"),
        stderr: folder.join("stderr"),
        tag: format!("drive/{}", std::process::id()),
        manner: dcctl::process::Manner::OpenTofu,
        signs: |_| None,
        record: folder.join("record"),
        timeout: None,
    };
    let (_stopper, stop) = dcctl::process::stop_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut lines = 0_u64;
    let ended = runtime.block_on(dcctl::process::drive(
        spec,
        dcctl::process::Limits::default(),
        stop,
        &dcctl::clock::System,
        |update| match update {
            dcctl::process::Update::Line { .. } => lines += 1,
            other => say(&format!("{other:?}\n")),
        },
    ));
    say(&format!("{lines} lines\n{:?}\n", ended.expect("it was started")));
}

fn number(value: &str) -> u64 {
    value.parse().unwrap_or_else(|_| exit(99))
}

fn say(text: &str) {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).expect("written");
}

fn lines(count: u64) {
    let mut stdout = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    for line in 0..count {
        writeln!(stdout, "line {line}").expect("written");
    }
}

fn descriptors() {
    let entries = std::fs::read_dir("/proc/self/fd").expect("a list");
    let paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    for path in paths {
        // The descriptor of the list itself is gone by now.
        if let Ok(to) = std::fs::read_link(&path) {
            say(&format!("{} {}\n", path.file_name().expect("a number").display(), to.display()));
        }
    }
}

/// The system's own lock on a file, which ends with the process however that ends.
fn witness(path: &Path) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("it can be written");
    if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        writeln!(file, "{} was not alone", std::process::id()).expect("written");
        exit(97);
    }
    writeln!(file, "{} began", std::process::id()).expect("written");
    std::mem::forget(file);
}

fn mark(path: &Path) {
    let part = path.with_extension("part");
    std::fs::write(&part, std::process::id().to_string()).expect("written");
    std::fs::rename(&part, path).expect("renamed");
}

fn listen_to_all() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut signals = dcctl::signal::install().expect("handlers");
        say("listening\n");
        loop {
            let seen = signals.next().await;
            let (pid, uid) = (seen.pid.expect("a sender"), seen.uid.expect("its user"));
            say(&format!("{} from {pid} of {uid}\n", seen.signal));
            if seen.signal == dcctl::signal::Kind::Quit {
                return;
            }
        }
    });
}

fn listen(signal: &str, block: Vec<String>, handlers: &Handlers) {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let signal = match signal {
        "INT" => SIGINT,
        "TERM" => SIGTERM,
        "HUP" => SIGHUP,
        _ => exit(99),
    };
    let known = handlers.lock().unwrap_or_else(PoisonError::into_inner).insert(signal, block);
    if known.is_some() {
        return;
    }
    let mut signals = signal_hook::iterator::Signals::new([signal]).expect("a handler");
    let handlers = handlers.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let block = handlers.lock().unwrap_or_else(PoisonError::into_inner).get(&signal).cloned();
            act(&block.unwrap_or_default(), &handlers);
        }
    });
}
