//! Unpacks a bundle that comes as a `.tar.gz`.
//!
//! The archive may be anybody's: nothing in it may be written, or lead, outside the folder it is unpacked into. Links
//! are made last, so no entry can be written through one, and each is followed once to see where it leads. Owners and
//! times are not kept; of the modes only whether a file may be run.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;
use tar::{Archive, Entry, EntryType};

use crate::failure::{Code, Failure};

/// What a bundle may hold when unpacked. More is a mistake, or an archive made to fill a disk.
const MOST_BYTES: u64 = 2 << 30;
const MOST_ENTRIES: usize = 100_000;

/// Whether a file is gzip.
pub(crate) fn is_gzip(path: &Path) -> io::Result<bool> {
    let mut magic = [0; 2];
    let mut file = File::open(path)?;
    Ok(file.read(&mut magic)? == 2 && magic == [0x1f, 0x8b])
}

/// Unpacks an archive into a folder that is empty or not there. The answer is the bundle's folder: the one that was
/// given, or the only one in it.
///
/// When it fails, the folder is removed again.
pub(crate) fn unpack(archive: &Path, into: &Path) -> Result<PathBuf, Failure> {
    let unusable = |error: &io::Error| {
        let message = format!("the bundle cannot be unpacked into {}", into.display());
        Failure::new(Code::RunDirUnusable, message).because(error)
    };
    folder(into).map_err(|error| unusable(&error))?;
    if fs::read_dir(into).map_err(|error| unusable(&error))?.next().is_some() {
        return Err(unusable(&io::Error::other("there is something in it")));
    }
    let mut unpacking = Unpacking { into, bytes: 0, entries: 0, hard: Vec::new(), soft: Vec::new() };
    let result = unpacking.run(archive);
    if result.is_err() {
        // What was wrong is said already; that the rest could not be removed would add nothing.
        let _ = fs::remove_dir_all(into);
    }
    match result {
        Ok(()) => Ok(top(into)),
        Err(Trouble::Here(error)) => Err(unusable(&error)),
        Err(Trouble::Archive(what)) => {
            Err(Failure::new(Code::BundleInvalid, format!("the bundle {}: {what}", archive.display())))
        }
    }
}

/// Why unpacking ended.
enum Trouble {
    /// The archive's fault.
    Archive(String),
    /// This machine's: a full disk, for example.
    Here(io::Error),
}

struct Unpacking<'a> {
    into: &'a Path,
    bytes: u64,
    entries: usize,
    /// Links to be made at the end: where, and what to.
    hard: Vec<(PathBuf, PathBuf)>,
    soft: Vec<(PathBuf, PathBuf)>,
}

impl Unpacking<'_> {
    fn run(&mut self, archive: &Path) -> Result<(), Trouble> {
        let file = File::open(archive).map_err(|error| damaged(&error))?;
        let mut archive = Archive::new(MultiGzDecoder::new(file));
        for entry in archive.entries().map_err(|error| damaged(&error))? {
            self.entry(entry.map_err(|error| damaged(&error))?)?;
        }
        self.make_links()
    }

    fn entry(&mut self, mut entry: Entry<'_, MultiGzDecoder<File>>) -> Result<(), Trouble> {
        self.entries += 1;
        if self.entries > MOST_ENTRIES {
            return Err(Trouble::Archive(format!("it has more than {MOST_ENTRIES} entries")));
        }
        let kind = entry.header().entry_type();
        let written = entry.path().map_err(|error| damaged(&error))?.into_owned();
        let refuse = |why: &str| Trouble::Archive(format!("its entry `{}` {why}", written.display()));
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        let relative = clean(&written).map_err(refuse)?;
        if relative.as_os_str().is_empty() {
            return Ok(());
        }
        let path = self.into.join(&relative);
        match kind {
            EntryType::Directory => folder(&path).map_err(|error| beneath(error, refuse)),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let runs = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
                self.write(&mut entry, &path, if runs { 0o700 } else { 0o600 }, refuse)
            }
            EntryType::Symlink | EntryType::Link => {
                let target = entry.link_name().map_err(|error| damaged(&error))?;
                let target = target.ok_or_else(|| refuse("is a link to nothing"))?.into_owned();
                if kind == EntryType::Link {
                    let target = clean(&target).map_err(|_| refuse("is a link that leaves the bundle"))?;
                    self.hard.push((path, self.into.join(target)));
                } else if target.is_absolute() {
                    return Err(refuse("is a link that leaves the bundle"));
                } else {
                    self.soft.push((path, target));
                }
                Ok(())
            }
            _ => Err(refuse("is neither a file, a folder nor a link")),
        }
    }

    fn write(
        &mut self,
        entry: &mut Entry<'_, MultiGzDecoder<File>>,
        path: &Path,
        mode: u32,
        refuse: impl Fn(&str) -> Trouble,
    ) -> Result<(), Trouble> {
        parent(path).map_err(|error| beneath(error, &refuse))?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path)
            .map_err(|error| beneath(error, &refuse))?;
        let left = MOST_BYTES - self.bytes;
        let mut buffer = vec![0; 64 * 1024];
        let mut written = 0;
        loop {
            let read = entry.read(&mut buffer).map_err(|error| damaged(&error))?;
            if read == 0 {
                break;
            }
            written += read as u64;
            if written > left {
                return Err(Trouble::Archive(format!("it is larger than {} GiB when unpacked", MOST_BYTES >> 30)));
            }
            io::Write::write_all(&mut file, &buffer[..read]).map_err(Trouble::Here)?;
        }
        self.bytes += written;
        Ok(())
    }

    /// Makes the links, now that nothing else is written. The folders that they lie in come first: a folder where
    /// another link should be is then found before anything could go through that link.
    fn make_links(&self) -> Result<(), Trouble> {
        let refuse = |path: &Path, why: &str| {
            let shown = path.strip_prefix(self.into).unwrap_or(path);
            Trouble::Archive(format!("its entry `{}` {why}", shown.display()))
        };
        for (path, _) in self.hard.iter().chain(&self.soft) {
            parent(path).map_err(|error| beneath(error, |why| refuse(path, why)))?;
        }
        for (path, target) in &self.hard {
            if path.symlink_metadata().is_ok() {
                return Err(refuse(path, "is there twice"));
            }
            if !target.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
                return Err(refuse(path, "is a link to a file that is not there"));
            }
            fs::copy(target, path).map_err(Trouble::Here)?;
        }
        for (path, target) in &self.soft {
            symlink(target, path).map_err(|error| beneath(error, |why| refuse(path, why)))?;
        }
        let root = fs::canonicalize(self.into).map_err(Trouble::Here)?;
        for (path, _) in &self.soft {
            match fs::canonicalize(path) {
                Ok(real) if real.starts_with(&root) => {}
                Ok(_) => return Err(refuse(path, "is a link that leaves the bundle")),
                Err(_) => return Err(refuse(path, "is a link that leads nowhere")),
            }
        }
        Ok(())
    }
}

/// The bundle's folder in what was unpacked: archives often hold one folder and nothing beside it.
fn top(into: &Path) -> PathBuf {
    let mut entries = fs::read_dir(into).into_iter().flatten().flatten();
    match (entries.next(), entries.next()) {
        (Some(only), None) if only.path().is_dir() && !only.path().is_symlink() => only.path(),
        _ => into.to_owned(),
    }
}

/// A path of an archive without its `.`; what is absolute or climbs is refused.
fn clean(path: &Path) -> Result<PathBuf, &'static str> {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::ParentDir => return Err("leads upwards"),
            Component::RootDir | Component::Prefix(_) => return Err("is absolute"),
        }
    }
    Ok(clean)
}

fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), folder)
}

fn damaged(error: &io::Error) -> Trouble {
    Trouble::Archive(format!("it cannot be read as a .tar.gz: {error}"))
}

/// Entries that are in one another's way are the archive's fault, everything else is this machine's.
fn beneath(error: io::Error, refuse: impl Fn(&str) -> Trouble) -> Trouble {
    match error.kind() {
        io::ErrorKind::AlreadyExists => refuse("is there twice"),
        io::ErrorKind::NotADirectory => refuse("lies in a file"),
        io::ErrorKind::InvalidFilename => refuse("has too long a name"),
        _ => Trouble::Here(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tar::{Builder, Header};

    /// An entry of a test archive: name, type, and content or link target.
    type Row<'a> = (&'a str, EntryType, &'a str);

    fn archive(rows: &[Row<'_>]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bundle.tar.gz");
        let gzip = flate2::write::GzEncoder::new(File::create(&path).expect("a file"), flate2::Compression::fast());
        let mut builder = Builder::new(gzip);
        for (name, kind, text) in rows {
            let mut header = Header::new_ustar();
            header.set_entry_type(*kind);
            header.set_mode(if name.contains(".sh") { 0o4777 } else { 0o666 });
            // `set_path` would refuse what these tests are about.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            let content = if matches!(kind, EntryType::Symlink | EntryType::Link) {
                header.set_link_name_literal(text).expect("a short target");
                ""
            } else {
                text
            };
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append(&header, content.as_bytes()).expect("an entry");
        }
        builder.into_inner().expect("an archive").finish().expect("gzip");
        (folder, path)
    }

    const FILE: EntryType = EntryType::Regular;

    #[test]
    fn files_folders_and_links_arrive_with_sane_modes() {
        let (folder, path) = archive(&[
            ("pax_global_header", EntryType::XGlobalHeader, "52 comment=0\n"),
            ("./", EntryType::Directory, ""),
            ("bundle.yaml", FILE, "kind: Bundle\n"),
            ("infra/verify.sh", FILE, "#!/bin/sh\n"),
            ("infra/again.sh", EntryType::Link, "infra/verify.sh"),
            ("link", EntryType::Symlink, "infra/../bundle.yaml"),
        ]);
        let into = folder.path().join("scratch/unpacked");
        assert_eq!(unpack(&path, &into).map_err(|failure| failure.message), Ok(into.clone()));
        let mode = |name: &str| into.join(name).metadata().expect(name).permissions().mode() & 0o7777;
        assert_eq!((mode("bundle.yaml"), mode("infra/verify.sh"), mode("infra")), (0o600, 0o700, 0o700));
        assert_eq!(fs::read_to_string(into.join("link")).expect("the link"), "kind: Bundle\n");
        assert_eq!(fs::read_to_string(into.join("infra/again.sh")).expect("the copy"), "#!/bin/sh\n");
    }

    #[test]
    fn one_folder_alone_is_the_bundle() {
        let (folder, path) = archive(&[("shop-1.0/bundle.yaml", FILE, "")]);
        let into = folder.path().join("scratch");
        assert_eq!(unpack(&path, &into).map_err(|failure| failure.message), Ok(into.join("shop-1.0")));
    }

    #[test]
    fn nothing_leaves_the_folder() {
        let cases: [(&[Row<'_>], &str); 11] = [
            (&[("/etc/x", FILE, "")], "its entry `/etc/x` is absolute"),
            (&[("a/../../x", FILE, "")], "its entry `a/../../x` leads upwards"),
            (&[("l", EntryType::Symlink, "/etc")], "its entry `l` is a link that leaves the bundle"),
            (&[("l", EntryType::Symlink, "..")], "its entry `l` is a link that leaves the bundle"),
            (&[("l", EntryType::Link, "../x")], "its entry `l` is a link that leaves the bundle"),
            (&[("l", EntryType::Symlink, "gone")], "its entry `l` is a link that leads nowhere"),
            (&[("l", EntryType::Link, "gone")], "its entry `l` is a link to a file that is not there"),
            (&[("l", EntryType::Symlink, "."), ("l/x", FILE, "")], "its entry `l` is there twice"),
            (
                &[("d/up", EntryType::Symlink, ".."), ("out", EntryType::Symlink, "d/up/..")],
                "its entry `out` is a link that leaves the bundle",
            ),
            (&[("null", EntryType::Char, "")], "its entry `null` is neither a file, a folder nor a link"),
            (&[("x", FILE, ""), ("x/y", FILE, "")], "its entry `x/y` is there twice"),
        ];
        for (rows, message) in cases {
            let (folder, path) = archive(rows);
            let into = folder.path().join("scratch");
            let failure = unpack(&path, &into).expect_err(message);
            assert_eq!(failure.code, Code::BundleInvalid, "{message}");
            assert_eq!(failure.message, format!("the bundle {}: {message}", path.display()));
            assert!(!into.exists(), "{message}");
        }
    }

    #[test]
    fn a_damaged_archive_and_a_used_folder_are_told_apart() {
        let (folder, path) = archive(&[("bundle.yaml", FILE, "kind: Bundle\n")]);
        assert_eq!(unpack(&path, folder.path()).map_err(|failure| failure.code), Err(Code::RunDirUnusable));
        let half = fs::read(&path).expect("the archive");
        fs::write(&path, &half[..half.len() / 2]).expect("half of it");
        assert!(is_gzip(&path).expect("readable"));
        let into = folder.path().join("scratch");
        assert_eq!(unpack(&path, &into).map_err(|failure| failure.code), Err(Code::BundleInvalid));
    }
}
