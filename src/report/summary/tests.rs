//! Summaries of whole journals.

use crate::event::{ProcessOutput, ResourceCompleted, StepOutcome, Stream};
use crate::report::recorded::report;
use crate::report::stories::{self, Story, lines};
use crate::report::summary::{LARGEST, Summary, block, spoken, text};

fn summary(file: &str) -> String {
    report(file.as_bytes(), None, || Box::new(Summary::default())).expect("a journal").0
}

#[test]
fn a_failed_run_says_why_and_what_to_do_before_anything_else() {
    insta::assert_snapshot!(summary(&lines(&stories::failing_apply())));
}

#[test]
fn a_run_that_went_well_is_a_short_page() {
    insta::assert_snapshot!(summary(&lines(&stories::success())));
}

#[test]
fn a_journal_without_a_verdict_says_what_was_last_seen_and_claims_no_end() {
    let file = lines(&stories::stopped());
    let cut = file.match_indices("\"type\":\"process.finished\"").next().expect("it is there").0;
    insta::assert_snapshot!(summary(&file[..cut]));
}

#[test]
fn nothing_that_a_stranger_wrote_is_markdown() {
    for (stranger, escaped) in [
        ("@octocat #7 :tada:", "&#64;octocat &#35;7 &#58;tada:"),
        ("a | b\nc", "a &#124; b c"),
        (
            "<img src=x onerror=y> [a](b) ![c](d) `e`",
            "&#60;img src=x onerror=y&#62; &#91;a&#93;(b) &#33;&#91;c&#93;(d) &#96;e&#96;",
        ),
        ("\u{1b}[31mred\u{1b}[0m \u{202e}back", "red &#91;U+202E&#93;back"),
        (
            "$x$ **b** __c__ ~~d~~ \\e",
            "&#36;x&#36; &#42;&#42;b&#42;&#42; &#95;&#95;c&#95;&#95; &#126;&#126;d&#126;&#126; &#92;e",
        ),
    ] {
        assert_eq!(text(stranger), escaped);
    }
    assert_eq!(spoken("run `dcctl x`, then `y`"), "run <code>dcctl x</code>, then <code>y</code>");
    assert_eq!(spoken("an odd ` one"), "an odd &#96; one");
    assert_eq!(block("a\n```\n</details>"), "\n````text\na\n```\n</details>\n````\n");
    assert_eq!(block("a\n  ::error::b\n##[error]c"), "\n```text\na\n: :error::b\n# #[error]c\n```\n");
}

#[test]
fn a_huge_run_stays_under_the_limit_and_says_what_is_left_out() {
    let mut story = Story::bootstrap();
    story.start(4);
    for index in 0..40_000 {
        let address = format!("module.fleet[\"region-{}\"].demo_object.machine[{index}]", index % 17);
        story.say(ResourceCompleted { address, action: "create".into(), elapsed_ms: 10 });
        if index % 10 == 0 {
            let text = "x".repeat(100);
            story.say(ProcessOutput {
                program: "tofu apply".into(),
                stream: Stream::Stdout,
                text,
                lossy: false,
                more: false,
            });
        }
    }
    story.end(StepOutcome::Done, "", None);
    let page = summary(&lines(&story.finish(|finished| finished.duration_ms = 60_000)));
    assert!(page.len() <= LARGEST, "{}", page.len());
    assert!(page.contains(" more resources are left out here") && page.contains("</details>"));
    assert!(page.trim_end().ends_with("dcctl 0.1.0"), "the end is there");
}
