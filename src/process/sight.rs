//! One look at every process of this machine, for whoever asks about many runs at once.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::Path;

use crate::process::proc::{self, Opened, Stat};

/// What was seen.
#[derive(Debug)]
pub struct Sight {
    written: Vec<Opened>,
    /// Processes of our own program that may not be looked at: its file is not readable, or has capabilities.
    hidden: BTreeSet<u32>,
    /// Looked for when it is asked for: each run with one of its processes.
    marked: OnceCell<Vec<(String, Stat)>>,
}

impl Sight {
    /// Looks for who writes these files.
    pub fn of<'a>(files: impl IntoIterator<Item = &'a Path>) -> Sight {
        let wanted: Vec<Opened> = files.into_iter().filter_map(Opened::file).collect();
        let (mut written, mut hidden) = (Vec::new(), BTreeSet::new());
        let own_name = Stat::of(std::process::id()).map(|own| own.name);
        for stat in proc::all().into_iter().filter(|stat| !stat.is_over()) {
            match proc::written(stat.pid, &wanted) {
                Some(found) => written.extend(found),
                None if Some(&stat.name) == own_name.as_ref() => drop(hidden.insert(stat.pid)),
                None => {}
            }
        }
        Sight { written, hidden, marked: OnceCell::new() }
    }

    /// Whether a process was seen to have this file, one of those looked for, open for writing.
    pub fn is_written(&self, file: &Path) -> bool {
        Opened::file(file).is_some_and(|file| self.written.contains(&file))
    }

    /// Whether a process of this number lives that may be the one meant, and cannot be looked at.
    pub fn hides(&self, pid: u32) -> bool {
        self.hidden.contains(&pid)
    }

    /// Every living process that this run started and that carries its mark, with its short name.
    pub fn of_run(&self, run: &str) -> Vec<(u32, String)> {
        let marked = self.marked.get_or_init(|| {
            let living = proc::all().into_iter().filter(|stat| !stat.is_over());
            living.flat_map(|stat| proc::runs_of(stat.pid).into_iter().map(move |run| (run, stat.clone()))).collect()
        });
        let mut found: Vec<(u32, String)> =
            marked.iter().filter(|(of, _)| of == run).map(|(_, stat)| (stat.pid, stat.name.clone())).collect();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_look_tells_of_every_file_whether_somebody_writes_it() {
        let files = [(); 3].map(|()| tempfile::NamedTempFile::new().expect("a file"));
        let [written, closed, other] = files;
        let closed = closed.into_temp_path();
        let sight = Sight::of([written.path(), &closed]);
        assert!(sight.is_written(written.path()) && !sight.is_written(&closed));
        assert!(!sight.is_written(other.path()), "it was not looked for");
        assert!(!sight.hides(std::process::id()) && sight.of_run("no such run").is_empty());
    }
}
