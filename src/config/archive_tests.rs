//! What an archive may be, and every way in which it may not.

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

/// The folder of the bundle, without asking for a digest.
fn unpacked(path: &Path, into: &Path) -> Result<PathBuf, Failure> {
    unpack(path, into, None).map(|(folder, _)| folder)
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
    assert_eq!(unpacked(&path, &into).map_err(|failure| failure.message), Ok(into.clone()));
    let mode = |name: &str| into.join(name).metadata().expect(name).permissions().mode() & 0o7777;
    assert_eq!((mode("bundle.yaml"), mode("infra/verify.sh"), mode("infra")), (0o600, 0o700, 0o700));
    assert_eq!(fs::read_to_string(into.join("link")).expect("the link"), "kind: Bundle\n");
    assert_eq!(fs::read_to_string(into.join("infra/again.sh")).expect("the copy"), "#!/bin/sh\n");
}

#[test]
fn one_folder_alone_is_the_bundle() {
    let (folder, path) = archive(&[("shop-1.0/bundle.yaml", FILE, "")]);
    let into = folder.path().join("scratch");
    assert_eq!(unpacked(&path, &into).map_err(|failure| failure.message), Ok(into.join("shop-1.0")));
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
        let failure = unpacked(&path, &into).expect_err(message);
        assert_eq!(failure.code, Code::BundleInvalid, "{message}");
        assert_eq!(failure.message, format!("the bundle {}: {message}", path.display()));
        assert!(!into.exists(), "{message}");
    }
}

#[test]
fn a_damaged_archive_and_a_used_folder_are_told_apart() {
    let (folder, path) = archive(&[("bundle.yaml", FILE, "kind: Bundle\n")]);
    assert_eq!(unpacked(&path, folder.path()).map_err(|failure| failure.code), Err(Code::RunDirUnusable));
    let half = fs::read(&path).expect("the archive");
    fs::write(&path, &half[..half.len() / 2]).expect("half of it");
    assert!(is_gzip(&path).expect("readable"));
    let into = folder.path().join("scratch");
    assert_eq!(unpacked(&path, &into).map_err(|failure| failure.code), Err(Code::BundleInvalid));
}

#[test]
fn an_archive_is_unpacked_only_if_it_is_the_expected_one() {
    let (folder, path) = archive(&[("bundle.yaml", FILE, "kind: Bundle\n")]);
    let (_, digest) = unpack(&path, &folder.path().join("first"), None).expect("whole");
    let again = unpack(&path, &folder.path().join("again"), Some(&digest)).expect("it is that one");
    assert_eq!(again, (folder.path().join("again"), digest.clone()));
    let (other, changed) = archive(&[("bundle.yaml", FILE, "kind: Bundel\n")]);
    let into = other.path().join("scratch");
    let failure = unpack(&changed, &into, Some(&digest)).expect_err("it is another");
    assert_eq!(failure.code, Code::BundleInvalid);
    let ends = format!(", and --bundle-digest says {digest}");
    assert!(failure.message.contains(": it is sha256:") && failure.message.ends_with(&ends), "{failure}");
    assert!(!into.exists());
    // What is no archive at all is told by its digest first.
    fs::write(&changed, [&[0x1f, 0x8b][..], b"nothing"].concat()).expect("written");
    let failure = unpack(&changed, &into, Some(&digest)).expect_err("it is another");
    assert!(failure.message.ends_with(&ends), "{failure}");
}

/// The archive's bytes, changed.
fn changed(rows: &[Row<'_>], change: impl Fn(Vec<u8>) -> Vec<u8>) -> (tempfile::TempDir, PathBuf) {
    let (folder, path) = archive(rows);
    let bytes = fs::read(&path).expect("the archive");
    fs::write(&path, change(bytes)).expect("written");
    (folder, path)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(bytes).expect("in memory");
    gzip.finish().expect("in memory")
}

fn plain(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    MultiGzDecoder::new(bytes).read_to_end(&mut plain).expect("whole");
    plain
}

#[track_caller]
fn refused(path: &Path, says: &str) {
    let into = path.parent().expect("a folder").join("scratch");
    let failure = unpacked(path, &into).expect_err(says);
    assert_eq!(failure.code, Code::BundleInvalid, "{failure}");
    assert!(failure.message.contains(says), "{failure}");
    assert!(!into.exists(), "{says}");
}

#[test]
fn whatever_is_cut_off_or_follows_is_seen() {
    let rows = [("bundle.yaml", FILE, "kind: Bundle\n"), ("b", FILE, "more")];
    let (_folder, path) = archive(&rows);
    let whole = fs::read(path).expect("the archive").len();
    for end in (2..whole).step_by(7) {
        let (_folder, path) = changed(&rows, |bytes| bytes[..end].to_vec());
        refused(&path, "it cannot be read as a .tar.gz");
    }
    // The check of gzip is its last word.
    let (_folder, path) = changed(&rows, |mut bytes| {
        let at = bytes.len() - 6;
        bytes[at] ^= 1;
        bytes
    });
    refused(&path, "it cannot be read as a .tar.gz");
    let (_folder, path) = changed(&rows, |bytes| [bytes, b"garbage".to_vec()].concat());
    refused(&path, "it cannot be read as a .tar.gz");
    let (_folder, path) = changed(&rows, |bytes| [bytes.clone(), bytes].concat());
    refused(&path, "something follows the end of its tar");
    let (_folder, path) = changed(&rows, |bytes| gzip(&plain(&bytes)[..514]));
    refused(&path, "its entry `bundle.yaml` is cut off");
    // Some tools write in several parts, and all of them fill up with nothing.
    let (folder, path) = changed(&rows, |bytes| {
        let plain = plain(&bytes);
        [gzip(&plain[..700]), gzip(&plain[700..]), gzip(&vec![0; 20_480])].concat()
    });
    unpacked(&path, &folder.path().join("scratch")).expect("whole");
}

/// A header of this kind that promises so many bytes.
fn promise(name: &str, kind: EntryType, size: u64) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_path(name).expect("short");
    header.set_entry_type(kind);
    header.set_mode(0o600);
    header.set_size(size);
    header.set_cksum();
    header.as_bytes().to_vec()
}

/// An archive of these parts of a tar, each followed by so many zeros.
fn bomb(parts: &[(Vec<u8>, usize)]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bomb.tar.gz");
    let mut gzip = flate2::write::GzEncoder::new(File::create(&path).expect("a file"), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    for (part, zeros_after) in parts {
        gzip.write_all(part).expect("written");
        let mut left = *zeros_after;
        while left > 0 {
            let now = left.min(zeros.len());
            gzip.write_all(&zeros[..now]).expect("written");
            left -= now;
        }
    }
    gzip.finish().expect("written");
    (folder, path)
}

#[test]
fn an_archive_that_would_fill_a_disk_or_the_memory_is_refused() {
    const MIB: usize = 1 << 20;
    let big = |name: &str, kind: EntryType| (promise(name, kind, 100 << 20), 100 * MIB);
    let grown = "it is larger than 90 MiB when unpacked";
    let (_folder, path) = bomb(&[big("big", FILE)]);
    let size = fs::metadata(&path).expect("there").len();
    let most = (size * MOST_GROWTH).clamp(ALWAYS, MOST_BYTES) >> 20;
    assert!(most < 100, "the test's archive is too large: {size}");
    let grown = grown.replace("90", &most.to_string());
    refused(&path, &grown);
    // What is in a folder is nothing, and takes its time.
    let (_folder, path) = bomb(&[big("folder", EntryType::Directory)]);
    refused(&path, "when unpacked");
    // A file with many names is many files.
    let file = (promise("a", FILE, 40 << 20), 40 * MIB);
    let link = |name: &str| {
        let mut header = Header::new_gnu();
        header.set_path(name).expect("short");
        header.set_entry_type(EntryType::Link);
        header.set_link_name("a").expect("short");
        header.set_size(0);
        header.set_cksum();
        (header.as_bytes().to_vec(), 0)
    };
    let (_folder, path) = bomb(&[file, link("b"), link("c"), link("d")]);
    refused(&path, "when unpacked");
    // A name is read into memory.
    for kind in [EntryType::GNULongName, EntryType::XHeader] {
        let (_folder, path) = bomb(&[(promise("name", kind, 2 << 20), 2 * MIB), (promise("x", FILE, 0), 1024)]);
        refused(&path, "its entry 1 has more than 1 MiB beside what is in it");
    }
    let deep = ["d/"; 65].concat();
    let (_folder, path) = archive(&[(&deep[..deep.len().min(99)], EntryType::Directory, "")]);
    let into = path.parent().expect("a folder").join("scratch");
    unpacked(&path, &into).expect("not too deep");
    assert_eq!(clean(Path::new(&deep)), Err("lies too deep"));
}
