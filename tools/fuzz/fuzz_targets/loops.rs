//! See `evenly_fuzz_targets::loops`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| evenly_fuzz_targets::loops(bytes));
