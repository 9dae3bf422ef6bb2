//! One run's lock from beginning to end, second by second.

use super::*;
use crate::lock::protocol::script::{answer, at, failure, request, seconds, word};
use crate::lock::protocol::{Answer, Ask};
use crate::lock::store::Trouble;

/// One run's lock, played by hand.
struct Play {
    life: Life,
    clock: u64,
    /// The request under way.
    ask: Option<Ask>,
}

impl Play {
    fn new() -> Play {
        Play { life: Life::new(request(), Timing::STANDARD), clock: 0, ask: None }
    }

    /// A run that has claimed the lock at second 0.
    fn holding() -> Play {
        let mut play = Play::new();
        assert_eq!(play.give(Input::Claim), "create");
        assert_eq!(play.say("stored"), "claimed");
        play
    }

    /// Gives one input at the present second and says in words what is done.
    fn give(&mut self, input: Input) -> String {
        let effects = self.life.advance(input, at(self.clock));
        let words: Vec<String> = effects.into_iter().map(|effect| self.word(effect)).collect();
        words.join(" ")
    }

    fn word(&mut self, effect: Effect) -> String {
        match effect {
            Effect::Ask(ask) => {
                assert!(self.ask.is_none(), "one request at a time");
                let said = word(&ask);
                self.ask = Some(ask);
                said
            }
            Effect::Claimed(Ok(_)) => "claimed".to_owned(),
            Effect::Claimed(Err(error)) => format!("not claimed: {error}"),
            Effect::Checked(many, Ok(())) => format!("{many} may begin"),
            Effect::Checked(many, Err(lost)) => format!("{many} may not: {}", lost_word(&lost)),
            Effect::Tell(Change::Renewed { sent_at, .. }) => format!("renewed@{}", seconds(sent_at)),
            Effect::Tell(Change::RenewalFailed { age, .. }) => format!("failed@{}", age.as_secs()),
            Effect::Tell(Change::Lost(lost)) => format!("lost: {}", lost_word(&lost)),
            Effect::Tell(Change::Releasing { uid }) => format!("releasing {uid}"),
            Effect::Tell(Change::Waiting { act, why: Waits::NoAnswer(failure) }) => {
                format!("{act:?} waits: {}", failure.message).to_lowercase()
            }
            Effect::Tell(Change::Waiting { act, why: Waits::LateClaim { look_at } }) => {
                format!("{act:?} looks@{}", seconds(look_at)).to_lowercase()
            }
            Effect::Released(released) => format!("{released:?}").split('(').next().unwrap_or_default().to_lowercase(),
        }
    }

    /// Answers the request under way. A read that is answered `ours` finds what was written last.
    fn say(&mut self, answer_word: &str) -> String {
        let ask = self.ask.take().expect("something is under way");
        self.give(Input::Answer(answer(&ask, answer_word)))
    }

    fn tick(&mut self, clock: u64) -> String {
        self.clock = clock;
        self.give(Input::Tick)
    }

    fn due(&self) -> Option<u64> {
        self.life.due().map(seconds)
    }
}

fn lost_word(lost: &Lost) -> String {
    match lost {
        Lost::Taken { by } => format!("taken by {by}"),
        Lost::Gone => "gone".to_owned(),
        Lost::Expired { age, .. } => format!("expired {}", age.as_secs()),
        Lost::Unsure { age, .. } => format!("unsure {}", age.as_secs()),
        Lost::Broken(failure) => failure.message.clone(),
    }
}

fn note(key: &str) -> Input {
    Input::Note(BTreeMap::from([(key.to_owned(), Some("x".to_owned()))]))
}

#[test]
fn the_lock_is_renewed_every_ten_seconds() {
    let mut play = Play::holding();
    for second in [10, 20, 30] {
        assert_eq!(play.due(), Some(second));
        assert_eq!(play.tick(second - 1), "");
        assert_eq!(play.tick(second), "read");
        assert_eq!(play.say("ours"), "renew");
        assert_eq!(play.say("stored"), format!("renewed@{second}"));
    }
}

#[test]
fn a_failed_renewal_is_tried_again_after_1_2_and_4_seconds_and_at_the_next_period() {
    let mut play = Play::holding();
    play.tick(10);
    let mut tried = Vec::new();
    for _ in 0..8 {
        play.say("unsent");
        let due = play.due().expect("it goes on");
        tried.push(due);
        play.tick(due);
    }
    assert_eq!(tried, [11, 13, 17, 20, 21, 23, 27, 30]);
}

#[test]
fn the_fence_falls_sixty_seconds_after_the_last_good_renewal_was_sent() {
    let mut play = Play::holding();
    play.tick(10);
    play.say("ours");
    // The reply is slow: what counts is when the request was sent.
    play.clock = 14;
    assert_eq!(play.say("stored"), "renewed@10");
    play.tick(20);
    play.say("unsent");
    assert_eq!(play.tick(69), "read");
    assert_eq!(play.due(), Some(70), "while a request is under way too");
    assert_eq!(play.tick(70), "lost: expired 60");
    assert_eq!(play.say("ours"), "", "a late answer changes nothing");
    assert_eq!(play.due(), None);
    assert_eq!(play.give(Input::Check), "1 may not: expired 60");
}

#[test]
fn a_late_answer_does_not_raise_a_fence_that_has_fallen() {
    let mut play = Play::holding();
    play.tick(10);
    play.say("ours");
    // The machine slept for five minutes; the renewal had been done.
    play.clock = 310;
    assert_eq!(play.say("stored"), "lost: expired 310");
    assert_eq!(play.give(Input::Release), "lost");
}

#[test]
fn a_check_asks_the_api_server() {
    let mut play = Play::holding();
    play.clock = 3;
    assert_eq!(play.give(Input::Check), "read");
    assert_eq!(play.say("ours"), "1 may begin");
    assert_eq!(play.due(), Some(10), "a check does not put off the renewal");
    play.give(Input::Check);
    assert_eq!(
        play.say("other"),
        "1 may not: taken by bob@laptop/9912/3a7f000000000000 lost: taken by bob@laptop/9912/3a7f000000000000"
    );
    assert_eq!(play.give(Input::Release), "lost");
}

#[test]
fn a_check_without_an_answer_falls_back_to_what_the_last_renewal_proved() {
    for (second, expected) in [(9, "failed@9 1 may begin"), (29, "failed@29 1 may begin")] {
        let mut play = Play::holding();
        play.clock = second;
        assert_eq!(play.give(Input::Check), "read");
        assert_eq!(play.say("unclear"), expected);
    }
    let mut play = Play::holding();
    play.clock = 30;
    play.give(Input::Check);
    assert_eq!(play.say("unclear"), "failed@30 1 may not: unsure 30");
    // Ours, but too old: only a good renewal makes it firm again.
    play.clock = 32;
    play.give(Input::Check);
    assert_eq!(play.say("ours"), "renew");
    assert_eq!(play.say("refused"), "failed@32 1 may not: unsure 32");
    play.clock = 34;
    play.give(Input::Check);
    play.say("ours");
    assert_eq!(play.say("stored"), "renewed@34 1 may begin");
}

#[test]
fn a_check_is_answered_by_a_request_that_was_sent_after_it() {
    let mut play = Play::holding();
    assert_eq!(play.tick(10), "read");
    assert_eq!(play.give(Input::Check), "", "a read is under way, but it was sent before");
    assert_eq!(play.give(Input::Check), "");
    assert_eq!(play.say("ours"), "renew");
    assert_eq!(play.say("stored"), "renewed@10 read");
    assert_eq!(play.say("ours"), "2 may begin");
}

#[test]
fn notes_are_written_at_once_and_once() {
    let mut play = Play::holding();
    play.clock = 4;
    assert_eq!(play.give(note("step")), "read");
    assert_eq!(play.give(note("children")), "");
    assert_eq!(play.say("ours"), "renew");
    let Some(Ask::Replace(record)) = &play.ask else { panic!("it writes") };
    assert_eq!((record.note("step"), record.note("children")), (Some("x"), Some("x")));
    assert_eq!(play.say("stored"), "renewed@4");
    assert_eq!(play.due(), Some(14));
}

#[test]
fn a_note_that_comes_while_the_replace_is_under_way_is_written_by_the_next() {
    let mut play = Play::holding();
    play.tick(10);
    assert_eq!(play.say("ours"), "renew");
    assert_eq!(play.give(note("step")), "");
    assert_eq!(play.say("stored"), "renewed@10 read");
}

#[test]
fn a_renewal_without_an_answer_counts_once_a_read_shows_it() {
    let mut play = Play::holding();
    play.tick(10);
    play.say("ours");
    let Some(Ask::Replace(written)) = play.ask.take() else { panic!("it writes") };
    let unclear = Trouble::Unclear(failure("time-out"));
    play.clock = 15;
    assert_eq!(play.give(Input::Answer(Answer::Replaced(Err(unclear)))), "failed@15");
    assert_eq!(play.tick(16), "read");
    play.ask = None;
    let found = Answer::Read(Ok(Some(written)));
    assert_eq!(play.give(Input::Answer(found)), "renewed@10 renew", "and it is renewed all the same");
}

#[test]
fn a_clock_that_jumped_makes_the_run_ask_at_once() {
    let mut play = Play::holding();
    play.tick(3);
    // The machine stood still from outside: five minutes by the wall, one second by its own clock.
    let mut now = at(304);
    now.boot = at(4).boot;
    let effects = play.life.advance(Input::Tick, now);
    assert_eq!(effects, [Effect::Ask(Ask::Read)]);
}

#[test]
fn a_release_deletes_what_is_held() {
    let mut play = Play::holding();
    play.clock = 5;
    assert_eq!(play.give(Input::Release), "releasing uid-1 delete");
    assert_eq!(play.say("gone"), "deleted");
    assert_eq!(play.due(), None);
    assert_eq!(play.give(Input::Check), "1 may not: the lock was given back already");
    assert_eq!(play.give(Input::Claim), "not claimed: the claim was given up");
}

#[test]
fn a_release_waits_for_the_renewal_under_way() {
    let mut play = Play::holding();
    play.tick(10);
    assert_eq!(play.give(Input::Release), "", "the read is still under way");
    assert_eq!(play.say("ours"), "releasing uid-1 delete", "and no replace follows it");

    let mut play = Play::holding();
    play.tick(10);
    play.say("ours");
    assert_eq!(play.give(Input::Release), "");
    assert_eq!(play.say("stored"), "renewed@10 releasing uid-1 delete");

    let mut play = Play::holding();
    play.tick(10);
    play.say("ours");
    play.give(Input::Release);
    assert_eq!(play.say("unclear"), "failed@10 releasing uid-1 read", "what became of it is read first");
}

#[test]
fn a_check_that_waits_is_answered_when_the_lock_is_given_back() {
    let mut play = Play::holding();
    play.tick(10);
    play.give(Input::Check);
    play.give(Input::Release);
    assert_eq!(play.say("ours"), "releasing uid-1 delete 1 may not: the lock was given back already");
}

#[test]
fn a_claim_can_be_given_up_in_the_middle() {
    // Its answer comes, and it was won: it is given back.
    let mut play = Play::new();
    play.give(Input::Claim);
    assert_eq!(play.give(Input::Release), "");
    assert_eq!(play.say("stored"), "claimed releasing uid-1 delete");
    // Its answer comes, and it was not.
    let mut play = Play::new();
    play.give(Input::Claim);
    play.give(Input::Release);
    assert_eq!(play.say("exists"), "not claimed: the claim was given up nevertaken");
    // No answer comes: it is looked for ten seconds after it was sent.
    let mut play = Play::new();
    play.give(Input::Claim);
    play.clock = 2;
    play.give(Input::Release);
    play.clock = 5;
    assert_eq!(play.say("unclear"), "claim waits: unclear not claimed: the claim was given up release looks@10");
    assert_eq!(play.due(), Some(10));
    assert_eq!(play.tick(10), "read");
    assert_eq!(play.say("ours"), "delete");
    assert_eq!(play.say("gone"), "deleted");
}

#[test]
fn a_claim_that_waits_is_given_up_at_once() {
    let mut play = Play::new();
    play.give(Input::Claim);
    assert_eq!(play.say("unsent"), "claim waits: unsent");
    assert_eq!(play.due(), Some(1));
    assert_eq!(play.give(Input::Release), "not claimed: the claim was given up nevertaken");
}

#[test]
fn a_lease_that_turned_out_ours_while_the_claim_was_given_up_is_given_back() {
    let mut play = Play::new();
    play.give(Input::Claim);
    play.say("exists");
    play.give(Input::Release);
    assert_eq!(play.say("ours"), "not claimed: the claim was given up read");
    assert_eq!(play.say("ours"), "delete");
}

#[test]
fn a_claim_may_be_tried_again_and_keeps_what_is_in_doubt() {
    let mut play = Play::new();
    play.give(Input::Claim);
    play.clock = 5;
    play.say("unclear");
    assert_eq!(play.say("other"), "not claimed: the cluster is locked by another run");
    play.clock = 7;
    assert_eq!(play.give(Input::Claim), "create");
    assert_eq!(play.say("exists"), "read");
    play.say("other");
    assert_eq!(play.life.stake(), Stake::Something);
    assert_eq!(play.give(Input::Release), "release looks@10", "the first claim is still looked for");
    assert_eq!(play.due(), Some(10));
}

#[test]
fn a_run_has_one_lock() {
    let mut play = Play::holding();
    assert!(play.give(Input::Claim).starts_with("not claimed"));
    let mut play = Play::new();
    play.give(Input::Claim);
    assert!(play.give(Input::Claim).starts_with("not claimed"));
}

#[test]
fn nothing_may_begin_before_the_claim() {
    let mut play = Play::new();
    assert_eq!(play.give(Input::Check), "1 may not: the lock was not claimed yet");
    play.give(Input::Claim);
    assert_eq!(play.give(Input::Check), "1 may not: the lock was not claimed yet");
}

#[test]
fn a_run_that_never_claimed_has_nothing_to_give_back() {
    assert_eq!(Play::new().give(Input::Release), "nevertaken");
}

#[test]
fn notes_from_before_the_claim_are_in_it() {
    let mut play = Play::new();
    play.give(note("step"));
    play.give(Input::Claim);
    let Some(Ask::Create(draft)) = &play.ask else { panic!("it creates") };
    assert_eq!(draft["metadata"]["annotations"]["dcctl.devicechain.io/step"], "x");
}

#[test]
fn a_claim_in_doubt_is_looked_for_also_after_the_lock_of_a_later_one_was_lost() {
    let mut play = Play::new();
    play.give(Input::Claim);
    play.clock = 5;
    assert_eq!(play.say("unclear"), "claim waits: unclear read");
    assert_eq!(play.say("none"), "create");
    assert_eq!(play.say("stored"), "claimed");
    play.give(Input::Check);
    play.say("none");
    assert_eq!(play.life.stake(), Stake::Something);
    assert_eq!(play.give(Input::Release), "release looks@10");
    assert_eq!(play.tick(10), "read");
    assert_eq!(play.say("ours-elsewhere"), "delete:uid-2");
    assert_eq!(play.say("gone"), "lost");
}

#[test]
fn what_a_release_waits_for_is_told() {
    let mut play = Play::holding();
    play.clock = 5;
    play.give(Input::Release);
    assert_eq!(play.say("unclear"), "release waits: unclear read");
    assert_eq!(play.say("unsent"), "release waits: unsent");
    assert_eq!(play.due(), Some(6));
    assert_eq!(play.tick(6), "read");
    assert_eq!(play.say("none"), "deleted");
}

#[test]
fn a_wreck_may_do_nothing_and_is_given_back() {
    for (target, answers, end) in [
        (Target::Nothing, ["", "ours"], "delete"),
        (Target::Nothing, ["", "none"], "nevertaken"),
        (Target::Unseen, ["ours", "gone"], "release looks@10"),
        (Target::Unseen, ["none", "none"], "alreadygone"),
    ] {
        let bug = failure("a bug");
        let life = Life::wrecked(request(), Timing::STANDARD, (bug, target), at(0));
        let mut play = Play { life, clock: 0, ask: None };
        assert_eq!((play.life.fence(), play.life.stake()), (None, Stake::Something));
        assert_eq!(play.give(Input::Check), "1 may not: a bug");
        let mut said = play.give(Input::Release);
        for answer in answers {
            if play.ask.is_none() {
                said = play.tick(10);
            }
            if !answer.is_empty() {
                said = play.say(answer);
            }
        }
        assert_eq!(said, end);
    }
}

/// A process that goes on, at second 30, with what another one of the same run has left.
fn inheriting(estate: &Estate) -> Play {
    Play { life: Life::inherit(request(), Timing::STANDARD, estate, at(30)), clock: 30, ask: None }
}

fn held_since(second: u64) -> Play {
    inheriting(&Estate::Held { uid: "uid-1".to_owned(), renewed_at: at(second).boot })
}

#[test]
fn a_lock_that_is_inherited_is_renewed_at_once_and_then_as_ever() {
    let mut play = held_since(25);
    assert_eq!((play.life.stake(), play.tick(30)), (Stake::Something, "read".to_owned()));
    assert_eq!(play.say("ours"), "renew");
    // The last request of the other one may have landed between the two.
    assert_eq!(play.say("conflict"), "read");
    assert_eq!(play.say("ours"), "renew");
    assert_eq!(play.say("stored"), "renewed@30");
    assert_eq!(play.due(), Some(40));
    assert_eq!(play.give(Input::Release), "releasing uid-1 delete");
    assert_eq!(play.say("gone"), "deleted");
}

#[test]
fn the_deadline_of_an_inherited_lock_counts_from_the_renewal_of_the_one_before() {
    let mut play = held_since(10);
    play.tick(30);
    play.say("unsent");
    assert_eq!(play.tick(69), "read");
    assert_eq!(play.tick(70), "lost: expired 60");
    assert_eq!(
        inheriting(&Estate::Held { uid: "uid-1".to_owned(), renewed_at: at(0).boot }).tick(61),
        "lost: expired 61"
    );
}

#[test]
fn an_inherited_lock_that_is_another_s_by_now_is_lost() {
    for (seen, said) in [
        ("other", "lost: taken by bob@laptop/9912/3a7f000000000000"),
        ("ours-elsewhere", "lost: gone"),
        ("none", "lost: gone"),
        ("free", "lost: gone"),
    ] {
        let mut play = held_since(25);
        play.tick(30);
        assert_eq!(play.say(seen), said, "{seen}");
        assert!(play.give(Input::Release).starts_with("lost"), "{seen}");
    }
}

#[test]
fn an_inherited_lock_that_nobody_has_seen_yet_is_looked_at_before_it_is_given_back() {
    let mut play = held_since(25);
    assert_eq!(play.give(Input::Release), "releasing uid-1 read");
    assert_eq!(play.say("ours"), "delete");
    assert_eq!(play.say("gone"), "deleted");
    let mut play = held_since(25);
    play.give(Input::Release);
    assert_eq!(play.say("none"), "alreadygone");
}

#[test]
fn a_claim_that_may_still_land_is_looked_for_ten_seconds_after_its_sender_ended() {
    let mut play = inheriting(&Estate::Asked);
    assert_eq!(play.life.stake(), Stake::Something);
    assert_eq!(play.give(Input::Release), "release looks@40");
    assert_eq!(play.tick(40), "read");
    assert_eq!(play.say("ours"), "delete");
    assert_eq!(play.say("gone"), "deleted");
    let mut play = inheriting(&Estate::Asked);
    play.give(Input::Release);
    play.tick(40);
    assert_eq!(play.say("other"), "nevertaken", "it was another's all the while");
}

#[test]
fn a_lock_that_was_being_given_back_is_given_back() {
    for (seen, said) in [("none", "deleted"), ("other", "deleted"), ("ours", "delete")] {
        let mut play = inheriting(&Estate::Returning);
        assert_eq!(play.give(Input::Release), "read");
        assert_eq!(play.say(seen), said, "{seen}");
    }
}
