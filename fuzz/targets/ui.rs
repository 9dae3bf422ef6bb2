//! What the reader of OpenTofu's lines makes of whatever arrives as one.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dcctl::step::attack_ui(input));
