//! What the follower of outputs makes of whatever a tool prints.
#![no_main]

mod parts;

libfuzzer_sys::fuzz_target!(|input: &[u8]| dcctl::process::attack_output(input, parts::of(input)));
