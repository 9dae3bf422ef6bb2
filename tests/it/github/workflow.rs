//! A repository with one workflow that uses the action, and act, which runs it on this machine.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::bed::child::command;
use crate::bed::tools::own;
use crate::bed::{Bed, Dcctl, Tools};
use crate::tree;

/// What act is told: steps run here, nothing is fetched, and nothing listens.
const ACT: &[&str] = &[
    "push",
    "--platform=ubuntu-latest=-self-hosted",
    "--no-cache-server",
    "--action-offline-mode",
    "--pull=false",
    "--container-daemon-socket=-",
];

/// A job that uses the action with these inputs, not started yet.
///
/// A step before it brings the repository to where act works, as a checkout would; one after it keeps what the step of the
/// action put out.
pub(crate) fn job(bed: &Bed, inputs: &[(&str, &str)]) -> Dcctl {
    let repository = bed.file("repository");
    lay_out(&repository, inputs);
    let act = Tools::of_github().path("act");
    let mut run = bed
        .dcctl(ACT)
        .by_program(act)
        .env("PATH", path(bed))
        .env("TREE", &repository)
        .env("BUNDLE", bed.file("bundle"))
        .env("SEEN", seen(bed))
        .env("ACT_DISABLE_VERSION_CHECK", "1")
        // Nobody is there: what would ask somebody outside fails at once.
        .env("HTTPS_PROXY", "http://127.0.0.1:9")
        .env("NO_PROXY", "127.0.0.1");
    run.command().current_dir(&repository);
    run
}

/// The same run as a job that uses the action, with what is in its environment.
pub(crate) fn of(bed: &Bed, mut run: Dcctl) -> Dcctl {
    let words: Vec<String> = run.command().get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let (options, script) = words.split_at(words.iter().position(|word| word == "--").unwrap_or(words.len()));
    let mut options = options.to_vec();
    let mut inputs = vec![("verb", options.remove(0))];
    if options.first().is_some_and(|word| !word.starts_with("--")) {
        inputs.push(("instance", options.remove(0)));
    }
    if let Some(at) = options.iter().position(|word| word == "--junit") {
        inputs.extend(options.drain(at..at + 2).nth(1).map(|path| ("junit", path)));
    }
    inputs.push(("args", options.join("\n")));
    if !script.is_empty() {
        let quoted = script[1..].iter().map(|word| format!("'{}'", word.replace('\'', "'\\''")));
        inputs.push(("run", format!("exec {}", quoted.collect::<Vec<_>>().join(" "))));
    }
    let inputs: Vec<_> = inputs.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let variables = run.command().get_envs().filter(|(name, _)| *name != "PATH");
    let variables: Vec<_> =
        variables.filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value?.to_owned()))).collect();
    variables.into_iter().fold(job(bed, &inputs), |job, (name, value)| job.env(&name, value))
}

/// The file that a job's last step writes: the step of the action, as later steps see it.
pub(crate) fn seen(bed: &Bed) -> PathBuf {
    bed.file("seen.json")
}

/// The search path of a job: that of a run, and where Node.js is.
fn path(bed: &Bed) -> String {
    let node = node();
    let folders = [bed.described().programs.as_path(), node.parent().expect("a program is in a folder")];
    let folders = folders.map(|folder| folder.display().to_string());
    format!("{}:/usr/local/bin:/usr/bin:/bin", folders.join(":"))
}

/// Node.js, which the actions run on.
pub(crate) fn node() -> PathBuf {
    crate::bed::tools::on_path("node").expect("node is on PATH; the actions run on Node.js 20 or later")
}

fn lay_out(repository: &Path, inputs: &[(&str, &str)]) {
    for file in ["run/action.yml", "run/dist/main.js", "run/dist/post.js"] {
        let (from, to) = (tree::root().join("actions").join(file), repository.join("actions").join(file));
        fs::create_dir_all(to.parent().expect("a file is in a folder")).expect("the test's folder can be written");
        fs::copy(&from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    }
    let workflows = repository.join(".github/workflows");
    fs::create_dir_all(&workflows).expect("the test's folder can be written");
    fs::write(workflows.join("job.yml"), workflow(inputs)).expect("the test's folder can be written");
    for words in [&["init", "--quiet"][..], &["add", "--all"], &["commit", "--quiet", "--message=all of it"]] {
        let mut git = command(Path::new("git"));
        git.args(["-c", "user.name=Test", "-c", "user.email=test@localhost"]).args(words).current_dir(repository);
        let done = git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null").status();
        assert!(done.is_ok_and(|status| status.success()), "git {words:?}");
    }
}

fn workflow(inputs: &[(&str, &str)]) -> String {
    let mut text = String::from(
        "on: push\njobs:\n  change:\n    runs-on: ubuntu-latest\n    steps:\n      \
         - run: cp -a \"$TREE/.\" . && if [ -e \"$BUNDLE\" ]; then cp -a \"$BUNDLE\" bundle; fi\n      \
         - id: dcctl\n        uses: ./actions/run\n        with:\n",
    );
    let program = own("dcctl").display().to_string();
    for (name, value) in inputs.iter().chain(&[("dcctl", program.as_str())]) {
        let _ = writeln!(text, "          {name}: |-");
        for line in value.lines() {
            let _ = writeln!(text, "            {line}");
        }
    }
    text.push_str(
        "      - if: always()\n        env:\n          STEP: ${{ toJSON(steps.dcctl) }}\n        \
         run: printf '%s' \"$STEP\" > \"$SEEN\"\n",
    );
    text
}
