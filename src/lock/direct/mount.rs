//! On which file systems a lock folder may be: those on which one machine, or every machine that mounts them, really
//! shares it.
//!
//! A file lock that only one machine knows is worse than none: two runs would both be told that the lock is theirs. So
//! what is not known to be right is refused, by name and with the reason. What each does with `flock` is from the manual
//! pages flock(2) and nfs(5), the kernel's documentation and the sources of its file systems:
//!
//! | file system | answer | why |
//! |---|---|---|
//! | ext2/3/4, xfs, btrfs, f2fs, zfs, bcachefs, jfs, nilfs2, tmpfs, ramfs | this machine | the kernel keeps the lock, and nobody else has the disk |
//! | overlay | this machine, said | the same; but it is mostly the inside of one container, and another one sees another folder |
//! | nfs, nfs4 | every machine | `flock` becomes a lock on the server; `link` and `rename` are done there |
//! | nfs with `nolock`, `local_lock=flock` or `local_lock=all` | refused | the lock stays on this machine, the folder does not |
//! | fuse (sshfs, GlusterFS, virtiofs, buckets, …) | refused | unless the program behind it takes part, the kernel keeps the lock to itself, and that cannot be seen |
//! | 9p | refused | servers answer that a lock was had without asking anybody (QEMU's does) |
//! | cifs, smb | refused | it depends on the kernel (5.5), the server and `nobrl`, and files in use cannot always be replaced |
//! | vfat, exfat, ntfs3 | refused | they have neither hard links of their own nor modes that two users could share |
//! | everything else (ceph, gfs2, ocfs2, lustre, afs, proc, …) | refused | not tried with dcctl |

use std::fmt;

/// How far the locks of a folder reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// This machine.
    Machine,
    /// This machine, and most likely no further than this container.
    Container,
    /// Every machine that mounts it.
    Machines,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reach::Machine => "shared by the processes of this machine",
            Reach::Container => "shared by the processes that see this overlay, which is mostly one container's own",
            Reach::Machines => "shared by every machine that mounts it",
        })
    }
}

/// A file system as the kernel's list of mounts has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// `ext4`, `nfs4`, `fuse.sshfs`.
    pub(super) kind: String,
    /// All its options, of the mount and of the file system.
    pub(super) options: Vec<String>,
}

impl Mount {
    /// The mount with this number in the text of `/proc/self/mountinfo`.
    pub(super) fn find(text: &str, id: u64) -> Option<Mount> {
        text.lines().find_map(|line| {
            // After a number of fields of which there may be more or fewer stands a lonely hyphen.
            let (before, after) = line.split_once(" - ")?;
            let before: Vec<&str> = before.split(' ').collect();
            if before.first()?.parse() != Ok(id) {
                return None;
            }
            let mut after = after.split(' ');
            let kind = after.next()?.to_owned();
            let of_system = after.nth(1).unwrap_or_default();
            let options = before.get(5)?.split(',').chain(of_system.split(',')).map(str::to_owned).collect();
            Some(Mount { kind, options })
        })
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|known| known == option)
    }
}

/// Kinds of file systems by the number that `statfs` gives, which no mount can be without.
const KNOWN: [(u64, &str); 21] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0xf2f5_2010, "f2fs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x3153_464a, "jfs"),
    (0x3434, "nilfs2"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlay"),
    (0x6969, "nfs"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb3"),
    (0x517b, "smbfs"),
    (0x4d44, "vfat"),
    (0x2011_bab0, "exfat"),
    (0x7366_746e, "ntfs3"),
    (0x00c3_6400, "ceph"),
];

/// Whether a lock folder may be on a file system with this number of `statfs`, which is mounted like this.
///
/// # Errors
/// Why not, as the end of a sentence about the folder.
pub(super) fn judge(magic: u64, mount: Option<&Mount>) -> Result<Reach, String> {
    let known = KNOWN.iter().find(|(number, _)| *number == magic).map(|(_, kind)| *kind);
    let named = mount.map(|mount| mount.kind.clone()).or_else(|| known.map(str::to_owned));
    let named = named.unwrap_or_else(|| format!("0x{magic:x}"));
    let why = match known.unwrap_or_default() {
        "ext4" | "xfs" | "btrfs" | "f2fs" | "zfs" | "bcachefs" | "jfs" | "nilfs2" | "tmpfs" | "ramfs" => {
            return Ok(Reach::Machine);
        }
        "overlay" => return Ok(Reach::Container),
        "nfs" => match mount {
            None => "and how it is mounted cannot be read in /proc/self/mountinfo",
            Some(mount) => match ["nolock", "local_lock=flock", "local_lock=all"].iter().find(|it| mount.has(it)) {
                None => return Ok(Reach::Machines),
                Some(option) => {
                    return Err(format!(
                        "is on {named} mounted with `{option}`: a file lock there is known to this machine alone, and the \
                         folder to others too"
                    ));
                }
            },
        },
        "fuse" => {
            "and whether a file lock there is known to anybody but this machine depends on the program behind it, and \
             cannot be told"
        }
        "9p" => "whose servers say that a file lock was had without asking anybody",
        "cifs" | "smb3" | "smbfs" => {
            "and whether a file lock there is known to the server depends on the kernel, the server and the options"
        }
        "vfat" | "exfat" | "ntfs3" => "which has neither hard links nor modes as a lock folder needs them",
        _ => "and dcctl does not know that a file lock there is known to everybody who sees the folder",
    };
    Err(format!("is on {named}, {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 27 0:24 / /mnt/with\\040space rw,nosuid shared:7 master:2 - nfs4 127.0.0.1:/x rw,vers=4.2,local_lock=none
32 27 0:25 / /mnt/local ro - nfs 127.0.0.1:/y rw,vers=3,nolock,local_lock=all
33 27 0:26 / /mnt/odd rw - fuse.sshfs
";

    #[test]
    fn a_mount_is_found_by_its_number_with_all_its_options() {
        let nfs = Mount::find(MOUNTS, 31).expect("it is there");
        assert_eq!(nfs.kind, "nfs4");
        assert!(nfs.has("nosuid") && nfs.has("vers=4.2") && nfs.has("local_lock=none"), "{nfs:?}");
        assert_eq!(Mount::find(MOUNTS, 33).map(|mount| mount.kind), Some("fuse.sshfs".to_owned()));
        assert_eq!(Mount::find(MOUNTS, 3), None);
        assert_eq!(Mount::find("nonsense\n\n7", 7), None);
    }

    #[test]
    fn only_what_is_known_to_share_its_locks_may_be_used() {
        let mount = |kind: &str, options: &str| Mount {
            kind: kind.to_owned(),
            options: options.split(',').map(str::to_owned).collect(),
        };
        let local = mount("ext4", "rw,relatime");
        for magic in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x8584_58f6, 0x2fc1_2fc1] {
            assert_eq!(judge(magic, Some(&local)), Ok(Reach::Machine), "{magic:x}");
            assert_eq!(judge(magic, None), Ok(Reach::Machine), "{magic:x}: no mount has to be known");
        }
        assert_eq!(judge(0x794c_7630, None), Ok(Reach::Container));
        let rows = [
            ("nfs4", "rw,vers=4.2,local_lock=none", Ok(Reach::Machines)),
            ("nfs", "rw,vers=3,lock", Ok(Reach::Machines)),
            // Only POSIX locks are local then.
            ("nfs", "rw,vers=3,local_lock=posix", Ok(Reach::Machines)),
            ("nfs", "rw,vers=3,nolock", Err("`nolock`")),
            ("nfs", "rw,vers=3,local_lock=flock", Err("`local_lock=flock`")),
            ("nfs", "rw,vers=3,local_lock=all", Err("`local_lock=all`")),
        ];
        for (kind, options, expected) in rows {
            let said = judge(0x6969, Some(&mount(kind, options)));
            match expected {
                Ok(reach) => assert_eq!(said, Ok(reach), "{options}"),
                Err(part) => {
                    let said = said.expect_err(options);
                    assert!(said.contains(part) && said.contains("is on nfs mounted"), "{said}");
                }
            }
        }
        assert!(judge(0x6969, None).expect_err("it cannot be told").contains("/proc/self/mountinfo"));
        let refused = [
            (0x6573_5546, "fuse.sshfs", "the program behind it"),
            (0x6573_5546, "virtiofs", "the program behind it"),
            (0x0102_1997, "9p", "without asking anybody"),
            (0xff53_4d42, "cifs", "the server"),
            (0xfe53_4d42, "smb3", "the server"),
            (0x4d44, "vfat", "hard links"),
            (0x00c3_6400, "ceph", "dcctl does not know"),
            (0x9fa0, "proc", "dcctl does not know"),
            (0x0bd0_0bd0, "lustre", "dcctl does not know"),
        ];
        for (magic, kind, part) in refused {
            let said = judge(magic, Some(&mount(kind, "rw"))).expect_err(kind);
            assert!(said.contains(part) && said.starts_with(&format!("is on {kind}, ")), "{said}");
        }
        assert!(judge(0x1234, None).expect_err("unknown").contains("is on 0x1234, "));
    }
}
