//! `bed`: the test bed as a program of its own.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

#[path = "mod.rs"]
mod bed;

use bed::control_plane::Start;

const USAGE: &str = "\
bed serve [--pristine]        start a control plane, describe it in one JSON line, end it when standard input closes
bed leases FOLDER [WITNESS]   claim, renew and give back the lock in a folder, again and again, until it is killed
bed crowd DESCRIBED COUNT     make so many instances on the control plane that `bed serve` described in this file
bed demo [--context CONTEXT] [--results FOLDER]
                              show dcctl at work, on a control plane of its own or on the cluster of a context
";

#[expect(clippy::disallowed_methods, reason = "main hands its writers down")]
fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let verb = arguments.next().unwrap_or_default();
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let result = match verb.to_str() {
        Some(bed::child::VERB) => Err(bed::child::become_program(arguments)),
        Some(bed::child::SEATED) => Err(bed::child::sit_down(arguments)),
        Some("serve") => start_of(arguments).and_then(|start| bed::serve::serve(start, &mut out, &mut err)),
        Some("crowd") => bed::crowd::crowd(arguments),
        Some("leases") => bed::leases::leases(arguments),
        Some("demo") => bed::demo::demo(arguments, &mut out),
        _ => Err(io::Error::other(USAGE)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = io::Write::write_all(&mut err, format!("bed: {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

fn start_of(mut arguments: impl Iterator<Item = OsString>) -> io::Result<Start> {
    match arguments.next() {
        None => Ok(Start::Granted),
        Some(word) if word == "--pristine" => Ok(Start::Pristine),
        Some(_) => Err(io::Error::other(USAGE)),
    }
}
