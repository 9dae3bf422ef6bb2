//! The folder for temporary files, looked at before the lock is asked for.
//!
//! OpenTofu talks to its providers through sockets in that folder. One that cannot be used would be found in the middle
//! of the work, in words that do not name it. No other folder is taken in its place: the path of a socket may be no
//! longer than 107 bytes, and that of a run directory may leave no room for one.

use std::fs;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::failure::{Code, Failure};
use crate::step::Means;

/// The variable that names it.
const VARIABLE: &str = "TMPDIR";

/// The folder where that variable names none.
const USUAL: &str = "/tmp";

/// As long as the longest name that OpenTofu gives a socket, `plugin` and ten digits.
const NAME: usize = 16;

/// Refuses a folder for temporary files that OpenTofu could not use.
///
/// # Errors
/// [`Code::TemporaryFolderUnusable`], naming the folder.
pub fn check_temporary_folder(means: &Means) -> Result<(), Failure> {
    let set = means.environment.iter().find(|(name, value)| name == VARIABLE && !value.is_empty());
    let (folder, whence) = match set {
        Some((_, folder)) => (folder.as_str(), format!(", which {VARIABLE} names,")),
        None => (USUAL, String::new()),
    };
    let sentence = format!("the folder for temporary files `{folder}`{whence} cannot be used");
    if !Path::new(folder).is_absolute() {
        return Err(Failure::new(Code::TemporaryFolderUnusable, sentence)
            .cause("it is no absolute path: each tool would look for it in another working folder"));
    }
    let name = format!("dcctl-{}", means.run);
    let path = Path::new(folder).join(&name[..name.len().min(NAME)]);
    let made = UnixListener::bind(&path);
    let _ = fs::remove_file(&path);
    made.map(drop).map_err(|error| {
        let failure = Failure::new(Code::TemporaryFolderUnusable.unless_exhausted(&error), sentence);
        match error.kind() {
            io::ErrorKind::InvalidInput => {
                failure.cause("its path is too long for the sockets of OpenTofu's providers")
            }
            _ => failure.because(&error),
        }
    })
}
