//! Recordings, and everything that is made of them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| evenly_trace::exercise(bytes));
