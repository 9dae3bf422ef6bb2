//! `bed demo`: shows dcctl at work.

use std::ffi::OsString;
use std::io::{self, Write};

/// Shows it.
pub(crate) fn demo(_arguments: impl Iterator<Item = OsString>, _out: &mut dyn Write) -> io::Result<()> {
    Err(io::Error::other("not yet"))
}
