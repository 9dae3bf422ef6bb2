//! Whose a file is. By what lies in a run directory tools are signalled, led to a cluster and cleaned up after, so nothing
//! is believed there, and nothing written there, that somebody else can have put in its place.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A socket.
    Socket,
}

/// The right of the group, or of everybody, to write.
const OTHERS_WRITE: u32 = 0o022;

/// The longest file that [`read_own`] reads, in bytes: far more than anything of ours has.
const LONGEST: u64 = 1 << 20;

/// Why what is there under this name is not this account's alone, as a sentence goes on after "it"; none when it is. A
/// link is not followed.
///
/// # Errors
/// When it cannot be looked at; not found when nothing is there.
pub fn doubt(path: &Path, kind: Kind) -> io::Result<Option<String>> {
    fs::symlink_metadata(path).map(|found| doubt_of(&found, kind))
}

fn doubt_of(found: &Metadata, kind: Kind) -> Option<String> {
    let (file_type, mode) = (found.file_type(), found.mode() & 0o7777);
    let (is_it, what) = match kind {
        Kind::File => (file_type.is_file(), "file"),
        Kind::Folder => (file_type.is_dir(), "folder"),
        Kind::Socket => (file_type.is_socket(), "socket"),
    };
    if file_type.is_symlink() {
        Some("is a link".to_owned())
    } else if !is_it {
        Some(format!("is no {what}"))
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        Some(format!("belongs to another user (uid {})", found.uid()))
    } else if mode & OTHERS_WRITE != 0 {
        Some(format!("may be written to by other users (mode {mode:04o})"))
    } else {
        None
    }
}

/// Whether this is a folder of this account's alone.
fn is_own_folder(path: &Path) -> bool {
    matches!(doubt(path, Kind::Folder), Ok(None))
}

/// The folder of this account's alone that this name leads to: by itself, or by a link that this account made.
pub fn own_folder_behind(path: &Path) -> Option<PathBuf> {
    let found = fs::symlink_metadata(path).ok()?;
    let folder = match found.file_type().is_symlink() {
        true if found.uid() != rustix::process::geteuid().as_raw() => return None,
        true => path.parent()?.join(fs::read_link(path).ok()?),
        false => path.to_owned(),
    };
    is_own_folder(&folder).then_some(folder)
}

/// Options to open a file that is to be this account's alone: not through a link.
pub fn own_file() -> OpenOptions {
    let mut options = File::options();
    options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Reads a file that is this account's alone.
///
/// # Errors
/// When it is not, is longer than any of ours, or cannot be read.
pub fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let refused = |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: it {why}", path.display()));
    // A pipe that nobody writes to is not waited for.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if let Some(why) = doubt_of(&file.metadata()?, Kind::File) {
        return Err(refused(why));
    }
    let mut bytes = Vec::new();
    let read = file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if read as u64 > LONGEST {
        return Err(refused("is too long".to_owned()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn what_others_can_have_put_there_is_not_ours() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("own"), "said").expect("a file");
        assert_eq!(read_own(&at("own")).expect("it is ours"), b"said");
        assert!(is_own_folder(folder.path()) && !is_own_folder(&at("own")));
        fs::create_dir(at("folder")).and_then(|()| symlink("folder", at("to it"))).expect("a folder");
        assert_eq!(own_folder_behind(&at("to it")), Some(at("folder")));
        fs::set_permissions(at("folder"), Permissions::from_mode(0o777)).expect("it is ours");
        assert_eq!((own_folder_behind(&at("to it")), own_folder_behind(&at("folder"))), (None, None));
        symlink(at("own"), at("link")).expect("a link");
        fs::write(at("open"), "said").expect("a file");
        fs::set_permissions(at("open"), Permissions::from_mode(0o666)).expect("it is ours");
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).expect("a pipe");
        for (name, said) in
            [("link", "is a link"), ("open", "may be written to by other users (mode 0666)"), ("pipe", "is no file")]
        {
            assert_eq!(doubt(&at(name), Kind::File).expect("it is there").as_deref(), Some(said));
            assert!(read_own(&at(name)).is_err(), "{name}");
        }
        assert_eq!(doubt(&at("gone"), Kind::File).expect_err("nothing is there").kind(), io::ErrorKind::NotFound);
    }
}
