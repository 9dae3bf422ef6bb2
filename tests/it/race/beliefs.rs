//! When the runs of a round took themselves to have the right to act, as they noted it themselves: each asked, time and
//! again, what a step asks before it writes, and noted the moments right before and right after a yes.
//!
//! All of them read the one clock of this machine, whatever they were told of its having been suspended. A run gets the
//! lock once, so it has it from its first yes to its last one, and if one's time overlaps another's, then there was a
//! moment at which both would have written.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The time of one run: its first yes was there at the latest then, and its last one was still given then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    begin: u64,
    end: u64,
}

/// The runs that ever had the right, by their ids.
#[derive(Debug, Default)]
pub(super) struct Beliefs(BTreeMap<String, Span>);

impl Beliefs {
    /// What is in this file, which is not there when nobody ever had it.
    pub(super) fn read(path: &Path) -> Beliefs {
        Beliefs::of(&fs::read_to_string(path).unwrap_or_default())
    }

    fn of(text: &str) -> Beliefs {
        let mut spans: BTreeMap<String, Span> = BTreeMap::new();
        // A line is one write, and a killed run tears none of another.
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [run, before, after] = words[..] else { panic!("{line} is no note of a run") };
            let moment = |word: &str| word.parse::<u64>().expect("nanoseconds");
            let (before, after) = (moment(before), moment(after));
            let span = spans.entry(run.to_owned()).or_insert(Span { begin: after, end: before });
            *span = Span { begin: span.begin.min(after), end: span.end.max(before) };
        }
        Beliefs(spans)
    }

    /// How many runs ever had it.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Two that had it at once, if any did.
    pub(super) fn overlap(&self) -> Option<String> {
        // One yes alone may have been given at any moment between its two.
        let mut spans: Vec<(Span, &String)> = self.0.iter().map(|(run, span)| (*span, run)).collect();
        spans.retain(|(span, _)| span.begin < span.end);
        spans.sort_by_key(|(span, _)| span.begin);
        let mut pairs = spans.windows(2);
        pairs.find(|pair| pair[1].0.begin < pair[0].0.end).map(|pair| format!("{pair:?}"))
    }
}

#[test]
fn two_whose_times_overlap_are_seen_and_one_after_the_other_is_none() {
    let one_by_one = "a 10 11\na 20 21\nb 30 31\nb 40 41\n";
    assert_eq!((Beliefs::of(one_by_one).len(), Beliefs::of(one_by_one).overlap()), (2, None));
    // The first one wakes when the second one is at work, and is asked again.
    assert!(Beliefs::of(&format!("{one_by_one}a 35 36\n")).overlap().is_some());
    // It was asked before it stood still, and noted the answer when it woke: that is no yes of that moment.
    assert_eq!(Beliefs::of(&format!("{one_by_one}a 22 36\n")).overlap(), None);
}
