//! Paths of a bundle: they are relative to it, and never leave it, not even by a link.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// More files than this in one folder of a bundle are a mistake: a checkout with its dependencies, for example.
const MOST_FILES: usize = 50_000;

/// What a path has to lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    Folder,
    File,
    Either,
}

/// Finds a path of the bundle: absolute, without links. `root` is that already.
///
/// The error is a sentence about the path.
pub(crate) fn inside(root: &Path, written: &str, want: Want) -> Result<PathBuf, String> {
    let relative = Path::new(written);
    if relative.is_absolute() {
        return Err(format!("`{written}` is absolute, and paths are relative to the bundle"));
    }
    if written.contains('\0') {
        return Err(format!("`{}` has a NUL character, and no path has one", written.escape_debug()));
    }
    if climbs(relative) {
        return Err(format!("`{written}` leaves the bundle"));
    }
    let path = match fs::canonicalize(root.join(relative)) {
        Ok(path) => path,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(format!("there is no `{written}` in the bundle"));
        }
        Err(error) => return Err(format!("`{written}` cannot be read: {error}")),
    };
    if !path.starts_with(root) {
        return Err(format!("`{written}` leaves the bundle by a link"));
    }
    if path.to_str().is_none() {
        return Err(format!("`{written}` leads to a path that is not UTF-8 text"));
    }
    let is_folder = path.is_dir();
    match want {
        Want::Folder if !is_folder => Err(format!("`{written}` is not a folder")),
        Want::File if !path.is_file() => Err(format!("`{written}` is not a file")),
        Want::Either if !is_folder && !path.is_file() => Err(format!("`{written}` is neither a file nor a folder")),
        Want::Folder | Want::File | Want::Either => Ok(path),
    }
}

/// All files in a folder of the bundle, at any depth, in the order of their paths. Hidden files are not the bundle's.
///
/// A link that leaves the bundle, or leads nowhere, is an error: a sentence about it.
pub(crate) fn files(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    walk(root, folder, &mut seen, &mut found)?;
    found.sort();
    Ok(found)
}

/// A path of the bundle as its author writes it.
pub(crate) fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

fn walk(root: &Path, folder: &Path, seen: &mut BTreeSet<PathBuf>, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let unreadable = |path: &Path, error: std::io::Error| format!("`{}` cannot be read: {error}", shown(root, path));
    // A link to a folder above would otherwise be followed for ever.
    if !seen.insert(fs::canonicalize(folder).map_err(|error| unreadable(folder, error))?) {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, error))? {
        let entry = entry.map_err(|error| unreadable(folder, error))?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        if path.to_str().is_none() {
            return Err(format!("the name of `{}` is not UTF-8 text", shown(root, &path)));
        }
        let real = match fs::canonicalize(&path) {
            Ok(real) => real,
            Err(_) if path.is_symlink() => return Err(format!("the link `{}` leads nowhere", shown(root, &path))),
            Err(error) => return Err(unreadable(&path, error)),
        };
        if !real.starts_with(root) {
            return Err(format!("the link `{}` leaves the bundle", shown(root, &path)));
        }
        if real.is_dir() {
            walk(root, &path, seen, found)?;
        } else if real.is_file() {
            found.push(path);
        } else {
            return Err(format!("`{}` is neither a file nor a folder", shown(root, &path)));
        }
        if found.len() > MOST_FILES {
            return Err(format!("there are more than {MOST_FILES} files in it"));
        }
    }
    Ok(())
}

/// Whether a path climbs above where it starts: `a/../b` does not, `a/../../b` does.
fn climbs(path: &Path) -> bool {
    let mut depth: usize = 0;
    for component in path.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::ParentDir if depth == 0 => return true,
            Component::ParentDir => depth -= 1,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn bundle() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let root = fs::canonicalize(folder.path()).expect("its real path").join("bundle");
        fs::create_dir_all(root.join("infra/sub")).expect("folders");
        fs::write(root.join("infra/main.tf"), "").expect("a file");
        fs::write(root.join("infra/sub/x"), "").expect("a file");
        fs::write(root.join("infra/.hidden"), "").expect("a file");
        (folder, root)
    }

    #[test]
    fn a_path_inside_is_found_and_made_absolute() {
        let (_folder, root) = bundle();
        symlink("infra", root.join("alias")).expect("a link");
        for written in ["infra", "./infra/", "infra/sub/..", "alias"] {
            assert_eq!(inside(&root, written, Want::Folder), Ok(root.join("infra")), "{written}");
        }
        assert_eq!(inside(&root, "infra/main.tf", Want::File), Ok(root.join("infra/main.tf")));
    }

    #[test]
    fn every_other_path_is_refused_with_its_reason() {
        let (_folder, root) = bundle();
        symlink("../..", root.join("out")).expect("a link");
        symlink("/etc/hostname", root.join("host")).expect("a link");
        let cases = [
            ("/etc", Want::Either, "`/etc` is absolute, and paths are relative to the bundle"),
            ("..", Want::Either, "`..` leaves the bundle"),
            ("infra/../../x", Want::Either, "`infra/../../x` leaves the bundle"),
            ("nowhere/x", Want::Either, "there is no `nowhere/x` in the bundle"),
            ("out", Want::Folder, "`out` leaves the bundle by a link"),
            ("host", Want::File, "`host` leaves the bundle by a link"),
            ("infra", Want::File, "`infra` is not a file"),
            ("infra/main.tf", Want::Folder, "`infra/main.tf` is not a folder"),
            ("infra/main.tf/x", Want::Folder, "`infra/main.tf/x` cannot be read: Not a directory (os error 20)"),
        ];
        for (written, want, message) in cases {
            assert_eq!(inside(&root, written, want), Err(message.to_owned()));
        }
    }

    #[test]
    fn files_are_found_at_any_depth_and_a_circle_of_links_ends() {
        let (_folder, root) = bundle();
        symlink("..", root.join("infra/sub/up")).expect("a link");
        let found = files(&root, &root.join("infra")).expect("files");
        assert_eq!(found, [root.join("infra/main.tf"), root.join("infra/sub/x")]);
    }

    #[test]
    fn a_link_that_leaves_the_bundle_is_found_at_any_depth() {
        let (_folder, root) = bundle();
        symlink("/etc/hostname", root.join("infra/sub/host")).expect("a link");
        assert_eq!(files(&root, &root.join("infra")), Err("the link `infra/sub/host` leaves the bundle".to_owned()));
        fs::remove_file(root.join("infra/sub/host")).expect("removed");
        symlink("gone", root.join("infra/sub/gone")).expect("a link");
        assert_eq!(files(&root, &root.join("infra")), Err("the link `infra/sub/gone` leads nowhere".to_owned()));
    }
}
