//! The lines to copy of the component's pages, as a pipeline.

use crate::bed::Bed;
use crate::gitlab::project::Project;

const PAGES: &[(&str, &str)] = &[
    ("gitlab/README.md", include_str!("../../../gitlab/README.md")),
    ("docs/guide/gitlab.md", include_str!("../../../docs/guide/gitlab.md")),
];

/// The blocks of YAML of a page.
fn blocks(page: &str) -> Vec<&str> {
    page.split("```yaml\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0)).collect()
}

#[test]
fn the_ten_lines_to_copy_are_ten_lines_and_a_pipeline() {
    let bed = Bed::take();
    for (page, text) in PAGES {
        let first = blocks(text)[0];
        assert!(first.lines().count() <= 10, "{page}");
        for block in blocks(text) {
            let includes = block.contains("include:");
            // The other blocks add to the job of the first one.
            let whole = if includes { block.to_owned() } else { block_for(first, block) };
            let local =
                whole.replace("component: $CI_SERVER_FQDN/platform/dcctl/dcctl@1", "local: templates/dcctl.yml");
            let _ = std::fs::remove_dir_all(bed.file("project"));
            let Some(project) = Project::new(&bed, &format!("stages: [deploy]\n{local}")) else { return };
            let listed = project.pipeline().arg("--preview").run().expect_code(0).stdout;
            assert!(
                listed.contains("dcctl bootstrap demo") || listed.contains("dcctl upgrade demo"),
                "{page}: {listed}"
            );
            assert!(!listed.contains("$[["), "{page}: {listed}");
        }
    }
}

/// A block that adds to a job, below an include of that job.
fn block_for(include: &str, block: &str) -> String {
    let name = block.split_once(':').expect("it begins with the name of a job").0;
    let verb = name.split(' ').next().expect("a verb");
    include
        .replace("job-name: bootstrap demo", &format!("job-name: {name}"))
        .replace("verb: bootstrap", &format!("verb: {verb}"))
        + block
}
