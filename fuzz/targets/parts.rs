//! In which parts an input arrives: drawn from the input, so that the same file is the same attack.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Lots for this input: each call gives a number up to the one that it is given.
pub(crate) fn of(input: &[u8]) -> impl FnMut(usize) -> usize {
    let mut hash = DefaultHasher::new();
    input.hash(&mut hash);
    let mut dice = fastrand::Rng::with_seed(hash.finish());
    move |most| dice.usize(..=most)
}
