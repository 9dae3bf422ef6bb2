//! The Lease's file: read whole, and changed only as what it was read as.
//!
//! Everything here but reading is done under the file lock. A file that is not a whole Lease of ours was torn by a file
//! system that lost what it had promised to keep, or was put there by somebody: it is named, and neither overwritten nor
//! deleted, because nobody can tell whose lock it was.

use std::fs::File;
use std::io::{Read, Write};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::failure::{Code, Failure, shell_word};
use crate::lock::direct::folder::Folder;
use crate::lock::direct::stage::{Commit, TooLate};
use crate::lock::record::{LEASE_FILE, NAME, Record};
use crate::lock::store::{Created, Deleted, Replaced, Trouble};

/// The Lease's file.
pub(super) const LEASE: &str = LEASE_FILE;
/// The next one.
pub(super) const TEMPORARY: &str = "dcctl.lease.tmp";
/// A Lease is smaller than this many bytes by far.
const LONGEST: u64 = 1 << 20;

/// Which Lease, and which state of it, a change is about.
pub(super) struct Precondition {
    pub(super) uid: String,
    pub(super) version: String,
}

impl Precondition {
    fn holds_for(&self, record: &Record) -> bool {
        record.uid() == self.uid && record.version() == self.version
    }
}

/// The Lease as it was read, and the file that it was read from. While that is open no other file has its number.
struct Seen {
    record: Record,
    file: File,
}

/// Reads it. None: there is none.
pub(super) fn read(folder: &Folder) -> Result<Option<Record>, Trouble> {
    Ok(look(folder)?.map(|seen| seen.record))
}

fn look(folder: &Folder) -> Result<Option<Seen>, Trouble> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(folder.descriptor(), LEASE, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(foreign(folder, "it is a symbolic link")),
        Err(error) => return Err(folder.trouble_with(LEASE, "read", error)),
    };
    let stat = rustix::fs::fstat(&file).map_err(|error| folder.trouble_with(LEASE, "look at", error))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(foreign(folder, "it is no file"));
    }
    let mut bytes = Vec::new();
    if let Err(error) = (&file).take(LONGEST + 1).read_to_end(&mut bytes) {
        let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        return Err(folder.trouble_with(LEASE, "read", error));
    }
    let record = parse(&bytes).map_err(|why| foreign(folder, why))?;
    Ok(Some(Seen { record, file }))
}

/// A whole Lease of ours.
fn parse(bytes: &[u8]) -> Result<Record, &'static str> {
    if bytes.is_empty() {
        return Err("it is empty");
    }
    if bytes.len() as u64 > LONGEST {
        return Err("it is far too large");
    }
    let json: Value = serde_json::from_slice(bytes).map_err(|_| "it is torn, or no JSON at all")?;
    let ours = json["kind"] == "Lease" && json["metadata"]["name"] == NAME;
    let record = Record::from_json(json).filter(|_| ours).ok_or("it is no Lease of dcctl")?;
    match record.version().parse::<u64>() {
        // A change is told by a version that is one higher.
        Ok(u64::MAX) => return Err("no version can come after its own"),
        Ok(_) => {}
        Err(_) => return Err("its version is no number"),
    }
    if record.deleting_since().is_some() {
        return Err("it says that it is being deleted, which a file never is");
    }
    Ok(record)
}

fn foreign(folder: &Folder, why: &str) -> Trouble {
    let path = folder.file(LEASE);
    let message = format!("the lock's file {} cannot be used: {why}", path.display());
    Trouble::Refused(Failure::new(Code::LockRecordUnreadable, message).hint(format!(
        "Look at it. Only when nothing lives any more that used this lock, move it away: `mv {} {}`.",
        shell_word(&path.to_string_lossy()),
        shell_word(&format!("{}.broken", path.to_string_lossy()))
    )))
}

/// Makes it, if it is not there. Whatever is there is somebody's.
pub(super) fn create(folder: &Folder, draft: &Value, commit: &Commit) -> Result<Created, Trouble> {
    match rustix::fs::statat(folder.descriptor(), LEASE, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => return Ok(Created::Exists),
        Err(Errno::NOENT) => {}
        Err(error) => return Err(folder.trouble_with(LEASE, "look at", error)),
    }
    let mut json = draft.clone();
    json["metadata"]["uid"] = json!(new_uid().ok_or_else(|| folder.trouble_with(LEASE, "name", Errno::IO))?);
    let record = versioned(json, 1);
    write(folder, &record)?;
    begin(commit)?;
    let folder_descriptor = folder.descriptor();
    // By a link: it fails where a file has come to be, also one that this machine does not know of yet.
    let linked = rustix::fs::linkat(folder_descriptor, TEMPORARY, folder_descriptor, LEASE, AtFlags::empty());
    remove_temporary(folder);
    match linked {
        Ok(()) => settled(folder).map(|()| Created::Stored(record)),
        Err(Errno::EXIST) => Ok(Created::Exists),
        Err(error) => Err(folder.trouble_with(LEASE, "make", error)),
    }
}

/// Puts another state of it in its place, if it still is what the record says.
pub(super) fn replace(folder: &Folder, record: &Record, commit: &Commit) -> Result<Replaced, Trouble> {
    let precondition = Precondition { uid: record.uid().to_owned(), version: record.version().to_owned() };
    let Some(there) = look(folder)?.filter(|there| precondition.holds_for(&there.record)) else {
        return Ok(Replaced::Conflict);
    };
    let version = there.record.version().parse::<u64>().expect("it was read as a number");
    let next = versioned(record.json().clone(), version.checked_add(1).expect("the last number is not read"));
    write(folder, &next)?;
    begin(commit)?;
    let swapped = swap(folder, &there);
    remove_temporary(folder);
    match swapped {
        Ok(Swapped::Done) => settled(folder).map(|()| Replaced::Stored(next)),
        Ok(Swapped::Another) => Ok(Replaced::Conflict),
        Ok(Swapped::Unclear(error)) => Err(unclear(folder, "replace", error)),
        Err(error) => Err(folder.trouble_with(LEASE, "replace", error)),
    }
}

/// What came of putting one file in the place of another, or of taking one away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Swapped {
    Done,
    /// There was none any more, or another one: a person, who asks for no file lock, was faster.
    Another,
    /// It was done, and then the file system did not say what had been there.
    Unclear(Errno),
}

/// The two files change places, so what is displaced can be looked at, and a file that somebody has just removed does not
/// come back. Where the file system does not know that (NFS), a person who removes the file by hand in the few
/// milliseconds of a renewal has to do it again.
fn swap(folder: &Folder, there: &Seen) -> Result<Swapped, Errno> {
    let at = folder.descriptor();
    let exchange = || rustix::fs::renameat_with(at, TEMPORARY, at, LEASE, RenameFlags::EXCHANGE);
    match exchange() {
        Ok(()) => Ok(match there.is_at(folder, TEMPORARY) {
            Ok(true) => Swapped::Done,
            Ok(false) => exchange().map_or_else(Swapped::Unclear, |()| Swapped::Another),
            Err(error) => Swapped::Unclear(error),
        }),
        Err(Errno::NOENT) => Ok(Swapped::Another),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rustix::fs::renameat(at, TEMPORARY, at, LEASE).map(|()| Swapped::Done)
        }
        Err(error) => Err(error),
    }
}

impl Seen {
    /// Whether this is the file under that name.
    fn is_at(&self, folder: &Folder, name: &str) -> Result<bool, Errno> {
        let stat = rustix::fs::statat(folder.descriptor(), name, AtFlags::SYMLINK_NOFOLLOW)?;
        let ours = rustix::fs::fstat(&self.file)?;
        Ok((stat.st_dev, stat.st_ino) == (ours.st_dev, ours.st_ino))
    }
}

/// Removes it, if it still is this one in this state. It is set aside first, and put back when it was another.
pub(super) fn delete(folder: &Folder, precondition: &Precondition, commit: &Commit) -> Result<Deleted, Trouble> {
    let Some(there) = look(folder)? else { return Ok(Deleted::Absent) };
    if !precondition.holds_for(&there.record) {
        return Ok(Deleted::Conflict);
    }
    clear_temporary(folder)?;
    begin(commit)?;
    let taken = take_away(folder, &there);
    remove_temporary(folder);
    match taken {
        Ok(Swapped::Done) => settled(folder).map(|()| Deleted::Gone),
        Ok(Swapped::Another) => Ok(Deleted::Conflict),
        Ok(Swapped::Unclear(error)) => Err(unclear(folder, "delete", error)),
        Err(Errno::NOENT) => Ok(Deleted::Absent),
        Err(error) => Err(folder.trouble_with(LEASE, "delete", error)),
    }
}

/// Sets it aside. Another one, which somebody has just put there by hand, is put back.
fn take_away(folder: &Folder, there: &Seen) -> Result<Swapped, Errno> {
    let at = folder.descriptor();
    rustix::fs::renameat(at, LEASE, at, TEMPORARY)?;
    // By a link, which fails where somebody has put one more.
    let put_back = || rustix::fs::linkat(at, TEMPORARY, at, LEASE, AtFlags::empty());
    Ok(match there.is_at(folder, TEMPORARY) {
        Ok(true) => Swapped::Done,
        Ok(false) => match put_back() {
            Ok(()) | Err(Errno::EXIST) => Swapped::Another,
            Err(error) => Swapped::Unclear(error),
        },
        Err(error) => Swapped::Unclear(error),
    })
}

/// Nobody waits any more: nothing is changed, and nobody reads this.
fn begin(commit: &Commit) -> Result<(), Trouble> {
    commit.begin().map_err(|TooLate| {
        Trouble::Unsent(Failure::new(Code::LockDirUnanswered, "the request about the lock was given up"))
    })
}

/// What is there under that name was left by a process that was killed while it had the file lock.
fn clear_temporary(folder: &Folder) -> Result<(), Trouble> {
    match rustix::fs::unlinkat(folder.descriptor(), TEMPORARY, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(folder.trouble_with(TEMPORARY, "remove", error)),
    }
}

/// Writes the next one beside it, whole and on the disk.
fn write(folder: &Folder, record: &Record) -> Result<(), Trouble> {
    clear_temporary(folder)?;
    let trouble = |doing: &str, error| folder.trouble_with(TEMPORARY, doing, error);
    let mut file = File::from(folder.make(TEMPORARY).map_err(|error| trouble("make", error))?);
    let text = format!("{:#}\n", record.json());
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| {
        remove_temporary(folder);
        trouble("write", Errno::from_io_error(&error).unwrap_or(Errno::IO))
    })
}

/// What is left is removed by whoever changes the Lease next.
fn remove_temporary(folder: &Folder) {
    let _ = rustix::fs::unlinkat(folder.descriptor(), TEMPORARY, AtFlags::empty());
}

/// It may have been done or not.
fn unclear(folder: &Folder, doing: &str, error: Errno) -> Trouble {
    Trouble::Unclear(folder.trouble_with(LEASE, doing, error).into_failure())
}

/// The change is made; now it has to survive a machine that loses its power.
fn settled(folder: &Folder) -> Result<(), Trouble> {
    rustix::fs::fsync(folder.descriptor())
        .map_err(|error| Trouble::Unclear(folder.trouble("write down a change of", error).into_failure()))
}

fn versioned(mut json: Value, version: u64) -> Record {
    json["metadata"]["resourceVersion"] = json!(version.to_string());
    Record::from_json(json).expect("it has a uid and a version")
}

/// An id that no other Lease has, in the form of the API server's.
fn new_uid() -> Option<String> {
    let (high, low) = (getrandom::u64().ok()?, getrandom::u64().ok()?);
    // The version and the variant of an id that is random.
    let (high, low) = ((high & !0xf000) | 0x4000, (low & !(0b11 << 62)) | (0b10 << 62));
    Some(format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::direct::folder::Spot;
    use crate::lock::direct::stage::Stage;

    #[test]
    fn only_a_whole_lease_of_ours_is_read() {
        let whole = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": NAME, "uid": "u", "resourceVersion": "7" },
            "spec": { "holderIdentity": "alice@build-01/48213/9f3c1a20b7e4d5c6" },
        });
        let text = format!("{whole:#}\n");
        assert_eq!(parse(text.as_bytes()).expect("whole").version(), "7");
        for end in 0..text.trim_end().len() {
            assert!(parse(&text.as_bytes()[..end]).is_err(), "torn at {end} it is read");
        }
        let changed = |pointer: &str, value: Value| {
            let mut json = whole.clone();
            *json.pointer_mut(pointer).expect("it is there") = value;
            parse(json.to_string().as_bytes()).err()
        };
        assert_eq!(changed("/kind", json!("Pod")), Some("it is no Lease of dcctl"));
        assert_eq!(changed("/metadata/name", json!("other")), Some("it is no Lease of dcctl"));
        assert_eq!(changed("/metadata/uid", json!("")), Some("it is no Lease of dcctl"));
        assert_eq!(changed("/metadata/resourceVersion", json!("x")), Some("its version is no number"));
        let last = json!(u64::MAX.to_string());
        assert_eq!(changed("/metadata/resourceVersion", last), Some("no version can come after its own"));
        assert!(
            changed(
                "/metadata",
                json!({ "name": NAME, "uid": "u", "resourceVersion": "1",
            "deletionTimestamp": "2026-11-30T00:00:00Z" })
            )
            .is_some()
        );
        assert_eq!(parse(b""), Err("it is empty"));
        assert_eq!(parse(b"{}"), Err("it is no Lease of dcctl"));
        assert_eq!(parse(&vec![b' '; 2 << 20]), Err("it is far too large"));
    }

    /// A lock folder with a Lease of ours.
    fn held() -> (tempfile::TempDir, Folder) {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(&Spot::new(place.path())).map_err(Trouble::into_failure).expect("it is there");
        let draft = json!({ "kind": "Lease", "metadata": { "name": NAME }, "spec": { "holderIdentity": "us" } });
        let made = create(&folder, &draft, &Stage::begin().commit());
        assert!(matches!(made, Ok(Created::Stored(_))), "{made:?}");
        (place, folder)
    }

    fn seen(folder: &Folder) -> Seen {
        look(folder).expect("it can be read").expect("it is there")
    }

    /// A person asks for no file lock, and may do something between the read and the change.
    #[test]
    fn what_a_person_does_in_the_middle_of_a_change_is_neither_undone_nor_overwritten() {
        type Change = fn(&Folder, &Seen) -> Result<Swapped, Errno>;
        let renew: Change = |folder, there| {
            write(folder, &there.record).expect("there is room");
            let path = folder.file(LEASE);
            by_hand(&path);
            swap(folder, there)
        };
        let give_back: Change = |folder, there| {
            by_hand(&folder.file(LEASE));
            take_away(folder, there)
        };
        fn by_hand(path: &std::path::Path) {
            let another = path.with_file_name("by-hand");
            if another.exists() {
                std::fs::rename(another, path).expect("it is ours");
            } else {
                std::fs::remove_file(path).expect("it is ours");
            }
        }
        // They removed it: it does not come back.
        let (place, folder) = held();
        assert_eq!(renew(&folder, &seen(&folder)), Ok(Swapped::Another));
        assert!(!place.path().join(LEASE).exists());
        let (_place, folder) = held();
        assert_eq!(give_back(&folder, &seen(&folder)), Err(Errno::NOENT));
        // They put another one there: it stays.
        for change in [renew, give_back] {
            let (place, folder) = held();
            std::fs::write(place.path().join("by-hand"), "another").expect("there is room");
            assert_eq!(change(&folder, &seen(&folder)), Ok(Swapped::Another));
            assert_eq!(std::fs::read_to_string(place.path().join(LEASE)).expect("it is there"), "another");
        }
        // They did nothing.
        let (place, folder) = held();
        write(&folder, &seen(&folder).record).expect("there is room");
        assert_eq!(swap(&folder, &seen(&folder)), Ok(Swapped::Done));
        clear_temporary(&folder).expect("it is ours");
        assert_eq!(take_away(&folder, &seen(&folder)), Ok(Swapped::Done));
        assert!(!place.path().join(LEASE).exists());
    }

    #[test]
    fn every_lease_has_an_id_of_its_own_in_the_usual_form() {
        let uid = new_uid().expect("the system has a source of randomness");
        let lengths: Vec<usize> = uid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{uid}");
        assert_eq!(&uid[14..15], "4", "{uid}");
        assert!(matches!(&uid[19..20], "8" | "9" | "a" | "b"), "{uid}");
        assert_ne!(new_uid(), Some(uid));
    }
}
