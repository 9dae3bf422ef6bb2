//! Command lines that cannot be read: exit code 2, told wherever the options that could be read say so.

use crate::bed::Bed;
use crate::bed::junit::Report;
use crate::refused::{install, small_bundle, told};

#[test]
fn an_unknown_flag_is_named_with_the_one_that_was_meant() {
    let bed = Bed::take();
    let run = || bed.dcctl(["install", "--bundel", "somewhere"]);
    told(&bed, run, 2, "usage.invalid").never_began().says(&["--bundel", "'--bundle'"]);
    let run = || bed.dcctl(["bootstrap", "prod", "--bundle", "somewhere", "--dryrun"]);
    let said = told(&bed, run, 2, "usage.invalid").never_began().says(&["--dryrun", "'--dry-run'"]);
    let started = &said.events[0]["data"];
    assert_eq!((&started["command"], &started["instance"]), (&"bootstrap".into(), &"prod".into()));
    assert!(said.human.lines().last().is_some_and(|line| line.starts_with("bootstrap prod was refused")));
}

#[test]
fn where_reports_go_is_read_in_every_form_of_a_wrong_command_line() {
    let bed = Bed::take();
    let report = bed.file("reports/dcctl.xml");
    let events = bed.file("events.jsonl");
    let wrong = || bed.dcctl(["install", "--bundel", "somewhere", "--output=jsonl"]);
    let runs = [
        wrong().arg("--junit").arg(&report).arg("--events-file").arg(&events),
        wrong().arg(format!("--junit={}", report.display())).arg(format!("--events-file={}", events.display())),
        wrong().env("DCCTL_JUNIT", &report).env("DCCTL_EVENTS_FILE", &events),
        bed.dcctl(["instal"])
            .env("DCCTL_OUTPUT", "jsonl")
            .arg("--junit")
            .arg(&report)
            .arg("--events-file")
            .arg(&events),
    ];
    for run in runs {
        let finished = run.run().expect_code(2);
        assert_eq!(finished.verdict()["data"]["failure"]["code"], "usage.invalid");
        let written = std::fs::read_to_string(&events).expect("the events file was written");
        assert_eq!(written, finished.stdout.clone() + "\n");
        assert_eq!(Report::read(&report).only_bad().kind, "dcctl.UsageInvalid");
        std::fs::remove_file(&report).and_then(|()| std::fs::remove_file(&events)).expect("they are the test's own");
    }
    // What is typed wins over the environment.
    let other = bed.file("other.xml");
    wrong().env("DCCTL_JUNIT", &other).arg("--junit").arg(&report).run().expect_code(2);
    assert!(report.is_file() && !other.exists());
}

#[test]
fn a_command_that_is_not_a_run_is_told_on_standard_error() {
    let bed = Bed::take();
    for (words, says) in [
        (&["instal"][..], &["`instal` is not a command of dcctl", "'install'"][..]),
        (&[], &["a command is missing", "dcctl help"]),
        (&["lock", "status", "--bogus"], &["--bogus"]),
        (&["explain", "99"], &["`99` is neither an exit code nor a failure code"]),
    ] {
        let finished = bed.dcctl(words).run().expect_code(2);
        assert_eq!(finished.stdout, "", "{words:?}");
        for part in says {
            assert!(finished.stderr.contains(part), "{words:?}: {}", finished.stderr);
        }
        assert!(finished.stderr.ends_with("(usage.invalid, exit code 2)\n"), "{}", finished.stderr);
    }
}

#[test]
fn a_missing_argument_and_a_value_that_is_none_are_named() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let run = |words: &[&str]| bed.dcctl(words);
    told(&bed, || run(&["install"]), 2, "usage.invalid").never_began().says(&["--bundle <DIR|FILE>"]);
    told(&bed, || run(&["bootstrap"]).arg("--bundle").arg(&bundle), 2, "usage.invalid")
        .never_began()
        .says(&["<INSTANCE>"]);
    told(&bed, || install(&bed, &bundle).args(["--stop-after", "5"]), 2, "usage.invalid")
        .never_began()
        .says(&["--stop-after", "`5` is not a duration such as 90s, 20m or 1h30m"]);
    // What is counted from it has to lie within the calendar.
    told(&bed, || install(&bed, &bundle).args(["--stop-after", "99999999h"]), 2, "usage.invalid")
        .never_began()
        .says(&["--stop-after", "`99999999h` is longer than a year, which is 8760h"]);
    told(&bed, || install(&bed, &bundle).env("DCCTL_DRY_RUN", "maybe"), 2, "usage.invalid").never_began().says(&[
        "maybe",
        "--dry-run",
        "DCCTL_DRY_RUN",
    ]);
    told(&bed, || install(&bed, &bundle).env("DCCTL_STOP_AFTER", "5"), 2, "usage.invalid")
        .never_began()
        .says(&["`5` is not a duration", "the value is that of the variable DCCTL_STOP_AFTER"]);
    // What is typed wins, and is named alone.
    let typed = told(
        &bed,
        || install(&bed, &bundle).env("DCCTL_STOP_AFTER", "5m").args(["--stop-after", "6"]),
        2,
        "usage.invalid",
    );
    assert!(!typed.says(&["`6` is not a duration"]).text.contains("DCCTL_STOP_AFTER"));
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let variables = |command: &clap::Command| -> Vec<String> {
        let of_options = command.get_arguments().filter_map(clap::Arg::get_env);
        of_options.map(|name| name.to_str().expect("a name is text").to_owned()).collect()
    };
    let tree = dcctl::cli::command();
    for (verb, run) in
        [("install", install(&bed, &bundle)), ("exec", bed.dcctl(["exec", "--kube-context", "bed", "--", "true"]))]
    {
        let names = variables(tree.find_subcommand(verb).expect("it is a command"));
        assert!(names.len() > 10, "{names:?}");
        let run = names.iter().fold(run, |run, name| run.env(name, ""));
        let finished = run.env("DCCTL_OUTPUT", "").run();
        finished.expect_code(0);
    }
    let status = bed.dcctl(["lock", "status"]).env("DCCTL_KUBECONFIG", "").env("DCCTL_KUBE_CONTEXT", "");
    status.run().expect_code(0);
    // An option that has to be given is missing all the same, and the help names every variable.
    let missing = bed.dcctl(["install"]).env("DCCTL_BUNDLE", "").run().expect_code(2);
    assert!(missing.stdout.contains("--bundle <DIR|FILE>"), "{}", missing.stdout);
    let help = bed.dcctl(["install", "--help"]).env("DCCTL_BUNDLE", "").run().expect_code(0);
    assert!(help.stdout.contains("[env: DCCTL_BUNDLE=]"), "{}", help.stdout);
}

#[test]
fn a_flag_s_variable_switches_it_on_and_off() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    for (value, dry) in [("1", true), ("yes", true), ("true", true), ("0", false), ("no", false), ("False", false)] {
        let run = install(&bed, &bundle).env("DCCTL_DRY_RUN", value).args(["--output", "jsonl"]);
        assert_eq!(run.run().expect_code(0).verdict()["data"]["dry_run"], dry, "{value}");
    }
}

#[test]
fn an_instance_name_that_kubernetes_would_not_take_is_refused() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    for name in ["Prod", "a_b", "-a", "a.b", "a/../b", &"a".repeat(80), ""] {
        let run = || bed.dcctl(["bootstrap", "--bundle"]).arg(&bundle).args(["--", name]);
        let finished = run().args([] as [&str; 0]).run().expect_code(2);
        assert_eq!(finished.verdict()["data"]["failure"]["code"], "usage.invalid", "{name}");
        assert!(finished.verdict()["data"]["failure"]["message"].as_str().is_some_and(|said| said.contains(name)));
    }
    let run = || bed.dcctl(["bootstrap", "Prod", "--bundle"]).arg(&bundle);
    told(&bed, run, 2, "usage.invalid").never_began().says(&["the instance name `Prod`", "lower-case letters"]);
}
