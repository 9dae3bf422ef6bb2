//! Journals as they come from disks, pipes and people.

use crate::event::Seen;
use crate::report::human::{Again, Color, Human, Options, Screen, ToolOutput};
use crate::report::junit::{Junit, Suites};
use crate::report::recorded::{Ending, LONGEST, NoJournal, Reporter, report};
use crate::report::stories::{self, lines};

const PLAIN: Options = Options {
    color: Color::Off,
    screen: Screen::Plain,
    width: 100,
    output: ToolOutput::OnFailure,
    again: Again::Nothing,
};

fn human() -> Box<dyn Reporter> {
    Box::new(Human::new(Vec::new(), PLAIN))
}

fn read(file: &[u8], wanted: Option<&str>) -> Result<(String, Ending), NoJournal> {
    report(file, wanted, human)
}

/// The same journal as that of another run.
fn of_run(run: &str, journal: &[Seen]) -> String {
    lines(&journal.iter().map(|seen| Seen { run: run.to_owned(), ..seen.clone() }).collect::<Vec<_>>())
}

fn journals() -> Vec<Vec<Seen>> {
    vec![
        stories::success(),
        stories::failing_apply(),
        stories::refused(),
        stories::blocked(stories::Holder::Renews),
        stories::stopped(),
        stories::partial(),
        stories::dry_run(),
    ]
}

#[test]
fn a_recorded_journal_gives_the_bytes_that_the_live_reports_had() {
    let folder = tempfile::tempdir().expect("a folder");
    for journal in journals() {
        let path = folder.path().join("dcctl.xml");
        let (mut junit, mut log) = (Junit::new(&path), Human::new(Vec::new(), PLAIN));
        for seen in &journal {
            junit.take(seen).expect("written");
            log.take(seen).expect("a vector takes it");
        }
        let file = lines(&journal);
        let recorded = report(file.as_bytes(), None, || Box::new(Suites::default())).expect("a journal").0;
        assert_eq!(recorded.as_bytes(), std::fs::read(&path).expect("a report"));
        assert_eq!(read(file.as_bytes(), None).expect("a journal").0.as_bytes(), log.into_writer());
    }
}

#[test]
fn wherever_a_journal_is_cut_the_reports_claim_no_verdict() {
    let file = lines(&stories::stopped());
    let whole = file.trim_end().len();
    let last_line = file.trim_end().rfind('\n').expect("there are several");
    let ends = file.match_indices('\n').flat_map(|(end, _)| [end, end + 1, end + 2]);
    let cuts = (1..whole).step_by(97).chain(ends).chain((last_line..whole).step_by(7));
    for cut in cuts.filter(|cut| *cut < whole && file.is_char_boundary(*cut)) {
        match read(&file.as_bytes()[..cut], None) {
            Ok((log, ending)) => {
                assert!(!ending.is_over && log.ends_with("its end was not seen\n"), "{cut}: {log}");
                assert!(!log.contains("exit code"), "{cut}: {log}");
            }
            Err(NoJournal::Strange) => assert!(!file[..cut].contains('\n'), "{cut}"),
            Err(error) => panic!("{cut}: {error}"),
        }
    }
    let (_, ending) = read(&file.as_bytes()[..whole], None).expect("a journal");
    assert!(ending.is_over && ending.torn.is_none(), "only the last line feed is missing");
    let (_, ending) = read(&file.as_bytes()[..whole - 1], None).expect("a journal");
    assert!(!ending.is_over && ending.torn.is_some_and(|bytes| bytes > 100));
    assert_eq!(ending.remarks().len(), 1);
}

#[test]
fn a_journal_cut_off_after_everything_went_well_is_no_success() {
    let mut journal = stories::success();
    journal.pop();
    let xml = report(lines(&journal).as_bytes(), None, || Box::new(Suites::default())).expect("a journal").0;
    assert!(xml.contains("the journal ends without a verdict"), "{xml}");
}

#[test]
fn what_is_no_journal_is_refused_and_says_why() {
    assert!(matches!(read(b"", None), Err(NoJournal::Empty)));
    let endless = vec![b'x'; 3 * LONGEST];
    for garbage in [b"\n\n".as_slice(), b"hello\nworld", b"{}\n[]\nnull\n", b"\0\xff\xfe\x80", &endless] {
        assert!(matches!(read(garbage, None), Err(NoJournal::Strange)), "{:?}", String::from_utf8_lossy(garbage));
    }
    let newer = lines(&stories::success()).replace("{\"v\":1,", "{\"v\":2,");
    let refused = read(newer.as_bytes(), None).expect_err("another version");
    assert!(refused.to_string().contains("events of version 2 are not known"), "{refused}");
}

#[test]
fn lines_that_are_no_events_are_left_out_and_counted_and_repeated_ones_are_not_heard_twice() {
    let file = lines(&stories::failing_apply());
    let (log, _) = read(file.as_bytes(), None).expect("a journal");
    let mut mixed = b"\xef\xbb\xbf\nRunning on runner 7\n".to_vec();
    for line in file.split_inclusive('\n') {
        mixed.extend_from_slice(line.as_bytes());
        mixed.extend_from_slice(b"\xff not an event\n");
        mixed.extend_from_slice(line.as_bytes());
    }
    let (mixed, ending) = read(&mixed, None).expect("a journal");
    assert_eq!(mixed, log);
    assert_eq!((ending.strange, ending.missing), (2 + file.lines().count() as u64, 0));
    let without_the_third: String =
        file.split_inclusive('\n').enumerate().filter(|(index, _)| *index != 2).map(|(_, line)| line).collect();
    assert_eq!(read(without_the_third.as_bytes(), None).expect("a journal").1.missing, 1);
}

#[test]
fn of_several_runs_the_last_is_reported_on_unless_another_is_named() {
    let (first, second) = (of_run("aa-first", &stories::success()), of_run("ab-second", &stories::failing_apply()));
    let file = format!("{first}{second}");
    let (log, ending) = read(file.as_bytes(), None).expect("a journal");
    assert_eq!(log, read(second.as_bytes(), None).expect("a journal").0);
    assert_eq!((ending.run.as_str(), ending.others.as_slice()), ("ab-second", ["aa-first".to_owned()].as_slice()));
    assert!(ending.remarks()[0].contains("--run names another: aa-first"));
    let named = read(file.as_bytes(), Some("aa")).expect("a journal").0;
    assert_eq!(named, read(first.as_bytes(), None).expect("a journal").0);
    for (wanted, says) in [("a", "it has aa-first, ab-second"), ("x", "`x` is not the id of one run in it")] {
        let refused = read(file.as_bytes(), Some(wanted)).expect_err("not one").to_string();
        assert!(refused.contains(says), "{refused}");
    }
}

#[test]
fn lines_of_two_runs_that_are_mixed_are_told_apart() {
    let (first, second) = (of_run("aa", &stories::success()), of_run("bb", &stories::stopped()));
    let (mut one, mut other) = (first.split_inclusive('\n'), second.split_inclusive('\n'));
    let mut mixed = String::new();
    loop {
        let (left, right) = (one.next(), other.next());
        if left.is_none() && right.is_none() {
            break;
        }
        mixed.extend([left, right].into_iter().flatten());
    }
    for (run, alone) in [("aa", first), ("bb", second)] {
        let told = read(mixed.as_bytes(), Some(run)).expect("a journal");
        assert_eq!(told.0, read(alone.as_bytes(), None).expect("a journal").0);
    }
}
