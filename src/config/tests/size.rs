//! Bundles that are larger than any that people write: refused in a sentence, and never by waiting.

use std::fmt::Write as _;

use crate::config::tests::{GOOD, Place, demo, given, inputs};

/// A bundle with this many variables, which cost two nodes each.
fn with_variables(count: usize) -> Place {
    let mut text = GOOD
        .replace("vars: { mqtt_port: 1883, site: \"${instance}-site\" }\n", "vars:\n  mqtt_port: 1883\n  site: x\n");
    let (before, after) = text.split_once("verify:").expect("the good bundle has it");
    let after = format!("verify:{after}");
    let variables = (0..count).map(|number| format!("  variable_{number}: 1\n")).collect::<Vec<_>>().concat();
    text = format!("{before}{variables}{after}");
    Place::new(&text)
}

#[test]
fn a_bundle_of_fifty_thousand_keys_is_refused_with_the_budget() {
    let failure = with_variables(50_000).open().expect_err("it is too large");
    assert!(failure.message.contains("more than 20000 keys, values and elements"), "{failure:?}");
    assert!(with_variables(5000).open().is_ok());
}

#[test]
fn a_few_aliases_do_not_make_millions_of_values() {
    let mut bomb = "vars:\n  a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n".to_owned();
    for level in 1..9 {
        let below = level - 1;
        let ten = vec![format!("*a{below}"); 10].join(", ");
        writeln!(bomb, "  a{level}: &a{level} [{ten}]").expect("a String takes every write");
    }
    let failure = Place::new(&format!("{bomb}{GOOD}").replace("vars: { mqtt_port", "other: { mqtt_port")).open();
    let failure = failure.expect_err("it is too large");
    assert!(failure.message.contains("more than 20000 keys, values and elements"), "{failure:?}");
}

#[test]
fn a_long_value_that_is_used_again_and_again_is_refused() {
    let uses = vec!["${var.long}"; 2000].join(" ");
    let text = GOOD.replace("site: \"${instance}-site\"", &format!("site: x, long: {}", "y".repeat(10_000)));
    let text = text.replace("host: \"${instance}.example.com\"", &format!("host: \"{uses}\""));
    let said = Place::new(&text).said(&demo());
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("variables bring in more than 16 MiB"), "{said:?}");
}

#[test]
fn of_many_mistakes_the_first_twenty_are_said_and_the_others_counted() {
    let many = (0..3000).map(|number| format!("${{var.nte{number}}} ")).collect::<Vec<_>>().concat();
    let text = GOOD.replace("host: \"${instance}.example.com\"", &format!("host: \"{many}\""));
    let said = Place::new(&text).said(&demo());
    assert!(said[0].contains("(the first of 3000 mistakes)"), "{}", said[0]);
    assert_eq!((said.len(), said[20].as_str()), (21, "and 2980 more"));
}

#[test]
fn of_many_variables_that_nobody_asks_for_the_first_twenty_are_noted() {
    let place = Place::new(GOOD);
    let file = place.path("vars.yaml");
    let text = (0..3000).map(|number| format!("unknown_{number}: 1\n")).collect::<Vec<_>>().concat();
    std::fs::write(&file, format!("{text}note: \"1\"\n")).expect("a file");
    let mut inputs = demo();
    inputs.given = crate::config::Given::gather(
        &[],
        &[file],
        &crate::config::Environment::of([("DCCTL_VAR_DB_PASSWORD", "hunter2"), ("DCCTL_VAR_ROOT_KEY", "key")]),
    )
    .expect("good variables");
    let bundle = place.open().and_then(|written| written.resolve(&inputs)).expect("it is good");
    assert_eq!(bundle.notes.len(), 21);
    assert_eq!(bundle.notes[20], "the files of --var-file have 2980 more such variables");
    let line: Vec<String> = (0..100).map(|number| format!("unknown_{number}=1")).chain(["note=7".to_owned()]).collect();
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let said = place.said(&inputs_of(&line));
    assert!(said[0].contains("(the first of 100 mistakes)"), "{said:?}");
    let explained = said.iter().filter(|sentence| sentence.contains("it asks for")).count();
    assert!(explained <= 20, "{said:?}");
}

fn inputs_of(line: &[&str]) -> crate::config::Inputs {
    inputs(Some("demo"), given(line, &[]))
}

#[test]
fn commands_and_chart_values_are_told_apart_by_their_names() {
    let command = "{ name: again, run: [sh] }";
    let commands = vec![command; 1000].join(", ");
    let set = (0..1000).map(|number| format!("a{number}.b: 1, ")).collect::<Vec<_>>().concat();
    let text = GOOD
        .replace("verify: [", &format!("verify: [{commands}, "))
        .replace("set: { instance.id", &format!("set: {{ {set} a7: 2, instance.id"));
    let said = Place::new(&text).said(&demo());
    assert!(said[0].contains("(the first of 1000 mistakes)"), "{}", said[0]);
    assert!(
        said.iter().any(|sentence| sentence.contains("set.a7: sets what `instance.chart.set[\"a7.b\"]` sets too")),
        "{said:?}"
    );
}
