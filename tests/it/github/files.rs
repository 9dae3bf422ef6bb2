//! The files that GitHub reads, held against what GitHub makes of them.

use crate::bed::Tools;
use crate::bed::child::command;
use crate::tree;

#[test]
fn the_workflows_and_actions_of_this_repository_are_what_actionlint_accepts() {
    let mut lint = command(Tools::of_github().path("actionlint"));
    let done = lint.args(["-color=false", "-shellcheck="]).current_dir(tree::root()).output().expect("it was built");
    assert!(
        done.status.success(),
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn the_ten_lines_to_copy_from_the_guide_are_a_workflow() {
    let guide = std::fs::read_to_string(tree::root().join("docs/guide/github.md")).expect("there is a guide");
    let lines = guide.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it begins with them");
    assert!(lines.lines().count() <= 10, "{lines}");
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let path = folder.path().join("workflow.yml");
    std::fs::write(&path, lines).expect("the folder can be written");
    let done =
        command(Tools::of_github().path("actionlint")).args(["-color=false", "-shellcheck="]).arg(&path).output();
    let done = done.expect("it was built");
    assert!(
        done.status.success(),
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn the_tag_that_the_guide_names_is_the_one_that_a_release_moves() {
    let read = |path: &str| std::fs::read_to_string(tree::root().join(path)).unwrap_or_default();
    let release = read(".github/workflows/release.yml");
    let moved = release.split_once("HEAD:refs/tags/").and_then(|(_, rest)| rest.lines().next()).expect("one is moved");
    let guide = read("docs/guide/github.md");
    let named: Vec<_> =
        guide.split("/dcctl/actions/").skip(1).filter_map(|rest| rest.lines().next()?.split_once('@')).collect();
    assert!(named.len() > 2, "{named:?}");
    for (action, tag) in named {
        let tag = tag.split([' ', '`', ',']).next().unwrap_or_default();
        assert_eq!(tag, moved, "{action}");
    }
}

#[test]
fn every_input_and_output_of_the_action_is_told_of_in_the_guide() {
    let read = |path: &str| std::fs::read_to_string(tree::root().join(path)).unwrap_or_default();
    let (action, guide) = (read("actions/run/action.yml"), read("docs/guide/github.md"));
    let names = action.lines().filter_map(|line| line.strip_prefix("  ")?.strip_suffix(':'));
    let names: Vec<_> = names.filter(|name| !name.starts_with(' ')).collect();
    assert!(names.len() > 20, "{names:?}");
    let offences: Vec<_> = names.into_iter().filter(|name| !guide.contains(&format!("`{name}`"))).collect();
    assert!(offences.is_empty(), "docs/guide/github.md does not tell of {offences:?}");
}
