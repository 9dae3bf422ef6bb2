//! The program: reads the command line, runs the command, returns its exit code. Everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(dcctl::commands::main())
}
