//! Unpacks a bundle that comes as a `.tar.gz`.
//!
//! The archive may be anybody's: nothing in it may be written, or lead, outside the folder it is unpacked into, and
//! neither its size nor what it grows to may fill a disk. Links are made last, so no entry can be written through one, and
//! each is followed once to see where it leads. Owners and times are not kept; of the modes only whether a file may be run.
//!
//! It is copied first, into a file without a name that nobody else can write to, and its digest is made of what is
//! copied: so what was checked is what is unpacked.

use std::cell::Cell;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use tar::{Archive, Entry, EntryType};

use crate::config::digest::{Digest, Hasher};
use crate::failure::{Code, Failure};

/// What a bundle may hold when unpacked, and be when packed. More is a mistake, or an archive made to fill a disk.
const MOST_BYTES: u64 = 2 << 30;
const MOST_ENTRIES: usize = 100_000;

/// How often its own size an archive may unpack to. What people pack grows twentyfold at most.
const MOST_GROWTH: u64 = 200;

/// What may always be unpacked, however small the archive: little files of little sense grow more.
const ALWAYS: u64 = 64 << 20;

/// What may stand before an entry to describe it: its header, a long name, attributes. It is read into memory.
const MOST_WORDS: u64 = 1 << 20;

/// How deep a bundle's folders may be. Whoever copies or removes them goes down one by one.
const DEEPEST: usize = 64;

/// Whether a file is gzip.
pub(crate) fn is_gzip(path: &Path) -> io::Result<bool> {
    let mut magic = [0; 2];
    let mut file = File::open(path)?;
    Ok(file.read(&mut magic)? == 2 && magic == [0x1f, 0x8b])
}

/// Unpacks an archive into a folder that is empty or not there. The answer is the bundle's folder, the one that was
/// given or the only one in it, and the archive's digest. With another digest than the expected one nothing is unpacked.
///
/// When it fails, the folder is removed again.
pub(crate) fn unpack(archive: &Path, into: &Path, expected: Option<&Digest>) -> Result<(PathBuf, Digest), Failure> {
    let unusable = |error: &io::Error| {
        let message = format!("the bundle cannot be unpacked into {}", into.display());
        Failure::new(Code::RunDirUnusable.unless_exhausted(error), message).because(error)
    };
    folder(into).map_err(|error| unusable(&error))?;
    if fs::read_dir(into).map_err(|error| unusable(&error))?.next().is_some() {
        return Err(unusable(&io::Error::other("there is something in it")));
    }
    let result = copy(archive, into).and_then(|Copied { file, length, digest }| {
        if let Some(expected) = expected.filter(|expected| **expected != digest) {
            return Err(Trouble::Archive(format!("it is {digest}, and --bundle-digest says {expected}")));
        }
        let most = length.saturating_mul(MOST_GROWTH).clamp(ALWAYS, MOST_BYTES);
        let mut unpacking = Unpacking { into, most, bytes: 0, entries: 0, hard: Vec::new(), soft: Vec::new() };
        unpacking.run(file).map(|()| digest)
    });
    if result.is_err() {
        // What was wrong is said already; that the rest could not be removed would add nothing.
        let _ = fs::remove_dir_all(into);
    }
    match result {
        Ok(digest) => Ok((top(into), digest)),
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

/// An archive that nobody else can change any more.
struct Copied {
    file: File,
    length: u64,
    digest: Digest,
}

/// Copies an archive into a file without a name beside the folder that it is unpacked into.
fn copy(archive: &Path, into: &Path) -> Result<Copied, Trouble> {
    let mut from = File::open(archive).map_err(|error| damaged(&error))?;
    let mut file = tempfile::tempfile_in(into.parent().unwrap_or(into)).map_err(Trouble::Here)?;
    let (mut hasher, mut length, mut buffer) = (Hasher::default(), 0, vec![0; 64 * 1024]);
    loop {
        let read = from.read(&mut buffer).map_err(|error| damaged(&error))?;
        if read == 0 {
            file.rewind().map_err(Trouble::Here)?;
            return Ok(Copied { file, length, digest: hasher.digest() });
        }
        length += read as u64;
        if length > MOST_BYTES {
            return Err(Trouble::Archive(format!("it is larger than {} GiB", MOST_BYTES >> 30)));
        }
        hasher.take(&buffer[..read]);
        file.write_all(&buffer[..read]).map_err(Trouble::Here)?;
    }
}

/// What comes out of gzip, and how much of it may.
struct Counted {
    inner: MultiGzDecoder<File>,
    limit: Rc<Limit>,
}

/// How much may still come, and whether more did.
#[derive(Debug, Default)]
struct Limit {
    left: Cell<u64>,
    is_over: Cell<bool>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let Some(left) = self.limit.left.get().checked_sub(read as u64) else {
            self.limit.is_over.set(true);
            return Err(io::Error::other("there is more of it than may be"));
        };
        self.limit.left.set(left);
        Ok(read)
    }
}

struct Unpacking<'a> {
    into: &'a Path,
    /// The most bytes that it may come to.
    most: u64,
    bytes: u64,
    entries: usize,
    /// Links to be made at the end: where, and what to.
    hard: Vec<(PathBuf, PathBuf)>,
    soft: Vec<(PathBuf, PathBuf)>,
}

impl Unpacking<'_> {
    fn run(&mut self, file: File) -> Result<(), Trouble> {
        let limit = Rc::new(Limit::default());
        limit.left.set(MOST_WORDS);
        let mut archive = Archive::new(Counted { inner: MultiGzDecoder::new(file), limit: limit.clone() });
        for entry in archive.entries().map_err(|error| damaged(&error))? {
            let mut entry = entry.map_err(|error| self.broken(&error, &limit))?;
            // The end of a block, too, belongs to what is read with it.
            limit.left.set((self.most - self.bytes).saturating_add(MOST_WORDS));
            self.entry(&mut entry)?;
            // What is left of it is passed over here, and not with the words before the next one.
            let passed = io::copy(&mut entry, &mut io::sink());
            let passed =
                passed.map_err(|error| if limit.is_over.get() { self.too_large() } else { damaged(&error) })?;
            self.grow(passed)?;
            limit.left.set(MOST_WORDS);
        }
        // To the end of gzip, whose check comes last.
        let mut rest = archive.into_inner();
        limit.left.set(ALWAYS);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match rest.read(&mut buffer).map_err(|error| damaged(&error))? {
                0 => break,
                read if buffer[..read].iter().any(|byte| *byte != 0) => {
                    return Err(Trouble::Archive("something follows the end of its tar".to_owned()));
                }
                _ => {}
            }
        }
        self.make_links()
    }

    /// Why there is no next entry.
    fn broken(&self, error: &io::Error, limit: &Limit) -> Trouble {
        if limit.is_over.get() {
            return Trouble::Archive(format!(
                "its entry {} has more than {} MiB beside what is in it",
                self.entries + 1,
                MOST_WORDS >> 20
            ));
        }
        damaged(error)
    }

    fn entry(&mut self, entry: &mut Entry<'_, Counted>) -> Result<(), Trouble> {
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
                self.write(entry, &path, if runs { 0o700 } else { 0o600 }, refuse)
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
        entry: &mut Entry<'_, Counted>,
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
        let mut buffer = vec![0; 64 * 1024];
        let mut written = 0;
        loop {
            let read = entry.read(&mut buffer).map_err(|error| damaged(&error))?;
            if read == 0 {
                break;
            }
            written += read as u64;
            self.grow(read as u64)?;
            file.write_all(&buffer[..read]).map_err(Trouble::Here)?;
        }
        if written < entry.size() { Err(refuse("is cut off")) } else { Ok(()) }
    }

    /// So much more is unpacked.
    fn grow(&mut self, by: u64) -> Result<(), Trouble> {
        self.bytes = self.bytes.saturating_add(by);
        if self.bytes <= self.most { Ok(()) } else { Err(self.too_large()) }
    }

    fn too_large(&self) -> Trouble {
        Trouble::Archive(match self.most {
            MOST_BYTES => format!("it is larger than {} GiB when unpacked", MOST_BYTES >> 30),
            most => format!(
                "it is larger than {} MiB when unpacked, which is {MOST_GROWTH} times its size, or what is unpacked of any",
                most >> 20
            ),
        })
    }

    /// Makes the links, now that nothing else is written. The folders that they lie in come first: a folder where
    /// another link should be is then found before anything could go through that link.
    fn make_links(&mut self) -> Result<(), Trouble> {
        let (hard, soft, into) = (std::mem::take(&mut self.hard), std::mem::take(&mut self.soft), self.into);
        let refuse = |path: &Path, why: &str| {
            let shown = path.strip_prefix(into).unwrap_or(path);
            Trouble::Archive(format!("its entry `{}` {why}", shown.display()))
        };
        for (path, _) in hard.iter().chain(&soft) {
            parent(path).map_err(|error| beneath(error, |why| refuse(path, why)))?;
        }
        for (path, target) in &hard {
            if path.symlink_metadata().is_ok() {
                return Err(refuse(path, "is there twice"));
            }
            let Some(found) = target.symlink_metadata().ok().filter(fs::Metadata::is_file) else {
                return Err(refuse(path, "is a link to a file that is not there"));
            };
            // Each is a file of its own here, and takes its room.
            self.grow(found.len())?;
            fs::copy(target, path).map_err(Trouble::Here)?;
        }
        for (path, target) in &soft {
            symlink(target, path).map_err(|error| beneath(error, |why| refuse(path, why)))?;
        }
        let root = fs::canonicalize(into).map_err(Trouble::Here)?;
        for (path, _) in &soft {
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

/// A path of an archive without its `.`; what is absolute, climbs, or lies very deep is refused.
fn clean(path: &Path) -> Result<PathBuf, &'static str> {
    let mut clean = PathBuf::new();
    for (depth, component) in path.components().enumerate() {
        match component {
            Component::Normal(_) if depth >= DEEPEST => return Err("lies too deep"),
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
#[path = "archive_tests.rs"]
mod tests;
