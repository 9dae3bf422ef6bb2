//! An attack on the messages between front and supervisor: whatever arrives in whatever parts, every whole word of a line of
//! its own is heard, in order, and the end is seen.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;

use crate::run::link::{Answer, Link, Word};

#[cfg(test)]
#[allow(clippy::duplicate_mod, reason = "each target has it for itself, so that no module of the crate is for tests")]
#[path = "../../tests/fuzz/mutate.rs"]
mod mutate;

/// What is to be heard of this: each line that is ended and is a word.
fn words<T: DeserializeOwned + std::fmt::Debug>(input: &[u8]) -> Vec<String> {
    let whole = input.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let lines = input[..whole].split_inclusive(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice::<T>(line).ok()).map(|word| format!("{word:?}")).collect()
}

async fn heard<T: DeserializeOwned + std::fmt::Debug>(
    input: &[u8],
    lot: &mut impl FnMut(usize) -> usize,
) -> Vec<String> {
    let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
    let (mut ear, _mouth) = Link::new(OwnedFd::from(ours)).expect("a socket").split();
    let parts: Vec<usize> = (0..4).map(|_| lot(input.len())).collect();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        let mut rest = &input[..];
        for part in parts {
            let (now, later) = rest.split_at(part.min(rest.len()));
            theirs.write_all(now).expect("it is read");
            rest = later;
        }
        theirs.write_all(rest).expect("it is read");
    });
    let mut heard = Vec::new();
    while let Some(word) = ear.next::<T>().await {
        heard.push(format!("{word:?}"));
    }
    writer.join().expect("it writes all");
    assert!(ear.next::<T>().await.is_none(), "nothing comes after the end");
    heard
}

/// Lets this arrive in parts, as what a front hears and as what a supervisor does. A lot is a number up to the one that it
/// is given.
///
/// # Panics
/// When a whole word is not heard, another one is, or the end is not seen.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "only the fuzzers are outside"))]
pub fn check(input: &[u8], mut lot: impl FnMut(usize) -> usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    assert_eq!(runtime.block_on(heard::<Word>(input, &mut lot)), words::<Word>(input));
    assert_eq!(runtime.block_on(heard::<Answer>(input, &mut lot)), words::<Answer>(input));
}

#[test]
fn whatever_arrives_every_whole_word_is_heard_and_the_end_is_seen() {
    mutate::attack("messages", |input, dice| check(input, |most| dice.usize(..=most)));
}
