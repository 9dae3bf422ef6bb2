//! The page as text. What a browser makes of it is tested in `tests/html`.

use serde_json::{Value, json};

use crate::report::html::{POLICY, Page, SCRIPT, STYLE};
use crate::report::recorded::report;
use crate::report::stories::{self, lines};

fn page(file: &str) -> String {
    report(file.as_bytes(), None, || Box::new(Page::default())).expect("a journal").0
}

/// What a page carries beside its own template, style and script.
fn data(page: &str) -> Value {
    let data = page.split_once("id=\"data\">").expect("it has data").1.split_once("</script>").expect("it ends").0;
    serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"))
}

/// A failing run in which every string that can come from outside is this one.
fn told_by_a_stranger(text: &str) -> String {
    let failure = json!({"code": text, "message": text, "causes": [text], "hints": [text]});
    let line = |seq: u64, name: &str, data: Value| {
        json!({
            "v": 1, "seq": seq, "time": "2026-11-30T04:15:15.123456Z", "type": name, "level": "info", "msg": text,
            "run": text, "elapsed_ms": seq, "step": text, "data": data,
        })
        .to_string()
    };
    let one = json!({"address": text, "action": text, "elapsed_ms": 1});
    let object = json!({"kind": text, "namespace": text, "name": text, "why": text});
    let steps = json!({"steps": [{"id": text, "title": text}]});
    let events = [
        (
            "run.started",
            json!({
                "schema": text, "schema_version": text, "dcctl": text, "command": text, "instance": text, "server": text,
                "kube_context": text, "holder": text, "run_dir": text, "dry_run": false,
                "ci": {"system": text, "job_url": text}, "bundle": {"name": text, "version": text, "path": text},
            }),
        ),
        ("run.planned", steps),
        ("step.started", json!({"id": text, "title": text, "index": 1, "total": 1})),
        ("process.started", json!({"program": text, "pid": 1})),
        ("process.interrupted", json!({"program": text, "pid": 1, "signal": text, "why": text})),
        ("process.output", json!({"program": text, "stream": "stdout", "text": text})),
        ("resource.failed", one),
        ("object.waiting", object),
        ("signal.received", json!({"signal": text, "effect": "stop"})),
        ("something.new", json!({text: text})),
        (
            "diagnostic",
            json!({
                "severity": "error", "origin": text, "summary": text, "detail": text, "address": text, "source": text,
            }),
        ),
        (
            "step.finished",
            json!({
                "id": text, "title": text, "index": 1, "total": 1, "outcome": "failed", "failure": failure,
                "note": text, "duration_ms": 1,
            }),
        ),
        (
            "run.finished",
            json!({
                "subject": text, "outcome": "failed", "exit_code": 1, "failure": failure, "lock": "left", "holder": text,
                "counts": {"steps": {"done": 0, "failed": 1, "skipped": 0}, "warnings": 0,
                    "resources": {"created": 0, "changed": 0, "destroyed": 0, "failed": 1}},
                "unfinished": [text], "kept": [{"what": text, "path": text}], "next": [text], "duration_ms": 12,
            }),
        ),
    ];
    let numbered = (0..).zip(events).map(|(seq, (name, data))| line(seq, name, data) + "\n");
    numbered.collect()
}

#[test]
fn nothing_that_a_stranger_wrote_is_markup_or_script_or_turns_the_text_around() {
    let own = page(&told_by_a_stranger("harmless"));
    let tags = |page: &str| page.matches('<').count();
    for attack in [
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "\" onmouseover=\"alert(1)\" x='",
        "' onfocus='alert(1)",
        "<!--<script>",
        "]]></style></title></textarea>",
        "{{script}}{{data}}",
        "\u{1b}[31mred\u{1b}[0m\u{1b}]0;title\u{7} \u{9b}31m \u{85}",
        "\u{202e}gnp.exe \u{2066}a\u{2069} \u{200f} \u{2028}",
        "javascript:alert(1)",
        "a\n::error::b ##[error]c",
        "&lt;&#60;&amp;",
        "\0 \u{fffd} \u{ffff}",
    ] {
        let page = page(&told_by_a_stranger(attack));
        assert_eq!(tags(&page), tags(&own), "{attack:?}");
        let without = page.replace(SCRIPT, "");
        let strange = |letter: char| {
            letter.is_control() && letter != '\n' && letter != '\t'
                || matches!(letter, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        assert!(!without.contains(strange), "{attack:?}");
        assert!(!without.contains("href=\"javascript:") && !without.contains("##") && !without.contains("\n::"));
        let data = data(&page);
        // Of a type that is not known everything is kept as it was.
        let kept = data["rows"].as_array().expect("rows").iter().find_map(|row| row.get(3)?.get(attack)).cloned();
        assert_eq!(kept, Some(Value::from(attack)));
    }
}

#[test]
fn the_page_loads_nothing_and_allows_nothing_but_its_own_style_and_script() {
    let page = page(&lines(&stories::failing_apply()));
    assert!(POLICY.starts_with("default-src 'none';") && !POLICY.contains("unsafe") && !POLICY.contains("http"));
    let head = page.split_once("Content-Security-Policy").expect("a policy");
    assert!(!head.0.contains("<script") && !head.0.contains("<style"), "the policy comes first");
    let without = page.replace(STYLE, "").replace(SCRIPT, "");
    for loads in [" src=", "@import", "url(", " style=\"", " onclick", "<iframe", "<object"] {
        assert!(!without.contains(loads) && !STYLE.contains(loads), "{loads}");
    }
    let hrefs = without.split("href=\"").skip(1).map(|rest| rest.split('"').next().expect("it ends"));
    let outside: Vec<&str> = hrefs.filter(|href| !href.starts_with('#') && *href != "data:,").collect();
    assert_eq!(outside, Vec::<&str>::new());
}

#[test]
fn every_event_is_in_the_page_with_its_whole_text_and_what_it_carries() {
    for journal in [stories::success(), stories::failing_apply(), stories::stopped(), stories::refused()] {
        let data = data(&page(&lines(&journal)));
        let rows = data["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), journal.len());
        for (row, seen) in rows.iter().zip(&journal) {
            let kind = &data["kinds"][usize::try_from(row[1].as_u64().expect("a number")).expect("small")];
            assert_eq!(kind[0], seen.type_name);
            assert!(!row[2].as_str().expect("a text").is_empty());
        }
        assert_eq!(data["jumps"], json!([[0, 0]]));
    }
}

#[test]
fn a_page_tells_failure_lock_and_what_to_do_without_its_script() {
    let page = page(&lines(&stories::failing_apply()));
    let static_part = page.split_once("id=\"data\"").expect("it has data").0;
    for says in [
        "<h1>bootstrap demo failed</h1>",
        "exit code 1",
        "<code>infrastructure.failed</code>",
        "the lock was released",
        "What to do now",
        "OpenTofu could not apply infra/instance",
        "The quota of this project is exceeded",
        "module.broker.demo_object.replica[&quot;eu-west&quot;]",
        "tofu apply",
    ] {
        assert!(static_part.contains(says), "{says}");
    }
}

#[test]
fn a_page_of_a_journal_without_a_verdict_claims_none() {
    let file = lines(&stories::stopped());
    let cut = file.match_indices("\"type\":\"process.finished\"").next().expect("it is there").0;
    let page = page(&file[..cut]);
    let static_part = page.split_once("id=\"data\"").expect("it has data").0;
    let body = static_part.split_once("<main>").expect("a body").1;
    assert!(body.contains("bootstrap demo: the journal ends without a verdict"), "{body}");
    assert!(body.contains("was not seen to be given back") && body.contains("its end was not seen"));
    assert!(body.contains("the last line is torn after"));
    for claims in ["exit code", "succeeded", " failed<", "was stopped", "released"] {
        assert!(!body.contains(claims), "{claims}");
    }
}

/// The journals that the tests in a browser look at are these stories, as `DCCTL_BLESS=1` (`make docs`) wrote them.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test that may rewrite its expectation is asked to by its environment")]
fn journals_for_the_browser_are_current() {
    let bless = std::env::var_os("DCCTL_BLESS").is_some_and(|value| value == "1");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/html/journals");
    let stopped = lines(&stories::stopped());
    let cut = stopped.match_indices("\"type\":\"process.finished\"").next().expect("it is there").0;
    for (name, wanted) in [
        ("succeeded", lines(&stories::success())),
        ("failed", lines(&stories::failing_apply())),
        ("cut-off", stopped[..cut].to_owned()),
        ("stopped", stopped),
        ("partial", lines(&stories::partial())),
        ("blocked", lines(&stories::blocked(stories::Holder::LooksStale))),
        ("refused", lines(&stories::refused())),
    ] {
        let path = folder.join(format!("{name}.jsonl"));
        if bless {
            std::fs::write(&path, wanted).expect("the checkout can be written");
        } else {
            let there = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(there == wanted, "{} is not what the story says; run `make docs` and commit it", path.display());
        }
    }
}
