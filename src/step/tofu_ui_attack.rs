//! An attack on the reader of OpenTofu's lines: whatever comes, the account of it holds together, and neither a state nor
//! the command of a `local-exec` is handed on from a line that is whole.

use serde_json::Value;

use crate::process::{self, Sign, Stream};
use crate::step::Update;
use crate::step::tofu_ui::{Heard, LOCAL_EXEC, Ui, may_be_secret, signs};

#[cfg(test)]
#[allow(clippy::duplicate_mod, reason = "each target has it for itself, so that no module of the crate is for tests")]
#[path = "../../tests/fuzz/mutate.rs"]
mod mutate;

/// What the corpus has in places that are never handed on.
const SECRET: &str = "DO-NOT-SAY-THIS";

/// The longest piece of a line that the process room hands on, in bytes.
const PIECE: usize = 8 * 1024;

/// The updates of a process that prints this, long lines in pieces.
fn printed(input: &[u8]) -> Vec<process::Update> {
    let mut updates = Vec::new();
    for line in input.split(|byte| *byte == b'\n') {
        let mut parts = line.chunks(PIECE).peekable();
        while let Some(part) = parts.next() {
            let (text, more) = (String::from_utf8_lossy(part).into_owned(), parts.peek().is_some());
            updates.push(process::Update::Line { stream: Stream::Stdout, lossy: false, text, more });
        }
    }
    updates
}

/// Whether what is secret in this line is only where OpenTofu has it in the two cases in which a line carries secrets.
fn keeps_its_secret(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    if !line.contains(SECRET) {
        return true;
    }
    let Ok(mut said) = serde_json::from_str::<Value>(&line) else { return may_be_secret(&line) };
    let is_secret =
        said.get("state").is_some_and(|state| !state.is_null()) || said["diagnostic"]["summary"] == LOCAL_EXEC;
    for place in ["/state", "/diagnostic/detail"] {
        if let Some(value) = said.pointer_mut(place) {
            *value = Value::Null;
        }
    }
    line.starts_with("{\"@") && is_secret && !said.to_string().contains(SECRET)
}

/// Reads this as what OpenTofu printed.
///
/// # Panics
/// When the account of it does not hold together, or a secret is handed on.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "only the fuzzers are outside"))]
pub fn check(input: &[u8]) {
    let mut ui = Ui::default();
    let (mut handed_on, mut begun) = (String::new(), 0);
    for update in printed(input) {
        if let process::Update::Line { text, .. } = &update {
            begun += u64::from(signs(text) == Some(Sign::Opened));
        }
        match ui.take(update) {
            Heard::Text(update) => handed_on.push_str(&format!("{update:?}")),
            Heard::Said(said) => {
                for update in &said {
                    let Update::Resource { elapsed, .. } = update else { continue };
                    assert!(elapsed.is_none_or(|elapsed| elapsed.as_secs() < u64::MAX), "{update:?}");
                }
                handed_on.push_str(&format!("{said:?}"));
            }
        }
    }
    // Of two keys of the same name the one reader refuses the line and the other may not.
    assert!(ui.started() <= begun + 64, "{} begun, and {begun} signs of it", ui.started());
    assert!(ui.started() >= ui.making().len() as u64);
    assert!(ui.unfinished().len() as u64 <= ui.started() + ui.heard, "more is unfinished than was ever spoken of");
    let only_where_secret = input.split(|byte| *byte == b'\n').all(keeps_its_secret);
    assert!(!only_where_secret || !handed_on.contains(SECRET), "a secret was handed on");
}

#[test]
fn whatever_opentofu_prints_the_account_of_it_holds_together_and_secrets_stay_in_it() {
    mutate::attack("ui", |input, _| check(input));
}
