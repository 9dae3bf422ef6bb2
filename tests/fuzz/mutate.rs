//! Seeded fuzzing: inputs of a kept corpus, cut, spliced, repeated and spoilt by lot, until a check panics.
//!
//! The corpora are beside this file, a folder for each target. Every input in them is checked as it is; then a fixed number of
//! mutants is, which takes seconds. `DCCTL_SOAK=1` makes it ten minutes (`DCCTL_FUZZ_SECONDS=N` another time).
//! What failed is printed with its seed: `DCCTL_SEED=N` checks that mutant alone. An input that has found a bug is added to its
//! corpus. Compiled into the unit tests of what it attacks, because none of that is open to the outside.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use fastrand::Rng;

use crate::clock::{Clock, System};

/// Where `fuzz/run --keep` keeps what coverage led to.
const FOUND: &str = "found.base64";

/// Mutants of one run of the tests.
const FEW: u64 = 1_000;

/// How long a target is attacked when there is time.
const LONG: Duration = Duration::from_secs(600);

/// The longest mutant, in bytes: more than two blocks of what follows an output.
const LONGEST: usize = 160 * 1024;

/// What breaks readers of text, and of what OpenTofu and the link say.
const TOKENS: [&[u8]; 20] = [
    b"\n",
    b"\r",
    b"\r\n",
    b"\0",
    b"\x1b[31m",
    b"\x1b]0;",
    b"\x1b",
    b"\xff\xfe",
    b"\xf0\x9f\x92",
    b"\xc2\x9b",
    b"{",
    b"}",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"\"type\":\"apply_start\"",
    b"\"type\":\"apply_complete\"",
    b"\"state\":",
    b"99999999999999999999",
];

/// One attack at work; if it is dropped by a panic it says how to have the same again.
struct Attack {
    target: &'static str,
    seed: Option<u64>,
    input: Vec<u8>,
}

impl Drop for Attack {
    #[expect(clippy::print_stderr, reason = "a test says how to have its failure again")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed =
                self.seed.map_or_else(|| "as it is in the corpus".to_owned(), |seed| format!("DCCTL_SEED={seed}"));
            eprintln!(
                "{}: {seed}, {} bytes: {:?}",
                self.target,
                self.input.len(),
                String::from_utf8_lossy(&self.input)
            );
        }
    }
}

/// Attacks one target. The check gets an input and lots of its own, and panics when something is wrong. A long attack says
/// how many inputs there were.
#[expect(clippy::print_stderr, reason = "how much an attack is worth is told by its inputs")]
pub(crate) fn attack(target: &'static str, check: impl Fn(&[u8], &mut Rng)) {
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "there is no corpus for {target}");
    let play = |seed: Option<u64>, input: Vec<u8>| {
        let attack = Attack { target, seed, input };
        check(&attack.input, &mut Rng::with_seed(seed.unwrap_or(0)));
    };
    if let Some(seed) = number("DCCTL_SEED") {
        play(Some(seed), mutant(&corpus, seed));
        return;
    }
    for input in &corpus {
        play(None, input.clone());
    }
    let until = soak().map(|long| System.now() + long);
    let base = if until.is_some() { fastrand::u64(..1 << 40) } else { 0 };
    let mut played = 0;
    while until.map_or(played < FEW, |until| System.now() < until) {
        play(Some(base + played), mutant(&corpus, base + played));
        played += 1;
    }
    if until.is_some() {
        eprintln!("{target}: {played} mutants of {} inputs, from DCCTL_SEED={base} on", corpus.len());
    }
}

/// How long it is to take; none for a fixed number.
#[expect(clippy::disallowed_methods, reason = "the tests' own setting")]
fn soak() -> Option<Duration> {
    env::var_os("DCCTL_SOAK")?;
    Some(number("DCCTL_FUZZ_SECONDS").map_or(LONG, Duration::from_secs))
}

#[expect(clippy::disallowed_methods, reason = "the tests' own setting")]
fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target);
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).expect("it is in the repository").flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().flat_map(|file| inputs(file)).collect()
}

/// The input in a file, or those in the one that holds what coverage led to, a line for each.
fn inputs(file: &Path) -> Vec<Vec<u8>> {
    let text = fs::read(file).expect("it is in the repository");
    if file.file_name().is_none_or(|name| name != FOUND) {
        return vec![text];
    }
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| BASE64.decode(line).expect("each line is base64")).collect()
}

fn mutant(corpus: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut dice = Rng::with_seed(seed);
    let mut input = corpus[dice.usize(..corpus.len())].clone();
    for _ in 0..dice.usize(1..8) {
        mutate(&mut input, corpus, &mut dice);
    }
    input.truncate(LONGEST);
    input
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], dice: &mut Rng) {
    let at = dice.usize(..=input.len());
    let until = at + dice.usize(..=(input.len() - at).min(200));
    match dice.u8(..9) {
        0 => drop(input.drain(at..until)),
        1 => {
            let token = TOKENS[dice.usize(..TOKENS.len())];
            drop(input.splice(at..at, token.iter().copied()));
        }
        2 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << dice.u8(..8);
            }
        }
        3 => {
            let part = input[at..until].to_vec();
            drop(input.splice(at..at, part));
        }
        4 => {
            let other = &corpus[dice.usize(..corpus.len())];
            let from = dice.usize(..=other.len());
            drop(input.splice(at..until, other[from..].iter().copied()));
        }
        5 => input.truncate(at),
        6 => {
            let run = vec![dice.u8(..); dice.usize(..20_000)];
            drop(input.splice(at..at, run));
        }
        7 => {
            // Whole lines change places.
            let mut lines: Vec<Vec<u8>> = input.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            dice.shuffle(&mut lines);
            *input = lines.concat();
        }
        _ => {
            let noise: Vec<u8> = (0..dice.usize(..64)).map(|_| dice.u8(..)).collect();
            drop(input.splice(at..until, noise));
        }
    }
}
