//! What a front and a supervisor make of whatever arrives on the socket between them.
#![no_main]

mod parts;

libfuzzer_sys::fuzz_target!(|input: &[u8]| dcctl::run::attack_messages(input, parts::of(input)));
