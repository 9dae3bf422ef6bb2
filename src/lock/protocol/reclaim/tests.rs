//! Reclaims, word by word: each row is what the API server answered and what the person did, and what came of it.

mod search;

use serde_json::json;

use super::*;
use crate::lock::protocol::script::{self, at, request, seconds, word};

/// The Lease as the person saw it: `same`. The same holder once more with a later renewal: `renewed`; with the same one:
/// `edited`; another holder: `third`. Everything else as in [`script`].
fn lease(name: &str) -> Record {
    let (base, version) = match name {
        "same" => return script::lease("other"),
        "renewed" | "edited" | "going" => ("other", "8"),
        "third" => ("other", "9"),
        "again" => ("other-elsewhere", "10"),
        other => return script::lease(other),
    };
    let mut raw = script::lease(base).json().clone();
    raw["metadata"]["resourceVersion"] = json!(version);
    match name {
        "renewed" | "again" => raw["spec"]["renewTime"] = json!("2026-11-30T00:53:20.000000Z"),
        "going" => raw["metadata"]["deletionTimestamp"] = json!("2026-11-30T00:53:20Z"),
        "third" => raw["spec"]["holderIdentity"] = json!("carol@desk/1/0123456789abcdef"),
        _ => {}
    }
    Record::from_json(raw).expect("whole")
}

fn answer(ask: &Ask, name: &str) -> Answer {
    let leases = ["same", "renewed", "edited", "third", "going", "again"];
    match ask {
        Ask::Read if leases.contains(&name) => Answer::Read(Ok(Some(lease(name)))),
        ask => script::answer(ask, name),
    }
}

fn end(end: &End) -> String {
    match end {
        End::Free { kept_by } => format!("free{}", kept_by.concat()),
        End::BeingDeleted(_) => "being deleted".to_owned(),
        End::Mistyped(_) => "mistyped".to_owned(),
        End::Interrupted => "interrupted".to_owned(),
        End::GivenBack => "given back".to_owned(),
        End::Refused(Changed::Renewed(_)) => "refused: renewed".to_owned(),
        End::Refused(Changed::Hands(_)) => "refused: hands".to_owned(),
        End::Refused(Changed::Edited(_)) => "refused: edited".to_owned(),
        End::NotTaken(why) => format!("not taken: {}", why.message),
        End::Unknown { holder, .. } => format!("unknown: {holder}"),
        End::Reclaimed(Released::Deleted) => "reclaimed".to_owned(),
        End::Reclaimed(released) => format!("reclaimed, {released:?}").split('(').next().expect("it is there").into(),
    }
}

/// Plays a script. `type` types the holder and `typo` something else, `stop` interrupts, `quiet` answers that nothing has
/// changed until the window is over, and says nothing. Every answer takes a second, every wait as long as it says.
fn reclaim(script: &str) -> String {
    let (mut machine, mut effects) = Reclaim::begin(request(), Timing::STANDARD);
    let mut words = script.split_whitespace().peekable();
    let (mut said, mut clock, mut asked) = (Vec::new(), 0, None);
    loop {
        let quiet = words.peek() == Some(&"quiet") && matches!(machine.state, State::Watching(_));
        for effect in effects {
            let word = match effect {
                Effect::Ask(ask) => word(asked.insert(ask)),
                Effect::Show(_) => "show".to_owned(),
                Effect::Tell(Progress::Unchanged { .. } | Progress::Unseen { .. }) => continue,
                Effect::Tell(Progress::Checking(window)) => format!("check({})", window.length().as_secs()),
                Effect::Tell(progress) => format!("{progress:?}").to_lowercase(),
                Effect::Ended(ended) => {
                    assert_eq!(words.next(), None, "the script goes on after the end: {said:?}");
                    said.push(end(&ended));
                    return said.join(" ");
                }
            };
            said.extend((!quiet || word.starts_with("check")).then_some(word));
        }
        let input = match (&asked, words.peek().copied()) {
            (_, Some("stop")) => {
                words.next();
                Input::Interrupted
            }
            (Some(_), Some("quiet")) if !quiet => {
                words.next();
                effects = Vec::new();
                continue;
            }
            (Some(ask), Some(name)) => {
                clock += 1;
                let input = Input::Answer(answer(ask, if quiet { "same" } else { name }));
                asked = None;
                words.next_if(|_| !quiet);
                input
            }
            (Some(_), None) => return said.join(" "),
            (None, name) => match (machine.due(), name) {
                (Some(due), _) => {
                    said.extend((!quiet).then(|| format!("+{}", seconds(due).saturating_sub(clock))));
                    clock = clock.max(seconds(due));
                    Input::Tick
                }
                (None, Some(name)) => {
                    words.next();
                    let ends = if name == "type" { "0" } else { "1" };
                    Input::Typed(format!("bob@laptop/9912/3a7f00000000000{ends}"))
                }
                (None, None) => return said.join(" "),
            },
        };
        effects = machine.advance(input, at(clock));
    }
}

/// The rows, each after the same beginning, which is left out of what is expected.
fn table(beginning: &str, rows: &[(&str, &str)]) {
    let begun = reclaim(beginning);
    for (script, expected) in rows {
        let said = reclaim(&format!("{beginning} {script}"));
        assert_eq!(said.strip_prefix(&begun).map(str::trim), Some(*expected), "after: {script}\n{said}");
    }
}

#[test]
fn the_whole_way_asks_confirms_watches_takes_and_gives_back() {
    assert_eq!(reclaim("same type same quiet stored gone"), "read show read check(65) taking take delete reclaimed");
}

#[test]
fn what_is_seen_first_decides_whether_there_is_anything_to_ask() {
    table(
        "",
        &[
            ("same", "show"),
            ("none", "free"),
            ("free", "free"),
            ("free-deleting", "freeexample.com/keep"),
            ("other-deleting", "being deleted"),
            ("unclear", "+1 read"),
            ("unsent same", "+1 read show"),
            ("unclear unclear unclear unclear", "+1 read +2 read +4 read not taken: unclear"),
            ("forbidden", "not taken: forbidden"),
            ("refused", "not taken: refused"),
            ("stop", "interrupted"),
        ],
    );
}

#[test]
fn only_the_holder_typed_exactly_goes_on_and_only_over_what_was_shown() {
    table(
        "same",
        &[
            ("type", "read"),
            ("typo", "mistyped"),
            ("stop", "interrupted"),
            ("type same", "read check(65) +5 read"),
            ("type renewed", "read refused: renewed"),
            ("type edited", "read refused: edited"),
            ("type third", "read refused: hands"),
            ("type again", "read refused: renewed"),
            ("type going", "read being deleted"),
            ("type none", "read given back"),
            ("type free", "read given back"),
            ("type unclear same", "read +1 read check(65) +5 read"),
            ("type forbidden", "read not taken: forbidden"),
            ("type stop", "read interrupted"),
            ("type unclear stop", "read interrupted"),
        ],
    );
}

#[test]
fn any_change_in_the_window_ends_it_and_a_look_that_fails_is_taken_again() {
    table(
        "same type same",
        &[
            ("same same", "+5 read +5 read"),
            ("same renewed", "+5 read refused: renewed"),
            ("edited", "refused: edited"),
            ("third", "refused: hands"),
            ("again", "refused: renewed"),
            ("going", "being deleted"),
            ("none", "given back"),
            ("free", "given back"),
            ("unclear unsent same", "+1 read +2 read +5 read"),
            ("forbidden", "not taken: forbidden"),
            ("refused", "not taken: refused"),
            ("unclear stop", "interrupted"),
        ],
    );
    assert_eq!(reclaim("same type same stop"), "read show read check(65) interrupted");
}

/// The last look is sent when the window is over, not before, and it is that one whose answer counts.
#[test]
fn the_last_look_is_sent_at_the_end_of_the_window() {
    let looks = "same ".repeat(10);
    let said = reclaim(&format!("same type same {looks}"));
    // The first answer came at second 2, so the window ends at second 67. Each of ten looks took a second.
    let looked = " +5 read".repeat(10);
    assert_eq!(said, format!("read show read check(65){looked} +5 read"));
    assert!(reclaim(&format!("same type same {looks} same")).ends_with("read taking take"));
    assert!(reclaim(&format!("same type same {looks} renewed")).ends_with("read refused: renewed"));
    // One that fails at the very end is taken again, and does not count.
    assert!(reclaim(&format!("same type same {looks} unclear same")).ends_with("read +1 read taking take"));
}

#[test]
fn an_api_server_that_stays_away_ends_it_a_minute_after_the_window() {
    let said = reclaim(&format!("same type same {}", "unclear ".repeat(26)));
    assert!(said.ends_with("not taken: unclear"), "{said}");
    let waited: u64 = said.split('+').skip(1).filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum();
    assert!((90..=140).contains(&waited), "{waited} s: {said}");
}

#[test]
fn a_window_is_the_longer_of_both_validities_and_never_absurd() {
    let window = |seconds: serde_json::Value| {
        let mut raw = lease("same").json().clone();
        raw["spec"]["leaseDurationSeconds"] = seconds;
        let window = Window::of(&Record::from_json(raw).expect("whole"), Timing::STANDARD);
        (window.length().as_secs(), window.claimed.map(|claimed| claimed.as_secs()))
    };
    assert_eq!(window(json!(null)), (65, None));
    assert_eq!(window(json!(1)), (65, None));
    assert_eq!(window(json!(60)), (65, None));
    assert_eq!(window(json!(90)), (95, None));
    assert_eq!(window(json!(600)), (605, None));
    assert_eq!(window(json!(601)), (605, Some(601)));
    assert_eq!(window(json!(i32::MAX)), (605, Some(2_147_483_647)));
}

#[test]
fn every_answer_to_the_take_is_settled_by_what_the_lease_says() {
    table(
        "same type same quiet",
        &[
            ("stored", "delete"),
            // Somebody wrote in the last instant: whoever it was, the claim is live.
            ("conflict renewed", "read refused: renewed"),
            ("conflict third", "read refused: hands"),
            ("conflict edited", "read refused: edited"),
            ("conflict none", "read given back"),
            ("conflict free", "read given back"),
            // The take itself, sent twice on the way.
            ("conflict ours gone", "read delete reclaimed"),
            ("unclear ours gone", "unanswered read delete reclaimed"),
            ("unclear same", "unanswered read take"),
            ("unclear same stored gone", "unanswered read take delete reclaimed"),
            ("unclear same conflict ours gone", "unanswered read take read delete reclaimed"),
            ("unclear same unclear renewed", "unanswered read take read refused: renewed"),
            ("unclear renewed", "unanswered read refused: renewed"),
            ("unclear none", "unanswered read given back"),
            ("unclear unclear ours gone", "unanswered read +1 read delete reclaimed"),
            ("unclear forbidden", "unanswered read unknown: alice@build-01/48213/00000000000a11ce"),
            ("unclear same forbidden same", "unanswered read take read take"),
            ("unsent", "+1 take"),
            ("unsent stored gone", "+1 take delete reclaimed"),
            ("unsent unsent unsent unsent", "+1 take +2 take +4 take not taken: unsent"),
            ("forbidden", "not taken: forbidden"),
            ("terminating", "not taken: terminating"),
            ("refused", "not taken: refused"),
        ],
    );
}

#[test]
fn what_stays_unsettled_is_looked_at_late_enough_and_then_said() {
    table(
        "same type same quiet",
        &[
            // Five takes without an answer, and ten seconds after the last of them it still has not landed.
            (
                "unclear same unclear same unclear same unclear same unclear same same",
                "unanswered read take read take read take read take read +8 read not taken: unclear",
            ),
            (
                "unclear same unclear same unclear same unclear same unclear same ours gone",
                "unanswered read take read take read take read take read +8 read delete reclaimed",
            ),
            (
                "unclear unclear unclear unclear unclear unclear unclear unclear",
                "unanswered read +1 read +2 read +4 read +4 read +4 read +4 read unknown: \
                 alice@build-01/48213/00000000000a11ce",
            ),
            (
                "conflict same conflict same conflict same conflict same conflict same",
                "read take read take read take read take read not taken: a change of the lock's Lease \
                 was not accepted, time and again",
            ),
        ],
    );
}

#[test]
fn an_interrupt_stops_everything_before_the_take_and_nothing_after_it() {
    table(
        "same type same quiet",
        &[
            ("stop stored gone", "finishing delete reclaimed"),
            ("stop conflict renewed", "finishing read refused: renewed"),
            ("stop unsent", "finishing interrupted"),
            ("stop forbidden", "finishing interrupted"),
            ("unsent stop", "interrupted"),
            // It may still land, so it is looked at late enough, and not sent again.
            ("stop unclear same same", "finishing unanswered read +8 read interrupted"),
            ("unclear stop same same", "unanswered read finishing +8 read interrupted"),
            ("unclear stop same ours gone", "unanswered read finishing +8 read delete reclaimed"),
            ("unclear same stop unsent same same", "unanswered read take finishing read +8 read interrupted"),
            ("stored stop gone", "delete finishing reclaimed"),
        ],
    );
}

#[test]
fn what_came_of_giving_it_back_is_the_end() {
    table(
        "same type same quiet stored",
        &[
            ("gone", "reclaimed"),
            ("absent", "reclaimed, AlreadyGone"),
            ("kept", "reclaimed, Left"),
            ("conflict third", "read reclaimed, NotOurs { holder: Some"),
            ("forbidden stored", "empty reclaimed, Emptied"),
            ("unclear none", "read reclaimed"),
            ("unclear ours gone", "read delete reclaimed"),
        ],
    );
}

#[test]
fn the_lock_changes_hands_once_and_the_count_never_overflows() {
    let take = |transitions: i64| {
        let mut raw = lease("same").json().clone();
        raw["spec"]["leaseTransitions"] = json!(transitions);
        let seen = Record::from_json(raw).expect("whole");
        let (mut machine, _) = Reclaim::begin(request(), Timing::STANDARD);
        machine.begin_take(seen, at(0));
        let taken = machine.effects.into_iter().find_map(|effect| match effect {
            Effect::Ask(Ask::Replace(record)) => Some(record),
            _ => None,
        });
        let taken = taken.expect("it takes");
        (taken.transitions(), taken.uid().to_owned(), taken.version().to_owned())
    };
    assert_eq!(take(3), (4, "uid-1".to_owned(), "7".to_owned()));
    assert_eq!(take(i64::from(i32::MAX)).0, i32::MAX);
}

/// What can be typed is what can be seen: a holder with characters that a terminal would act on is shown without them.
#[test]
fn what_has_to_be_typed_is_what_was_shown() {
    let mut raw = lease("same").json().clone();
    raw["spec"]["holderIdentity"] = json!("mallory\u{1b}[2J");
    let holder = Record::from_json(raw).expect("whole");
    for (line, accepted) in [("mallory\u{fffd}[2J", true), ("mallory\u{1b}[2J", false), ("", false), ("mallory", false)]
    {
        let (mut machine, _) = Reclaim::begin(request(), Timing::STANDARD);
        machine.advance(Input::Answer(Answer::Read(Ok(Some(holder.clone())))), at(0));
        let effects = machine.advance(Input::Typed(line.to_owned()), at(1));
        assert_eq!(effects == [Effect::Ask(Ask::Read)], accepted, "{line:?}: {effects:?}");
    }
}
