//! An attack on the messages between front and supervisor: whatever arrives in whatever parts, every whole word of a line of
//! its own is heard, in order, and the end is seen.

use super::*;
use std::io::Write;

#[allow(clippy::duplicate_mod, reason = "each target has it for itself, so that no module of the crate is for tests")]
#[path = "../../tests/fuzz/mutate.rs"]
mod mutate;

/// What is to be heard of this: each line that is ended and is a word.
fn words<T: DeserializeOwned + std::fmt::Debug>(input: &[u8]) -> Vec<String> {
    let whole = input.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let lines = input[..whole].split_inclusive(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice::<T>(line).ok()).map(|word| format!("{word:?}")).collect()
}

async fn heard<T: DeserializeOwned + std::fmt::Debug>(input: &[u8], dice: &mut fastrand::Rng) -> Vec<String> {
    let (ours, mut theirs) = StdStream::pair().expect("a socket pair");
    let (mut ear, _mouth) = Link::new(OwnedFd::from(ours)).expect("a socket").split();
    let parts: Vec<usize> = (0..4).map(|_| dice.usize(..=input.len())).collect();
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

#[test]
fn whatever_arrives_every_whole_word_is_heard_and_the_end_is_seen() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    mutate::attack("messages", |input, dice| {
        assert_eq!(runtime.block_on(heard::<Word>(input, dice)), words::<Word>(input));
        assert_eq!(runtime.block_on(heard::<Answer>(input, dice)), words::<Answer>(input));
    });
}
