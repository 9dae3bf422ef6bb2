//! Whether somebody owns the run of a directory: its supervisor, or the front that took its place. Who is in doubt says
//! yes, because what is nobody's is cleared away.

use std::path::Path;

use crate::lock::HolderId;
use crate::process::{self, Sight};
use crate::run::spec::JOURNAL;
use crate::run::{door, former};

/// Whether it does, as far as this machine shows. `holder` is under whose name the run claims the lock, if that was said to
/// be a process of this machine.
pub(crate) fn is_owned(folder: &Path, run: &str, holder: Option<&HolderId>, sight: &Sight) -> bool {
    // Whoever owns a run has its journal open for writing. Where that file was replaced, this folder is a copy, or nobody
    // may look, it listens at the door, or works in a folder that is that of the run.
    sight.is_written(&folder.join(JOURNAL))
        || door::is_open(folder)
        || holder.is_some_and(|holder| sight.hides(holder.pid()) || works_on(holder.pid(), run))
}

fn works_on(pid: u32, run: &str) -> bool {
    process::folder_of(pid).and_then(|folder| former::named(&folder)).is_some_and(|(other, ..)| other == run)
}
