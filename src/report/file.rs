//! How the file of a report is written: as a whole, so that whoever reads it never meets half of one.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Whoever uploads a report may be another user.
pub(crate) const READABLE_BY_ALL: u32 = 0o644;

/// Replaces the file as a whole; folders that are missing are made. The temporary file is in the same folder (a rename
/// cannot cross file systems) and has a name that no `*.xml` finds, in case it is left behind.
///
/// # Errors
/// When it cannot be written, or something that is not a file stands in its place.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("something that is not a file stands in its place"));
    }
    let mut file = tempfile::Builder::new().prefix(".dcctl-report-").suffix(".tmp").tempfile_in(folder)?;
    file.write_all(content)?;
    // Set on the open file: the mode given at its creation is cut by the umask.
    file.as_file().set_permissions(Permissions::from_mode(READABLE_BY_ALL))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
